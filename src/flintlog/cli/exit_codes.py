"""What a command's exit code says; scripts depend on these numbers."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum

from flintlog import errors


class ExitCode(IntEnum):
    """The codes of every command."""

    FINE = 0
    FINDINGS = 1
    USAGE = 2
    CANNOT_READ = 3
    STORE_IN_USE = 4
    PARTIAL = 5
    UNEXPECTED = 70
    INTERRUPTED = 130


MEANINGS: Mapping[ExitCode, str] = {
    ExitCode.FINE: "Done, and nothing is wrong.",
    ExitCode.FINDINGS: "Done, and there is something to look at: findings, logs that part, something to repair.",
    ExitCode.USAGE: "The command was not understood, or an option, a filter or a message cannot be; nothing was done.",
    ExitCode.CANNOT_READ: "The directory is no store, cannot be read, or the disk or another node refused; "
    "or a repair would have done harm and was taken back.",
    ExitCode.STORE_IN_USE: "Another process runs the store.",
    ExitCode.PARTIAL: "A part was done or shown: damage was stepped over, or some of the input was refused.",
    ExitCode.UNEXPECTED: "A defect of flintlog; FLINTLOG_TRACEBACK=1 shows where.",
    ExitCode.INTERRUPTED: "Interrupted from the keyboard.",
}
"""What each says, for the reference."""


_BY_ERROR: tuple[tuple[type[errors.FlintlogError], ExitCode], ...] = (
    (errors.StoreInUse, ExitCode.STORE_IN_USE),
    (errors.InvalidConfig, ExitCode.USAGE),
    (errors.InvalidFilter, ExitCode.USAGE),
    (errors.InvalidMessage, ExitCode.USAGE),
    (errors.InvalidOffset, ExitCode.USAGE),
    (errors.ServiceNotEnabled, ExitCode.USAGE),
    (errors.MissingExtra, ExitCode.USAGE),
)


def exit_code_of(error: errors.FlintlogError) -> ExitCode:
    """The code for an error: what the caller asked wrongly is 2, what the store or the disk refused is 3 or 4."""
    for kind, code in _BY_ERROR:
        if isinstance(error, kind):
            return code
    return ExitCode.CANNOT_READ
