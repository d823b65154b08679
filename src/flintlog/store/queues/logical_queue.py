"""What every kind of queue offers.

A queue is derived from the commit log: the dispatcher alone writes it, in the log's order, and readers
take ranges of entries that lie in one file. Two kinds exist. `SimpleCQ` has an entry for each message,
at a place that follows from the queue offset; `BatchCQ` has an entry for each batch, one after another.
Both begin an entry with the physical offset of its record, so cutting and expiring files is one code.

Invariant: in [min offset, max offset) every entry is valid, and the entries' physical offsets grow.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Callable
from enum import Enum
from typing import ClassVar

from flintlog.disk.segments.segment import Segment
from flintlog.disk.segments.segment_queue import SegmentQueue
from flintlog.format.config_json import BATCH_TYPE, SIMPLE_TYPE
from flintlog.format.queue_entry import PHYSICAL_OFFSET
from flintlog.store.log.segment_bytes import held, written_end
from flintlog.store.queues.covered_queues import QueueClaim
from flintlog.store.queues.entries import CqUnit, EntryRange
from flintlog.store.queues.queue_tail import TailKeeper

StoreTimeOf = Callable[[int, int], int]
"""(physical offset, size) → the record's store timestamp, -1 when the log no longer has it."""

_TRUSTED_BUT_LAST = 3  # after a clean stop only the last three files are read, as in RocketMQ
_MAX_OFFSET = (1 << 63) - 1
_GLANCE_BYTES = 4096


class QueueType(Enum):
    """RocketMQ's CQType; the value is how `topics.json` spells it."""

    SIMPLE = SIMPLE_TYPE
    BATCH = BATCH_TYPE


class Boundary(Enum):
    """Which of several candidates a search by time answers with."""

    LOWER = "lower"
    UPPER = "upper"


