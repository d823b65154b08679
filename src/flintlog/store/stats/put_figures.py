"""How many messages and bytes were put to each queue, read from the queues instead of being counted in a put.

    messages   next offset of the queue now − at the last look          known when the put returns
    bytes      record bytes of the queue's end now − at the last look   known when the message is visible

Records without a queue entry (prepared and rolled back ones, of a producer that sets the flag itself) are few, and are
counted when they are put: `UnqueuedPuts`.

If nothing was put since the last look, a look costs one comparison, however many queues there are. While dispatch lags,
the bytes of the last messages are missing; the next look counts them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from flintlog.format.queue_entry import QueueKey
from flintlog.store.log.unqueued_puts import UnqueuedPuts
from flintlog.store.queues.queue_table import QueueTable


class QueuePuts(NamedTuple):
    """The puts to one queue since the last look."""

    topic: str
    queue_id: int
    message_count: int
    byte_count: int


class PutFigures:
    """Looks at the queues and remembers what it saw. One thread at a time."""

    def __init__(
        self, queues: QueueTable, log_end: Callable[[], int], dispatched: Callable[[], int], unqueued: UnqueuedPuts
    ) -> None:
        self._queues = queues
        self._log_end = log_end
        self._dispatched = dispatched
        self._seen_end = -1
        self._counts: dict[QueueKey, int] = {}
        self._sizes: dict[QueueKey, int] = {}
        self._lagging: set[QueueKey] = set()
        self._unqueued = unqueued
        self._unqueued_seen: dict[QueueKey, tuple[int, int]] = {}

    def start(self) -> None:
        """Count from here: recovery dispatches messages that were put earlier."""
        self._seen_end = self._log_end()
        self._counts = self._queues.offsets.given_by_queue()
        self._sizes = {
            (queue.topic, queue.queue_id): queue.record_bytes for queue in self._queues.all() if queue.record_bytes
        }

    def take(self) -> list[QueuePuts]:
        """The puts to each queue since the last look."""
        end = self._log_end()
        if end == self._seen_end and not self._lagging:
            return []
        # In this order, a message that is put meanwhile is counted by this look or by the next.
        self._seen_end = end
        counts = self._queues.offsets.given_by_queue()
        is_lagging = self._dispatched() < self._log_end()
        before = self._counts
        changed = {key for key, count in counts.items() if before.get(key, 0) != count} | self._lagging
        self._counts = counts
        self._lagging = changed if is_lagging else set()
        found = (self._difference(key, counts.get(key, 0) - before.get(key, 0)) for key in changed)
        return [puts for puts in (*found, *self._take_unqueued()) if puts.message_count or puts.byte_count]

    def _take_unqueued(self) -> Iterator[QueuePuts]:
        if not self._unqueued.count:
            return
        before, self._unqueued_seen = self._unqueued_seen, self._unqueued.by_queue.copy()
        for key, (count, size) in self._unqueued_seen.items():
            count_before, size_before = before.get(key, (0, 0))
            yield QueuePuts(*key, count - count_before, size - size_before)

    def _difference(self, key: QueueKey, count: int) -> QueuePuts:
        queue = self._queues.get(*key)
        size = 0 if queue is None else queue.record_bytes
        size_before = self._sizes.get(key, 0)
        self._sizes[key] = size
        # A queue that was removed starts again from zero.
        return QueuePuts(*key, max(0, count), size - size_before if size >= size_before else size)
