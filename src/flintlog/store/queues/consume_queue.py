"""A consume queue (SimpleCQ): for each message of one queue, where it lies in the log.

The entry of queue offset q lies at logical byte q × 20, so a queue needs no search: file = that byte rounded down to
the file size, place = the rest.

Invariant: entries are appended in the log's order and never changed. `end.max_physical_offset` is the end of the last
record that has an entry; a record that ends at or before it is a duplicate and is not appended. The kernel's fast
dispatch writes through `end` as long as entries follow each other. `put` handles everything else: the first entry, a
full file, a duplicate, an entry out of step, an extension.
"""

from __future__ import annotations

from collections.abc import Iterator
from threading import get_ident
from typing import Final

from flintlog.disk.segments.segment import Segment
from flintlog.disk.segments.segment_queue import SegmentQueue
from flintlog.disk.segments.selected_range import SelectedRange
from flintlog.format.queue_entry import (
    ENTRY_SIZE,
    PHYSICAL_OFFSET,
    PREFILL,
    QUEUE_ENTRY,
    SIZE_OF_ENTRY,
    TAGS_CODE,
    is_extension_address,
)
from flintlog.kernel import QueueEnd, count_entries
from flintlog.store.queues.consume_queue_ext import ConsumeQueueExt
from flintlog.store.queues.covered_queues import QueueClaim
from flintlog.store.queues.entries import CqUnit, EntryRange
from flintlog.store.queues.logical_queue import Boundary, LogicalQueue, QueueType, StoreTimeOf
from flintlog.store.queues.min_search import first_at_or_after, prefill_end
from flintlog.store.queues.queue_tail import TailKeeper, place_at_end
from flintlog.store.queues.time_search import search_by_time, segment_by_time

_FARTHEST: Final = (1 << 63) - 1
"""The kernel's largest number: a damaged entry may end after it."""


class ConsumeQueueEntries(EntryRange):
    """A range of 20-byte entries, with tags codes looked up in the extension where they are addresses."""

    __slots__ = ("_ext",)

    def __init__(self, selected: SelectedRange, first_queue_offset: int, ext: ConsumeQueueExt | None) -> None:
        super().__init__(selected, first_queue_offset)
        self._ext = ext

    def __iter__(self) -> Iterator[CqUnit]:
        queue_offset = self.first_queue_offset
        view = self.view
        for physical_offset, size, tags_code in QUEUE_ENTRY.iter_unpack(view[: len(view) - len(view) % ENTRY_SIZE]):
            if self._ext is None or not is_extension_address(tags_code):
                yield CqUnit(queue_offset, physical_offset, size, tags_code)
            else:
                unit = self._ext.get(tags_code)
                code = None if unit is None else unit.tags_code
                yield CqUnit(queue_offset, physical_offset, size, code, 1, unit)
            queue_offset += 1


