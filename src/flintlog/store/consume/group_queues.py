"""The queues that consumers of one group share, and which of the consumers reads which queue.

    consumer A   queue 0 ── queue 1            B joins      A  queue 0 ── queue 1
                 queue 2 ── queue 3            ───────▶     B  queue 2 ── queue 3

Invariant: a queue has one reader at a time. It changes hands when its reader has acknowledged what it received from it;
until then the reader receives nothing new from it. So no message is with two consumers at once, none is skipped, and a
queue stays in order. A consumer that closes gives its open messages back, and its queues are shared out at once.

A message that is not acknowledged within its consumer's `ack_timeout_s` is due again. If no thread of its consumer is
in `poll` then, that consumer is away: the others share its queues until it polls.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from contextlib import suppress
from typing import Final

import msgspec

from flintlog.errors import InvalidConfig, InvalidMessage, InvalidOffset, InvalidTopic
from flintlog.store.consume.consumer_queue import ConsumerQueue, OffsetMove, ReceivedMessage
from flintlog.store.consume.offset_moved import put_offset_moved
from flintlog.store.consume.subscription import Subscription
from flintlog.store.dispatch.arrival_wait import ArrivalWait
from flintlog.store.put.service_host import ServiceHost
from flintlog.store.runtime.clock import given_clock
from flintlog.store.settings.groups import GroupConfig

_MOST_MOVES: Final = 1000
_TAKES_A_LOOK: Final = 256


class QueuePosition(msgspec.Struct, frozen=True):
    """A consumer's position in one queue: committed for its group, next to be read, and the queue's end."""

    topic: str
    queue_id: int
    committed: int
    next_offset: int
    max_offset: int


class Seat:
    """One consumer among those that share: what it reads now, and whether it is there. The queues' lock guards it."""

    __slots__ = ("ack_timeout_s", "is_away", "is_open", "queues", "sleepers", "turn", "wait")

    def __init__(self, wait: ArrivalWait, ack_timeout_s: float | None) -> None:
        self.wait = wait
        self.ack_timeout_s = ack_timeout_s
        self.queues: list[SharedQueue] = []
        self.turn = 0
        self.sleepers = 0
        self.is_away = False
        self.is_open = True


class SharedQueue(ConsumerQueue):
    """A queue with its reader, and the one that is to read it."""

    reader: Seat | None = None
    heir: Seat | None = None


