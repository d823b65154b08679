"""The open consumers of one store.

Invariant: a queue of a group has one consumer at a time. A consumer commits the lowest offset that it has not
acknowledged; two consumers of one queue would commit past each other's unacknowledged messages.
"""

from __future__ import annotations

import threading

from flintlog.store.consume.consumer import Consumer


class Consumers:
    """Keeps consumers apart, and closes them when the store does. Any thread may call."""

    def __init__(self) -> None:
        self._open: list[Consumer] = []
        self._lock = threading.Lock()

    def start(self, consumer: Consumer) -> None:
        """Start a consumer; `InvalidConfig` if another one of its group reads one of its queues."""
        with self._lock:
            for other in self._open:
                other.check_apart(consumer)
            self._open.append(consumer)
        try:
            consumer.start()
        except BaseException:
            consumer.close()
            raise

    def forget(self, consumer: Consumer) -> None:
        """A consumer was closed."""
        with self._lock:
            if consumer in self._open:
                self._open.remove(consumer)

    def close(self) -> None:
        """Close all consumers."""
        with self._lock:
            left = list(self._open)
        for consumer in left:
            consumer.close()
