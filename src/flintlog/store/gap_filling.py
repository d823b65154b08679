"""Entries in place of messages that damage took.

    queue    | 5 | 6 | 7 |  lost  |  lost  | 10 |        each lost offset gets an entry that points at the damage
    log      ... record ... [ damage      ] ... record of 10 ...

So every message that is there keeps its place in the queue, and a reader that comes to a lost one passes it.
"""

from __future__ import annotations

from collections.abc import Iterator

from flintlog.derive.entries import Place
from flintlog.format.record import END_RESERVE, MIN_RECORD_SIZE
from flintlog.kernel import Row
from flintlog.store.consume_queue import ConsumeQueue
from flintlog.store.damage import Damage, DamageMap


def gap_fillers(queue: ConsumeQueue, row: Row, damage: DamageMap, segment_size: int) -> Iterator[tuple[Row, Place]]:
    """What is to be put into a queue before the entry of `row`, one after another; nothing if nothing was lost."""
    expected = queue.max_offset
    if row.queue_offset <= expected or expected == 0:
        return
    lost = damage.between(queue.max_physical_offset, row.physical_offset)
    lost_bytes = damage.bytes_between(queue.max_physical_offset, row.physical_offset)
    if lost is None or row.queue_offset - expected > lost_bytes // MIN_RECORD_SIZE:
        # Too many for what was lost: it is the offset itself that is wrong.
        return
    start, size = _place_filler(lost, segment_size)
    filler = row._replace(physical_offset=start, size=size, tags_code=0)
    for queue_offset in range(expected, row.queue_offset):
        # Each filler must end behind the one before, or the queue takes it for a repeat.
        queue.end.max_physical_offset = min(queue.max_physical_offset, start)
        yield filler, Place(queue.topic, queue.queue_id, queue_offset)


def _place_filler(lost: Damage, segment_size: int) -> tuple[int, int]:
    """A stretch of the damage within one file: a reader takes one that ends elsewhere for an expired message."""
    start = lost.start
    room = segment_size - start % segment_size
    if room <= END_RESERVE and start + room < lost.end:
        start, room = start + room, segment_size
    return start, min(lost.end - start, room)
