"""Runs what a page shows: a reader who types it gets what is printed there.

A page runs from its top to its end in one empty directory. Of its blocks

    python      share a namespace; the block `output` right behind one is what it prints
    console     has commands behind `$ ` and below each what it says on a terminal of 120 columns, remarks and errors
                last. `flintlog` runs in this process, anything else in a shell. `$ echo $?` is the exit code of the
                last one; without that line a command must end with 0
    text        is no code: a drawing, a usage line, the content of a file
    anything    behind a comment `<!-- not run: the reason -->` is left out

In what is printed `…` stands for any part of a line, and alone in a line for any lines. Times, durations, message ids
and names made from the time differ from run to run and are compared by their form; so are spaces and rules, whose
width follows from them. Every other number must be the one that is shown.

`<!-- given: CASE/PATH as NAME -->` copies a directory of `tests/golden`, which the real RocketMQ wrote, to NAME.

A store that a page opens without a configuration gets small files: with the default sizes an empty one takes
gigabytes. That is the only thing done behind the page's back.

FLINTLOG_WRITE_PAGES=1 writes what was printed into the page; look at the difference before it is committed.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import flintlog
from flintlog import StoreConfig
from flintlog.cli import main
from flintlog.testing import SMALL_FILES

ROOT = Path(__file__).parents[1]
Golden = Callable[[str], Path]
LANGUAGES = frozenset({"python", "output", "console", "text"})

_BLOCK = re.compile(
    r"(?:^<!-- not run: (?P<reason>[^\n]+?) -->\n)?^```(?P<language>\w*)\n(?P<code>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
_CHANGING = (
    (re.compile(r"\b\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|\b)"), "<time>"),
    (re.compile(r"\b20\d\d-?\d\d-?\d\d\b"), "<day>"),
    (re.compile(r"\b[0-9A-F]{32}\b"), "<message id>"),
    (re.compile(r"\b20\d{12}(?:\d{3})?\b|\b20\d{6}[T-]\d{6}Z?\b"), "<named by time>"),
    (re.compile(r"\b\d+(?:[.,]\d+)* ?(?:µs|ms|s|seconds)\b"), "<duration>"),
    (re.compile(r"[─━]+"), "─"),
    (re.compile(r"[ \t]+"), " "),
)
_GIVEN = re.compile(r"^<!-- given: (?P<case>\w+)/(?P<path>[\w/]+) as (?P<name>[\w/-]+) -->$", re.MULTILINE)
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_COLUMNS = 120
_QUOTED = re.compile(r"""'[^']*'|"[^"$`]*\"""")
_SHELL = re.compile(r"[|<>;&$*`]")


@dataclass(frozen=True, slots=True)
class Block:
    """One block of a page."""

    language: str
    code: str
    line: int
    reason_not_to_run: str | None
    start: int
    """Where its code begins in the page."""


def read_blocks(text: str) -> list[Block]:
    """All blocks of a page."""
    return [
        Block(
            match["language"],
            match["code"],
            text[: match.start("code")].count("\n") + 1,
            match["reason"],
            match.start("code"),
        )
        for match in _BLOCK.finditer(text)
    ]


def is_as_shown(shown: str, printed: str) -> bool:
    """Whether what was printed is what a page shows, but for what changes from run to run."""
    pattern = []
    for line in _normal(shown).split("\n"):
        if line == "…":
            pattern.append(r"(?:[^\n]*\n)*")
        else:
            pattern.append(r"[^\n]*".join(map(re.escape, line.split("…"))) + r"\n")
    return re.fullmatch("".join(pattern), _normal(printed) + "\n") is not None


def _normal(text: str) -> str:
    for pattern, name in _CHANGING:
        text = pattern.sub(name, text)
    lines = (line.strip() for line in text.split("\n"))
    return "\n".join(line for line in lines if line)


class _Terminal(io.StringIO):
    """Standard output of a command as a person sees it: lines are folded, and there are colours, which are dropped."""

    def isatty(self) -> bool:
        return True


