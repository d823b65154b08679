"""A batch consume queue (BatchCQ): one entry for each inner batch of one queue.

A batch is one record of the log that holds several messages. Its entry carries the queue offset of the first of them
and their number; entries lie one after another, so a queue offset is found by bisection.

Invariant: entries are appended in the log's order. `max_physical_offset` is the START of the last record that has an
entry; a record that starts at or before it is a duplicate and is not appended.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from threading import get_ident
from typing import Final

from flintlog.disk.segments.segment import Segment
from flintlog.disk.segments.segment_queue import SegmentQueue
from flintlog.format.queue_entry import (
    BASE_AND_COUNT,
    BASE_AT,
    BATCH_ENTRY,
    BATCH_ENTRY_SIZE,
    OFFSET_AND_SIZE,
    SIZE_OF_BATCH_ENTRY,
    STORE_TIME_AT,
    BatchQueueEntry,
    encode_batch_queue_entry,
)
from flintlog.store.queues.entries import CqUnit, EntryRange
from flintlog.store.queues.logical_queue import Boundary, LogicalQueue, QueueType, StoreTimeOf
from flintlog.store.queues.queue_tail import TailKeeper, place_at_end

_NOT_FOUND: Final = -1
_LONG = struct.Struct(">q")


class BatchConsumeQueueEntries(EntryRange):
    """A range of 46-byte entries; the first one covers the requested offset."""

    __slots__ = ()

    def __iter__(self) -> Iterator[CqUnit]:
        view = self.view
        whole = view[: len(view) - len(view) % BATCH_ENTRY_SIZE]
        for physical_offset, size, tags_code, _time, base, count, _compacted, _reserved in BATCH_ENTRY.iter_unpack(
            whole
        ):
            yield CqUnit(base, physical_offset, size, tags_code, count)


class BatchConsumeQueue(LogicalQueue):
    """One queue with an entry a batch. Owned by the dispatching thread; read by any."""

    type = QueueType.BATCH
    entry_size = BATCH_ENTRY_SIZE
    size_of_entry = SIZE_OF_BATCH_ENTRY

    def __init__(self, topic: str, queue_id: int, segments: SegmentQueue, tails: TailKeeper | None = None) -> None:
        super().__init__(topic, queue_id, segments, tails)
        self._max_physical_offset = -1
        self._record_bytes = 0
        self._min_offset = -1
        self._max_offset = 0
        self._file_bases: dict[int, int] = {}
        self._found_offset, self._found_log_end = 0, -1

    @property
    def min_offset(self) -> int:
        return max(0, self._min_offset)

    @property
    def max_offset(self) -> int:
        return self._max_offset

    @property
    def max_physical_offset(self) -> int:
        return self._max_physical_offset

    @property
    def record_bytes(self) -> int:
        return self._record_bytes

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
        """`queue_offset` is the batch's first; a record that is no batch has -1 and gets no entry."""
        if queue_offset < 0 or physical_offset <= self._max_physical_offset:
            return True
        self._tails.writer = get_ident()
        try:
            segment = self.segments.last_or_new(self.segments.max_wrote)
            if segment is None:
                return False
            if self._has_stale_end:
                self._erase_stale_end(segment)
            entry = BatchQueueEntry(physical_offset, size, tags_code, store_timestamp, queue_offset, batch_count)
            tail, stop = place_at_end(segment, encode_batch_queue_entry(entry), self._tails)
            tail.position = stop
            self._max_physical_offset = physical_offset
            self._record_bytes += size
            self._max_offset = queue_offset + batch_count
            if self._min_offset < 0:
                self._min_offset = queue_offset
        finally:
            self._tails.writer = None
            self._tails.written.add(self)
        return True

    @property
    def log_end(self) -> int:
        return self._max_physical_offset + 1

    def cut_end(self, was_clean: bool, *, is_durable: bool = False) -> None:
        super().cut_end(was_clean, is_durable=is_durable)
        self._revise_offsets()

    def truncate(self, physical_offset: int) -> None:
        super().truncate(physical_offset)
        self._revise_offsets()

    def set_back(self, end: int) -> None:
        super().set_back(end)
        self._revise_offsets()

    def resume(self, end: int) -> None:
        super().resume(end)
        self._revise_offsets()

    def follow(self, end: int) -> int:
        size = super().follow(end)
        self._record_bytes += size
        self._revise_offsets()
        return size

    def _revise_offsets(self) -> None:
        """Take the offsets from the first and the last entry."""
        filled = [segment for segment in self.segments.segments if segment.read_position >= BATCH_ENTRY_SIZE]
        if not filled:
            self._min_offset, self._max_offset = -1, 0
            return
        self._min_offset = self._first_offset(filled[0])
        last = filled[-1].select(filled[-1].read_position - BATCH_ENTRY_SIZE)
        if last is not None:
            with last:
                _, _, _, _, base, count, _, _ = BATCH_ENTRY.unpack_from(last.view)
            self._max_offset = base + count

    def last_units(self) -> list[CqUnit]:
        """The last two entries of the files, or as many as there are."""
        places: list[tuple[Segment, int]] = []
        for segment in reversed(self.segments.segments):
            end = segment.read_position // BATCH_ENTRY_SIZE * BATCH_ENTRY_SIZE
            places += [(segment, end - back * BATCH_ENTRY_SIZE) for back in (1, 2) if back * BATCH_ENTRY_SIZE <= end]
            if len(places) >= 2:
                break
        found: list[CqUnit] = []
        for segment, position in reversed(places[:2]):
            selected = segment.select(position, BATCH_ENTRY_SIZE)
            if selected is not None:
                with selected:
                    found += BatchConsumeQueueEntries(selected, 0)
        return found

    def _first_offset(self, first: Segment) -> int:
        """Where the first batch begins. It is taken from the second if the two disagree: the first is damaged."""
        found, following = (self._base_and_count(first.base + at) for at in (0, BATCH_ENTRY_SIZE))
        if found is None or following is None:
            return _NOT_FOUND if found is None else found[0]
        base, count = found
        return base if base < following[0] else max(0, following[0] - count)

    def _data_end(self, view: memoryview) -> int:
        end = 0
        whole = view[: len(view) - len(view) % BATCH_ENTRY_SIZE]
        for physical_offset, size, _, _, base, count, _, _ in BATCH_ENTRY.iter_unpack(whole):
            if physical_offset < 0 or size <= 0 or base < 0 or count <= 0:
                break
            end += BATCH_ENTRY_SIZE
        return end

    @property
    def found_offset(self) -> int:
        return self._found_offset

    @property
    def found_log_end(self) -> int:
        return self._found_log_end

    def _built_to(self, view: memoryview, end: int) -> None:
        self._max_physical_offset, size = OFFSET_AND_SIZE.unpack_from(view, end - BATCH_ENTRY_SIZE)
        self._found_log_end = self._max_physical_offset + size
        self._found_offset = _offset_after(view, end)

    def _built_below(self, physical_offset: int) -> None:
        self._max_physical_offset = physical_offset - 1

    def _files_changed(self) -> None:
        self._file_bases.clear()

    def _correct_min(self, commit_log_min: int, now_ms: int) -> None:
        """The offset of the first batch that the log still has."""
        self._revise_offsets()
        first = self._segment_of_min(commit_log_min)
        selected = None if first is None else first.select(0)
        if selected is None:
            return
        with selected:
            whole = selected.view[: len(selected.view) - len(selected.view) % BATCH_ENTRY_SIZE]
            for number, (physical_offset, _, _, _, base, count, _, _) in enumerate(BATCH_ENTRY.iter_unpack(whole)):
                if physical_offset >= commit_log_min:
                    if number or first is not self.segments.first:
                        self._min_offset = max(self._min_offset, base)
                    break
                self._min_offset = base + count

    def entries_from(self, queue_offset: int) -> BatchConsumeQueueEntries | None:
        if queue_offset >= self._max_offset:
            return None
        segment = self._segment_of(queue_offset)
        if segment is None:
            return None
        position = self._position_of(segment, queue_offset)
        if position is None or not self._covers(segment, position, queue_offset):
            # In a ledger, RocketMQ's entry of an inner batch covers only the first of its offsets.
            position = position or 0
            if not self._is_in_order(segment, position):
                segment, position = self._find_covering(queue_offset) or (segment, position)
        selected = segment.select(position)
        if selected is None or len(selected.view) < BATCH_ENTRY_SIZE:
            return None
        (base,) = _LONG.unpack_from(selected.view, BASE_AT)
        return BatchConsumeQueueEntries(selected, base)

    def _segment_of(self, queue_offset: int) -> Segment | None:
        """The last file whose first batch starts at or before the offset, or the first."""
        filled = [segment for segment in self.segments.segments if segment.read_position >= BATCH_ENTRY_SIZE]
        first = filled[0] if filled and queue_offset >= self.min_offset else None
        return next((each for each in reversed(filled) if self._first_base(each) <= queue_offset), first)

    def _first_base(self, segment: Segment) -> int:
        base = self._file_bases.get(segment.base)
        if base is None:
            base = self._file_bases[segment.base] = self._field(segment, 0, BASE_AT)
        return base

    def _position_of(self, segment: Segment, queue_offset: int) -> int | None:
        """The entry with the greatest base at or before the offset."""
        low, high = 0, segment.read_position // BATCH_ENTRY_SIZE - 1
        found = None
        while low <= high:
            middle = (low + high) // 2
            if self._field(segment, middle * BATCH_ENTRY_SIZE, BASE_AT) <= queue_offset:
                found, low = middle * BATCH_ENTRY_SIZE, middle + 1
            else:
                high = middle - 1
        return found

    def _covers(self, segment: Segment, position: int, queue_offset: int) -> bool:
        selected = segment.select(position, BATCH_ENTRY_SIZE)
        if selected is None:
            return False
        with selected:
            base, count = BASE_AND_COUNT.unpack_from(selected.view, BASE_AT)
        return bool(base <= queue_offset < base + count)

    def _is_in_order(self, segment: Segment, position: int) -> bool:
        """Whether the entries around a place follow each other, so that the bisection that led there was right.

        A bisection that a damaged entry misleads ends at that entry or right before it. So the entry before the place
        and the two after it are checked, also in the neighbouring files.
        """
        reached = 0
        for step in (-1, 0, 1, 2):
            found = self._base_and_count(segment.base + position + step * BATCH_ENTRY_SIZE)
            if found is None:
                continue
            base, count = found
            if base < reached or not 0 < count <= self._max_offset - base:
                return False
            reached = base + count
        return True

    def _base_and_count(self, place: int) -> tuple[int, int] | None:
        """Of the entry at a place in the queue; None if nothing is written there."""
        segment = self.segments.find(place)
        selected = None if segment is None else segment.select(place - segment.base, BATCH_ENTRY_SIZE)
        if selected is None:
            return None
        with selected:
            base, count = BASE_AND_COUNT.unpack_from(selected.view, BASE_AT)
        return base, count

    def _find_covering(self, queue_offset: int) -> tuple[Segment, int] | None:
        """The entry of an offset, by reading all: a damaged one misleads a bisection."""
        return next((place for place in self._positions() if self._covers(*place, queue_offset)), None)

    def covering(self, queue_offset: int) -> list[CqUnit]:
        """All entries that claim an offset: if one of them is damaged, only their records show which."""
        found: list[CqUnit] = []
        for segment, position in self._positions():
            selected = (
                segment.select(position, BATCH_ENTRY_SIZE) if self._covers(segment, position, queue_offset) else None
            )
            if selected is not None:
                with selected:
                    found += BatchConsumeQueueEntries(selected, queue_offset)
        return found

    def _positions(self) -> Iterator[tuple[Segment, int]]:
        for segment in self.segments.segments:
            for position in range(0, segment.read_position - BATCH_ENTRY_SIZE + 1, BATCH_ENTRY_SIZE):
                yield segment, position

    @staticmethod
    def _field(segment: Segment, position: int, field_at: int) -> int:
        selected = segment.select(position + field_at, _LONG.size)
        if selected is None:
            return _NOT_FOUND
        with selected:
            value: int = _LONG.unpack_from(selected.view)[0]
            return value

    def after(self, unit: CqUnit | None, queue_offset: int) -> int:
        """The next batch that any other entry names: the entry itself may be damaged."""
        following = self._max_offset
        for segment, position in self._positions():
            base = self._field(segment, position, BASE_AT)
            is_other = unit is None or self._field(segment, position, 0) != unit.physical_offset
            if is_other and queue_offset < base < following:
                following = base
        return max(following, queue_offset + 1)

    def roll_next(self, queue_offset: int) -> int:
        """Batches have no fixed place: RocketMQ answers 0, and the caller starts again at the min offset."""
        return 0

    def offset_by_time(
        self, timestamp: int, boundary: Boundary, store_time_of: StoreTimeOf, commit_log_min: int
    ) -> int:
        found = self._search_time(timestamp, boundary)
        return min(max(found, self.min_offset), self.max_offset)

    def _search_time(self, timestamp: int, boundary: Boundary) -> int:
        for segment in reversed(self.segments.segments):
            if segment.read_position >= BATCH_ENTRY_SIZE and self._field(segment, 0, STORE_TIME_AT) <= timestamp:
                return self._search_time_in(segment, timestamp, boundary)
        return _NOT_FOUND

    def _search_time_in(self, segment: Segment, timestamp: int, boundary: Boundary) -> int:
        last = segment.read_position // BATCH_ENTRY_SIZE - 1
        if timestamp >= self._field(segment, last * BATCH_ENTRY_SIZE, STORE_TIME_AT):
            return self._field(segment, last * BATCH_ENTRY_SIZE, BASE_AT)
        found = self._bisect_time(segment, last, timestamp, boundary)
        return _NOT_FOUND if found is None else self._field(segment, found * BATCH_ENTRY_SIZE, BASE_AT)

    def _bisect_time(self, segment: Segment, last: int, timestamp: int, boundary: Boundary) -> int | None:
        """RocketMQ's own steps: without an equal time the answer for UPPER depends on them."""
        low, high = 0, last
        while low <= high:
            middle = (low + high) // 2
            time = self._field(segment, middle * BATCH_ENTRY_SIZE, STORE_TIME_AT)
            if middle == high:
                return middle if time >= timestamp else None
            if middle == low:
                if time >= timestamp:
                    return middle
                low = middle + 1
            elif boundary is Boundary.LOWER:
                low, high = (middle + 1, high) if time < timestamp else (low, middle)
            else:
                low, high = (middle, high) if time <= timestamp else (low, middle - 1)
        return None

    def destroy(self) -> None:
        super().destroy()
        self._max_physical_offset = -1
        self._min_offset, self._max_offset = -1, 0


def _offset_after(view: memoryview, end: int) -> int:
    """The queue offset after the last entry that ends there; after the one before it, if the two do not agree.

    Then one of the two is damaged, or a gap lies between them. The lower of the two offsets was given in any case.
    """
    base, count = BASE_AND_COUNT.unpack_from(view, end - BATCH_ENTRY_SIZE + BASE_AT)
    if end >= 2 * BATCH_ENTRY_SIZE:
        before, before_count = BASE_AND_COUNT.unpack_from(view, end - 2 * BATCH_ENTRY_SIZE + BASE_AT)
        if before + before_count != base:
            return int(min(before + before_count, base + count))
    return int(base + count)
