"""Whether the record that a queue entry points at is the message of that entry.

A flipped bit of an entry can lead to a whole record of another queue, or of another place in the same one. The record
names its topic, queue and queue offset, so it is compared before it is returned.

    record names                      its entry there            answer
    this queue, this offset                                      it is the message
    another queue                                                one of the two is damaged
    this queue, another offset        points at it               this entry is damaged
    this queue, another offset        points elsewhere           it is the message: RocketMQ appends where a queue
                                                                 ends, so a lost record shifts those after it
"""

from __future__ import annotations

from flintlog.derive.entries import Place, places_of
from flintlog.kernel import Row
from flintlog.store.queues.entries import CqUnit
from flintlog.store.queues.logical_queue import LogicalQueue, QueueType


def stranger(queue: LogicalQueue, unit: CqUnit, row: Row, own: tuple[str, int], record: bytes) -> str | None:
    """Why an intact record is not the message of an entry; None when it is. `own` is the queue that it names."""
    is_batch = queue.type is QueueType.BATCH
    if own == (queue.topic, queue.queue_id) and row.queue_offset == unit.queue_offset and not is_batch:
        return None
    places = places_of(*own, row, record, is_batch=lambda _: is_batch, lmq=True)
    here = [place for place in places if (place.topic, place.queue_id) == (queue.topic, queue.queue_id)]
    if not here:
        return f"its entry points at a message of {own[0]}/{own[1]}"
    if any(_is_of(unit, place) for place in here):
        return None
    if is_batch or any(_points_at(queue, place, unit.physical_offset) for place in here):
        return f"its entry points at the message of offset {here[0].queue_offset}"
    return None


def _is_of(unit: CqUnit, place: Place) -> bool:
    return (unit.queue_offset, unit.batch_count) == (place.queue_offset, place.batch_count)


def _points_at(queue: LogicalQueue, place: Place, physical_offset: int) -> bool:
    entry = queue.entry(place.queue_offset)
    return entry is not None and entry.physical_offset == physical_offset
