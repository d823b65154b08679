"""One session of `flintlog shell`: runs lines one after the other, and remembers the first that failed."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterable
from difflib import get_close_matches

import click

from flintlog.cli.exit_codes import ExitCode
from flintlog.cli.group import COMMANDS, root
from flintlog.cli.main import complain, run
from flintlog.cli.shell.words import EXIT, HELP, WORDS, Target, command_of, meaning


class Session:
    """Runs lines. An error is one line on standard error, and the next line runs all the same."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self.first_failure: int = ExitCode.FINE
        self.is_over = False

    def run_all(self, lines: Iterable[str]) -> int:
        """Run lines until one says `exit` or is interrupted; returns the first exit code that is not 0."""
        for line in lines:
            if self.run(line) == ExitCode.INTERRUPTED:
                return ExitCode.INTERRUPTED
            if self.is_over:
                break
        return self.first_failure

    def run(self, line: str) -> int:
        """Run one line; returns its exit code."""
        code = self._run(line)
        sys.stdout.flush()  # before the next line's errors
        self.first_failure = self.first_failure or code
        return code

    def _run(self, line: str) -> int:
        try:
            words = shlex.split(line)
        except ValueError as error:  # a quotation mark without its partner
            return _refuse(f"{error} in {line.strip()!r}")
        if not words or words[0].startswith("#"):
            return ExitCode.FINE
        name, *rest = words
        if name == EXIT:
            self.is_over = True
            return ExitCode.FINE
        if name == HELP:
            return _help(rest)
        if name not in WORDS:
            return _refuse(_unknown(name))
        return run(self._target.line(meaning(name, rest), rest).arguments, is_one_line=True)


def _refuse(text: str) -> ExitCode:
    complain(text)
    return ExitCode.USAGE


def _unknown(name: str) -> str:
    if name in COMMANDS:
        return f"{name} is no word here: run `flintlog {name}` outside; `help` lists the words"
    near = get_close_matches(name, [*WORDS, HELP, EXIT], n=1)
    hint = f"did you mean {near[0]}?" if near else "`help` lists them"
    return f"no word is called {name}; {hint}"


def _help(names: list[str]) -> int:
    """Write a line for each word, or one word's options."""
    formatter = click.Context(root).make_formatter()
    if not names:
        usages = [(f"{name} {word.usage}".strip(), word.about) for name, word in WORDS.items()]
        own = [
            (f"{HELP} [WORD]", "Say what the words do, or which options one has."),
            (EXIT, "Leave; Ctrl-D does too."),
        ]
        formatter.write_dl([*usages, *own])
    elif names[0] in WORDS:
        word = WORDS[names[0]]
        command = command_of(word)
        formatter.write(f"{names[0]} {word.usage}".strip() + f": {word.about}\n")
        command.format_options(click.Context(command), formatter)
    else:
        return _refuse(_unknown(names[0]))
    sys.stdout.write(formatter.getvalue())
    return ExitCode.FINE
