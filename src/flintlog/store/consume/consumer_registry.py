"""The open consumers of one store.

Invariant: a queue of a group has one consumer at a time. A consumer commits the lowest offset that it has not
acknowledged; two consumers of one queue would commit past each other's unacknowledged messages.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from flintlog.store.consume.consumer import Consumer
from flintlog.store.filters.tags import MessageFilter
from flintlog.store.put.service_host import ServiceHost


class Consumers:
    """Opens consumers, and closes them when the store does. Any thread may call."""

    def __init__(self, host: ServiceHost) -> None:
        self._host = host
        self._open: list[Consumer] = []
        self._lock = threading.Lock()

    def open(
        self,
        group: str,
        topic: str,
        filter: str | MessageFilter | None,
        queue_ids: Sequence[int] | None,
        start: str | int,
        timeout_s: float | None,
        *,
        retries: bool,
        max_unacknowledged: int,
    ) -> Consumer:
        """Open a consumer; `InvalidConfig` if another one of its group reads one of its queues."""
        consumer = Consumer(
            self._host, group, topic, filter, queue_ids, start, timeout_s, retries, max_unacknowledged, self._forget
        )
        with self._lock:
            for other in self._open:
                other.check_apart(consumer)
            self._open.append(consumer)
        try:
            consumer.start()
        except BaseException:
            consumer.close()
            raise
        return consumer

    def _forget(self, consumer: Consumer) -> None:
        with self._lock:
            if consumer in self._open:
                self._open.remove(consumer)

    def close(self) -> None:
        """Close all consumers."""
        with self._lock:
            left = list(self._open)
        for consumer in left:
            consumer.close()
