"""`flintlog dump`: any file of a store, decoded."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path

import click

from flintlog.cli.output import CsvOutput, Output, TableOutput
from flintlog.cli.parameters import LocalPath, output_option, progress_option
from flintlog.cli.progress import Progress

TABLE_LIMIT = 200
TABLE_CHARS = 60
_ROWS_A_LOOK = 1000

Row = Mapping[str, object]


@click.command()
@click.argument("file", type=LocalPath(exists=True, dir_okay=False, path_type=Path))
@click.option("--type", "kind", help="What the file is, if its name and directory do not say.")
@click.option("--limit", type=click.IntRange(0), help=f"At most so many rows; {TABLE_LIMIT} for a table.")
@click.option("--fields", "by_field", is_flag=True, help="A row for each field, with the byte offset of its part.")
@progress_option
@output_option
def dump(file: Path, kind: str | None, limit: int | None, by_field: bool, output: Output) -> None:
    """Decode FILE of a store (log, queue, index, checkpoint, config, timer …) with byte offsets and field names.

    Rows cover the file without a gap: bytes that do not belong to the format are shown as `raw` or `zeros`.
    """
    from flintlog.disk.media.local import LocalMedium
    from flintlog.maintenance.inspect.dump import FILE_KINDS, dump_file
    from flintlog.maintenance.inspect.file_kinds import kind_of

    kind = kind or kind_of(file.absolute())
    if kind not in FILE_KINDS:
        raise click.UsageError(f"{file.name} does not say what it is; name it with --type: {', '.join(FILE_KINDS)}")
    view = LocalMedium().open(file).buffer if file.stat().st_size else memoryview(b"")
    rows: Iterator[Row] = iter(dump_file(kind, view))
    progress = output.progress("dump", "run it again with --limit for its beginning")
    rows = _watched(rows, progress, len(view))
    if by_field:
        rows = _by_field(rows)
    limit = TABLE_LIMIT if limit is None and isinstance(output, TableOutput) else limit
    shown = islice(rows, limit if limit is None else min(limit, sys.maxsize))
    with progress:
        if isinstance(output, (TableOutput, CsvOutput)):
            _write_columns(shown, output, by_field)
        else:
            output.rows(shown, ())
    if limit is not None and next(rows, None) is not None:
        output.cut(limit, "rows", "--limit shows more")


def _watched(rows: Iterator[Row], progress: Progress, size: int) -> Iterator[Row]:
    for count, row in enumerate(rows):
        if not count % _ROWS_A_LOOK:
            progress(int(str(row["offset"])), size)
        yield row
    progress(size, size)


def _by_field(rows: Iterable[Row]) -> Iterator[Row]:
    for row in rows:
        for name, value in row.items():
            if name not in ("offset", "size", "kind"):
                yield {"offset": row["offset"], "kind": row["kind"], "field": name, "value": value}


def _write_columns(rows: Iterable[Row], output: Output, by_field: bool) -> None:
    """Parts of a file have different fields: people and CSV get them in one column."""
    if by_field:
        output.rows(rows, ("offset", "kind", "field", "value"))
        return
    shown = (
        {"offset": row["offset"], "size": row["size"], "kind": row["kind"], "fields": _fields(row, output)}
        for row in rows
    )
    output.rows(shown, ("offset", "size", "kind", "fields"))


def _fields(row: Row, output: Output) -> Mapping[str, object]:
    found = {name: value for name, value in row.items() if name not in ("offset", "size", "kind")}
    if not isinstance(output, TableOutput):
        return found
    return {
        name: value[:TABLE_CHARS] + "…" if isinstance(value, str) and len(value) > TABLE_CHARS else value
        for name, value in found.items()
    }
