"""One fixed-size file of a log: RocketMQ's MappedFile.

      0          flushed      committed       wrote          size
      +------------+-------------+--------------+--------------+
      |  durable   |  in the page cache         |  zeros       |
      +------------+-------------+--------------+--------------+
                                 | only in a write buffer, if the segment has one

flushed <= committed <= wrote, always. Readers see up to `read_position`: committed for a segment with
a write buffer, wrote otherwise.

One thread at a time appends (through `tail`); any thread may select, flush or destroy. A segment is
destroyed when its last holder has let go, or by force after a while: then it is unlinked and
served no more, but a view that someone still has stays valid. It is mapped when first looked at, and the map
cache may unmap it while nobody holds it and its tail is not in use.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from flintlog.disk.counted import Counted
from flintlog.disk.medium import PAGE_BYTES, Advice, Medium, RawFile
from flintlog.disk.selected_range import SelectedRange
from flintlog.errors import InvalidOffset, StoreClosed, SyncFailed, WrongFileSize
from flintlog.kernel import Tail

__all__ = ["DEFAULT_TOUCH_AHEAD_BYTES", "Segment", "SelectedRange", "WriteBuffer"]

DEFAULT_TOUCH_AHEAD_BYTES = 16 * 1024 * 1024


class WriteBuffer:
    """Memory that takes appends in place of the map, and the way to give it back."""

    __slots__ = ("give_back", "view")

    def __init__(self, view: memoryview, give_back: Callable[[], None]) -> None:
        self.view = view
        self.give_back = give_back


class Segment(Counted):
    """One file: positions, tail, flush."""

    __slots__ = (
        "__weakref__",
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
    ) -> None:
        """`raw` is the file when it is mapped already, as `create` leaves it."""
        super().__init__()
        self.path = path
        self.base = base
        self.size = size
        self.committed_position = 0
        self.flushed_position = 0
        self.recently_used = True
        # Set by an owner who hands the tail to others: called, in any thread and without waiting, before
        # an idle tail is unmapped; True promises that nobody has the tail any more.
        self.give_up_tail: Callable[[], bool] | None = None
        self._medium = medium
        self._raw = raw
        self._raw_writable = raw is not None
        self._read_view: memoryview | None = None
        self._tail: Tail | None = None
        self._position = 0
        self._store_timestamp = 0
        self._write_buffer = write_buffer
        self._sync_failure: SyncFailed | None = None
        self._touched_until = 0
        if raw is not None:
            medium.maps.add(self)

    def __repr__(self) -> str:
        return f"Segment({str(self.path)!r}, wrote={self.wrote_position}, flushed={self.flushed_position})"

    # Positions

    @property
    def end(self) -> int:
        """The offset behind the segment's last byte, written or not."""
        return self.base + self.size

    @property
    def wrote_position(self) -> int:
        tail = self._tail
        return tail.position if tail is not None else self._position

    @wrote_position.setter
    def wrote_position(self, position: int) -> None:
        self._position = position
        if self._tail is not None:
            self._tail.position = position

    @property
    def store_timestamp(self) -> int:
        """The store time of the last record appended since the file was opened; 0 before the first."""
        tail = self._tail
        return self._store_timestamp if tail is None else tail.store_timestamp

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
        """When the file was last written, by the file system; 0 when it is gone."""
        info = self._medium.stat(self.path)
        return 0 if info is None else info.mtime_ms

    def set_positions(self, position: int) -> None:
        """Wrote, committed and flushed at once, as after loading and recovery."""
        if not 0 <= position <= self.size:
            raise InvalidOffset("a position outside of the segment", path=self.path, offset=position)
        self.wrote_position = position
        self.committed_position = position
        self.flushed_position = position

    # Mapping

    def raw(self, writable: bool = False) -> RawFile:
        """The mapped file; opened if it is not. Hold the segment while using it."""
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
        raw = self._medium.open(self.path, writable)
        if raw.size != self.size:
            raw.close()
            raise WrongFileSize(f"the file has {raw.size} bytes, not {self.size}", path=self.path)
        was_mapped = self._raw is not None
        # A map for reading is not closed here: another reader may be about to take its buffer. It goes with the last.
        self._raw, self._raw_writable, self._read_view = raw, writable, None
        return raw, not was_mapped

    @property
    def tail(self) -> Tail:
        """The growing end. Whoever appends keeps it; the segment stays mapped while it is not full."""
        tail = self._tail
        if tail is None:
            if not self.hold():
                raise StoreClosed("the segment was destroyed", path=self.path)
            try:
                raw = self.raw(writable=True)
                buffer = raw.buffer if self._write_buffer is None else self._write_buffer.view
                tail = self._tail = Tail(buffer, self.base, self._position)
            finally:
                self.release()
        self.recently_used = True
        return tail

    def append(self, data: bytes | memoryview) -> bool:
        """Write ready bytes at the end, as a replica does; False, and nothing written, when they do not fit."""
        tail = self.tail
        buffer = tail.buffer
        start, stop = tail.position, tail.position + len(data)
        if stop > self.size or not isinstance(buffer, memoryview):
            return False
        buffer[start:stop] = data
        tail.position = stop
        return True

    def try_unmap(self) -> bool:
        """Unmap if nobody holds the segment and its tail is given up. Called by the map cache."""
        if not self._lock.acquire(blocking=False):
            return False
        try:
            if self._raw is None:
                return True
            if self._references != 1 or self._write_buffer is not None or not self._drop_tail():
                return False
            self._unmap()
            return True
        finally:
            self._lock.release()

    def _drop_tail(self) -> bool:
        tail = self._tail
        if tail is None:
            return True
        # A full segment must be flushed first: a failed write-back is reported only to a map that saw it.
        # Owners who can rebuild their file (give_up_tail) do without.
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
        """Drop the map; runs once, when the last holder has gone or by force."""
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
        """Serve no more; True when nobody holds the segment, or they held it for too long."""
        if not self.end_serving(force_after_ms, now_ms):
            return False
        self._medium.maps.discard(self)
        return True

    def destroy(self, force_after_ms: int, now_ms: int) -> bool:
        """Shut down and unlink; False when someone still holds it: call again later."""
        if not self.shut_down(force_after_ms, now_ms):
            return False
        self._medium.remove(self.path)
        return True

    # Reading

    def select(self, position: int, size: int | None = None) -> SelectedRange | None:
        """The bytes from `position`, `size` of them or all that can be read; None if they are not there."""
        limit = self.read_position
        if size is None:
            size = limit - position
            if size <= 0:
                return None
        if position < 0 or size < 0 or position + size > limit or not self.hold():
            return None
        self.recently_used = True
        try:
            view = self._read_view or self._map_for_reading()
        except BaseException:
            self.release()
            raise
        return SelectedRange(self.release, self.base + position, view[position : position + size])

    def peek(self) -> memoryview | None:
        """The whole file for a short look, without holding it; None when the segment is on its way out.

        The view stays valid whatever becomes of the segment: a map goes with its last view.
        """
        view = self._read_view
        if view is None:
            if not self.hold():
                return None
            try:
                view = self._map_for_reading()
            finally:
                self.release()
        self.recently_used = True
        return view

    def _map_for_reading(self) -> memoryview:
        view = self._read_view = self.raw().buffer.toreadonly()
        return view

    # Flush and commit

    def is_able_to_flush(self, least_pages: int) -> bool:
        return self._is_due(least_pages, self.flushed_position, self.read_position)

    def is_able_to_commit(self, least_pages: int) -> bool:
        return self._is_due(least_pages, self.committed_position, self.wrote_position)

    def _is_due(self, least_pages: int, done: int, wrote: int) -> bool:
        if self.is_full:
            return True
        if least_pages > 0:
            return wrote // PAGE_BYTES - done // PAGE_BYTES >= least_pages
        return wrote > done

    def flush(self, least_pages: int = 0) -> int:
        """Make what can be read durable if enough pages are dirty; returns the flushed position."""
        if not self.is_able_to_flush(least_pages):
            return self.flushed_position
        position = self.read_position
        if position <= self.flushed_position:
            return self.flushed_position
        if not self.hold():
            return self.flushed_position  # on its way out, and not durable for that
        try:
            self._sync(self.flushed_position, position)
        finally:
            self.release()
        self.flushed_position = position
        return position

    def sync(self) -> None:
        """Make the whole file durable, whatever the positions say."""
        if self.hold():
            try:
                self._sync(0, self.size)
            finally:
                self.release()

    def clear_behind(self) -> None:
        """Set everything behind the written bytes to zero, durably: old records there must not be found again."""
        if self.hold():
            try:
                self.raw(writable=True).clear(self.wrote_position, self.size)
                self._sync(self.wrote_position, self.size)
            finally:
                self.release()

    def _sync(self, start: int, stop: int) -> None:
        # Kept here as well as in the file: a file that was unmapped and opened again has forgotten it.
        if self._sync_failure is not None:
            raise self._sync_failure
        try:
            self.raw().sync(start, stop)
        except SyncFailed as error:
            self._sync_failure = error
            raise

    def commit(self, least_pages: int = 0) -> int:
        """Write the write buffer to the file if enough pages wait; returns the committed position."""
        buffer = self._write_buffer
        if buffer is None:
            self.committed_position = self.wrote_position
            return self.committed_position
        if self.is_able_to_commit(least_pages) and self.hold():
            try:
                self._write_out(buffer)
            finally:
                self.release()
        if self.committed_position == self.size:
            self._return_buffer()
        return self.committed_position

    def _write_out(self, buffer: WriteBuffer) -> None:
        start, stop = self.committed_position, self.wrote_position
        if stop > start:
            self.raw(writable=True).write_at(start, buffer.view[start:stop])
            self.committed_position = stop

    def _return_buffer(self) -> None:
        with self._lock:
            buffer, self._write_buffer = self._write_buffer, None
            if buffer is None:
                return
            self._position = self.size  # before the tail goes: a reader must never see a position jump back
            tail, self._tail = self._tail, None
            if tail is not None:
                tail.release()
        buffer.give_back()

    # Memory

    def warm_ahead(self, ahead_bytes: int = DEFAULT_TOUCH_AHEAD_BYTES, *, for_syncs: bool = False) -> int:
        """Fault in the pages just ahead of the writer; returns how many bytes were touched.

        `for_syncs` does more, for a writer who syncs every few pages and waits for that: see `RawFile.prepare`.
        """
        wrote = self.wrote_position
        start, stop = max(wrote, self._touched_until), min(self.size, wrote + ahead_bytes)
        # In steps of half the distance: one call for each few pages would cost more than the faults.
        if self._write_buffer is not None or stop - start < min(ahead_bytes // 2, self.size - start) or start >= stop:
            return 0
        if not self.hold():
            return 0
        try:
            raw = self.raw(writable=True)
            if not for_syncs or not raw.prepare(start, stop):
                raw.touch(start, stop)
        finally:
            self.release()
        self._touched_until = stop
        return stop - start

    def make_ready(self, step_bytes: int) -> int:
        """How far pages are ready for the writer; if it has caught up with that, the next step is touched now.

        A fault for each page costs ten times as much as asking for many at once.
        """
        wrote = self.wrote_position
        if self._write_buffer is not None or self._touched_until == self.size:
            return self.size
        if wrote >= self._touched_until and self.hold():
            try:
                stop = min(self.size, wrote + step_bytes)
                is_touched = self.raw(writable=True).touch(wrote, stop)
            finally:
                self.release()
            self._touched_until = max(self._touched_until, stop) if is_touched else self.size
        return self._touched_until

    def warm_up(self) -> bool:
        """Fault in the whole file and keep it in memory; False when memory could not be locked."""
        if not self.hold():
            return False
        try:
            raw = self.raw(writable=True)
            raw.touch(0, self.size)
            self._touched_until = self.size
            return raw.lock_memory() & raw.advise(Advice.WILL_NEED)
        finally:
            self.release()

    def unlock_memory(self) -> None:
        """Let the system page the segment out again."""
        raw = self._raw
        if raw is not None:
            raw.unlock_memory()
