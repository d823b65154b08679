"""Queues whose last entries cannot be right: all queues are then built again from the log.

A queue's end decides what is put next, so it must not be a damaged entry: one that reaches too far would hide what
comes as repeats, one behind the true end would shift all that follow. What is wrong before it shows when it is read.
"""

from __future__ import annotations

from flintlog.store.queue_table import QueueTable


def find_broken(queues: QueueTable, covered: int) -> str | None:
    """The queue that ends at an entry which should be whole: what lay behind it is not found otherwise."""
    for queue in queues.all():
        if queue.broken_offset is not None and queue.broken_offset <= covered:
            return f"an entry around offset {queue.max_offset} of {queue.topic}/{queue.queue_id} is damaged"
    return None


def find_reaching_behind(queues: QueueTable, end: int) -> str | None:
    """The queue whose last entry ends behind all records that were dispatched."""
    for queue in queues.all():
        if queue.max_physical_offset > end:
            return f"the last entry of {queue.topic}/{queue.queue_id} ends behind the log's records"
    return None


def find_other_ends(queues: QueueTable, known: int | None) -> str | None:
    """Whether queues end elsewhere than a clean stop left them: what is put next would get offsets that were given."""
    found = queues.wrote_bytes
    if known is None or known == found:
        return None
    return f"the queues had {known} bytes at the last stop, and have {found}"
