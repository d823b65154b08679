"""The state of one queue of a group: what was fetched, delivered and acknowledged.

    ── acknowledged ──│─ delivered, some acknowledged ─│─ fetched ─│─ not read ──▶
                    floor                            buffer    next_offset

Invariant: `floor` is the lowest offset that is not acknowledged (or the next one to deliver, if all are), and only it
is committed. So after a crash all messages that were not acknowledged are delivered again, and maybe some that were.

A message that was delivered and not acknowledged is open, with the consumer that has it, or due again: given back by a
consumer that closed, or expired. One that is due again comes before new ones; its acknowledgement still counts.

A signal handler may raise at any call. So what moves from one place to another moves by assignments without a call
between them (docs/decisions/0010).
"""

from __future__ import annotations

import logging
import math
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import msgspec

from flintlog.errors import DamagedRecord
from flintlog.format.properties import (
    INNER_BASE,
    INNER_MULTI_DISPATCH,
    INNER_MULTI_QUEUE_OFFSET,
    RETRY_TOPIC,
)
from flintlog.format.topics import RETRY_PREFIX
from flintlog.store.filters.tags import MessageFilter
from flintlog.store.model.stored_message import GetStatus, Page, StoredMessage
from flintlog.store.settings.consumer_offsets import offset_key

if TYPE_CHECKING:
    from flintlog.store.store import Store

log = logging.getLogger(__name__)

PAGE_MESSAGES: Final = 32
_MOST_PAGES: Final = 64
"""Number of pages without a matching message after which another queue has its turn."""

_MOVED: Final = frozenset({GetStatus.OFFSET_TOO_SMALL, GetStatus.OFFSET_OVERFLOW_BADLY, GetStatus.NO_MESSAGE_IN_QUEUE})


class ReceivedMessage(StoredMessage):
    """A `StoredMessage` with the queue and the offset at which it is acknowledged; made by `Consumer`.

    `delivery_count` is 1, and one more each time it comes again in this process. (`reconsume_times` counts how often
    the message was sent back, and is stored.)
    """

    __slots__ = ("delivery_count", "offset", "source")

    def __init__(self, message: StoredMessage, source: tuple[str, int], offset: int, delivery_count: int = 1) -> None:
        super().__init__(message.record, message.delay_levels_ms)
        self.source = source
        self.offset = offset
        self.delivery_count = delivery_count

    def __reduce__(self) -> tuple[object, ...]:
        plain = StoredMessage(self.record, self.delay_levels_ms)
        return type(self), (plain, self.source, self.offset, self.delivery_count)

    @property
    def topic(self) -> str:
        """The topic that the message was put to, also if this is a retry."""
        stored = self._parts().topic
        return self.properties.get(RETRY_TOPIC, stored) if stored.startswith(RETRY_PREFIX) else stored

    @property
    def stored_topic(self) -> str:
        """The topic in the record: for a retry, the group's retry topic."""
        return self._parts().topic


class OffsetMove(msgspec.Struct, frozen=True):
    """A group skipped or went back, because messages were deleted, are damaged, or never existed."""

    topic: str
    queue_id: int
    requested: int
    offset: int
    reason: str


