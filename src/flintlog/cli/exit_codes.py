"""The exit codes of all commands; scripts depend on these numbers."""

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
    ExitCode.FINDINGS: "Done, and there is something to look at: findings, logs that differ, something to repair.",
    ExitCode.USAGE: "The command was not understood, or an option, a filter or a message is invalid; nothing was done.",
    ExitCode.CANNOT_READ: "The directory is no store, cannot be read, or the disk or another node refused; "
    "or a repair did harm and was undone.",
    ExitCode.STORE_IN_USE: "Another process runs the store.",
    ExitCode.PARTIAL: "A part was done or shown: damage was skipped, or some of the input was refused.",
    ExitCode.UNEXPECTED: "A defect of flintlog; FLINTLOG_TRACEBACK=1 shows where.",
    ExitCode.INTERRUPTED: "Interrupted from the keyboard.",
}
"""What each code means, for the reference."""


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
    """The code for an error: 2 for a wrong request, 3 or 4 when the store or the disk refused."""
    for kind, code in _BY_ERROR:
        if isinstance(error, kind):
            return code
    return ExitCode.CANNOT_READ
