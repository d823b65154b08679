"""The entries of one queue in its files: where they end, cutting them, and deleting expired files.

Both kinds of queue begin an entry with the physical offset of its record, so this is one code for both.

Invariant: the entries before the write position are valid, and their physical offsets grow. Bytes after it may be left
from before a crash; they are cleared before the next entry is written.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from typing import ClassVar, Final

from flintlog.disk.segments.segment import Segment
from flintlog.disk.segments.segment_queue import SegmentQueue
from flintlog.format.queue_entry import PHYSICAL_OFFSET
from flintlog.store.log.segment_bytes import held, written_end
from flintlog.store.queues.queue_tail import TailKeeper

_CHECKED_LAST: Final = 3
"""After a clean stop only the last three files are read, as in RocketMQ."""
_MAX_OFFSET: Final = (1 << 63) - 1
_GLANCE_BYTES: Final = 4096


class QueueData(ABC):
    """The files of one queue. The dispatching thread alone writes and cuts them."""

    entry_size: ClassVar[int]
    size_of_entry: ClassVar[struct.Struct]
    """An entry, of which only the record's size is read."""

    def __init__(self, segments: SegmentQueue, tails: TailKeeper | None) -> None:
        self.segments = segments
        self._tails = TailKeeper() if tails is None else tails
        self._has_stale_end = False
        self._corrected_to = -1
        self.found_end: int | None = None
        """The byte of the files after the last entry, as `find_end` saw it; None without a file."""
        self._first_entry = b""
        self.broken_offset: int | None = None
        """The physical offset in an invalid or misplaced entry at the end of the data; None without one."""
        self.known_gaps: tuple[tuple[int, int], ...] = ()
        """Byte ranges that need no file: the queue goes on after a gap (`deleted_queues.py`)."""

    @property
    @abstractmethod
    def max_physical_offset(self) -> int:
        """How far into the log this queue was built; -1 before the first entry."""

    @abstractmethod
    def _data_end(self, view: memoryview) -> int:
        """The position of the first invalid entry of a file."""

    @abstractmethod
    def _built_to(self, view: memoryview, end: int) -> None:
        """Take `max_physical_offset` from the entry that ends at this position."""

    @abstractmethod
    def _built_below(self, physical_offset: int) -> None:
        """The queue has no entry of a record at or after this physical offset any more."""

    @abstractmethod
    def _correct_min(self, commit_log_min: int, now_ms: int) -> None:
        """`correct_min_offset` for this kind of queue."""

    def _files_changed(self) -> None:  # noqa: B027 - most kinds cache nothing
        """Files were cut or deleted: drop what was cached about them."""

    def _see_first(self, entry: bytes) -> None:  # noqa: B027 - most kinds have no use for it
        """Cache the first entry of the first file, which recovery has read."""

    @property
    def is_in_fast_dispatch(self) -> bool:
        """Whether the kernel's fast dispatch may write entries at any time."""
        return False

    @property
    def parts(self) -> tuple[SegmentQueue, ...]:
        """All its files, those of an extension too."""
        return (self.segments,)

    # Positions

    @property
    def last_physical_offset(self) -> int:
        """Where the last entry's record starts; -1 when there is no entry."""
        for segment in reversed(self.segments.segments):
            if segment.read_position >= self.entry_size:
                return self._physical_offset_at(segment, segment.read_position - self.entry_size)
        return -1

    @property
    def end_byte(self) -> int:
        """The byte of the files after the last entry; 0 without one, also if a crash left a file without entries."""
        last = self.segments.last
        is_empty = last is None or (not last.wrote_position and last is self.segments.first)
        return 0 if is_empty else self.segments.max_wrote

    @property
    def had_files_before(self) -> bool:
        """Whether there was a file before the first one, which then begins with the entry of a record."""
        first = self.segments.first
        return first is not None and first.base > 0 and self._begins_with_record(first)

    def _begins_with_record(self, first: Segment) -> bool:
        """Whether a file begins with the entry of a record, and not with filling."""
        return self._data_end(memoryview(self.segments.medium.head(first.path, self.entry_size))) > 0

    def is_known_gap(self, start: int, end: int) -> bool:
        """Whether the files that lack these bytes were never made."""
        return any(first <= start and end <= last for first, last in self.known_gaps)

    def has_entry_before(self, end: int) -> bool:
        """Whether an entry ends at this byte of the files."""
        segment = self.segments.find(end - self.entry_size)
        selected = None if segment is None else segment.select(end - self.entry_size - segment.base, self.entry_size)
        if selected is None:
            return False
        with selected:
            size: int = self.size_of_entry.unpack(selected.view)[0]
            return size > 0

    def _physical_offset_at(self, segment: Segment, position: int) -> int:
        selected = segment.select(position, self.entry_size)
        if selected is None:
            return -1
        with selected:
            offset: int = PHYSICAL_OFFSET.unpack_from(selected.view)[0]
            return offset

    # Finding the end

    def load(self) -> None:
        """Find the files; nothing is mapped."""
        self.segments.load()

    def recover(self, was_clean: bool = False, commit_log_min: int = 0) -> None:
        """Find the end of the data, and cut what follows it."""
        self.find_end(was_clean, commit_log_min)
        self.cut_end(was_clean)

    def find_end(self, was_clean: bool, commit_log_min: int = 0) -> None:
        """Find the end of the data; nothing is changed yet.

        A power loss may take the content of any file, in any order, so after an unclean stop all of them are read: the
        first place without an entry is the end. After a clean stop the last files are enough.
        """
        found = self._find_end_at_a_glance()
        self.found_end, self._first_entry = found or self._find_end_in_files(was_clean, commit_log_min)

    @property
    def found_offset(self) -> int:
        """The next offset by the end that was found; 0 if that does not follow from it."""
        return 0

    @property
    def found_log_end(self) -> int:
        """Where the record of the last entry that was found ends in the log; -1 without one."""
        return self.max_physical_offset

    def _find_end_at_a_glance(self) -> tuple[int, bytes] | None:
        """The end of the data, and the first entry, if one read shows it: most queues end in the first block."""
        segments = self.segments.segments
        if len(segments) != 1:
            return None
        head = self.segments.medium.head(segments[0].path, _GLANCE_BYTES)
        view = memoryview(head)
        position = self._data_end(view)
        if position + self.entry_size > len(head) and len(head) < segments[0].size:
            return None
        self._see_end(view, position)
        return segments[0].base + position, head[: self.entry_size] if position else b""

    def _find_end_in_files(self, was_clean: bool, commit_log_min: int) -> tuple[int | None, bytes]:
        end, first = None, b""
        segments = self.segments.segments
        for segment in segments[-_CHECKED_LAST:] if was_clean else segments:
            is_gap = not was_clean and end is not None and segment.base > end
            if is_gap and self.max_physical_offset > commit_log_min and not self.is_known_gap(end or 0, segment.base):
                break  # a file is missing, and the log has the records of those before it
            selected = segment.select(0)
            position = 0
            if selected is not None:
                with selected:
                    position = self._data_end(selected.view)
                    self._see_end(selected.view, position)
                    if position and segment is self.segments.first:
                        first = bytes(selected.view[: self.entry_size])
            end = segment.base + position
            if position < segment.size:
                break
        return end, first

    def offset_after_end(self) -> int | None:
        """The physical offset in the first entry that follows a hole after the found end; None without one."""
        end = self.found_end or 0
        for segment in self.segments.segments:
            start = max(0, end - segment.base)
            if segment.end > end and (stop := written_end(segment, start)) > start:
                with held(segment) as view:
                    while start + PHYSICAL_OFFSET.size < stop and not any(view[start : start + self.entry_size]):
                        start += self.entry_size
                    return int(PHYSICAL_OFFSET.unpack_from(view, start)[0]) & _MAX_OFFSET
        return None

    def _see_end(self, view: memoryview, position: int) -> None:
        """Take what the entries around the end of the data say."""
        if position:
            self._built_to(view, position)
        rest = view[position : position + self.entry_size]
        # An entry that is neither valid nor empty: a torn end, or damage.
        is_broken = len(rest) == self.entry_size and any(rest)
        self.broken_offset = PHYSICAL_OFFSET.unpack_from(rest)[0] & _MAX_OFFSET if is_broken else None
        self._see_order(view, position)

    def _see_order(self, view: memoryview, end: int) -> None:
        """Entries follow the log: one that points before its predecessor is damaged, or lies after the true end."""
        if end >= 2 * self.entry_size:
            before, last = (PHYSICAL_OFFSET.unpack_from(view, end - back * self.entry_size)[0] for back in (2, 1))
            if last < before:
                self.broken_offset = last & _MAX_OFFSET

    # Cutting

    def cut_end(self, was_clean: bool, *, is_durable: bool = False) -> None:
        """Cut what follows the end that was found. The bytes of its file stay for now.

        After a clean stop nothing can follow it. `is_durable`: the last stop has synced the files. Otherwise the next
        flush syncs them.
        """
        if self.found_end is not None:
            self._cut(self.found_end)
            self._has_stale_end = not was_clean
            if self._first_entry:
                self._see_first(self._first_entry)
        self._take_over(is_durable=is_durable)

    def _take_over(self, *, is_durable: bool = False) -> None:
        """The files were found: bytes of a killed process may be in the page cache alone."""
        if not is_durable:
            self._tails.written.add(self)
            return
        for segments in self.parts:
            segments.take_over(is_durable=True)

    def _cut(self, end: int, *, clear: bool = False) -> None:
        self.segments.truncate(end, clear=clear)
        self._has_stale_end = not clear
        self._files_changed()

    def _erase_stale_end(self, segment: Segment) -> None:
        """Clear what follows the end that recovery found, before a new entry joins it to the data.

        Pages are written back in any order, so entries may follow a lost one, and the log may have been cut since: the
        next recovery would take them for messages. A file without any is only read.
        """
        end = segment.wrote_position
        if written_end(segment, end) > end:
            segment.clear_unwritten()
        self._has_stale_end = False

    def truncate(self, physical_offset: int) -> None:
        """Drop the entries of records at or after this offset.

        A last file without any data is deleted too: Java would take its first, empty entry for a message.
        """
        # The first comparison needs no look into a file, which matters for thousands of queues.
        if 0 <= self.max_physical_offset < physical_offset or self.last_physical_offset < physical_offset:
            return
        self._built_below(physical_offset)
        while (segment := self.segments.last) is not None:
            kept = self._keep_below(segment, physical_offset)
            if kept:
                # Cleared: a later opening would take the old entries for ones that follow what is written now.
                self._cut(segment.base + kept, clear=True)
                return
            self._delete_last()
        self._files_changed()

    def _delete_last(self) -> None:
        """Delete the last file. The next whole flush makes that durable, with many folders at a time."""
        last = self.segments.last
        self.segments.delete_last(is_synced=False)
        if last is not None:
            self._tails.emptied.add(last.path.parent)

    def _keep_below(self, segment: Segment, physical_offset: int) -> int:
        selected = segment.select(0)
        if selected is None:
            return 0
        with selected:
            kept = self._data_end(selected.view)
            # From the end: a damaged entry in the middle must not take the later ones with it.
            while kept and PHYSICAL_OFFSET.unpack_from(selected.view, kept - self.entry_size)[0] >= physical_offset:
                kept -= self.entry_size
            if kept:
                self._built_to(selected.view, kept)
                self._see_order(selected.view, kept)
            return kept

    def set_back(self, end: int) -> None:
        """End the queue at this byte of its files, whatever follows; the entries before it are known to be whole."""
        while (segment := self.segments.last) is not None and segment.base >= end:
            self._delete_last()
        if segment is None:
            self._files_changed()
            return
        self._cut(end, clear=True)
        self._take_over()
        selected = segment.select(0)
        if selected is not None:
            with selected:
                self._see_end(selected.view, end - segment.base)

    def resume(self, end: int) -> None:
        """Continue at this byte of the files, which were loaded. What follows it is written again, with the same bytes.

        So nothing is cleared, as `set_back` does: that would cost more than a few entries.
        """
        while (segment := self.segments.last) is not None and segment.base >= end:
            self._delete_last()
        if segment is None:
            return
        self.segments.truncate(end)
        selected = segment.select(0)
        if selected is not None:
            with selected:
                self._see_end(selected.view, end - segment.base)

    # Another process writes

    def let_go(self) -> None:  # noqa: B027 - most kinds hold nothing
        """Another process will write the files: fast dispatch of this one must not."""

    def follow(self, end: int) -> int:
        """Another process has built the queue up to this byte of its files; the size of the records that are new."""
        start = self.segments.max_offset
        self.segments.follow(end)
        size = 0
        for segment in self.segments.segments:
            if segment.end > start and (selected := segment.select(0)) is not None:
                with selected:
                    new = selected.view[max(0, start - segment.base) :]
                    size += sum(
                        row[0] for row in self.size_of_entry.iter_unpack(new[: len(new) - len(new) % self.entry_size])
                    )
                    self._built_to(selected.view, len(selected.view))
        if end < start or not end:
            self._files_changed()
        return size

    # Expiring

    def correct_min_offset(self, commit_log_min: int, now_ms: int = 0) -> None:
        """Move the min offset to the first record that the log still has."""
        self._correct_min(commit_log_min, now_ms)
        self._corrected_to = commit_log_min

    def delete_expired(self, commit_log_min: int, now_ms: int) -> int:
        """Delete all files but the last whose last record the log no longer has; how many."""
        count = self.segments.delete_before(commit_log_min, now_ms=now_ms, unit_size=self.entry_size)
        if count:
            self._files_changed()
        if count or commit_log_min > self._corrected_to:  # records that came since then are later anyway
            self.correct_min_offset(commit_log_min, now_ms)
        return count

    def _segment_of_min(self, commit_log_min: int) -> Segment | None:
        """The first file with an entry of a record that the log still has, or else the last.

        Expiry makes that the first file. After a crash between the deletion of a log file and that of queue files it is
        a later one.
        """
        segments = self.segments.segments
        for segment in segments[:-1]:
            if self._physical_offset_at(segment, segment.size - self.entry_size) >= commit_log_min:
                return segment
        return segments[-1] if segments else None

    # Ending

    def flush(self, least_pages: int) -> bool:
        """Make data durable; True when nothing was left to do."""
        return self.segments.flush(least_pages)

    def destroy(self) -> None:
        """Delete every file."""
        self._files_changed()
        self.segments.destroy()

    def shut_down(self, now_ms: int) -> None:
        """Unmap every file; views that are held stay valid."""
        self.segments.shut_down(now_ms)
