"""A consumer returns the messages of a topic one by one, and records which are acknowledged.

    store.consumer("billing", "orders")
      │ poll, iterate         every queue in turn; sleeps when there is nothing, until the next put
      │ acknowledge           the message is done; the group's offset is the lowest that is not acknowledged
      │ send_back             the message failed; it is stored again for another try, or as a dead letter
      └ close

Delivery is at least once: messages that were not acknowledged are returned again to the next consumer of the group.
Only acknowledged messages and those that a filter rejects are skipped. A queue of a group belongs to one consumer at a
time; threads may share a consumer, and consumers may share a topic by `queue_ids`.

A sleeping consumer does not slow puts of other topics, see `arrival_wait.py`.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from types import TracebackType
from typing import Final, Protocol, Self, cast

import msgspec

from flintlog.errors import InvalidConfig, InvalidMessage, InvalidOffset, InvalidTopic, StoreClosed
from flintlog.store.consume.consumer_queue import ConsumerQueue, OffsetMove, ReceivedMessage
from flintlog.store.consume.offset_moved import put_offset_moved
from flintlog.store.filters.tags import MessageFilter, as_filter
from flintlog.store.model.arguments import check_count, check_int64, check_offset, check_queue, plain_text
from flintlog.store.model.message import Receipt
from flintlog.store.model.stored_message import StoredMessage
from flintlog.store.put.service_host import ServiceHost
from flintlog.store.settings.groups import GroupConfig, check_group_name
from flintlog.store.settings.topics import retry_topic

log = logging.getLogger(__name__)

MAX_UNACKNOWLEDGED: Final = 10_000
_MOST_MOVES: Final = 1000
_TAKES_A_LOOK: Final = 256
_RETRY_HOME: Final = "flintlog.services.retry"


class SendBack(Protocol):
    """`flintlog.services.retry.send_back`."""

    def __call__(
        self, host: ServiceHost, group: str, message: StoredMessage, delay_level: int = 0, *, check: bool = True
    ) -> Receipt:
        """Store a message again that its group could not consume."""


class QueuePosition(msgspec.Struct, frozen=True):
    """A consumer's position in one queue: committed for its group, next to be read, and the queue's end."""

    topic: str
    queue_id: int
    committed: int
    next_offset: int
    max_offset: int


class Consumer:
    """Reads a topic for a group; made by `Store.consumer`. Any thread may call.

    `start` is where a group begins that has not read the topic yet: "earliest", "latest", or a time in milliseconds.
    `poll` and iteration return the group's retries too (all of them, without the filter) unless `retries=False`.
    With `timeout_s`, iteration ends when no message arrives for that long; without it, when the consumer or its store
    is closed.

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
    """

    def __init__(
        self,
        host: ServiceHost,
        group: str,
        topic: str,
        filter: str | MessageFilter | None,
        queue_ids: Sequence[int] | None,
        start: str | int,
        timeout_s: float | None,
        retries: bool,
        max_unacknowledged: int,
        on_close: Callable[[Consumer], None],
    ) -> None:
        check_group_name(group)
        _check_arguments(topic, queue_ids, start, max_unacknowledged)
        self.group = group = plain_text(group)
        self.topic = topic = plain_text(topic)
        self.queue_ids = None if queue_ids is None else frozenset(queue_ids)
        self.moves: deque[OffsetMove] = deque(maxlen=_MOST_MOVES)
        self._unreported: deque[OffsetMove] = deque(maxlen=_MOST_MOVES)
        self._host = host
        self._store = host.store
        self._wanted = None if filter is None else as_filter(filter)
        self._begin = start
        self._timeout_s = timeout_s
        self._retry_topic = retry_topic(group) if retries and topic != retry_topic(group) else None
        self._most_pending = max_unacknowledged
        self._on_close = on_close
        self._topics = [topic] if self._retry_topic is None else [topic, self._retry_topic]
        self._queues: dict[tuple[str, int], ConsumerQueue] = {}
        self._turns: list[ConsumerQueue] = []
        self._turn = 0
        self._takes = 0
        self._is_known = False
        self._lock = threading.Lock()
        self._wait = host.arrival_wait(self._topics)
        self._closed = False

    def check_apart(self, other: Consumer) -> None:
        """Raise when another consumer would read what this one reads."""
        if other.group != self.group:
            return
        for topic in (topic for topic in self._topics if topic in other._topics):
            mine, theirs = self._ids_of(topic), other._ids_of(topic)
            if mine is None or theirs is None or mine & theirs:
                advice = "pass retries=False here" if topic == self._retry_topic else "part the topic by queue_ids"
                raise InvalidConfig(f"group {self.group!r} has a consumer of {topic!r} already", advice=advice)

    def _ids_of(self, topic: str) -> frozenset[int] | None:
        return self.queue_ids if topic == self.topic else None

    def start(self) -> None:
        """Load the group's offsets. A new group is saved at once, so that it is not new after a crash."""
        config = self._group_config()
        if not config.consume_enable:
            raise InvalidConfig(f"group {self.group!r} may not consume", advice="change its consume_enable")
        topic = self._store.topics.get(self.topic)
        if topic is not None and not topic.is_readable:
            raise InvalidTopic(f"topic {self.topic!r} may not be read", advice="change its perm")
        if self._retry_topic is not None and not self._store.read_only:
            self._store.topics.get_or_create(self._retry_topic, max(1, config.retry_queue_nums))
        offsets = self._store.consumer_offsets
        self._is_known = bool(offsets.offsets(self.group, self.topic))
        with self._lock:
            self._find_queues()
        if not self._is_known:
            if not offsets.offsets(self.group, self.topic):
                offsets.commit(self.group, self.topic, min(self.queue_ids or {0}), 0)
            self._is_known = True
            if not self._store.read_only:
                offsets.save()

    def _group_config(self) -> GroupConfig:
        if self._store.read_only:
            return self._store.groups.get(self.group) or GroupConfig(group_name=self.group)
        return self._store.groups.get_or_create(self.group)

    # ------------------------------------------------------------------ reading

    def poll(self, timeout_s: float | None = 0.0) -> ReceivedMessage | None:
        """The next message; None when none arrived in time (`None` waits forever) or the consumer was closed."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            message = self._take()
            if message is not None or self._closed:
                return message
            left_s = None if deadline is None else deadline - time.monotonic()
            if left_s is not None and left_s <= 0:
                return None
            self._wait.arm()
            # A message that arrived before arming is found here; a later one wakes this thread.
            if not self._has_more() and not self._closed:
                self._wait.wait(left_s)

    def __iter__(self) -> Iterator[ReceivedMessage]:
        while (message := self.poll(self._timeout_s)) is not None:
            yield message

    def _take(self) -> ReceivedMessage | None:
        try:
            with self._lock:
                message = None if self._closed else self._take_in_turn()
            self._report_moves()
            return message
        except StoreClosed:
            if self._closed:
                return None
            raise

    def _take_in_turn(self) -> ReceivedMessage | None:
        self._takes += 1
        if self._takes % _TAKES_A_LOOK == 0:
            self._find_queues()
        message = self._ask_each()
        if message is None and self._find_queues():
            message = self._ask_each()
        return message

    def _ask_each(self) -> ReceivedMessage | None:
        count = len(self._turns)
        for place in range(self._turn, self._turn + count):
            message = self._turns[place % count].take()
            if message is not None:
                self._turn = (place + 1) % count
                return message
        return None

    def _has_more(self) -> bool:
        try:
            with self._lock:
                return self._find_queues() or any(queue.has_more() for queue in self._turns)
        except StoreClosed:
            return True

    def _find_queues(self) -> bool:
        """Add new queues. Returns whether there were any."""
        found = False
        for topic in self._topics:
            mine = self._ids_of(topic)
            for queue_id in self._host.queue_ids(topic):
                if (topic, queue_id) not in self._queues and (mine is None or queue_id in mine):
                    self._add_queue(topic, queue_id)
                    found = True
        return found

    def _add_queue(self, topic: str, queue_id: int) -> None:
        offset = self._store.consumer_offsets.get(self.group, topic, queue_id)
        if offset is None:
            offset = self._first_offset(topic, queue_id)
            self._store.consumer_offsets.commit(self.group, topic, queue_id, offset)
        queue = ConsumerQueue(
            self._store,
            self.group,
            (topic, queue_id),
            self._wanted if topic == self.topic else None,
            offset,
            self._most_pending,
            self._note_move,
        )
        self._queues[topic, queue_id] = queue
        self._turns.append(queue)

    def _first_offset(self, topic: str, queue_id: int) -> int:
        """Where to begin in a queue; a queue that is newer than the group is read from its beginning."""
        begin = "earliest" if self._is_known or topic != self.topic else self._begin
        return self._offset_of(begin, topic, queue_id)

    def _offset_of(self, place: str | int, topic: str, queue_id: int) -> int:
        low, high = self._store.min_offset(topic, queue_id), self._store.max_offset(topic, queue_id)
        if isinstance(place, str):
            return low if place == "earliest" else high
        return min(max(low, self._store.offset_at(topic, queue_id, place)), high)

    def _note_move(self, move: OffsetMove) -> None:
        self.moves.append(move)
        if self._store.config.offset_moved_event and not self._store.read_only:
            self._unreported.append(move)

    def _report_moves(self) -> None:
        """Put the events, without the lock: a put may wait for a listener that polls this consumer."""
        while self._unreported:
            put_offset_moved(self._store, self.group, self._unreported.popleft())

    # ------------------------------------------------------------------ acknowledging

    def acknowledge(self, message: ReceivedMessage) -> None:
        """The message is done. Its group's offset advances when all messages before it are done too."""
        if not isinstance(message, ReceivedMessage):
            raise InvalidMessage(f"a message that was received is acknowledged, not {type(message).__name__}")
        with self._lock:
            queue = self._queues.get(message.source)
            if queue is None:
                raise InvalidMessage("this message did not come from this consumer")
            was_full = queue.is_full
            queue.acknowledge(message.offset)
        if was_full:
            self._wait.wake()

    ack = acknowledge

    def send_back(self, message: ReceivedMessage, delay_level: int = 0, *, check: bool = True) -> Receipt:
        """The message failed: store it again for a later try, or as a dead letter, and acknowledge it.

        See `flintlog.services.retry.send_back`; a later try needs the service "schedule". If it could not be stored, it
        is not acknowledged: this raises `PutFailed`, or with `check=False` returns the receipt.
        """
        send_back = cast(SendBack, import_module(_RETRY_HOME).send_back)
        receipt = send_back(self._host, self.group, message, delay_level, check=check)
        if receipt:
            self.acknowledge(message)
        return receipt

    # ------------------------------------------------------------------ position

    def positions(self) -> list[QueuePosition]:
        """The position in each queue, including those of retries."""
        committed = self._store.consumer_offsets
        with self._lock:
            self._find_queues()
            return [
                QueuePosition(
                    *queue.source,
                    committed.get(self.group, *queue.source) or 0,
                    queue.next_offset,
                    self._store.max_offset(*queue.source),
                )
                for queue in self._turns
            ]

    def lag(self) -> int:
        """The number of visible messages that are not acknowledged, including those that the filter rejects."""
        return sum(max(0, place.max_offset - place.committed) for place in self.positions())

    def reset(self, place: str | int) -> None:
        """Continue at another place in all queues of the topic: "earliest", "latest", or a time in milliseconds.

        Messages that were returned before can no longer be acknowledged.
        """
        _check_place(place)
        with self._lock:
            self._find_queues()
            for queue in self._turns:
                if queue.source[0] == self.topic:
                    self._seek(queue, self._offset_of(place, *queue.source))
        self._keep_position()

    def seek(self, queue_id: int, offset: int) -> None:
        """Continue at an offset of one queue of the topic, or as near to it as the queue has messages."""
        check_queue(self.topic, queue_id)
        check_offset("a queue offset", offset)
        with self._lock:
            self._find_queues()
            queue = self._queues.get((self.topic, queue_id))
            if queue is None:
                raise InvalidOffset(f"this consumer does not read queue {queue_id} of {self.topic!r}")
            low, high = self._store.min_offset(*queue.source), self._store.max_offset(*queue.source)
            self._seek(queue, min(max(low, offset), high))
        self._keep_position()

    def rewind(self) -> None:
        """Return all messages again that are not acknowledged."""
        with self._lock:
            for queue in self._turns:
                queue.seek(queue.floor)
        self._wait.wake()

    def _seek(self, queue: ConsumerQueue, offset: int) -> None:
        queue.seek(offset)
        self._store.consumer_offsets.reset(self.group, *queue.source, offset)

    def _keep_position(self) -> None:
        if not self._store.read_only:
            self._store.consumer_offsets.save()
        self._wait.wake()

    # ------------------------------------------------------------------ the end

    def close(self) -> None:
        """Close: `poll` returns None from now on. Messages that are not acknowledged remain for the group."""
        self._closed = True
        self._wait.wake()
        for queue in tuple(self._turns):
            queue.acknowledged.is_closed = True
        self._on_close(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Consumer({self.group!r}, {self.topic!r})"


def _check_arguments(topic: str, queue_ids: Sequence[int] | None, start: str | int, most: int) -> None:
    check_queue(topic, 0)
    if "@" in topic:
        raise InvalidTopic(f"no offsets can be kept for {topic!r}", advice="@ parts topic and group there")
    if queue_ids is not None:
        if not isinstance(queue_ids, (list, tuple, range)) or not queue_ids:
            raise InvalidOffset(f"queue_ids is a sequence of numbers, not {queue_ids!r}")
        for queue_id in queue_ids:
            check_queue(topic, queue_id)
    check_count("max_unacknowledged", most)
    _check_place(start)


def _check_place(place: str | int) -> None:
    if isinstance(place, str):
        if place not in ("earliest", "latest"):
            raise InvalidOffset(f"a consumer cannot begin at {place!r}", advice='"earliest", "latest" or a time in ms')
    else:
        check_int64("a timestamp", place)
