"""The open consumers of one store.

Invariant: a queue of a group has one reader at a time, in one `GroupQueues`. A group commits the lowest offset that it
has not acknowledged; two readers that do not know of each other would commit past each other's open messages.
"""

from __future__ import annotations

import threading

from flintlog.store.consume.consumer import Consumer, check_timeout
from flintlog.store.consume.group_queues import GroupQueues, Seat
from flintlog.store.consume.subscription import Subscription
from flintlog.store.put.service_host import ServiceHost


class Consumers:
    """Lets consumers share queues or keeps them apart, and closes them when the store does. Any thread may call."""

    def __init__(self) -> None:
        self._open: dict[Consumer, tuple[GroupQueues, Seat]] = {}
        self._lock = threading.Lock()

    def open(
        self, host: ServiceHost, subscription: Subscription, timeout_s: float | None, ack_timeout_s: float | None
    ) -> Consumer:
        """Start a consumer; `InvalidConfig` if another one of its group reads one of its queues and cannot share."""
        check_timeout("ack_timeout_s", ack_timeout_s)
        with self._lock:
            queues = self._shared_with(subscription) or GroupQueues(host, subscription)
            seat = queues.make_seat(ack_timeout_s)
            consumer = Consumer(host, queues, seat, timeout_s, self._forget)
            self._open[consumer] = queues, seat
        try:
            queues.add(seat)
            queues.start()
        except BaseException:
            consumer.close()
            raise
        return consumer

    def _shared_with(self, subscription: Subscription) -> GroupQueues | None:
        found = [queues for queues, _ in self._open.values() if subscription.is_shared_with(queues.subscription)]
        return found[0] if found else None

    def _forget(self, consumer: Consumer) -> None:
        """A consumer was closed."""
        with self._lock:
            if consumer in self._open:
                queues, seat = self._open[consumer]
                queues.leave(seat)  # first: a call that was interrupted may be repeated
                del self._open[consumer]

    def close(self) -> None:
        """Close all consumers."""
        with self._lock:
            left = list(self._open)
        for consumer in left:
            consumer.close()