class ConsumerQueue:
    """See the module. The lock of its `GroupQueues` guards it."""

    def __init__(
        self,
        store: Store,
        group: str,
        source: tuple[str, int],
        wanted: MessageFilter | None,
        offset: int,
        most_pending: int,
        on_move: Callable[[OffsetMove], None],
    ) -> None:
        self.source = source
        self.next_offset = offset
        self._store = store
        self._group = group
        self._offsets = store.consumer_offsets
        self._key = offset_key(group, source[0])
        self._wanted = wanted
        self._most_pending = most_pending
        self._on_move = on_move
        self._buffer: deque[ReceivedMessage] = deque()
        self._pending: OrderedDict[int, None] = OrderedDict()
        self._open: dict[int, tuple[ReceivedMessage, float]] = {}
        self._due_again: OrderedDict[int, ReceivedMessage] = OrderedDict()
        self.acknowledged = store.broker_stats.acknowledgements(group, source[0])

    @property
    def floor(self) -> int:
        """Every message before it was acknowledged, rejected by the filter, or deleted."""
        if self._pending:
            return next(iter(self._pending))
        return self._buffer[0].offset if self._buffer else self.next_offset

    @property
    def is_full(self) -> bool:
        """Whether so many messages are unacknowledged that no new ones are delivered."""
        return len(self._pending) >= self._most_pending

    @property
    def has_open(self) -> bool:
        """Whether a consumer has a message of this queue that is neither acknowledged nor due again."""
        return bool(self._open)

    @property
    def expires_s(self) -> float:
        """When the first open message is due again. It is the next: the reader changes only while none is open."""
        return next(iter(self._open.values()))[1] if self._open else math.inf

    def take(self, expires_s: float = math.inf) -> ReceivedMessage | None:
        """The next message: one that is due again, or a new one, if there is one and the queue is not full."""
        if self._due_again:
            offset = next(iter(self._due_again))
            before = self._due_again[offset]
            message = ReceivedMessage(before, self.source, offset, before.delivery_count + 1)
            self._open[offset] = message, expires_s
            del self._due_again[offset]
            return message
        if self.is_full or not (self._buffer or self._fetch()):
            return None
        message = self._buffer[0]
        self._open[message.offset] = message, expires_s
        self._pending[message.offset] = None
        del self._buffer[0]
        return message

    def acknowledge(self, offset: int) -> None:
        """One message is done. Does nothing if it was acknowledged already, or was not delivered."""
        if self._open.pop(offset, None) is None and self._due_again.pop(offset, None) is None:
            return
        self.acknowledged.count += 1
        while self._pending and (first := self.floor) not in self._open and first not in self._due_again:
            del self._pending[first]
        self.commit()

    def give_back(self, now_s: float = math.inf) -> bool:
        """Deliver open messages again, those that expired by now or all. Returns whether there were any."""
        expired = {offset: message for offset, (message, expires_s) in self._open.items() if expires_s <= now_s}
        if expired:
            due_again = OrderedDict(sorted({**self._due_again, **expired}.items()))
            left = {offset: each for offset, each in self._open.items() if offset not in expired}
            self._due_again, self._open = due_again, left
        return bool(expired)

    def commit(self) -> None:
        """Commit the floor for the group."""
        self._offsets.advance(self._key, self.source[1], self.floor)

    def seek(self, offset: int) -> None:
        """Continue at an offset; messages that were delivered before can no longer be acknowledged."""
        buffer, pending, due_again = (
            deque[ReceivedMessage](),
            OrderedDict[int, None](),
            OrderedDict[int, ReceivedMessage](),
        )
        self._buffer, self._pending, self._open, self._due_again = buffer, pending, {}, due_again
        self.next_offset = offset

    def has_more(self) -> bool:
        """Whether there are messages to deliver or to read, matching or not."""
        if self._due_again:
            return True
        return not self.is_full and (bool(self._buffer) or self._store.max_offset(*self.source) != self.next_offset)

    # ------------------------------------------------------------------ fetching

    def _fetch(self) -> bool:
        """Read pages until one has a matching message. Returns whether the buffer has one."""
        before = self.next_offset
        for _ in range(_MOST_PAGES):
            start = self.next_offset
            if self._store.max_offset(*self.source) == start or not self._fetch_page(start) or self._buffer:
                break
        if self.next_offset != before and not self._buffer and not self._pending:
            self.commit()
        return bool(self._buffer)

    def _fetch_page(self, start: int) -> bool:
        """Read one page. Returns whether `next_offset` moved."""
        try:
            page = self._store.get(*self.source, start, PAGE_MESSAGES, self._wanted, group=self._group)
        except DamagedRecord as damage:
            following = start + 1 if damage.next_queue_offset is None else damage.next_queue_offset
            self._move(start, following, str(damage))
            return True
        if page.status in _MOVED and page.next_offset != start:
            self._move(start, self._corrected(page), page.status.name)
            return True
        buffer = deque((*self._buffer, *self._receive(page, start)))
        self._buffer, self.next_offset = buffer, page.next_offset
        return page.next_offset != start

    def _corrected(self, page: Page) -> int:
        """Where to continue. A queue that ends before the offset was deleted and created again, so all of it is unread.

        (RocketMQ continues at its end. So does a read-only store, which may not see yet what its writer's groups read.)
        """
        is_new = page.status is GetStatus.OFFSET_OVERFLOW_BADLY and not self._store.read_only
        return page.min_offset if is_new else page.next_offset

    def _move(self, requested: int, offset: int, reason: str) -> None:
        topic, queue_id = self.source
        where = f"{topic}/{queue_id}"
        log.warning("group %s continues in %s at %d, not at %d: %s", self._group, where, offset, requested, reason)
        self.next_offset = offset
        if offset < requested:
            self.seek(offset)
            self._offsets.reset(self._group, topic, queue_id, offset)
        self._on_move(OffsetMove(topic, queue_id, requested, offset, reason))

    def _receive(self, page: Page, start: int) -> list[ReceivedMessage]:
        messages = page.messages
        # If there are as many messages as offsets, the offsets are known without parsing the messages.
        offsets = (
            list(range(start, page.next_offset))
            if page.next_offset - start == len(messages)
            else [offset_in(message, self.source[0]) for message in messages]
        )
        return [
            ReceivedMessage(message, self.source, offset) for message, offset in zip(messages, offsets, strict=True)
        ]


def offset_in(message: StoredMessage, topic: str) -> int:
    """The offset of a message in a queue of this topic: its own, its batch's, or that in a light queue."""
    properties = message.properties
    if message.topic == topic:
        return int(properties.get(INNER_BASE, message.queue_offset))
    names = properties.get(INNER_MULTI_DISPATCH, "").split(",")
    offsets = properties.get(INNER_MULTI_QUEUE_OFFSET, "").split(",")
    return int(dict(zip(names, offsets, strict=False))[topic])
