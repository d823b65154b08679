"""The positions, the map and the tail of one log file.

      0          flushed      committed       wrote          size
      +------------+-------------+--------------+--------------+
      |  durable   |  in the page cache         |  zeros       |
      +------------+-------------+--------------+--------------+
                                 | only in a write buffer, if the segment has one

flushed <= committed <= wrote, always. Readers see up to `read_position`: committed for a segment with
a write buffer, wrote otherwise.

The file has its full length from the beginning, and gets space on the disk in steps ahead of the writer (`allocate`).
The tail passes on how far, and writes no byte beyond.

A segment is mapped on first use. The map cache may unmap it while it has no holder and its tail is not in use. It is
destroyed when its last holder has released it, or by force after a while: then it is unlinked and no longer served, but
existing views stay valid.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from flintlog.disk.media.medium import PAGE_BYTES, Descriptive, Medium, RawFile
from flintlog.disk.segments.counted import Counted
from flintlog.errors import DiskFull, InvalidOffset, StoreClosed, SyncFailed, WrongFileSize
from flintlog.kernel import Tail

FIRST_STEP_BYTES: Final = PAGE_BYTES
MOST_STEP_BYTES: Final = 16 * 1024 * 1024
"""A file gets space for as much again as it holds, within these limits: a small store stays small, and a busy writer
seldom asks."""


class WriteBuffer:
    """Memory that takes appends in place of the map, and the function that returns it to its pool."""

    __slots__ = ("give_back", "view")

    def __init__(self, view: memoryview, give_back: Callable[[], None]) -> None:
        self.view = view
        self.give_back = give_back


class MappedSegment(Counted):
    """One file: its positions, its map and its tail. `Segment` adds the operations."""

    __slots__ = (
        "__weakref__",
        "_allocated",
        "_allocating",
        "_medium",
        "_position",
        "_raw",
        "_raw_writable",
        "_read_view",
        "_store_timestamp",
        "_sync_failure",
        "_tail",
        "_touched_until",
        "_write_buffer",
        "base",
        "committed_position",
        "flushed_position",
        "give_up_tail",
        "is_listed",
        "path",
        "recently_used",
        "size",
    )

    def __init__(
        self,
        path: Path,
        base: int,
        size: int,
        medium: Medium,
        *,
        raw: RawFile | None = None,
        write_buffer: WriteBuffer | None = None,
        allocated: int = 0,
    ) -> None:
        """`raw` is the file if it is already mapped, as `create` returns it, with space for so many bytes."""
        super().__init__()
        self.path = path
        self.base = base
        self.size = size
        self.committed_position = 0
        self.flushed_position = 0
        self.recently_used = True
        self.is_listed = False  # whether it is among the segments of a log
        # Set by an owner that passes the tail to others. Called in any thread before an idle tail is unmapped; it must
        # not block. True promises that the tail is no longer in use.
        self.give_up_tail: Callable[[], bool] | None = None
        self._allocated = allocated  # what follows the written bytes has space up to here
        self._allocating = threading.Lock()
        self._medium = medium
        self._raw = raw
        self._raw_writable = raw is not None
        self._read_view: memoryview | None = None
        self._tail: Tail | None = None
        self._position = 0
        self._store_timestamp = 0
        self._sync_failure: SyncFailed | None = None
        self._touched_until = 0
        self._write_buffer = write_buffer
        if raw is not None:
            medium.maps.add(self)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({str(self.path)!r}, wrote={self.wrote_position}, flushed={self.flushed_position})"
        )

    # Positions

    @property
    def end(self) -> int:
        """The offset after the segment's last byte, written or not."""
        return self.base + self.size

    @property
    def wrote_position(self) -> int:
        tail = self._tail
        return tail.position if tail is not None else self._position

    @wrote_position.setter
    def wrote_position(self, position: int) -> None:
        self._position = position
        self._allocated = min(self._allocated, position)
        if self._tail is not None:
            self._tail.position = position
            self._tail.allocated = self._allocated

    @property
    def store_timestamp(self) -> int:
        """The store time of the last readable record appended since the file was opened; 0 before the first."""
        tail = self._tail
        return self._store_timestamp if tail is None or self._write_buffer is not None else tail.store_timestamp

    def lower_store_timestamp(self, latest: int) -> None:
        """Forget store times after this one: their records were cut."""
        self._store_timestamp = min(self._store_timestamp, latest)
        if self._tail is not None:
            self._tail.store_timestamp = min(self._tail.store_timestamp, latest)

    @property
    def read_position(self) -> int:
        if self._write_buffer is not None:
            return self.committed_position
        tail = self._tail
        return tail.position if tail is not None else self._position

    @property
    def is_full(self) -> bool:
        return self.wrote_position == self.size

    @property
    def is_mapped(self) -> bool:
        return self._raw is not None

    @property
    def modified_ms(self) -> int:
        """The file system's time of the last write; 0 when the file was deleted."""
        info = self._medium.stat(self.path)
        return 0 if info is None else info.mtime_ms

    def set_positions(self, position: int) -> None:
        """Set the written and committed positions, as after loading and recovery; the flushed one never rises here."""
        if not 0 <= position <= self.size:
            raise InvalidOffset("a position outside of the segment", path=self.path, offset=position)
        self.wrote_position = position
        self.committed_position = position
        self.flushed_position = min(self.flushed_position, position)

    # Mapping

    def raw(self, writable: bool = False) -> RawFile:
        """The mapped file, opened if necessary. Hold the segment while using it."""
        raw = self._raw
        if raw is not None and (self._raw_writable or not writable):
            self.recently_used = True
            return raw
        with self._lock:
            raw, is_new = self._open(writable)
        if is_new:
            self._medium.maps.add(self)
        return raw

    def _open(self, writable: bool) -> tuple[RawFile, bool]:
        if self._raw is not None and (self._raw_writable or not writable):
            return self._raw, False
        if self._references <= 0:
            raise StoreClosed("the segment was destroyed", path=self.path)
        raw = self._medium.open(self.path, writable, in_steps=True)
        if raw.size != self.size:
            raw.close()
            raise WrongFileSize(f"the file has {raw.size} bytes, not {self.size}", path=self.path)
        was_mapped = self._raw is not None
        # The read-only map is not closed here: another reader may be about to use it. It is freed with its last view.
        self._raw, self._raw_writable, self._read_view = raw, writable, None
        return raw, not was_mapped

    @property
    def tail(self) -> Tail:
        """The growing end, which the writer keeps. The segment stays mapped until it is full."""
        tail = self._tail
        if tail is None:
            if not self.hold():
                raise StoreClosed("the segment was destroyed", path=self.path)
            try:
                raw = self.raw(writable=True)
                buffer = raw.buffer if self._write_buffer is None else self._write_buffer.view
                tail = Tail(buffer, self.base, self._position)
                tail.allocated = self._allocated
                tail.allocate = partial(_allocate, weakref.ref(self))  # not the method: the two would be a cycle
                self._tail = tail
            finally:
                self.release()
        self.recently_used = True
        return tail

    @property
    def log_tail(self) -> Tail:
        """`tail`, for a log: on a local disk, batches are written through the file."""
        if not self.hold():
            raise StoreClosed("the segment was destroyed", path=self.path)
        try:
            tail = self.tail
            raw = self.raw(writable=True)
            if self._write_buffer is None and not tail.has_file and isinstance(raw, Descriptive):
                descriptor = raw.new_descriptor()
                if descriptor >= 0 and not tail.take_file(descriptor):
                    os.close(descriptor)
            return tail
        finally:
            self.release()

    def allocate(self, stop: int) -> int:
        """Get space on the disk up to `stop` and a step ahead; returns up to where. Raises `DiskFull`."""
        with self._allocating:  # the writer asks, and the thread that prepares its pages
            wrote = self.wrote_position
            start = max(self._allocated, wrote)
            if stop <= start:
                return start
            step = min(max(wrote, FIRST_STEP_BYTES), MOST_STEP_BYTES)
            ahead = min(self.size, -(-max(stop, wrote + step) // PAGE_BYTES) * PAGE_BYTES)
            raw = self.raw(writable=True)
            try:
                raw.allocate(start, ahead)
            except DiskFull:
                ahead = stop
                raw.allocate(start, ahead)
            self._allocated = ahead
            return ahead

    def append(self, data: bytes | memoryview) -> bool:
        """Append encoded bytes, as a replica does; False, with nothing written, when they do not fit."""
        tail = self.tail
        buffer = tail.buffer
        if tail.position + len(data) <= self.size:
            tail.make_room(len(data))
        start, stop = tail.position, tail.position + len(data)
        if stop > self.size or not isinstance(buffer, memoryview):
            return False
        buffer[start:stop] = data
        tail.position = stop
        return True

    def try_unmap(self) -> bool:
        """Unmap if the segment has no holder and its tail is not in use. Called by the map cache."""
        if self._lock.locked():
            return False
        # Not `acquire(blocking=False)`: a signal handler that raises after it would leave the lock taken for good. No
        # thread waits for the map cache while it has this lock, so the wait for one that came in between is short.
        with self._lock:
            if self._raw is None:
                return True
            if self._references != 1 or self._write_buffer is not None or not self._drop_tail():
                return False
            self._unmap()
            return True

    def _drop_tail(self) -> bool:
        tail = self._tail
        if tail is None:
            return True
        # A full segment must be flushed first: a failed write-back is reported only to maps that existed then.
        # Owners that can rebuild their file (give_up_tail) do not need this.
        is_done = tail.position == self.size and self.flushed_position == self.size
        if not is_done and (self.give_up_tail is None or not self.give_up_tail()):
            return False
        self._position = tail.position
        self._store_timestamp = tail.store_timestamp
        self._tail = None
        tail.release()
        return True

    def _unmap(self) -> None:
        raw, self._raw, self._read_view, self._raw_writable = self._raw, None, None, False
        if raw is not None:
            raw.close()

    # The end

    def _clean_up(self) -> None:
        """Drop the map; runs once, after the last release or by force."""
        if self._tail is not None:
            self._position = self._tail.position
            self._store_timestamp = self._tail.store_timestamp
            self._tail.release()
            self._tail = None
        self._unmap()
        buffer, self._write_buffer = self._write_buffer, None
        if buffer is not None:
            buffer.give_back()

    def shut_down(self, force_after_ms: int, now_ms: int) -> bool:
        """Stop serving; True when there is no holder left, or by force after `force_after_ms`."""
        if not self.end_serving(force_after_ms, now_ms):
            return False
        self._medium.maps.discard(self)
        return True

    def destroy(self, force_after_ms: int, now_ms: int) -> bool:
        """Shut down and unlink; False while it still has a holder: call again later."""
        if not self.shut_down(force_after_ms, now_ms):
            return False
        self._medium.remove(self.path)
        return True


def _allocate(owner: weakref.ref[MappedSegment], stop: int) -> int:
    segment = owner()
    if segment is None:
        raise StoreClosed("the segment was dropped")
    return segment.allocate(stop)
