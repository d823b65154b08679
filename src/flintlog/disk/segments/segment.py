"""One fixed-size file of a log: RocketMQ's MappedFile.

`mapped_segment.py` has its positions and its map; this module reads, flushes, commits and prepares pages. One thread at
a time appends (through `tail`); any thread may select, flush or destroy.
"""

from __future__ import annotations

import time
from typing import Final

from flintlog.disk.media.medium import PAGE_BYTES, Advice
from flintlog.disk.segments.mapped_segment import FIRST_STEP_BYTES, MappedSegment, WriteBuffer
from flintlog.disk.segments.selected_range import SelectedRange
from flintlog.errors import DiskFull, FlintlogError, SyncFailed

__all__ = ["DEFAULT_TOUCH_AHEAD_BYTES", "FIRST_STEP_BYTES", "Segment", "SelectedRange", "WriteBuffer"]

DEFAULT_TOUCH_AHEAD_BYTES = 16 * 1024 * 1024
LEAST_TOUCH_AHEAD_BYTES: Final = 64 * 1024
DEAR_PAGE_NS: Final = 20_000
"""The acceptable cost of a page when many are faulted in at once. On a virtual machine whose host has to find the pages
the cost is twice as much or more, elsewhere a tenth."""


class Segment(MappedSegment):
    """One file and its operations."""

    __slots__ = ()

    # Reading

    def select(self, position: int, size: int | None = None) -> SelectedRange | None:
        """`size` bytes from `position`, or all readable ones; None if they cannot be read."""
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
        """A view of the whole file for a short read, without a hold; None when the segment is shut down.

        The view stays valid even if the segment is destroyed: a map is freed with its last view.
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
        """Make the readable bytes durable if enough pages are dirty; returns the flushed position."""
        if not self.is_able_to_flush(least_pages):
            return self.flushed_position
        position = self.read_position
        if position <= self.flushed_position:
            return self.flushed_position
        if not self.hold():
            return self.flushed_position  # shut down: not flushed, and not reported as durable
        try:
            self._sync(self.flushed_position, position)
        finally:
            self.release()
        self.flushed_position = position
        return position

    def sync(self) -> None:
        """Make the whole file durable, independent of the positions."""
        if self.hold():
            try:
                position = self.read_position
                self._sync(0, self.size)
                self.flushed_position = max(self.flushed_position, position)
            finally:
                self.release()

    def clear_unwritten(self) -> None:
        """Durably zero all bytes after the written ones, so that recovery never finds old records there."""
        if self.hold():
            try:
                raw = self.raw(writable=True)
                raw.clear(self.wrote_position, raw.data_end(self.wrote_position))
                self._sync(self.wrote_position, self.size)
            finally:
                self.release()

    def _sync(self, start: int, stop: int) -> None:
        # The failure is kept here too: a file that was unmapped and opened again does not know it.
        if self._sync_failure is not None:
            raise self._sync_failure
        raw = self._raw
        try:
            if raw is not None:
                raw.sync(start, stop)
            else:
                self._medium.sync(self.path)  # not mapped yet, or unmapped since it was written
        except SyncFailed as error:
            self._sync_failure = error
            # The system may have marked these pages clean without writing them. Then a sync of a later process would
            # report them as durable. Touching makes them dirty again.
            self.raw(writable=True).touch(start, stop)
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
        # The time is read before the end: it must not be that of a record after the end.
        stored_at = self._store_timestamp if self._tail is None else self._tail.store_timestamp
        start, stop = self.committed_position, self.wrote_position
        if stop > start:
            self.raw(writable=True).write_at(start, buffer.view[start:stop])
            self.committed_position = stop
            self._store_timestamp = stored_at

    def _return_buffer(self) -> None:
        with self._lock:
            buffer, self._write_buffer = self._write_buffer, None
            if buffer is None:
                return
            self._position = self.size  # before the tail is dropped: a reader must never see the position fall
            tail, self._tail = self._tail, None
            if tail is not None:
                tail.release()
        buffer.give_back()

    # Memory

    def warm_ahead(self, ahead_bytes: int = DEFAULT_TOUCH_AHEAD_BYTES, *, for_syncs: bool = False) -> int:
        """Fault in the pages just ahead of the writer; returns how many bytes were touched.

        `for_syncs` also prepares them for a writer that waits for a sync every few pages: see `RawFile.prepare`. Never
        more is touched than was written, so that a small file stays small.
        """
        wrote = self.wrote_position
        ahead_bytes = min(ahead_bytes, max(wrote, LEAST_TOUCH_AHEAD_BYTES))
        start, stop = max(wrote, self._touched_until), min(self.size, wrote + ahead_bytes)
        # In steps of half the distance: one call for each few pages would cost more than the faults.
        if self._write_buffer is not None or stop - start < min(ahead_bytes // 2, self.size - start) or start >= stop:
            return 0
        tail = self._tail
        if not for_syncs and tail is not None and tail.is_through_file:
            return 0  # a writer through the file needs no pages of the map
        if not self.hold():
            return 0
        try:
            raw = self.raw(writable=True)
            self.allocate(stop)
            if not for_syncs or not raw.prepare(start, stop):
                raw.touch(start, stop)
        except FlintlogError:
            return 0  # only an optimisation: the writer meets the same error and reports it
        finally:
            self.release()
        self._touched_until = stop
        return stop - start

    def make_ready(self, step_bytes: int) -> int:
        """The end of the pages that are ready for the writer; if it has reached that, touch the next step now.

        One fault per page costs ten times as much as touching many pages at once. If touching is still expensive, as on
        a virtual machine whose host has to find each page, the tail is set to prefer writing through the file.
        """
        wrote = self.wrote_position
        if self._write_buffer is not None or self._touched_until == self.size:
            return self.size
        if wrote >= self._touched_until and self.hold():
            try:
                stop = min(self.size, wrote + min(step_bytes, max(wrote, LEAST_TOUCH_AHEAD_BYTES)))
                self.allocate(stop)
                began_ns = time.perf_counter_ns()
                is_touched = self.raw(writable=True).touch(wrote, stop)
                page_ns = (time.perf_counter_ns() - began_ns) * PAGE_BYTES // max(stop - wrote, PAGE_BYTES)
                if page_ns > DEAR_PAGE_NS and self._tail is not None:
                    self._tail.prefer_file()
            except DiskFull:
                return wrote  # what the writer needs may still fit
            finally:
                self.release()
            self._touched_until = max(self._touched_until, stop) if is_touched else self.size
        return self._touched_until

    def warm_up(self, prepared_bytes: int | None = None) -> bool:
        """Fault in the whole file and keep it in memory; False when memory could not be locked.

        `prepared_bytes` is for a writer that syncs: pages are also written out in steps of it (`RawFile.prepare`).
        """
        if not self.hold():
            return False
        try:
            raw = self.raw(writable=True)
            for start in range(0, self.size, prepared_bytes or self.size):
                stop = min(self.size, start + (prepared_bytes or self.size))
                if prepared_bytes is None or not raw.prepare(start, stop):
                    raw.touch(start, stop)
            self._touched_until = self.size
            return raw.lock_memory() & raw.advise(Advice.WILL_NEED)
        finally:
            self.release()

    def unlock_memory(self) -> None:
        """Let the system page the segment out again."""
        raw = self._raw
        if raw is not None:
            raw.unlock_memory()
