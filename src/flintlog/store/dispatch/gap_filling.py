"""Entries in place of messages that are lost, so that every message that is there keeps its place in its queue.

    queue    | 5 | 6 | 7 |  lost  |  lost  | 10 |        each lost offset gets an entry
    log      ... record ... [ damage      ] ... record of 10 ...

The entry of a lost message points at the damage that took it. Where the log shows no damage, because a record names
a wrong queue for example, it repeats the entry before it. So offsets in the log still grow along the queue, and every
search in a queue relies on that, RocketMQ's too. A reader sees that the record there names another offset.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from flintlog import kernel
from flintlog.derive.entries import Place, places_of
from flintlog.derive.offset_order import is_believed
from flintlog.disk.segments.segment_queue import SegmentQueue
from flintlog.errors import DiskFull
from flintlog.format.queue_entry import QueueEntry, encode_queue_entry
from flintlog.format.record import END_RESERVE, MIN_RECORD_SIZE
from flintlog.kernel import Row, ScanStop
from flintlog.store.queues.consume_queue import ConsumeQueue
from flintlog.store.log.damage import Damage, DamageMap
from flintlog.store.log.segment_bytes import held

log = logging.getLogger(__name__)

CHUNK_BYTES: Final = 4 * 1024 * 1024
MAX_CHUNKS: Final = 16
"""How far ahead in the log other records of a queue are looked for."""
MAX_FILLERS: Final = 1 << 22
"""More places than this are not filled: 80 MiB of entries."""

QueueKey = tuple[str, int]


class GapFiller:
    """Sees to it that an entry comes to the place that its record names. Used by the thread that dispatches."""

    def __init__(
        self, segments: SegmentQueue, damage: DamageMap, is_batch: Callable[[str], bool], lmq: Callable[[], bool]
    ) -> None:
        self._segments = segments
        self._damage = damage
        self._ahead = _Ahead(segments, is_batch, lmq)

    def make_way(self, queue: ConsumeQueue | None, row: Row, place: Place) -> bool:
        """Fill the queue up to the place of a record; whether the record is to be put there.

        `queue` is None if it is not there yet.
        """
        expected = None if queue is None else queue.next_offset
        if place.queue_offset == (expected or 0):
            return True
        if queue is not None and row.physical_offset + row.size <= queue.max_physical_offset:
            return True  # it is there already, and `put` sees that
        following = self._ahead.offsets((place.topic, place.queue_id), row.physical_offset)
        if not is_believed(expected, place.queue_offset, following):
            where = f"{place.topic}/{place.queue_id}"
            log.warning(
                "the record at %d names offset %d of %s, which cannot be",
                row.physical_offset,
                place.queue_offset,
                where,
            )
            return False
        if queue is not None and expected is not None:
            self._fill(queue, row, place.queue_offset - expected)
        return True

    def _fill(self, queue: ConsumeQueue, row: Row, count: int) -> None:
        start = queue.max_physical_offset
        lost = self._damage.between(start, row.physical_offset)
        room = self._damage.bytes_between(start, row.physical_offset) // MIN_RECORD_SIZE
        if lost is not None and count <= room:
            at, size = _place_filler(lost, self._segments.segment_size)
            entry = encode_queue_entry(QueueEntry(at, size, 0))
        elif count <= MAX_FILLERS:
            entry = queue.last_entry
        else:
            return  # RocketMQ's rule then: the entry comes where the queue ends
        if not queue.fill(entry, count):
            raise DiskFull(f"no room for a file of queue {queue.topic}/{queue.queue_id}")


def _place_filler(lost: Damage, segment_size: int) -> tuple[int, int]:
    """A stretch of the damage within one file: a reader takes one that ends elsewhere for an expired message."""
    start = lost.start
    room = segment_size - start % segment_size
    if room <= END_RESERVE and start + room < lost.end:
        start, room = start + room, segment_size
    return start, min(lost.end - start, room)


@dataclass(slots=True)
class _Chunk:
    """Records of [start, end) of the log: by queue, where each lies and the offset it names."""

    start: int
    end: int
    found: dict[QueueKey, list[tuple[int, int]]] = field(default_factory=dict)


class _Ahead:
    """The queue offsets that the next records of the log name. Each part of the log is read once."""

    def __init__(self, segments: SegmentQueue, is_batch: Callable[[str], bool], lmq: Callable[[], bool]) -> None:
        self._segments = segments
        self._is_batch = is_batch
        self._lmq = lmq
        self._chunks: deque[_Chunk] = deque()

    def offsets(self, key: QueueKey, physical_offset: int) -> Iterator[int]:
        """Those of one queue, behind a record of the log."""
        chunks = self._chunks
        while chunks and chunks[0].end <= physical_offset:
            chunks.popleft()
        if chunks and chunks[0].start > physical_offset:
            chunks.clear()
        position = physical_offset
        for number in range(MAX_CHUNKS):
            if number == len(chunks):
                chunk = self._read(position)
                if chunk is None:
                    return
                chunks.append(chunk)
            position = chunks[number].end
            for at, offset in chunks[number].found.get(key, ()):
                if at > physical_offset:
                    yield offset

    def _read(self, position: int) -> _Chunk | None:
        segment = next((each for each in self._segments.segments if each.end > position), None)
        if segment is None:
            return None
        start = max(0, position - segment.base)
        with held(segment) as view:
            stop = min(segment.size, start + CHUNK_BYTES)
            chunk = _Chunk(position, segment.base + stop)
            while start < stop:
                seen = kernel.scan(view, start, segment.size, segment.base, check_crc=True, max_count=4096)
                for index in range(seen.count):
                    self._take(chunk, view, segment.base, seen.row(index), seen.queues)
                start = seen.end
                if seen.reason is ScanStop.LIMIT and seen.count:
                    chunk.end = max(chunk.end, segment.base + start)
                    continue
                if seen.reason is ScanStop.BLANK:
                    chunk.end = segment.end
                    break
                found = kernel.find_record(view, start + 1, segment.size, segment.base) if start + 1 < stop else -1
                if found < 0:
                    chunk.end = segment.end
                    break
                start = found
                chunk.end = max(chunk.end, segment.base + start)
        return chunk

    def _take(self, chunk: _Chunk, view: memoryview, base: int, row: Row, queues: list[QueueKey]) -> None:
        topic, queue_id = queues[row.queue]
        start = row.physical_offset - base
        record = bytes(view[start : start + row.size]) if row.marks else b""
        if self._is_batch(topic):
            return
        for place in places_of(topic, queue_id, row, record, is_batch=self._is_batch, lmq=self._lmq()):
            chunk.found.setdefault((place.topic, place.queue_id), []).append((row.physical_offset, place.queue_offset))
