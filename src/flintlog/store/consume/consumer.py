"""A consumer returns the messages of a topic one by one, and records which are acknowledged.

    store.consumer("billing", "orders")
      │ poll, iterate         every queue in turn; sleeps when there is nothing, until the next put
      │ acknowledge           the message is done; the group's offset is the lowest that is not acknowledged
      │ send_back             the message failed; it is stored again for another try, or as a dead letter
      └ close                 messages that are not acknowledged go to the group's other consumers, or the next one

Delivery is at least once: messages that were not acknowledged are returned again. Only acknowledged messages and those
that a filter rejects are skipped. Consumers of a group share the queues of their topic (`group_queues.py`), or divide
it by `queue_ids`; threads and tasks may share a consumer.

A sleeping consumer does not slow puts of other topics, see `arrival_wait.py`.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from importlib import import_module
from types import TracebackType
from typing import Final, Protocol, Self, cast

from flintlog.errors import InvalidConfig, InvalidMessage, StoreClosed
from flintlog.store.consume.consumer_queue import OffsetMove, ReceivedMessage
from flintlog.store.consume.group_queues import GroupQueues, QueuePosition, Seat
from flintlog.store.consume.subscription import check_place
from flintlog.store.model.arguments import check_offset, check_queue
from flintlog.store.model.message import Receipt
from flintlog.store.model.stored_message import StoredMessage
from flintlog.store.put.service_host import ServiceHost

MAX_UNACKNOWLEDGED: Final = 10_000
_RETRY_HOME: Final = "flintlog.services.retry"
_TAKES_A_TURN: Final = 32
"""`async for` lets the loop run other tasks after so many messages, which it may not have had to wait for."""


class SendBack(Protocol):
    """`flintlog.services.retry.send_back`."""

    def __call__(
        self, host: ServiceHost, group: str, message: StoredMessage, delay_level: int = 0, *, check: bool = True
    ) -> Receipt:
        """Store a message again that its group could not consume."""


class Consumer:
    """Reads a topic for a group; made by `Store.consumer`. Any thread may call.

    `start` is where a group begins that has not read the topic yet: "earliest", "latest", or a time in milliseconds.
    `poll` and iteration return the group's retries too (all of them, without the filter) unless `retries=False`.
    With `timeout_s`, iteration ends when no message arrives for that long; without it, when the consumer or its store
    is closed.

    A message that is not acknowledged within `ack_timeout_s` is returned again, here or by another consumer of the
    group; its `delivery_count` says how often that was. Without it, a message is returned again when its consumer was
    closed, or the store opened again.

    A worker:

    >>> from flintlog import Message
    >>> from flintlog.testing import temporary_store
    >>> with temporary_store() as store:
    ...     _ = [store.put(Message("orders", b"order %d" % n, queue_id=n % 2)) for n in range(4)]
    ...     with store.consumer("billing", "orders", timeout_s=0.01) as consumer:
    ...         for message in consumer:
    ...             print(message.body.decode())
    ...             consumer.acknowledge(message)
    ...         consumer.lag()
    order 0
    order 1
    order 2
    order 3
    0

    In asyncio it is `async for message in consumer`, and `await consumer.apoll()`. Two workers, each with half of the
    queues until one closes:

    >>> with temporary_store() as store:
    ...     _ = [store.put(Message("orders", b"order %d" % n, queue_id=n)) for n in range(4)]
    ...     with store.consumer("billing", "orders") as one, store.consumer("billing", "orders") as other:
    ...         [[place.queue_id for place in consumer.positions()] for consumer in (one, other)]
    [[0, 1], [2, 3]]
    """

    def __init__(
        self,
        host: ServiceHost,
        queues: GroupQueues,
        seat: Seat,
        timeout_s: float | None,
        on_close: Callable[[Consumer], None],
    ) -> None:
        self.group = queues.subscription.group
        self.topic = queues.subscription.topic
        self.queue_ids = queues.subscription.queue_ids
        self._host = host
        self._queues = queues
        self._seat = seat
        self._timeout_s = timeout_s
        self._on_close = on_close
        self._closed = False

    @property
    def moves(self) -> deque[OffsetMove]:
        """Where the group had to continue elsewhere since its first consumer was made here: the last ones."""
        return self._queues.moves

    # ------------------------------------------------------------------ reading

    def poll(self, timeout_s: float | None = 0.0) -> ReceivedMessage | None:
        """The next message; None when none arrived in time (`None` waits forever) or the consumer was closed."""
        deadline_s = _deadline_s(timeout_s)
        while True:
            message = self._take()
            if message is not None or self._closed or time.monotonic() >= deadline_s:
                return message
            armed = self._seat.wait.arm()
            self._queues.sleeps(self._seat, 1)
            try:
                # A message that arrived before arming is found here; a later one wakes this thread.
                if not self._has_more():
                    self._seat.wait.wait(armed, self._sleep_s(deadline_s))
            finally:
                self._queues.sleeps(self._seat, -1)

    async def apoll(self, timeout_s: float | None = 0.0) -> ReceivedMessage | None:
        """`poll` from asyncio: the loop runs other tasks while this one waits."""
        deadline_s = _deadline_s(timeout_s)
        while True:
            message = self._take()
            if message is not None or self._closed or time.monotonic() >= deadline_s:
                return message
            armed = self._seat.wait.arm()
            self._queues.sleeps(self._seat, 1)
            try:
                if not self._has_more():
                    await self._seat.wait.wait_in_loop(armed, self._sleep_s(deadline_s))
            finally:
                self._queues.sleeps(self._seat, -1)

    def __iter__(self) -> Iterator[ReceivedMessage]:
        while (message := self.poll(self._timeout_s)) is not None:
            yield message

    async def __aiter__(self) -> AsyncIterator[ReceivedMessage]:
        import asyncio  # imported only where a loop runs: commands start sooner without it

        taken = 0
        while (message := await self.apoll(self._timeout_s)) is not None:
            yield message
            taken += 1
            if taken % _TAKES_A_TURN == 0:
                await asyncio.sleep(0)

    def _take(self) -> ReceivedMessage | None:
        try:
            return None if self._closed else self._queues.take(self._seat)
        except StoreClosed:
            if self._closed:
                return None
            raise

    def _has_more(self) -> bool:
        try:
            return self._closed or self._queues.has_more(self._seat)
        except StoreClosed:
            return True

    def _sleep_s(self, deadline_s: float) -> float | None:
        sleep_s = min(deadline_s - time.monotonic(), self._queues.expires_in_s())
        return None if sleep_s == math.inf else max(0.0, sleep_s)

    # ------------------------------------------------------------------ acknowledging

    def acknowledge(self, message: ReceivedMessage) -> None:
        """The message is done. Its group's offset advances when all messages before it are done too.

        It counts also when it comes late, after the message was returned again.
        """
        if not isinstance(message, ReceivedMessage):
            raise InvalidMessage(f"a message that was received is acknowledged, not {type(message).__name__}")
        self._queues.acknowledge(message)

    ack = acknowledge

    def send_back(self, message: ReceivedMessage, delay_level: int = 0, *, check: bool = True) -> Receipt:
        """The message failed: store it again for a later try, or as a dead letter, and acknowledge it.

        See `flintlog.services.retry.send_back`; a later try needs the service "schedule", a dead letter (a negative
        level) none. If it could not be stored, it is not acknowledged: this raises `PutFailed`, or with `check=False`
        returns the receipt.
        """
        send_back = cast(SendBack, import_module(_RETRY_HOME).send_back)
        receipt = send_back(self._host, self.group, message, delay_level, check=check)
        if receipt:
            self.acknowledge(message)
        return receipt

    # ------------------------------------------------------------------ position

    def positions(self) -> list[QueuePosition]:
        """The position in each queue that this consumer reads now, including those of retries."""
        return self._queues.positions(self._seat)

    def lag(self) -> int:
        """The number of visible messages in these queues that are not acknowledged, or that the filter rejects."""
        return sum(max(0, place.max_offset - place.committed) for place in self.positions())

    def reset(self, place: str | int) -> None:
        """Let the group continue at another place in all queues: "earliest", "latest", or a time in milliseconds.

        Messages that were returned before can no longer be acknowledged.
        """
        check_place(place)
        self._queues.reset(place)

    def seek(self, queue_id: int, offset: int) -> None:
        """Let the group continue at an offset of one queue, or as near to it as the queue has messages."""
        check_queue(self.topic, queue_id)
        check_offset("a queue offset", offset)
        self._queues.seek(queue_id, offset)

    def rewind(self) -> None:
        """Return all messages again that this consumer has not acknowledged."""
        self._queues.rewind(self._seat)

    # ------------------------------------------------------------------ the end

    def close(self) -> None:
        """Close: `poll` returns None from now on. Messages that are not acknowledged remain for the group."""
        self._closed = True
        self._seat.wait.wake()
        self._on_close(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Consumer({self.group!r}, {self.topic!r})"


def check_timeout(name: str, timeout_s: float | None) -> None:
    """Raise unless this is None or a time above 0."""
    if timeout_s is not None and (not isinstance(timeout_s, (int, float)) or not 0 < timeout_s < math.inf):
        raise InvalidConfig(f"{name} = {timeout_s!r}", advice="a number of seconds above 0, or None")


def _deadline_s(timeout_s: float | None) -> float:
    return math.inf if timeout_s is None else time.monotonic() + timeout_s