class LogicalQueue(ABC):
    """One queue of one topic over its files: the face and the file handling that both kinds share.

    Written by the dispatching thread alone. Readers see an entry once the write position passed it.
    """

    type: ClassVar[QueueType]
    entry_size: ClassVar[int]

    def __init__(self, topic: str, queue_id: int, segments: SegmentQueue, tails: TailKeeper | None = None) -> None:
        self.topic = topic
        self.topic_bytes = topic.encode(errors="replace")  # one that cannot be encoded is no record's
        self.queue_id = queue_id
        self.segments = segments
        self._tails = TailKeeper() if tails is None else tails
        self._has_stale_end = False
        self._corrected_to = -1
        self.found_end: int | None = None
        """The byte of the files after the last entry, as `find_end` saw it; None without a file."""
        self._first_entry = b""
        self.broken_offset: int | None = None
        self.known_gaps: tuple[tuple[int, int], ...] = ()
        """Bytes of the files that no file need hold: the queue goes on after a gap (`deleted_queues.py`)."""

    @property
    @abstractmethod
    def min_offset(self) -> int:
        """The first queue offset whose record the log still has."""

    @property
    @abstractmethod
    def max_offset(self) -> int:
        """The queue offset behind the last message."""

    @property
    @abstractmethod
    def max_physical_offset(self) -> int:
        """How far into the log this queue was built; -1 before the first entry."""

    @property
    def log_end(self) -> int:
        """As `max_physical_offset`, but always after the last record's beginning: below it the log has no other one."""
        return self.max_physical_offset

    @property
    @abstractmethod
    def record_bytes(self) -> int:
        """The size of all records whose entries were appended since the queue was loaded."""

    @abstractmethod
    def put(
        self,
        physical_offset: int,
        size: int,
        tags_code: int,
        queue_offset: int,
        store_timestamp: int,
        bitmap: bytes | None = None,
        batch_count: int = 1,
        *,
        is_extended: bool = True,
    ) -> bool:
        """Append the entry of one record unless it is there; False when no file could be made.

        Without `is_extended` the entry keeps its tags code even where the queue has an extension.
        """

    def correct_min_offset(self, commit_log_min: int, now_ms: int = 0) -> None:
        """Move the min offset to the first record that the log still has."""
        self._correct_min(commit_log_min, now_ms)
        self._corrected_to = commit_log_min

    @abstractmethod
    def _correct_min(self, commit_log_min: int, now_ms: int) -> None:
        """What `correct_min_offset` does for this kind of queue."""

    @abstractmethod
    def entries_from(self, queue_offset: int) -> EntryRange | None:
        """The entries from here to the end of that file; None when there are none."""

    def after(self, unit: CqUnit | None, queue_offset: int) -> int:
        """Where a reader goes on that asked for an offset and found this entry, or its record, damaged, or nothing."""
        return queue_offset + 1

    @abstractmethod
    def roll_next(self, queue_offset: int) -> int:
        """Where to go on when a file has nothing at this offset."""

    @abstractmethod
    def offset_by_time(
        self, timestamp: int, boundary: Boundary, store_time_of: StoreTimeOf, commit_log_min: int
    ) -> int:
        """The queue offset for a point in time, within [min offset, max offset]."""

    @abstractmethod
    def _data_end(self, view: memoryview) -> int:
        """The position of the first invalid entry of a file."""

    @abstractmethod
    def _built_to(self, view: memoryview, end: int) -> None:
        """Take `max_physical_offset` from the entry that ends at this position."""

    @abstractmethod
    def _built_below(self, physical_offset: int) -> None:
        """Nothing at or behind this physical offset is in the queue any more."""

    def _files_changed(self) -> None:  # noqa: B027 - most have nothing to forget
        """Files were cut or deleted: forget what was remembered about them."""

    @property
    def is_in_lane(self) -> bool:
        """Whether the kernel's lane writes entries without anyone hearing of it."""
        return False

    @property
    def parts(self) -> tuple[SegmentQueue, ...]:
        """All its files, those of an extension too."""
        return (self.segments,)

    @property
    def last_physical_offset(self) -> int:
        """Where the last entry's record starts; -1 when there is no entry."""
        for segment in reversed(self.segments.segments):
            if segment.read_position >= self.entry_size:
                return self._physical_offset_at(segment, segment.read_position - self.entry_size)
        return -1

    @property
    def end_byte(self) -> int:
        """The byte of the files behind the last entry; 0 without one, also where a crash left a file that lost all."""
        last = self.segments.last
        is_empty = last is None or (not last.wrote_position and last is self.segments.first)
        return 0 if is_empty else self.segments.max_wrote

    def claim(self) -> QueueClaim | None:
        """Where the queue ends; None when it has no entry."""
        end = self.end_byte
        return QueueClaim(self.topic, self.queue_id, self.max_offset, end, self.log_end) if end else None

    @property
    def had_files_before(self) -> bool:
        """Whether there was a file before the first one, which then begins with the entry of a record."""
        first = self.segments.first
        return first is not None and first.base > 0 and self._begins_with_record(first)

    def _begins_with_record(self, first: Segment) -> bool:
        """Whether the first entry of a file is one, and no filling."""
        return self._data_end(memoryview(self.segments.medium.head(first.path, self.entry_size))) > 0

    def is_known_gap(self, start: int, end: int) -> bool:
        """Whether the files that lack these bytes were never made."""
        return any(first <= start and end <= last for first, last in self.known_gaps)

    def entry(self, queue_offset: int) -> CqUnit | None:
        """One entry."""
        entries = self.entries_from(queue_offset)
        if entries is None:
            return None
        with entries:
            return next(iter(entries), None)

    def load(self) -> None:
        """Find the files; nothing is mapped."""
        self.segments.load()

    def recover(self, was_clean: bool = False, commit_log_min: int = 0) -> None:
        """Find the end of the data, and cut what follows it."""
        self.find_end(was_clean, commit_log_min)
        self.cut_end(was_clean)

    def find_end(self, was_clean: bool, commit_log_min: int = 0) -> None:
        """Find the end of the data; nothing is changed yet.

        A power loss may take the content of any file, in any order, so after an unclean stop all of them are read:
        the first place without an entry is the end. After a clean one the last files tell.
        """
        found = self._find_end_at_a_glance()
        self.found_end, self._first_entry = found or self._find_end_in_files(was_clean, commit_log_min)

    @property
    def found_offset(self) -> int:
        """The next offset by the end that was found; 0 where that does not tell."""
        return 0

    @property
    def found_log_end(self) -> int:
        """Where the record of the last entry that was found ends in the log; -1 without one."""
        return self.max_physical_offset

    def cut_end(self, was_clean: bool, *, is_durable: bool = False) -> None:
        """Cut what follows the end that was found. The bytes of its file stay for now.

        After a clean stop nothing can lie there, and later no one has to look. `is_durable`: the last stop has synced
        the files. Otherwise they are synced with the next flush.
        """
        if self.found_end is not None:
            self._cut(self.found_end)
            self._has_stale_end = not was_clean
            if self._first_entry:
                self._see_first(self._first_entry)
        self._take_over(is_durable=is_durable)

    def _take_over(self, *, is_durable: bool = False) -> None:
        """The files were found: what a process that was killed wrote may be in the page cache alone."""
        if not is_durable:
            self._tails.written.add(self)
            return
        for segments in self.parts:
            segments.take_over(is_durable=True)

    def _find_end_at_a_glance(self) -> tuple[int, bytes] | None:
        """The end of a queue whose data ends in the first block of its only file, as in most it does; and its start."""
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
        for segment in segments[-_TRUSTED_BUT_LAST:] if was_clean else segments:
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
        """Where the first entry points that follows the end which was found, after a hole; None without one."""
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
        # An entry that is not valid and not empty either: a torn end, or damage.
        is_broken = len(rest) == self.entry_size and any(rest)
        self.broken_offset = PHYSICAL_OFFSET.unpack_from(rest)[0] & _MAX_OFFSET if is_broken else None
        self._see_order(view, position)

    def _see_order(self, view: memoryview, end: int) -> None:
        """Entries follow the log: one that goes back behind another is damaged, or behind the true end."""
        if end >= 2 * self.entry_size:
            before, last = (PHYSICAL_OFFSET.unpack_from(view, end - back * self.entry_size)[0] for back in (2, 1))
            if last < before:
                self.broken_offset = last & _MAX_OFFSET

    def _see_first(self, entry: bytes) -> None:  # noqa: B027 - not every kind has a use for it
        """Remember the first entry of the first file while it is at hand."""

    def _cut(self, end: int, *, clear: bool = False) -> None:
        self.segments.truncate(end, clear=clear)
        self._has_stale_end = not clear
        self._files_changed()

    def _erase_stale_end(self, segment: Segment) -> None:
        """Clear what lies behind the end that recovery found, before a new entry hides it.

        Pages are written back in any order, so behind a lost one there may be entries, and the log may since have
        been cut: the next recovery would take them for messages. A file without any is only looked at.
        """
        end = segment.wrote_position
        if written_end(segment, end) > end:
            segment.clear_unwritten()
        self._has_stale_end = False

    def truncate(self, physical_offset: int) -> None:
        """Drop the entries of records at or behind this offset.

        A last file without any data is dropped too: Java would take its first, empty entry for a message.
        """
        if 0 <= self.max_physical_offset < physical_offset or self.last_physical_offset < physical_offset:
            return  # the first is known without a look into the file, which counts when there are thousands of queues
        self._built_below(physical_offset)
        while (segment := self.segments.last) is not None:
            kept = self._keep_below(segment, physical_offset)
            if kept:
                # Cleared, or a later opening would take the old entries for ones that follow what is written now.
                self._cut(segment.base + kept, clear=True)
                return
            self.segments.delete_last()
        self._files_changed()

    def let_go(self) -> None:  # noqa: B027 - most keep nothing
        """Another process will write the files: no lane of this one may."""

    def follow(self, end: int) -> int:
        """Another process has built the queue up to this byte of its files; the size of the records that are new."""
        start = self.segments.max_offset
        self.segments.follow(end)
        size = 0
        for segment in self.segments.segments:
            if segment.end > start and (selected := segment.select(0)) is not None:
                with selected:
                    new = selected.view[max(0, start - segment.base) :]
                    size += sum(row[0] for row in self._sizes.iter_unpack(new[: len(new) - len(new) % self.entry_size]))
                    self._built_to(selected.view, len(selected.view))
        if end < start or not end:
            self._files_changed()
        return size

    @property
    def _sizes(self) -> struct.Struct:
        """An entry, of which only the record's size is read."""
        return struct.Struct(f">8xi{self.entry_size - 12}x")

    def has_entry_before(self, end: int) -> bool:
        """Whether an entry ends at this byte of the files."""
        segment = self.segments.find(end - self.entry_size)
        selected = None if segment is None else segment.select(end - self.entry_size - segment.base, self.entry_size)
        if selected is None:
            return False
        with selected:
            size: int = self._sizes.unpack(selected.view)[0]
            return size > 0

    def set_back(self, end: int) -> None:
        """End the queue at this byte of its files, whatever lies behind; what lies before is known to be whole."""
        while (segment := self.segments.last) is not None and segment.base >= end:
            self.segments.delete_last()
        if segment is None:
            self._files_changed()
            return
        self._cut(end, clear=True)
        self._take_over()
        selected = segment.select(0)
        if selected is not None:
            with selected:
                self._see_end(selected.view, end - segment.base)

    def _keep_below(self, segment: Segment, physical_offset: int) -> int:
        selected = segment.select(0)
        if selected is None:
            return 0
        with selected:
            kept = self._data_end(selected.view)
            # From the end: a damaged entry in the middle must not take those behind it along.
            while kept and PHYSICAL_OFFSET.unpack_from(selected.view, kept - self.entry_size)[0] >= physical_offset:
                kept -= self.entry_size
            if kept:
                self._built_to(selected.view, kept)
                self._see_order(selected.view, kept)
            return kept

    def delete_expired(self, commit_log_min: int, now_ms: int) -> int:
        """Delete all files but the last whose last record the log no longer has; how many."""
        count = self.segments.delete_before(commit_log_min, now_ms=now_ms, unit_size=self.entry_size)
        if count:
            self._files_changed()
        if count or commit_log_min > self._corrected_to:  # what came since then is behind it anyway
            self.correct_min_offset(commit_log_min, now_ms)
        return count

    def _segment_of_min(self, commit_log_min: int) -> Segment | None:
        """The first file with an entry of a record that the log still has, or else the last.

        Expiry keeps that the first one. After a crash between the deletion of a log file and that of queue files the
        boundary lies further on.
        """
        segments = self.segments.segments
        for segment in segments[:-1]:
            if self._physical_offset_at(segment, segment.size - self.entry_size) >= commit_log_min:
                return segment
        return segments[-1] if segments else None

    def _physical_offset_at(self, segment: Segment, position: int) -> int:
        selected = segment.select(position, self.entry_size)
        if selected is None:
            return -1
        with selected:
            offset: int = PHYSICAL_OFFSET.unpack_from(selected.view)[0]
            return offset

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
