"""The search for a point in time in a consume queue.

An entry has no time of its own: the time of its record is read from the log, so a search reads as few as it can.
First the file is chosen by the times of the files' first and last entries, then the entry by bisection. With several
messages of one time, LOWER answers with the first, UPPER with the last; with none, LOWER with the first later one and
UPPER with the last earlier one.
"""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence

from flintlog.disk.segments.segment import Segment
from flintlog.format.queue_entry import ENTRY_SIZE, QUEUE_ENTRY
from flintlog.store.queues.logical_queue import Boundary, StoreTimeOf

_UNKNOWN = -1


def segment_by_time(
    segments: Sequence[Segment],
    timestamp: int,
    boundary: Boundary,
    store_time_of: StoreTimeOf,
    known_times: MutableMapping[int, tuple[int, int]],
) -> Segment | None:
    """The file to look in: LOWER the first that reaches the time, UPPER the last that starts by it.

    `known_times` (file base → its first and last time) caches times; the last file still grows, so its last time is
    never known.
    """
    if not segments:
        return None
    times = [_times_of(segment, segment is segments[-1], store_time_of, known_times) for segment in segments]
    if boundary is Boundary.LOWER:
        reaching = (segment for segment, (_, stop) in zip(segments[:-1], times, strict=False) if stop >= timestamp)
        return next(reaching, segments[-1])
    starting = (segment for segment, (start, _) in zip(segments, times, strict=True) if start <= timestamp)
    return next(reversed(list(starting)), None)


def _times_of(
    segment: Segment, is_last: bool, store_time_of: StoreTimeOf, known_times: MutableMapping[int, tuple[int, int]]
) -> tuple[int, int]:
    start, stop = known_times.get(segment.base, (_UNKNOWN, _UNKNOWN))
    if start == _UNKNOWN:
        start = _time_at(segment, 0, store_time_of)
    if stop == _UNKNOWN and not is_last:
        stop = _time_at(segment, segment.size - ENTRY_SIZE, store_time_of)
    known_times[segment.base] = (start, stop)
    return start, stop


def _time_at(segment: Segment, position: int, store_time_of: StoreTimeOf) -> int:
    selected = segment.select(position, ENTRY_SIZE)
    if selected is None:
        return _UNKNOWN
    with selected:
        physical_offset, size, _ = QUEUE_ENTRY.unpack_from(selected.view)
    time = store_time_of(physical_offset, size)
    return time if time > 0 else _UNKNOWN


def search_by_time(
    segment: Segment, floor: int, timestamp: int, boundary: Boundary, store_time_of: StoreTimeOf, commit_log_min: int
) -> int:
    """The queue offset for a time in one file, from the byte `floor` on."""
    selected = segment.select(0)
    if selected is None:
        return 0
    with selected:
        search = _Search(selected.view, floor, timestamp, store_time_of, commit_log_min)
        if search.time_at(search.ceiling) < timestamp:
            position = search.ceiling + (ENTRY_SIZE if boundary is Boundary.LOWER else 0)
        elif search.time_at(search.floor) > timestamp:
            if boundary is Boundary.UPPER:
                return 0
            position = 0
        else:
            found = search.bisect(boundary)
            if found is None:
                return 0
            position = found
    return max(0, segment.base + position) // ENTRY_SIZE


class _Search:
    """A bisection over the entries of one file; positions are bytes in it."""

    def __init__(
        self, view: memoryview, floor: int, timestamp: int, store_time_of: StoreTimeOf, commit_log_min: int
    ) -> None:
        self.view = view
        self.ceiling = len(view) - len(view) % ENTRY_SIZE - ENTRY_SIZE
        self.floor = min(floor, self.ceiling)
        self.timestamp = timestamp
        self.store_time_of = store_time_of
        self.commit_log_min = commit_log_min

    def time_at(self, position: int) -> int:
        physical_offset, size, _ = QUEUE_ENTRY.unpack_from(self.view, position)
        return self.store_time_of(physical_offset, size)

    def bisect(self, boundary: Boundary) -> int | None:
        """The position found, -1 when every entry is on the wrong side, None when a record has no time."""
        low, high = self.floor, self.ceiling
        earlier = later = -1
        while low <= high:
            middle = (low + high) // (2 * ENTRY_SIZE) * ENTRY_SIZE
            if QUEUE_ENTRY.unpack_from(self.view, middle)[0] < self.commit_log_min:
                time = self.timestamp - 1  # a deleted record is earlier than any
            else:
                time = self.time_at(middle)
                if time < 0:
                    return None
            if time == self.timestamp:
                return self._edge(middle, boundary)
            if time > self.timestamp:
                high, later = middle - ENTRY_SIZE, middle
            else:
                low, earlier = middle + ENTRY_SIZE, middle
        return later if boundary is Boundary.LOWER else earlier

    def _edge(self, position: int, boundary: Boundary) -> int:
        """Walk to the first or last of equal times."""
        step = -ENTRY_SIZE if boundary is Boundary.LOWER else ENTRY_SIZE
        following = position + step
        while self.floor <= following <= self.ceiling and self.time_at(following) == self.timestamp:
            position, following = following, following + step
        return position