class PageRun:
    """One page, run in a directory of its own."""

    def __init__(self, page: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, golden: Golden) -> None:
        self._page = page
        self._golden = golden
        self._folder = folder
        self._namespace: dict[str, object] = {"__name__": "__main__"}
        self._last_code = 0
        self._written: list[tuple[int, str, str]] = []
        self._prepare(monkeypatch)

    def _prepare(self, monkeypatch: pytest.MonkeyPatch) -> None:
        open_store = flintlog.open_store

        def with_small_files(path: str, config: StoreConfig | None = None, **options: Any) -> flintlog.Store:  # noqa: ANN401
            return open_store(path, SMALL_FILES if config is None else config, **options)

        shims = self._folder.parent / f"{self._folder.name}-bin"
        shims.mkdir(exist_ok=True)
        submit = Path(sys.executable).with_name("spark-submit")
        programs = {"flintlog": (sys.executable, "-m", "flintlog.cli.main"), "python": (sys.executable,)}
        for name, command in {**programs, "spark-submit": (str(submit),)}.items():
            (shims / name).write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n')
            (shims / name).chmod(0o755)
        monkeypatch.setattr(flintlog, "open_store", with_small_files)
        monkeypatch.chdir(self._folder)
        monkeypatch.setenv("PATH", f"{shims}{os.pathsep}{os.environ['PATH']}")
        monkeypatch.setenv("COLUMNS", str(_COLUMNS))
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))

    def run(self) -> None:
        """Run every block; the first that is not as shown fails, with its line."""
        text = self._page.read_text("utf-8")
        for given in _GIVEN.finditer(text):
            shutil.copytree(self._golden(given["case"]) / given["path"], self._folder / given["name"])
        blocks = [block for block in read_blocks(text) if block.reason_not_to_run is None]
        for place, block in enumerate(blocks):
            if block.language == "python":
                follower = blocks[place + 1] if place + 1 < len(blocks) else None
                is_its_output = follower is not None and follower.language == "output"
                self._run_python(block, follower if is_its_output else None)
            elif block.language == "console":
                self._run_console(block)
        if os.environ.get("FLINTLOG_WRITE_PAGES"):
            self._page.write_text(self._rewritten(text), "utf-8")

    def _run_python(self, block: Block, output: Block | None) -> None:
        # Line numbers of a traceback are then those of the page.
        code = compile("\n" * (block.line - 1) + block.code, str(self._page), "exec")
        printed = io.StringIO()
        with redirect_stdout(printed):
            exec(code, self._namespace)
        if output is not None:
            self._compare(output.code, printed.getvalue(), output.line, output.start)

    def _run_console(self, block: Block) -> None:
        for command, shown, line, start in _commands(block):
            if command == "echo $?":
                printed, self._last_code = f"{self._last_code}\n", 0
            else:
                self._expect_success(line)
                printed, self._last_code = self._run_command(command)
            self._compare(shown, printed, line, start)
        self._expect_success(block.line)

    def _expect_success(self, line: int) -> None:
        assert self._last_code == 0, f"{self._page}:{line}: ended with {self._last_code}, and no `$ echo $?` says so"

    def _run_command(self, command: str) -> tuple[str, int]:
        if command.startswith("flintlog ") and not _SHELL.search(_QUOTED.sub("", command)):
            terminal, errors = _Terminal(), io.StringIO()
            with redirect_stdout(terminal), redirect_stderr(errors):
                code = main.run(shlex.split(command)[1:])
            return _COLOURS.sub("", terminal.getvalue()) + errors.getvalue(), code
        done = subprocess.run(
            ["bash", "-c", command],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=300,
        )
        return done.stdout, done.returncode

    def _compare(self, shown: str, printed: str, line: int, start: int) -> None:
        if os.environ.get("FLINTLOG_WRITE_PAGES"):
            if not is_as_shown(shown, printed):
                self._written.append((start, shown, self._tidy(printed)))
            return
        assert is_as_shown(shown, printed), (
            f"{self._page}:{line} shows\n{shown}\nand it printed\n{self._tidy(printed)}\n"
            "If that is right: FLINTLOG_WRITE_PAGES=1 in front of this test writes it into the page"
        )

    def _tidy(self, printed: str) -> str:
        """What was printed, without this run's directory and without the spaces that only a terminal needs."""
        lines = (line.rstrip() for line in printed.replace(f"{self._folder}/", "…/").split("\n"))
        return "".join(f"{line}\n" for line in lines if line)

    def _rewritten(self, text: str) -> str:
        for start, shown, printed in reversed(self._written):
            text = text[:start] + printed + text[start + len(shown) :]
        return text


def _commands(block: Block) -> Iterator[tuple[str, str, int, int]]:
    """Each command of a block: what is typed, what it shows, its line, and where that begins in the page."""
    place, line = block.start, block.line
    parts = re.split(r"^(?=\$ )", block.code, flags=re.MULTILINE)
    assert not parts[0].strip(), f"line {block.line}: output without a command"
    for part in parts:
        if part.startswith("$ "):
            typed = re.match(r"\$ ((?:[^\n]*\\\n)*[^\n]*)\n", part)
            assert typed is not None
            yield typed[1], part[typed.end() :], line, place + typed.end()
        place += len(part)
        line += part.count("\n")