class GroupQueues:
    """See the module. Any thread may call; one lock guards all of it."""

    def __init__(self, host: ServiceHost, subscription: Subscription) -> None:
        self.subscription = subscription
        self.moves: deque[OffsetMove] = deque(maxlen=_MOST_MOVES)
        self._unreported: deque[OffsetMove] = deque(maxlen=_MOST_MOVES)
        self._host = host
        self._store = host.store
        self._group = subscription.group
        self._queues: dict[tuple[str, int], SharedQueue] = {}
        self._seats: list[Seat] = []
        self._takes = 0
        self._is_known = False
        self._expires_s = math.inf
        now_ms = given_clock(host.now_ms)  # a test's clock counts; the system's may be set back, so it is not used
        self._now_s = time.monotonic if now_ms is None else lambda: now_ms() / 1000
        self._lock = threading.Lock()

    # ------------------------------------------------------------------ coming and going

    def make_seat(self, ack_timeout_s: float | None) -> Seat:
        """A seat for one more consumer, which reads nothing until it was added and `start`ed."""
        return Seat(self._host.arrival_wait(self.subscription.topics), ack_timeout_s)

    def add(self, seat: Seat) -> None:
        """Let a consumer share the queues."""
        with self._lock:
            self._seats = [*self._seats, seat]

    def start(self) -> None:
        """Share out the queues. A new group's offsets are saved at once, so that it is not new after a crash."""
        config, topic = self._group_config(), self._store.topics.get(self.subscription.topic)
        if not config.consume_enable:
            raise InvalidConfig(f"group {self._group!r} may not consume", advice="change its consume_enable")
        if topic is not None and not topic.is_readable:
            raise InvalidTopic(f"topic {topic.name!r} may not be read", advice="change its perm")
        if self.subscription.retry_topic is not None and not self._store.read_only:
            self._store.topics.get_or_create(self.subscription.retry_topic, max(1, config.retry_queue_nums))
        with self._lock:
            is_new = not self._is_known and self._load_offsets()
            self._share_out()
        if is_new and not self._store.read_only:
            self._store.consumer_offsets.save()

    def _group_config(self) -> GroupConfig:
        if self._store.read_only:
            return self._store.groups.get(self._group) or GroupConfig(group_name=self._group)
        return self._store.groups.get_or_create(self._group)

    def _load_offsets(self) -> bool:
        """Find the queues for the first time. Returns whether the group is new to the topic."""
        offsets, topic = self._store.consumer_offsets, self.subscription.topic
        self._is_known = bool(offsets.offsets(self._group, topic))
        self._find_queues()
        if self._is_known:
            return False
        if not offsets.offsets(self._group, topic):
            offsets.commit(self._group, topic, min(self.subscription.queue_ids or {0}), 0)
        self._is_known = True
        return True

    def leave(self, seat: Seat) -> None:
        """A consumer closed. May be repeated after it was interrupted."""
        with self._lock:
            seat.is_open = False
            self._seats = [each for each in self._seats if each is not seat]
            if not self._seats:  # late acknowledgements still count, so all stays as it is
                for queue in self._queues.values():
                    queue.acknowledged.is_closed = True
                return
            for queue in seat.queues:
                queue.give_back()
            for queue in seat.queues:
                queue.reader = None
            seat.queues = []
            self._share_out()

    def _share_out(self) -> None:
        """Choose a reader for each queue, topic by topic: evenly, and with as few changes as that allows."""
        seats = [seat for seat in self._seats if not seat.is_away] or self._seats
        if not seats:
            return  # the last consumer was closed
        total = dict.fromkeys(seats, 0)
        for topic in self.subscription.topics:
            queues = [self._queues[source] for source in sorted(self._queues) if source[0] == topic]
            share, extra = divmod(len(queues), len(seats))
            count = dict.fromkeys(seats, 0)
            left = []
            for queue in queues:
                heir = queue.heir
                if heir not in count or count[heir] > share or (count[heir] == share and not extra):
                    left.append(queue)
                else:
                    extra -= 1 if count[heir] == share else 0
                    count[heir] += 1
            for queue in left:
                queue.heir = min(seats, key=lambda seat: (count[seat], total[seat]))
                count[queue.heir] += 1
            for seat in seats:
                total[seat] += count[seat]
        for queue in self._queues.values():
            self._hand_over(queue)
        self._wake_all()

    def _wake_all(self) -> None:
        for seat in tuple(self._seats):
            seat.wait.wake()

    def _hand_over(self, queue: SharedQueue) -> None:
        """Let the chosen one read, unless the reader has messages that are not acknowledged."""
        if queue.reader is queue.heir or (queue.reader is not None and queue.has_open):
            return
        reader, heir = queue.reader, queue.heir
        left = [] if reader is None else [each for each in reader.queues if each is not queue]
        taken = [] if heir is None else [*heir.queues, queue]
        if reader is not None:  # no call from here to the last assignment: a signal handler may raise at each
            reader.queues = left
        queue.reader = heir
        if heir is not None:
            heir.queues = taken
            heir.wait.wake()

    # ------------------------------------------------------------------ delivering

    def take(self, seat: Seat) -> ReceivedMessage | None:
        """The next message for a consumer: of each of its queues in turn."""
        with self._lock:
            message = self._take(seat) if seat.is_open else None
        self._report_moves()
        return message

    def _take(self, seat: Seat) -> ReceivedMessage | None:
        self._takes += 1
        if self._takes % _TAKES_A_LOOK == 0:
            self._look_for_queues()
        if seat.is_away:
            seat.is_away = False
            self._share_out()
        expires_s = math.inf
        if seat.ack_timeout_s is not None or self._expires_s < math.inf:
            now_s = self._now_s()
            self._expire(now_s, seat)
            if seat.ack_timeout_s is not None:
                expires_s = now_s + seat.ack_timeout_s
        message = self._ask_each(seat, expires_s)
        if message is None and self._look_for_queues():
            message = self._ask_each(seat, expires_s)
        if message is not None and expires_s < self._expires_s:
            self._expires_s = expires_s
            self._wake_all()  # those that sleep do not know of this time
        return message

    def _ask_each(self, seat: Seat, expires_s: float) -> ReceivedMessage | None:
        count = len(seat.queues)
        for place in range(seat.turn, seat.turn + count):
            queue = seat.queues[place % count]
            if queue.heir is seat:
                message = queue.take(expires_s)
                if message is not None:
                    seat.turn = (place + 1) % count
                    return message
        return None

    def has_more(self, seat: Seat) -> bool:
        """Whether `take` may find something."""
        with self._lock:
            return self._look_for_queues() or any(queue.heir is seat and queue.has_more() for queue in seat.queues)

    def expires_in_s(self) -> float:
        """How long until an open message is due again; infinite if none has a time."""
        expires_s = self._expires_s
        return expires_s if expires_s == math.inf else max(0.0, expires_s - self._now_s())

    def sleeps(self, seat: Seat, change: int) -> None:
        """A thread or task of a consumer begins (1) or ends (-1) to sleep in `poll`."""
        with self._lock:
            seat.sleepers += change

    def _expire(self, now_s: float, polling: Seat) -> None:
        if now_s < self._expires_s:
            return
        has_changed = False
        for queue in self._queues.values():
            if queue.give_back(now_s):
                has_changed = True
                if queue.reader is not None and queue.reader is not polling and not queue.reader.sleepers:
                    queue.reader.is_away = True
        self._expires_s = min((queue.expires_s for queue in self._queues.values()), default=math.inf)
        if has_changed:
            self._share_out()

    def _look_for_queues(self) -> bool:
        found = self._find_queues()
        if found:
            self._share_out()
        return found

    def _find_queues(self) -> bool:
        """Add new queues. Returns whether there were any."""
        found = False
        for topic in self.subscription.topics:
            wanted = self.subscription.ids_of(topic)
            for queue_id in self._host.queue_ids(topic):
                if (topic, queue_id) not in self._queues and (wanted is None or queue_id in wanted):
                    self._add_queue(topic, queue_id)
                    found = True
        return found

    def _add_queue(self, topic: str, queue_id: int) -> None:
        offset = self._store.consumer_offsets.get(self._group, topic, queue_id)
        if offset is None:
            offset = self._first_offset(topic, queue_id)
            self._store.consumer_offsets.commit(self._group, topic, queue_id, offset)
        self._queues[topic, queue_id] = SharedQueue(
            self._store,
            self._group,
            (topic, queue_id),
            self.subscription.wanted if topic == self.subscription.topic else None,
            offset,
            self.subscription.max_unacknowledged,
            self._note_move,
        )

    def _first_offset(self, topic: str, queue_id: int) -> int:
        """Where to begin in a queue; a queue that is newer than the group is read from its beginning."""
        is_old = self._is_known or topic != self.subscription.topic
        return self._offset_of("earliest" if is_old else self.subscription.start, topic, queue_id)

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
        """Put the events, without the lock: a put may wait for a listener that polls here."""
        while self._unreported:
            with suppress(IndexError):  # another thread has taken the last one
                put_offset_moved(self._store, self._group, self._unreported.popleft())

    # ------------------------------------------------------------------ acknowledging, positions

    def acknowledge(self, message: ReceivedMessage) -> None:
        """A message is done. Wakes consumers that this lets continue."""
        with self._lock:
            queue = self._queues.get(message.source)
            if queue is None:
                raise InvalidMessage("this message did not come from this consumer")
            was_full = queue.is_full
            queue.acknowledge(message.offset)
            if queue.reader is not queue.heir:
                self._hand_over(queue)
            elif was_full and queue.reader is not None:
                queue.reader.wait.wake()

    def positions(self, seat: Seat) -> list[QueuePosition]:
        """The position in each queue that a consumer reads now."""
        committed = self._store.consumer_offsets
        with self._lock:
            self._look_for_queues()
            return [
                QueuePosition(
                    *queue.source,
                    committed.get(self._group, *queue.source) or 0,
                    queue.next_offset,
                    self._store.max_offset(*queue.source),
                )
                for queue in self._queues.values()
                if queue.reader is seat
            ]

    def reset(self, place: str | int) -> None:
        """Continue at another place in all queues of the topic."""
        with self._lock:
            self._look_for_queues()
            for queue in self._queues.values():
                if queue.source[0] == self.subscription.topic:
                    self._seek(queue, self._offset_of(place, *queue.source))
        self._keep_position()

    def seek(self, queue_id: int, offset: int) -> None:
        """Continue at an offset of one queue of the topic, or as near to it as the queue has messages."""
        topic = self.subscription.topic
        with self._lock:
            self._look_for_queues()
            queue = self._queues.get((topic, queue_id))
            if queue is None:
                raise InvalidOffset(f"this consumer does not read queue {queue_id} of {topic!r}")
            low, high = self._store.min_offset(topic, queue_id), self._store.max_offset(topic, queue_id)
            self._seek(queue, min(max(low, offset), high))
        self._keep_position()

    def rewind(self, seat: Seat) -> None:
        """Deliver a consumer's open messages again."""
        with self._lock:
            for queue in seat.queues:
                queue.give_back()
            self._share_out()

    def _seek(self, queue: SharedQueue, offset: int) -> None:
        queue.seek(offset)
        self._hand_over(queue)
        self._store.consumer_offsets.reset(self._group, *queue.source, offset)

    def _keep_position(self) -> None:
        if not self._store.read_only:
            self._store.consumer_offsets.save()
        self._wake_all()
