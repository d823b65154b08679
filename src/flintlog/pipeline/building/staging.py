"""Files that several tasks write: each writes its own bytes, at places that follow from the log.

A task that is retried, or run twice by speculation, writes the same bytes to the same places, so nothing has to be
undone. This holds on one machine, and wherever all processes share the pages of a mapped file.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from flintlog.disk.media.medium import Medium, RawFile
from flintlog.errors import DiskError
from flintlog.format.names import segment_name
from flintlog.format.queue_entry import ENTRY_SIZE, QUEUE_ENTRY
from flintlog.kernel import Buffer, QueueEnd, Row, Tail

MAX_OPEN_FILES: Final = 4096
SYNCS_AT_ONCE: Final = 16
SKIP: Final = 1 << 62
"""As a queue's end: every record is before it, so fast dispatch skips the queue's records."""


def open_or_create(medium: Medium, path: Path, size: int) -> RawFile:
    """Open the file; the first task creates it."""
    if not medium.exists(path):
        medium.make_directories(path.parent)
        try:
            return medium.create(path, size)
        except DiskError:
            if not medium.exists(path):
                raise
    raw = medium.open(path, writable=True)
    if raw.size != size:
        raise DiskError(f"a staged file has {raw.size} bytes instead of {size}", path=path)
    return raw


def give_name(medium: Medium, working: Path, target: Path, top: Path) -> None:
    """Rename the result; the names from `top` on are durable then.

    If another attempt was faster, its result, which is the same, stays.
    """
    medium.make_directories(target.parent)
    if not medium.exists(target):
        try:
            medium.rename(working, target)
            sync_all(medium, [], [target], top)
            return
        except DiskError:
            if not medium.exists(target):
                raise
    info = medium.stat(working)
    if info is not None and info.is_directory:
        medium.remove_tree(working)
    else:
        medium.remove(working)


def sync_all(medium: Medium, files: Sequence[Path], names: Sequence[Path], top: Path) -> None:
    """Make files durable, then their names and others from `top` on; many at a time, as `OpenFiles.sync`."""
    above = {parent for path in (*files, *names) for parent in path.parents if parent.is_relative_to(top)}
    with ThreadPoolExecutor(SYNCS_AT_ONCE, "sync-files") as pool:
        for _ in pool.map(medium.sync, files):
            pass
        for _ in pool.map(medium.sync_directory, above):
            pass


class OpenFiles:
    """The staged files that a task has mapped; above the limit, the one that was opened first is released."""

    def __init__(self, medium: Medium) -> None:
        self._medium = medium
        self._tails: OrderedDict[Path, tuple[QueueEnd, Tail, RawFile]] = OrderedDict()
        self._given_back: list[Path] = []

    def tail(self, path: Path, size: int, end: QueueEnd, base: int, position: int) -> Tail:
        """Map a file for the end of a queue."""
        if len(self._tails) >= MAX_OPEN_FILES:
            given_back, (other, oldest, _) = self._tails.popitem(last=False)
            self._given_back.append(given_back)
            if other.tail is oldest:
                other.tail = None
            oldest.release()
        raw = open_or_create(self._medium, path, size)
        tail = Tail(raw.buffer, base, position)
        self._tails[path] = end, tail, raw
        return tail

    def sync(self) -> None:
        """Make the written bytes and the names of new files durable.

        Many at a time, so that the file system commits them together; one after another, each would wait for its own.
        """
        mapped = {path: raw for path, (_, _, raw) in self._tails.items()}

        def sync(path: Path) -> None:
            raw = mapped.get(path)
            self._medium.sync(path) if raw is None else raw.sync()

        with ThreadPoolExecutor(SYNCS_AT_ONCE, "sync-files") as pool:
            for _ in pool.map(sync, {*mapped, *self._given_back}):
                pass


class StagedQueue:
    """The entries of one split in one queue. The kernel's fast dispatch writes through `end`, others use `put`."""

    def __init__(self, folder: Path, file_bytes: int, files: OpenFiles) -> None:
        self.end = QueueEnd(None)
        self.first = -1
        self.in_step = True
        self._next = -1
        self._folder = folder
        self._file_bytes = file_bytes
        self._files = files

    @property
    def next(self) -> int:
        """The queue offset after the last entry."""
        tail = self.end.tail
        if tail is not None:
            self._next = tail.end // ENTRY_SIZE
        return self._next

    def put(self, row: Row, queue_offset: int, marks: int = 0) -> None:
        if not self.in_step:
            return
        expected = self.next
        entry = QUEUE_ENTRY.pack(row.physical_offset, row.size, row.tags_code)
        is_first = self.first < 0
        if is_first:
            self.first = expected = queue_offset
        if queue_offset != expected or (is_first and self._is_taken(queue_offset * ENTRY_SIZE, entry)):
            self.in_step, self._next = False, expected
            self.end.tail, self.end.max_physical_offset = None, SKIP
            return
        tail = self._tail_at(queue_offset * ENTRY_SIZE)
        with memoryview(_held(tail)) as buffer:
            buffer[tail.position : tail.position + ENTRY_SIZE] = entry
        tail.position += ENTRY_SIZE
        self.end.max_physical_offset = row.physical_offset + row.size
        self._next = queue_offset + 1

    def _is_taken(self, place: int, entry: bytes) -> bool:
        """Whether another record has this place already: then it is not overwritten."""
        tail = self._tail_at(place)
        with memoryview(_held(tail)) as buffer:
            found = bytes(buffer[tail.position : tail.position + ENTRY_SIZE])
        return found not in (bytes(ENTRY_SIZE), entry)

    def _tail_at(self, place: int) -> Tail:
        tail = self.end.tail
        if tail is not None and tail.base <= place < tail.base + tail.capacity:
            return tail
        base = place - place % self._file_bytes
        path = self._folder / segment_name(base)
        tail = self.end.tail = self._files.tail(path, self._file_bytes, self.end, base, place - base)
        return tail


def _held(tail: Tail) -> Buffer:
    assert tail.buffer is not None
    return tail.buffer
