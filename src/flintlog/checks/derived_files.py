"""The files that follow from the log, as the checks see them: names, places and a way to read bytes.

Nothing here opens a file. The caller (a process over mapped files, a Spark task over a remote source) passes `read`;
everything else is plain values that can be sent to another machine.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from flintlog.errors import DiskError, FormatError
from flintlog.format.queue_entry import MAX_UNIT_SIZE, ExtensionUnit, QueueKey, parse_extension_unit

Read = Callable[[str, int, int], memoryview]
"""(file, start, stop) → these bytes; `DiskError` when the file does not hold them."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file of a log or queue, the offset of its first byte, and its length."""

    path: str
    base: int
    size: int

    @property
    def end(self) -> int:
        return self.base + self.size


@dataclass(frozen=True, slots=True)
class QueueFilesView:
    """The files of one queue."""

    topic: str
    queue_id: int
    files: tuple[DataFile, ...]
    is_batch: bool = False
    extension: tuple[DataFile, ...] = ()

    @property
    def key(self) -> QueueKey:
        return self.topic, self.queue_id

    def pieces(self, read: Read, start: int, stop: int) -> Iterator[tuple[DataFile, int, memoryview]]:
        """The bytes [start, stop) of the queue as far as files hold them: file, place in it, bytes."""
        return pieces_of(self.files, read, start, stop)

    def unit(self, read: Read, address: int) -> ExtensionUnit | None:
        """The extension unit at a real offset of the extension files; None when none is there."""
        file = file_at(self.extension, address)
        if file is None:
            return None
        start = address - file.base
        try:
            return parse_extension_unit(read(file.path, start, min(file.size, start + MAX_UNIT_SIZE)))
        except (FormatError, DiskError):
            return None


@dataclass(frozen=True, slots=True)
class LedgerView:
    """The files of a ledger, data and index, in order; an index file's base counts bytes."""

    data: tuple[DataFile, ...]
    index: tuple[DataFile, ...]

    def holds(self, file: DataFile) -> bool:
        """Whether a file of the log is one of the ledger's; a plain log may lie before them."""
        return bool(self.data) and file.base >= self.data[0].base


@dataclass(frozen=True, slots=True)
class DeletedPart:
    """The records of a queue that were deleted with it: those below both, a queue offset and a place in the log."""

    next_offset: int
    log_end: int


@dataclass(slots=True)
class DerivedFiles:
    """All queues of a store, by topic and queue id, and how to read them."""

    read: Read
    queues: Mapping[QueueKey, QueueFilesView]
    batch_topics: frozenset[str] = frozenset()
    light_queues: bool = True
    delay_levels_ms: tuple[int, ...] = field(default=())
    ledger: LedgerView | None = None
    """The ledger that holds the log, or the end of it."""
    deleted: Mapping[QueueKey, DeletedPart] = field(default_factory=dict)
    """The queues that were deleted. Their records are still in the log and must have no entries."""
    doubtful_levels: frozenset[int] = frozenset()
    """Delay levels whose length is not known."""


def file_at(files: Iterable[DataFile], offset: int) -> DataFile | None:
    """The file that holds an offset; None when none does."""
    return next((file for file in files if file.base <= offset < file.end), None)


def pieces_of(
    files: Sequence[DataFile], read: Read, start: int, stop: int
) -> Iterator[tuple[DataFile, int, memoryview]]:
    """The bytes [start, stop) of a row of files as far as these hold them: file, place in it, bytes."""
    first = max(0, bisect_right(files, start, key=lambda file: file.base) - 1)
    for file in files[first:]:
        begin, end = max(start, file.base), min(stop, file.end)
        if file.base >= stop:
            return
        if begin < end:
            yield file, begin - file.base, read(file.path, begin - file.base, end - file.base)
