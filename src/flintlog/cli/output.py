"""One output interface for all commands: tables for people; JSON, JSON lines and CSV for programs.

A command passes rows or one record and does not know which form they take. Programs get every value unchanged; only
tables shorten and align. Bytes are shown in hexadecimal, unless the command decodes them first. Notes that are not the
result are written to standard error, so that a program never finds one in its JSON.
"""

from __future__ import annotations

import csv
import json
import shutil
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, TextIO

from flintlog.cli.progress import Mode, Progress, make_line

if TYPE_CHECKING:
    from rich.console import Console

Row = Mapping[str, object]
_INDENT = "    "
_WIDTH_OF_FILES = 100
_MOST_WORD = 28
"""A longer word is broken where it has to be: paths are."""
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
    """For people: aligned columns, or a line each with its details below.

    A table that is wider than its terminal folds its texts, never numbers and times. What has long texts is a line with
    details at any width, so that it looks the same on a narrow terminal, on a wide one and in a file.
    """

    def blocks(self, blocks: Iterable[tuple[str, Sequence[str]]], title: str | None = None) -> None:
        """Write a line for each thing, and its details below, wrapped."""
        if title is not None:
            self.line(title)
        for line, details in blocks:
            self.line(line)
            for detail in details:
                for part in wrap(_printable(detail).replace("\n", "\\n"), self.width - 1 - len(_INDENT)):
                    self.stream.write(f"{_INDENT}{part}\n")

    def shortened(self, text: str) -> str:
        """A text on one line that fits below another."""
        from rich.cells import cell_len, set_cell_size

        room = self.width - 1 - len(_INDENT)
        plain = _printable(text[: 4 * room]).replace("\n", "\\n")
        return (
            plain
            if len(text) == len(text[: 4 * room]) and cell_len(plain) <= room
            else (f"{set_cell_size(plain, room - 1).rstrip()}…")
        )

    @property
    def width(self) -> int:
        """The terminal's, but for details in a file."""
        return terminal_width(self.stream) or _WIDTH_OF_FILES

    def rows(self, rows: Iterable[Row], columns: Sequence[str], title: str | None = None) -> None:
        from rich import box
        from rich.table import Table

        iterator = iter(rows)
        first = next(iterator, None)
        if first is None:
            self.note("nothing to show" if title is None else f"{title}: nothing to show")
            return
        heads = [column.replace("_", " ") for column in columns]
        cells = [[_show(row.get(column)) for column in columns] for row in chain([first], iterator)]
        width = terminal_width(self.stream)
        widths = None if width is None else fitting_widths(heads, cells, width)
        if width is not None and widths is None:
            self.blocks((_row_block(heads, row) for row in cells), title)
            return
        is_narrow = widths is not None and sum(widths) + 3 * (len(heads) - 1) + 2 > (width or 0)
        table = Table(
            title=title, box=box.SIMPLE_HEAD, title_justify="left", pad_edge=False, collapse_padding=is_narrow
        )
        for number, (column, head) in enumerate(zip(columns, heads, strict=True)):
            is_number = isinstance(first.get(column), (int, float)) and not isinstance(first.get(column), bool)
            table.add_column(
                head,
                justify="right" if is_number else "left",
                overflow="fold",
                width=None if widths is None else widths[number],
            )
        for row in cells:
            table.add_row(*row)
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
        make_console(self.stream, width=terminal_width(self.stream) or 1000).print(table)


_OUTPUTS: Mapping[str, type[Output]] = {
    "table": TableOutput,
    "json": JsonOutput,
    "jsonl": JsonLinesOutput,
    "csv": CsvOutput,
}
FORMATS = tuple(_OUTPUTS)


def _row_block(heads: Sequence[str], row: Sequence[str]) -> tuple[str, Sequence[str]]:
    """A row of a table that does not fit."""
    return row[0], [", ".join(f"{head} {text}" for head, text in zip(heads[1:], row[1:], strict=True) if text)]


def terminal_width(stream: TextIO) -> int | None:
    """The columns of a terminal; None for a file or a pipe, which has no width."""
    return shutil.get_terminal_size().columns if stream.isatty() else None


def fitting_widths(heads: Sequence[str], cells: Sequence[Sequence[str]], width: int) -> list[int] | None:
    """The width of each column of a table; None if it cannot fit.

    Where it does not fit as it is, texts are folded; words, numbers and times stay whole.

    >>> fitting_widths(["id", "text"], [["1234567890", "a b c d e f g h i j k l"]], 30)
    [10, 16]
    >>> fitting_widths(["id", "text"], [["1234567890", "abcdefghijklmnop"]], 20)
    """
    from rich.cells import cell_len

    columns = list(zip(*cells, strict=True))
    whole = [max(map(cell_len, (head, *column))) for head, column in zip(heads, columns, strict=True)]
    if sum(whole) + 3 * (len(heads) - 1) + 2 <= width:
        return whole
    found = []
    for head, column in zip(heads, columns, strict=True):
        words = [word for text in column for word in ((text,) if text[:1].isdigit() else text.split())]
        longest = max(map(cell_len, words), default=0)
        found.append(max(longest if all(map(_is_whole, words)) else min(longest, _MOST_WORD), *map(len, head.split())))
    left = width - 2 * (len(heads) - 1) - 2 - sum(found)
    if left < 0:
        return None
    while left > 0 and (growing := [at for at in range(len(heads)) if found[at] < whole[at]]):
        found[min(growing, key=found.__getitem__)] += 1
        left -= 1
    return found


def _is_whole(text: str) -> bool:
    return text[0].isdigit()


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
