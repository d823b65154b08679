"""Where a log ended when a reader began: the reader shows and checks only what lies below.

    … │ record │ record │ record │ being written … │ zeros
                                 ^ the published end

A writer in another process keeps its position to itself, so the end is found in the files. Records become whole in the
order of the log (docs/durability.md). Once a whole record was seen, nothing before it changes any more: bytes there
that are no record are damage. So the end is the end of the last whole record, whatever lies before it. Records that the
writer may still cut do not count: entries of a ledger that are not committed, and a batch that is not closed.

`verify`, `cat`, `tail`, `export`, `top`, Spark's source and a store opened read-only all begin with this.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath

from flintlog.checks.derived_files import DataFile
from flintlog.derive.log_end import fetched_end, late_record, records_end
from flintlog.derive.log_files import LogFile
from flintlog.disk.media.source import ByteSource, MappedSource, SparseFile
from flintlog.errors import DiskError
from flintlog.store.ledger.committed_end import committed_end
from flintlog.store.recovery.batch_notes import parse_opened_start


@dataclass(frozen=True, slots=True)
class WrittenLog:
    """A log that may be being written: its files in order, the notes about batches, a ledger's folder."""

    files: Sequence[DataFile]
    batches: PurePath
    ledger: PurePath | None = None

    @property
    def first(self) -> int:
        return self.files[0].base if self.files else 0


def published_end(source: ByteSource, log: WrittenLog, known: int = 0, *, search: bool = True) -> int:
    """The physical offset after the last record that counts; `known` is a record's place that was the end before.

    Without `search` the first place where no whole record begins is the end, if the files are mapped; others are read
    from their ends backwards, so that the records after such a place are seen anyhow.
    """
    # Before and after: a batch that is given up in between is cut off the log.
    opened = _opened_batch_start(source, log.batches)
    end = _records_end(source, log, known, search)
    committed = committed_end(source, log.ledger, log.files)
    if committed is not None:
        return min(end, committed)
    for start in (opened, _opened_batch_start(source, log.batches)):
        end = end if start is None else max(log.first, min(end, start))
    return end


def _opened_batch_start(source: ByteSource, notes: PurePath) -> int | None:
    """Where a batch begins that is being appended: it may be cut again."""
    for info in source.listing(notes.parent):
        if info.name == notes.name:
            return parse_opened_start(bytes(source.view(notes, 0, info.size)))
    return None


def _records_end(source: ByteSource, log: WrittenLog, known: int, search: bool) -> int:
    for file in reversed(log.files):
        if known == file.end:
            return known  # the file was full, and there is nothing in those after it
        try:
            end = _end_of_file(source, file, known if file.base < known < file.end else file.base, search)
        except DiskError:
            if _is_there(source, PurePath(file.path)):
                raise
            continue  # deleted since it was listed: made ahead and never used, or expired
        if end > file.base:
            return end
    return log.first


def _end_of_file(source: ByteSource, file: DataFile, start: int, search: bool) -> int:
    path = PurePath(file.path)
    if not isinstance(source, MappedSource):
        written = file.base + source.data_end(path, start - file.base)
        sparse = SparseFile(source, path, file.size)
        return fetched_end(sparse.fetch, LogFile(path.name, file.base, file.size), start, written)
    view = source.view(path, 0, file.size)
    stop = source.data_end(path, start - file.base)
    if search:
        start = late_record(view, file.base, start, stop)
    return records_end(view, file.base, start, stop, search=search)


def _is_there(source: ByteSource, path: PurePath) -> bool:
    return any(info.name == path.name for info in source.listing(path.parent))