class ConsumeQueue(LogicalQueue):
    """One queue with an entry a message. Owned by the dispatching thread; read by any."""

    type = QueueType.SIMPLE
    entry_size = ENTRY_SIZE
    size_of_entry = SIZE_OF_ENTRY

    def __init__(
        self,
        topic: str,
        queue_id: int,
        segments: SegmentQueue,
        ext: ConsumeQueueExt | None = None,
        tails: TailKeeper | None = None,
    ) -> None:
        super().__init__(topic, queue_id, segments, tails)
        self.ext = ext
        self.end = QueueEnd(None)
        self.out_of_step_count = 0
        self._min_position = 0
        self._has_only_fillers = False
        self._first_physical_offset: int | None = None  # of the first entry of the first file, where recovery saw it
        self._file_times: dict[int, tuple[int, int]] = {}

    @property
    def min_offset(self) -> int:
        return self._min_position // ENTRY_SIZE

    @property
    def max_offset(self) -> int:
        return self.segments.max_offset // ENTRY_SIZE

    @property
    def next_offset(self) -> int | None:
        """The offset of the next message; None before the first entry, when any may be."""
        first = self.segments.first
        is_empty = first is None or (first is self.segments.last and not first.wrote_position)
        return None if is_empty or self._has_only_fillers else self.max_offset

    @property
    def last_entry(self) -> bytes:
        """The bytes of the last entry; there must be one."""
        place = self.segments.max_offset - ENTRY_SIZE
        segment = self.segments.find(place)
        selected = None if segment is None else segment.select(place - segment.base, ENTRY_SIZE)
        assert selected is not None
        with selected:
            return bytes(selected.view)

    @property
    def max_physical_offset(self) -> int:
        return self.end.max_physical_offset

    @property
    def end_byte(self) -> int:
        return 0 if self._has_only_fillers else super().end_byte

    def claim(self) -> QueueClaim | None:
        end = self.end_byte  # inlined: this runs for each queue while dispatch stands still
        return (
            QueueClaim(self.topic, self.queue_id, end // ENTRY_SIZE, end, self.end.max_physical_offset) if end else None
        )

    @property
    def record_bytes(self) -> int:
        return self.end.record_bytes

    @property
    def is_in_fast_dispatch(self) -> bool:
        return self.end.tail is not None

    @property
    def parts(self) -> tuple[SegmentQueue, ...]:
        return (self.segments,) if self.ext is None else (self.segments, self.ext.segments)

    @property
    def entries_per_file(self) -> int:
        """How many messages one file holds."""
        return self.segments.segment_size // ENTRY_SIZE

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
        if physical_offset + size <= self.end.max_physical_offset:
            return True
        place = queue_offset * ENTRY_SIZE
        # Checked before a file is made: a duplicate must not leave an empty file.
        if queue_offset and self.segments.segments and place < self.segments.max_wrote:
            return True
        self._tails.writer = get_ident()
        try:
            segment = self._segment_for(place)
            if segment is None:
                return False
            if queue_offset and place != segment.base + segment.wrote_position:
                self.out_of_step_count += 1  # Java only logs it, and appends at the queue's end
            if self.ext is not None and is_extended:
                segment.tail.make_room(ENTRY_SIZE)  # first: a unit without its entry would stay
                tags_code = self.ext.put(tags_code, store_timestamp, bitmap)
            self._append(segment, physical_offset, size, tags_code)
        finally:
            self._tails.writer = None
            self._tails.written.add(self)
        return True

    def fill(self, entry: bytes, count: int) -> bool:
        """Append one entry several times, in place of lost messages; False when no file could be made."""
        self._tails.writer = get_ident()
        try:
            while count:
                segment = self._segment_for(self.segments.max_offset)
                if segment is None:
                    return False
                fits = min(count, (segment.size - segment.wrote_position) // ENTRY_SIZE)
                tail, stop = place_at_end(segment, entry * fits, self._tails, self.end)
                tail.position = stop
                count -= fits
        finally:
            self._tails.writer = None
            self._tails.written.add(self)
        return True

    def skip_to(self, entry: bytes, queue_offset: int) -> bool:
        """Go on at an offset far away: fill the files at both ends of the gap, and make none in between."""
        place, size = queue_offset * ENTRY_SIZE, self.segments.segment_size
        base, end = place - place % size, self.segments.max_offset
        is_wide = base - end > size
        if is_wide and not (self.fill(entry, -end % size // ENTRY_SIZE) and self.segments.append_new(base)):
            return False
        return self.fill(entry, (place - self.segments.max_wrote) // ENTRY_SIZE)

    def _segment_for(self, place: int) -> Segment | None:
        is_first = self._has_no_entry()
        if is_first and self.ext is not None:
            self.ext.destroy()  # its units are of a lost queue, and take the place of new ones
        segment = self.segments.last_or_new(place)
        if segment is None:
            return None
        if self._has_stale_end:
            self._erase_stale_end(segment)
        if is_first and place:
            self._prefill(segment, place)
        return segment

    def _has_no_entry(self) -> bool:
        """Whether the next entry is the queue's first; it may have any offset.

        A crash may leave a file whose entries were lost, and the log may have lost the records: the next entry then
        has a later offset, and must not take the place of the lost ones. Or only fillers are left, and the messages of
        a deleted queue are dispatched again from the first on: their places are those of the fillers.
        """
        first = self.segments.first
        if first is None:
            return True
        if first is not self.segments.last or (first.wrote_position and not self._has_only_fillers):
            return False
        self.detach()
        self._delete_last()
        self._min_position = 0
        return True

    def _prefill(self, segment: Segment, place: int) -> None:
        """Fill a file up to the queue's first message with entries of no message."""
        position = place - segment.base
        tail, stop = place_at_end(segment, PREFILL * (position // ENTRY_SIZE), self._tails, self.end)
        tail.position = stop
        self._has_only_fillers = True
        self._min_position = place

    def _append(self, segment: Segment, physical_offset: int, size: int, tags_code: int) -> None:
        data = QUEUE_ENTRY.pack(physical_offset, size, tags_code)
        end = self.end
        tail, stop = place_at_end(segment, data, self._tails, end)
        tail.position = stop
        end.max_physical_offset = physical_offset + size
        end.record_bytes += size
        self._has_only_fillers = False
        if self.ext is None:  # with an extension every entry must come here
            end.tail = tail

    def detach(self) -> None:
        """Take the tail from fast dispatch, so that its file can be unmapped; `put` writes the next entry."""
        self.end.tail = None

    def load(self) -> None:
        super().load()
        if self.ext is not None:
            self.ext.load()

    def find_end(self, was_clean: bool, commit_log_min: int = 0) -> None:
        self.detach()
        super().find_end(was_clean, commit_log_min)

    @property
    def found_offset(self) -> int:
        return 0 if self._has_only_fillers else (self.found_end or 0) // ENTRY_SIZE

    def cut_end(self, was_clean: bool, *, is_durable: bool = False) -> None:
        super().cut_end(was_clean, is_durable=is_durable)
        if self.ext is not None and self.segments.segments:
            self.ext.recover()
            self._drop_unused_units()

    def _see_first(self, entry: bytes) -> None:
        """Most queues are opened without reading anything else."""
        if self.ext is None and entry != PREFILL:
            self._first_physical_offset = PHYSICAL_OFFSET.unpack_from(entry)[0]

    def _begins_with_record(self, first: Segment) -> bool:
        is_filled = self.segments.medium.head(first.path, ENTRY_SIZE) == PREFILL
        return not is_filled and super()._begins_with_record(first)

    def truncate(self, physical_offset: int) -> None:
        self.detach()
        super().truncate(physical_offset)
        self._drop_unused_units()

    def _drop_unused_units(self) -> None:
        """Drop the units of deleted entries: these get new ones when they are written again."""
        if self.ext is not None and self.segments.segments:
            self.ext.drop_unused(self.segments)

    let_go = detach

    def follow(self, end: int) -> int:
        self.detach()
        size = super().follow(end)
        self.end.record_bytes += size
        if self.ext is not None:
            self.ext.follow()
        return size

    def set_back(self, end: int) -> None:
        self.detach()
        super().set_back(end)
        if self.ext is not None and self.segments.segments:
            self.ext.recover()
            self._drop_unused_units()

    def resume(self, end: int) -> None:
        self.detach()
        super().resume(end)
        if self.ext is not None and self.segments.segments:
            self.ext.resume(self.segments)

    def _data_end(self, view: memoryview) -> int:
        return count_entries(view, 0, len(view) - len(view) % ENTRY_SIZE)

    def _built_to(self, view: memoryview, end: int) -> None:
        physical_offset, size, _ = QUEUE_ENTRY.unpack_from(view, end - ENTRY_SIZE)
        # A filler is no record. Java takes its 2^31 - 1 bytes for one, and ignores the queue's messages until the log
        # is as long.
        self._has_only_fillers = view[end - ENTRY_SIZE : end] == PREFILL
        if not self._has_only_fillers:
            self.end.max_physical_offset = min(physical_offset + size, _FARTHEST)

    def _built_below(self, physical_offset: int) -> None:
        self.end.max_physical_offset = physical_offset

    def _files_changed(self) -> None:
        self._file_times.clear()
        self._first_physical_offset = None

    def _correct_min(self, commit_log_min: int, now_ms: int) -> None:
        last = self.segments.last
        if last is None or self._min_position >= self.segments.max_offset:
            return
        start, seen = self.segments.min_offset, self._first_physical_offset
        if seen is not None and seen >= commit_log_min and self._min_position <= start:
            self._min_position = start
            return
        if last.read_position >= ENTRY_SIZE:
            newest = self._physical_offset_at(last, last.read_position - ENTRY_SIZE)
            if newest < commit_log_min:  # the log has none of these messages
                self._min_position = last.base + last.read_position
                return
        self._search_min(commit_log_min, now_ms)
        self._pass_prefill()

    def _pass_prefill(self) -> None:
        """Move the min offset after the fillers at the queue's beginning."""
        first = self.segments.first
        start = -1 if first is None else self._min_position - first.base
        selected = first.select(start) if first is not None and 0 <= start < first.read_position else None
        if selected is None:
            return
        with selected:
            self._min_position += prefill_end(selected.view)

    def _search_min(self, commit_log_min: int, now_ms: int) -> None:
        first = self._segment_of_min(commit_log_min)
        if first is None:
            return
        start = max(0, self._min_position - first.base)
        selected = first.select(start) if start <= first.read_position else None
        if selected is None:
            return
        with selected:
            view = selected.view
            is_within = self._min_position >= first.base
            if is_within and PHYSICAL_OFFSET.unpack_from(view)[0] >= commit_log_min:
                return
            found = first_at_or_after(view, commit_log_min)
            if found is None:
                return
            self._min_position = first.base + start + found
            if self.ext is not None:
                (code,) = TAGS_CODE.unpack_from(view, found)
                self.ext.truncate_before(code, now_ms)

    def entries_from(self, queue_offset: int) -> ConsumeQueueEntries | None:
        place = queue_offset * ENTRY_SIZE
        if place < self._min_position:
            return None
        segment = self.segments.find(place)
        selected = None if segment is None else segment.select(place - segment.base)
        return None if selected is None else ConsumeQueueEntries(selected, queue_offset, self.ext)

    def roll_next(self, queue_offset: int) -> int:
        following = queue_offset + self.entries_per_file - queue_offset % self.entries_per_file
        bases = (segment.base // ENTRY_SIZE for segment in self.segments.segments)
        return next((base for base in bases if base >= following), following)

    def offset_by_time(
        self, timestamp: int, boundary: Boundary, store_time_of: StoreTimeOf, commit_log_min: int
    ) -> int:
        segments = [segment for segment in self.segments.segments if segment.read_position >= ENTRY_SIZE]
        segment = segment_by_time(segments, timestamp, boundary, store_time_of, self._file_times)
        found = 0
        if segment is not None:
            floor = max(0, self._min_position - segment.base)
            found = search_by_time(segment, floor, timestamp, boundary, store_time_of, commit_log_min)
        return min(max(found, self.min_offset), self.max_offset)

    def flush(self, least_pages: int) -> bool:
        is_done = super().flush(least_pages)
        if self.ext is not None:
            is_done = self.ext.flush(least_pages) and is_done
        return is_done

    def shut_down(self, now_ms: int) -> None:
        self.detach()
        super().shut_down(now_ms)
        if self.ext is not None:
            self.ext.segments.shut_down(now_ms)

    def destroy(self) -> None:
        self.detach()
        self.end.max_physical_offset = -1
        self._min_position = 0
        super().destroy()
        if self.ext is not None:
            self.ext.destroy()
