"""The program `flintlog`: runs a command and turns its result or error into an exit code.

Only the modules that the command needs are imported: `flintlog --version` must not wait for the store, and a missing
optional package must be one clear sentence.
"""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from flintlog.cli.exit_codes import ExitCode, exit_code_of
from flintlog.errors import FlintlogError, MissingExtra

_NO_ROOM_FOR_OUTPUT = frozenset({errno.ENOSPC, errno.EFBIG, errno.EDQUOT, errno.EIO})
_EXTRAS = {"click": "cli", "rich": "cli", "pyarrow": "spark", "pyspark": "spark", "prompt_toolkit": "cli"}
"""The extra that brings a package. Jobs on Spark import pyarrow themselves; columns name `flintlog[arrow]`."""


def main() -> None:
    """Entry point of the console script."""
    _prepare_streams()
    asked = os.environ.get("_FLINTLOG_COMPLETE")
    sys.exit(run(sys.argv[1:]) if asked is None else _complete(asked))


def _prepare_streams() -> None:
    """Send closed streams to /dev/null; escape characters that the encoding lacks."""
    sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - until the process ends
    sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _complete(instruction: str) -> int:
    """Answer a shell that asks for completions, without ever printing an error."""
    try:
        from flintlog.cli.completion import answer

        return answer(instruction)
    except Exception:  # noqa: BLE001 - a traceback would be printed into the line that the user types
        return ExitCode.UNEXPECTED


def run(arguments: Sequence[str], given: object = None, *, is_one_line: bool = False) -> int:
    """Run one command line; returns its exit code and prints errors to standard error. The command gets `given`.

    With `is_one_line` wrong usage is one line too, as every other error is.
    """
    try:
        return _run_command(arguments, given, is_one_line)
    except FlintlogError as error:
        complain(f"{error.code}: {error}")
        return exit_code_of(error)
    except BrokenPipeError:
        _give_up_output()  # the reader (`head`) has closed the pipe
        return ExitCode.FINE
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except OSError as error:
        if error.errno not in _NO_ROOM_FOR_OUTPUT:
            return _report_unexpected(error)
        _give_up_output()
        complain(f"cannot write the output: {error.strerror}")
        return ExitCode.UNEXPECTED
    except Exception as error:  # noqa: BLE001 - the last line of defence: scripts get 70, people the reason
        return _report_unexpected(error)


def _give_up_output() -> None:
    """Send standard output to /dev/null: Python would report the error again when it closes the stream."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run_command(arguments: Sequence[str], given: object, is_one_line: bool) -> int:
    try:
        import click

        from flintlog.cli.group import root
    except ModuleNotFoundError as error:
        _name_extra(error)
    try:
        # Not `root.main`: when the reader closes the pipe, it would end the process with 1, which means findings.
        with root.make_context("flintlog", list(arguments), obj=given) as context:
            code = root.invoke(context)
        sys.stdout.flush()
        return code if isinstance(code, int) else ExitCode.FINE
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.Abort:
        return ExitCode.INTERRUPTED
    except click.ClickException as error:
        if is_one_line:
            complain(" ".join(error.format_message().split()))
        else:
            error.show()
        return ExitCode.USAGE
    except ModuleNotFoundError as error:
        _name_extra(error)


def _name_extra(error: ModuleNotFoundError) -> NoReturn:
    """Raise `MissingExtra` for a package that an extra brings, otherwise the error itself."""
    extra = _EXTRAS.get(error.name or "")
    if extra is None:
        raise error
    raise MissingExtra(f"this command needs {error.name}", advice=f"pip install 'flintlog[{extra}]'") from error


def _report_unexpected(error: Exception) -> int:
    if os.environ.get("FLINTLOG_TRACEBACK"):
        import traceback

        traceback.print_exception(error)
    reason = f"{type(error).__name__}: {error}"
    complain(f"unexpected error: {reason} (set FLINTLOG_TRACEBACK=1 to see where)")
    return ExitCode.UNEXPECTED


def complain(text: str) -> None:
    """Write an error, one line, to standard error."""
    sys.stderr.write(f"flintlog: {text}\n")


if __name__ == "__main__":
    main()
