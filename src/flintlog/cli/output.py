"""One output interface for all commands: tables for people; JSON, JSON lines and CSV for programs.

A command passes rows or one record and does not know which form they take. Programs get every value unchanged; only
tables shorten and align. Bytes are shown in hexadecimal, unless the command decodes them first. Notes that are not the
result are written to standard error, so that a program never finds one in its JSON.
"""

from __future__ import annotations

import csv
import json
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from flintlog.cli.progress import Mode, Progress, make_line

if TYPE_CHECKING:
    from rich.console import Console

Row = Mapping[str, object]
_ROWS_AT_ONCE = 256


class Output(ABC):
    """Where a command's result goes."""

    is_quiet = False
    """Whether only the result and errors are wanted."""
    is_verbose = False
    """Whether it is wanted too how the result was found."""
    progress_mode: Mode = "auto"

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    @abstractmethod
    def rows(self, rows: Iterable[Row], columns: Sequence[str], title: str | None = None) -> None:
        """Write many things of one kind; a program's output is complete even when there are none."""

    @abstractmethod
    def record(self, record: Row, title: str | None = None) -> None:
        """Write one thing with its parts."""

    def note(self, text: str) -> None:
        """Write a note that is not part of the result to standard error."""
        if not self.is_quiet:
            sys.stderr.write(f"{text}\n")

    def detail(self, text: str) -> None:
        """Write a note on how the result was found, if that is wanted."""
        if self.is_verbose:
            self.note(text)

    def cut(self, count: int, what: str, how: str) -> None:
        """Note that the output was cut, and how to get more."""
        self.note(f"cut after {count} {what}; {how}")

    def progress(self, what: str, how_to_go_on: str, unit: str = "bytes") -> Progress:
        """Show the progress of long work while it lasts (`with`); its value is called with (done, total)."""
        return Progress(what, make_line(self.progress_mode, sys.stderr, is_quiet=self.is_quiet), unit, how_to_go_on)


class JsonOutput(Output):
    """An array for rows, an object for a record; rows are written as they come."""

    def rows(self, rows: Iterable[Row], columns: Sequence[str], title: str | None = None) -> None:
        self.encoded_rows(_encode(row, self.stream) for row in rows)

    def encoded_rows(self, texts: Iterable[str]) -> None:
        """The same for rows that are JSON already."""
        separator = "["
        for text in texts:
            self.stream.write(f"{separator}\n  {text}")
            separator = ","
        self.stream.write("[]\n" if separator == "[" else "\n]\n")

    def record(self, record: Row, title: str | None = None) -> None:
        self.stream.write(_encode(record, self.stream, indent=2) + "\n")


class JsonLinesOutput(Output):
    """One object a line."""

    def rows(self, rows: Iterable[Row], columns: Sequence[str], title: str | None = None) -> None:
        for row in rows:
            self.record(row)

    def encoded_rows(self, texts: Iterable[str]) -> None:
        """Write rows that are JSON already, some at a time."""
        left = iter(texts)
        while some := list(islice(left, _ROWS_AT_ONCE)):
            self.stream.write("\n".join(some) + "\n")

    def record(self, record: Row, title: str | None = None) -> None:
        self.stream.write(_encode(record, self.stream) + "\n")


class CsvOutput(Output):
    """A header and a line for each row; values that are not plain are written as JSON."""

    def rows(self, rows: Iterable[Row], columns: Sequence[str], title: str | None = None) -> None:
        writer = csv.writer(self.stream, lineterminator="\n")
        writer.writerow(columns)
        for row in rows:
            writer.writerow([self._cell(row.get(column)) for column in columns])

    def record(self, record: Row, title: str | None = None) -> None:
        self.rows([record], list(record))

    def _cell(self, value: object) -> object:
        if value is None or isinstance(value, (str, int, float)):
            return str(value).lower() if isinstance(value, bool) else value
        return value.hex() if isinstance(value, bytes) else _encode(value, self.stream)


