"""A hold: a message that is still needed. Retention by age deletes nothing of the log from there on.

Holds come from groups that have not consumed (`unconsumed.py`) and from messages that wait in the store's own topics
(`undelivered.py`, `waiting_timers.py`). One hold per reader and queue is enough, because it keeps all later messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from flintlog.store.queues.entries import CqUnit
from flintlog.store.queues.logical_queue import LogicalQueue


@dataclass(frozen=True, slots=True)
class Hold:
    """The first message that is still needed; `group` is None unless a consumer group needs it."""

    physical_offset: int
    why: str
    topic: str
    queue_id: int
    queue_offset: int
    group: str | None = None


def first_entry(queue: LogicalQueue | None, offset: int) -> CqUnit | None:
    """The first entry at or after an offset that the queue still has; None when there is none."""
    if queue is None:
        return None
    offset = max(offset, queue.min_offset)
    while offset < queue.max_offset:
        entry = queue.entry(offset)
        if entry is not None and entry.size > 0:
            return entry
        offset = max(offset + 1, queue.roll_next(offset) if entry is None else offset + 1)
    return None


def in_log_order(holds: Sequence[Hold]) -> list[Hold]:
    """The holds, the one that keeps the most first."""
    return sorted(holds, key=lambda each: (each.physical_offset, each.why, each.topic, each.queue_id))


def say_time(moment_ms: int) -> str:
    """A time as text; its number when no calendar has it."""
    try:
        return datetime.fromtimestamp(moment_ms / 1000).isoformat(" ", "seconds")
    except (OverflowError, ValueError, OSError):
        return f"{moment_ms} ms"
