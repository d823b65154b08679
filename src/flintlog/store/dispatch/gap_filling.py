"""Entries in place of lost messages, so that the other messages keep their offsets.

    queue    | 5 | 6 | 7 |  lost  |  lost  | 10 |        each lost offset gets an entry
    log      ... record ... [ damage      ] ... record of 10 ...

The entry of a lost message points at the damage that took it. If the log has no damage there (a record may name a wrong
queue), it repeats the entry before it. So physical offsets still grow along the queue: every search in a queue relies
on that, also RocketMQ's. A reader sees that the record names another offset.

A gap is wide if the log lost its end and the queue's files were deleted. A record after it is believed if others follow
it, and also if

    this store gave the offset itself        it was put since the store was opened
    a note says that the queue goes on       an opening builds the queue again (`deleted_queues.py`)
    the damage has room for the messages     a slave knows its master's damage, and has no such note

A wide gap is noted before it is filled, because the record after it may be the last of its queue.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, Protocol

from flintlog import kernel
from flintlog.derive.entries import Place, places_of
from flintlog.derive.offset_order import FOLLOWING, MAX_UNSEEN_GAP, is_believed
from flintlog.disk.segments.segment_queue import SegmentQueue
from flintlog.errors import DiskFull
from flintlog.format.queue_entry import QueueEntry, QueueKey, encode_queue_entry
from flintlog.format.record import END_RESERVE, MIN_RECORD_SIZE
from flintlog.kernel import Row, ScanStop
from flintlog.store.log.damage import Damage, DamageMap
from flintlog.store.log.segment_bytes import held
from flintlog.store.queues.consume_queue import ConsumeQueue
from flintlog.store.queues.logical_queue import QueueType
from flintlog.store.queues.queue_table import QueueTable

log = logging.getLogger(__name__)

CHUNK_BYTES: Final = 4 * 1024 * 1024
MAX_CHUNKS: Final = 16
AHEAD_BYTES: Final = MAX_CHUNKS * CHUNK_BYTES
"""How far ahead the log is searched for other records of a queue."""
MAX_FILLERS: Final = 1 << 20
"""A wider gap gets no entries: these would fill 20 MiB."""


class Ahead(Protocol):
    """The records after one that is dispatched."""

    def offsets(self, key: QueueKey, physical_offset: int) -> Iterator[int]:
        """The offsets that the intact records of a queue name after a place of the log, as far as it was searched."""


class GapFiller:
    """Fills queues so that an entry gets the place that its record names. Used by the dispatching thread."""

    def __init__(self, damage: DamageMap, queues: QueueTable, ahead: Ahead, log_file_bytes: int) -> None:
        self._damage = damage
        self._queues = queues
        self._ahead = ahead
        self._log_file_bytes = log_file_bytes

    def make_way(self, queue: ConsumeQueue | None, row: Row, place: Place) -> bool:
        """Fill the queue up to the place of a record; whether the entry may be put there.

        `queue` is None before its first entry.
        """
        expected = None if queue is None else queue.next_offset
        if place.queue_offset == (expected or 0):
            return True
        if queue is not None and row.physical_offset + row.size <= queue.max_physical_offset:
            return True  # a duplicate: `put` drops it
        if not self._is_believed(queue, row, place):
            where = f"{place.topic}/{place.queue_id}"
            log.warning(
                "the record at %d names offset %d of %s, which is impossible",
                row.physical_offset,
                place.queue_offset,
                where,
            )
            return False
        if queue is not None and expected is not None:
            self._fill(queue, row, place.queue_offset - expected)
        return True

    def _is_believed(self, queue: ConsumeQueue | None, row: Row, place: Place) -> bool:
        expected, key = None if queue is None else queue.next_offset, (place.topic, place.queue_id)
        low = expected or 0
        if low <= place.queue_offset < self._queues.offsets.given(*key):
            return True
        given = self._queues.deleted.next_offset(*key)
        following = list(islice(self._ahead.offsets(key, row.physical_offset), FOLLOWING))
        if is_believed(given if low < given <= place.queue_offset else expected, place.queue_offset, following):
            return True
        return queue is not None and not following and 0 < place.queue_offset - low <= self._room(queue, row)

    def _room(self, queue: ConsumeQueue, row: Row) -> int:
        """The most messages that the damage between the queue's last one and a record can have taken."""
        return self._damage.bytes_between(queue.max_physical_offset, row.physical_offset) // MIN_RECORD_SIZE

    def _fill(self, queue: ConsumeQueue, row: Row, count: int) -> None:
        if count > MAX_UNSEEN_GAP:
            self._queues.note_gap(queue, queue.max_offset + count)
        start = queue.max_physical_offset
        lost = self._damage.between(start, row.physical_offset)
        if lost is not None and count <= self._room(queue, row):
            at, size = _place_filler(lost, self._log_file_bytes)
            entry = encode_queue_entry(QueueEntry(at, size, 0))
        else:
            entry = queue.last_entry
        is_done = queue.fill(entry, count) if count <= MAX_FILLERS else queue.skip_to(entry, queue.max_offset + count)
        if not is_done:
            raise DiskFull(f"no room for a file of queue {queue.topic}/{queue.queue_id}")


def _place_filler(lost: Damage, segment_size: int) -> tuple[int, int]:
    """A part of the damage within one file: a reader takes an entry that spans files for an expired message."""
    start = lost.start
    room = segment_size - start % segment_size
    if room <= END_RESERVE and start + room < lost.end:
        start, room = start + room, segment_size
    return start, min(lost.end - start, room)


@dataclass(slots=True)
class _Chunk:
    """Records of [start, end) of the log: for each queue, their places and the offsets that they name."""

    start: int
    end: int
    found: dict[QueueKey, list[tuple[int, int]]] = field(default_factory=dict)


class LogAhead:
    """The queue offsets that later records of the log name. Each part of the log is read once."""

    def __init__(self, segments: SegmentQueue, queues: QueueTable, lmq: Callable[[], bool]) -> None:
        self._segments = segments
        self._queues = queues
        self._lmq = lmq
        self._chunks: deque[_Chunk] = deque()

    def offsets(self, key: QueueKey, physical_offset: int) -> Iterator[int]:
        """Those of one queue, after a record of the log."""
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

    def _is_batch(self, topic: str) -> bool:
        return self._queues.type_of(topic) is QueueType.BATCH

    def _take(self, chunk: _Chunk, view: memoryview, base: int, row: Row, queues: list[QueueKey]) -> None:
        topic, queue_id = queues[row.queue]
        start = row.physical_offset - base
        record = bytes(view[start : start + row.size]) if row.marks else b""
        if self._is_batch(topic):
            return
        for place in places_of(topic, queue_id, row, record, is_batch=self._is_batch, lmq=self._lmq()):
            chunk.found.setdefault((place.topic, place.queue_id), []).append((row.physical_offset, place.queue_offset))