class TableOutput(Output):
    """Aligned columns for people."""

    def rows(self, rows: Iterable[Row], columns: Sequence[str], title: str | None = None) -> None:
        from rich import box
        from rich.table import Table

        iterator = iter(rows)
        first = next(iterator, None)
        if first is None:
            self.note("nothing to show" if title is None else f"{title}: nothing to show")
            return
        table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left", pad_edge=False)
        for column in columns:
            is_number = isinstance(first.get(column), (int, float)) and not isinstance(first.get(column), bool)
            table.add_column(column.replace("_", " "), justify="right" if is_number else "left", overflow="fold")
        for row in chain([first], iterator):
            table.add_row(*(_show(row.get(column)) for column in columns))
        self._print(table)

    def record(self, record: Row, title: str | None = None) -> None:
        from rich.table import Table

        table = Table(title=title, box=None, show_header=False, title_justify="left", pad_edge=False)
        table.add_column(style="bold")
        table.add_column(overflow="fold")
        for name, value in record.items():
            table.add_row(name.replace("_", " "), _show(value))
        self._print(table)

    def line(self, text: str) -> None:
        """Write one line for a person at once."""
        self.stream.write(_printable(text).replace("\n", "\\n") + "\n")

    def _print(self, table: object) -> None:
        # A file or a pipe has no width, so its lines are not folded.
        make_console(self.stream, width=1000).print(table)


_OUTPUTS: Mapping[str, type[Output]] = {
    "table": TableOutput,
    "json": JsonOutput,
    "jsonl": JsonLinesOutput,
    "csv": CsvOutput,
}
FORMATS = tuple(_OUTPUTS)


def make_console(stream: TextIO, width: int) -> Console:
    """A console on a stream: as wide as its terminal, or as `width` says where there is none."""
    from rich.console import Console

    class PlainConsole(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # rich would end the process with 1, which means findings

    return PlainConsole(file=stream, width=None if stream.isatty() else width, highlight=False, markup=False)


def form_of(output: Output) -> str:
    """Which of `FORMATS` an output has."""
    return next(form for form, kind in _OUTPUTS.items() if isinstance(output, kind))


def make_output(form: str, stream: TextIO) -> Output:
    """The output of one of `FORMATS` on a stream."""
    return _OUTPUTS[form](stream)


def with_relative_file(row: Row, store: Path) -> dict[str, object]:
    """A row whose `file` is named relative to the store, if it lies there."""
    file = row.get("file")
    if not isinstance(file, str) or not Path(file).is_relative_to(store):
        return dict(row)
    return {**row, "file": str(Path(file).relative_to(store))}


def _show(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Mapping):
        return ", ".join(f"{key}={_show(part)}" for key, part in value.items())
    if isinstance(value, (list, tuple, set, frozenset)):
        return ", ".join(_show(part) for part in value)
    return _printable(str(value))


def _printable(text: str) -> str:
    """Escape control characters: those in a message's text would act on the terminal."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char == "\n" else repr(char)[1:-1] for char in text)


def encode(value: object, indent: int | None = None) -> str:
    """A value as JSON."""
    return json.dumps(value, ensure_ascii=False, default=_to_plain, indent=indent)


def is_unicode(stream: TextIO) -> bool:
    """Whether a stream can show every text."""
    return (stream.encoding or "utf-8").lower().replace("-", "").replace("_", "") == "utf8"


def _encode(value: object, stream: TextIO, indent: int | None = None) -> str:
    text = encode(value, indent)
    try:
        text.encode(stream.encoding or "utf-8")
    except UnicodeEncodeError:
        return json.dumps(value, default=_to_plain, indent=indent)
    return text


def _to_plain(value: object) -> object:
    """Values of types that JSON lacks."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        return value.hex()
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Iterable):
        return list(value)
    return str(value)
