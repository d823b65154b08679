"""A log in files of one size: RocketMQ's MappedFileQueue.

    00000000000000000000   00000000000001048576   00000000000002097152
    [ full, sealed       ] [ full, sealed       ] [ the last one: tail  ]
    ^ min_offset                                        ^ max_wrote

`segment_list.py` loads and reads the segments; this module changes them. Only the last segment grows, and only the
first ones are deleted. One thread at a time may roll, truncate or delete.

Reasons and costs: docs/decisions/0007.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from flintlog.disk.media.medium import Medium
from flintlog.disk.segments.multi_path import no_path_is_full
from flintlog.disk.segments.segment import FIRST_STEP_BYTES, Segment
from flintlog.disk.segments.segment_list import SegmentList
from flintlog.errors import DamagedStore, FlintlogError
from flintlog.format.names import segment_name
from flintlog.format.queue_entry import physical_offset_at

DEFAULT_FORCE_AFTER_MS = 120_000


@dataclass(frozen=True, slots=True)
class NewFile:
    """A segment to create."""

    path: Path
    base: int
    size: int


class SegmentMaker(Protocol):
    """Makes segments in advance."""

    def obtain(self, wanted: NewFile, ahead: NewFile) -> Segment:
        """Return the wanted segment and start making the next one; raises on failure.

        The same segment is returned until it `is_listed`, because a caller may be interrupted before that.
        """


class SegmentQueue(SegmentList):
    """The segments of one log: growing, flushing, cutting and deleting."""

    def __init__(
        self,
        directories: Sequence[Path],
        segment_size: int,
        medium: Medium,
        *,
        allocator: SegmentMaker | None = None,
        read_only_directories: Collection[Path] = (),
        full_directories: Callable[[], Collection[Path]] = no_path_is_full,
        is_derived: bool = False,
    ) -> None:
        """Without an `allocator`, segments are made on demand."""
        super().__init__(
            directories,
            segment_size,
            medium,
            read_only_directories=read_only_directories,
            full_directories=full_directories,
            is_derived=is_derived,
        )
        self.store_timestamp = 0
        self.create_failure: FlintlogError | None = None
        self._allocator = allocator
        self._flushing = threading.Lock()

    # Growing

    def last_or_new(self, start_offset: int = 0) -> Segment | None:
        """The segment to append to; a new one if there is none or the last is full.

        None when it cannot be created; `create_failure` then holds the reason.
        """
        last = self.last
        if last is not None and not last.is_full:
            return last
        base = start_offset - start_offset % self.segment_size if last is None else last.end
        return self.append_new(base)

    def roll(self) -> Segment | None:
        """Close the last segment, even if it has room, and open the next one."""
        last = self.last
        if last is not None:
            last.wrote_position = last.size
        return self.last_or_new()

    def append_new(self, base: int) -> Segment | None:
        """Add a new last segment, perhaps with a gap before it; None when it cannot be created."""
        last = self.last
        try:
            segment = self._make(base)
        except FlintlogError as error:
            self.create_failure = error
            return None
        self.create_failure = None
        if last is not None:
            last.unlock_memory()
        return segment

    def _make(self, base: int) -> Segment:
        wanted = self._new_file(base)
        if self._allocator is not None:
            return self._add(self._allocator.obtain(wanted, self._new_file(base + self.segment_size)))
        allocated = min(FIRST_STEP_BYTES, wanted.size)
        raw = self.medium.create(wanted.path, wanted.size, allocated)
        try:
            return self._add(Segment(wanted.path, base, wanted.size, self.medium, raw=raw, allocated=allocated))
        except BaseException:
            # A signal handler raised: an unlisted file would block the creation of the next one.
            if self.find(base) is None:
                self.medium.remove(wanted.path)
            raise

    def _new_file(self, base: int) -> NewFile:
        directory = self._paths.choose(base, self.segment_size)
        self.medium.make_directories(directory)
        return NewFile(directory / segment_name(base), base, self.segment_size)

    # Flush and commit

    def flush(self, least_pages: int = 0) -> bool:
        """Flush the segment at `flushed_where`; True when nothing moved. One segment per call, one caller at a time."""
        with self._flushing:
            segment = self._next_from(self.flushed_where)
            if segment is None:
                return True
            store_timestamp = segment.store_timestamp
            where = segment.base + segment.flush(least_pages)
            is_unmoved = where == self.flushed_where
            self.flushed_where = where
            if least_pages == 0:
                self.store_timestamp = store_timestamp
            return is_unmoved

    def _next_from(self, where: int) -> Segment | None:
        """The segment at an offset, or the next one if that was deleted meanwhile.

        A shut-down segment that a reader still holds is skipped too, so that later ones are flushed.
        """
        segment = self.find(where)
        if segment is not None and segment.available:
            return segment
        return next((segment for segment in self._segments if segment.end > where and segment.available), None)

    def flush_all(self) -> None:
        """Flush all readable bytes; ends because each round moves forward or stops."""
        while not self.flush(0):
            pass

    def commit(self, least_pages: int = 0) -> bool:
        """Commit the segment at `committed_where`; True when nothing moved."""
        segment = self._next_from(self.committed_where)
        if segment is None:
            return True
        where = segment.base + segment.commit(least_pages)
        is_unmoved = where == self.committed_where
        self.committed_where = where
        return is_unmoved

    def take_over(self, *, is_durable: bool = False) -> None:
        """Make the loaded bytes durable: a killed process leaves bytes that are only in the page cache.

        `is_durable`: the last writer has noted that it synced the files.
        """
        with self._flushing:
            for segment in self._segments:
                if is_durable:
                    segment.flushed_position = segment.read_position
                elif segment.flushed_position < segment.read_position:
                    segment.sync()
            self.flushed_where = self.committed_where = self.max_wrote

    # Shrinking

    def truncate(self, offset: int, *, clear: bool = False, stored_until: int | None = None) -> None:
        """Cut the log at `offset`: the segment there gets its three positions, later ones are deleted.

        The last is deleted first, so that a crash in between leaves no hole. Java leaves the bytes after the cut
        unchanged; with `clear` they are zeroed, so that an old record among them is never taken for one that follows
        the new ones. `stored_until` is the store time of the last record before the cut, if the caller knows it.
        """
        with self._flushing:  # a running flush would report cut bytes as flushed
            for segment in reversed(self._segments):
                if segment.base > offset:
                    self._drop(segment)
                elif segment.end > offset:
                    segment.set_positions(offset - segment.base)
                    if clear:
                        segment.clear_unwritten()
                    if stored_until is not None:
                        segment.lower_store_timestamp(stored_until)
            self._lower_to(offset)

    def reach(self, offset: int) -> None:
        """Continue at `offset`, after the last segment; the missing files between stay missing."""
        last = self.last
        if last is not None and last.end >= offset:
            return
        base = offset - offset % self.segment_size
        segment = self.append_new(base)
        if segment is None:
            raise DamagedStore(
                f"the log is known to reach {offset}, but its file cannot be created: {self.create_failure}",
                path=self._paths.choose(base, self.segment_size) / segment_name(base),
                advice="is another file or directory in its place? restore the file, or move the other away",
            )
        segment.set_positions(offset - base)

    def drop_from(self, offset: int) -> None:
        """Delete the segments that begin at or after `offset`, the last first."""
        with self._flushing:
            for segment in reversed(self._segments):
                if segment.base >= offset:
                    self._drop(segment)
            self._lower_to(offset)

    def _lower_to(self, offset: int) -> None:
        self.flushed_where = min(self.flushed_where, offset)
        self.committed_where = min(self.committed_where, offset)

    def delete_last(self, *, is_synced: bool = True) -> None:
        """Delete the last segment, and lower the flushed offset to its start.

        Without `is_synced` a crash may bring the file back until the caller has synced its folder.
        """
        with self._flushing:
            last = self.last
            if last is not None:
                self._drop(last, is_synced=is_synced)
                self._lower_to(last.base)

    def _drop(self, segment: Segment, *, is_synced: bool = True) -> None:
        # By force: the offsets will be reused, so the old bytes must no longer be served.
        segment.destroy(0, 0)
        self._forget(segment)
        if is_synced:  # else a crash could bring the file back, with its old records
            self.medium.sync_directory(segment.path.parent)

    # Deleting

    def delete_expired(
        self,
        reserved_ms: int,
        *,
        now_ms: int,
        batch_max: int = 10,
        force_after_ms: int = DEFAULT_FORCE_AFTER_MS,
        at_once: bool = False,
        below: int | None = None,
    ) -> int:
        """Delete segments not written for `reserved_ms` (any, if `at_once`), the oldest first; returns how many.

        The last segment stays. At most `batch_max` are deleted. It stops at the first one that is too young, still
        held, or ends after the offset `below`, because a log must not have holes.
        """
        count = 0
        for segment in self._segments[:-1]:
            if below is not None and segment.end > below:
                break
            if not at_once and now_ms < segment.modified_ms + reserved_ms:
                break
            if not segment.destroy(force_after_ms, now_ms):
                break
            self._forget(segment)
            self.medium.sync_directory(segment.path.parent)  # in order, or several paths could leave a hole
            count += 1
            if count >= batch_max:
                break
        return count

    def delete_before(
        self,
        offset: int,
        *,
        now_ms: int,
        unit_size: int | None = None,
        force_after_ms: int = 60_000,
    ) -> int:
        """Delete segments that are completely before `offset`, the oldest first, never the last; returns how many.

        With `unit_size` the segments belong to a queue whose units begin with a physical offset, and that of the last
        unit is compared; otherwise the segment's own end is.
        """
        return self.delete_leading(
            lambda segment: self._is_before(segment, offset, unit_size), now_ms=now_ms, force_after_ms=force_after_ms
        )

    def delete_leading(
        self, is_over: Callable[[Segment], bool], *, now_ms: int, force_after_ms: int = DEFAULT_FORCE_AFTER_MS
    ) -> int:
        """Delete segments from the oldest on while `is_over` holds, never the last; returns how many."""
        count = 0
        for segment in self._segments[:-1]:
            if not is_over(segment) or not segment.destroy(force_after_ms, now_ms):
                break
            self._forget(segment)
            count += 1
        return count

    def _is_before(self, segment: Segment, offset: int, unit_size: int | None) -> bool:
        if unit_size is None:
            return segment.end <= offset
        selected = segment.select(segment.size - unit_size, unit_size)
        if selected is None:
            return not segment.available  # an earlier try has shut it down: try to delete it again
        with selected:
            return physical_offset_at(selected.view) < offset

    def retry_delete_first(self, *, now_ms: int, force_after_ms: int = DEFAULT_FORCE_AFTER_MS) -> bool:
        """Try again to delete a first segment that a reader held; True when it is deleted now."""
        first = self.first
        if first is None or first.available or not first.destroy(force_after_ms, now_ms):
            return False
        self._forget(first)
        self.medium.sync_directory(first.path.parent)
        return True

    def shut_down(self, now_ms: int = 0) -> None:
        """Unmap all segments; existing views stay valid."""
        for segment in self._segments:
            segment.shut_down(0, now_ms)

    def destroy(self) -> None:
        """Delete every segment and the directories."""
        for segment in reversed(self._segments):
            segment.destroy(0, 0)
            self._forget(segment)
        self.flushed_where = self.committed_where = 0
        for directory in self._paths.paths:
            self.medium.remove_tree(directory)
