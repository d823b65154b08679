"""Timed messages: as they are put, as they wait in the timer's topic, and as they are delivered.

    put         TIMER_DELIVER_MS (deliver_at_ms), TIMER_DELAY_MS or TIMER_DELAY_SEC
    waiting     topic rmq_sys_wheel_timer, queue 0; and TIMER_OUT_MS, REAL_TOPIC, REAL_QID
    rolled      the same again, and TIMER_ENQUEUE_MS, TIMER_ROLL_TIMES, TIMER_DEQUEUE_MS
    delivered   topic and queue of REAL_TOPIC and REAL_QID; and TIMER_ENQUEUE_MS, TIMER_DEQUEUE_MS

All properties stay on the record, as in RocketMQ. TIMER_OUT_MS names the slot: the last multiple of the precision
before the moment of delivery. A slot is delivered when its time is over, so no message is early.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import msgspec

from flintlog.errors import FormatError, InvalidMessage
from flintlog.format.java import parse_int, string_hash
from flintlog.format.properties import (
    MAX_PROPERTIES_SIZE,
    NEW_MAP_CAPACITY,
    PARSED_MAP_CAPACITY,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    TIMER_DEL_UNIQKEY,
    TIMER_DELAY_MS,
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
    TIMER_DEQUEUE_MS,
    TIMER_ENQUEUE_MS,
    TIMER_OUT_MS,
    TIMER_ROLL_TIMES,
    UNIQ_KEY,
    join_properties,
)
from flintlog.format.timer import TIMER_TOPIC
from flintlog.format.topics import can_be_topic
from flintlog.services.rebuilding import put_again
from flintlog.store.model.message import Message
from flintlog.store.model.stored_message import StoredMessage
from flintlog.store.runtime.service import Rewritten

LATE_MS: Final = (1 << 63) - 1
"""TIMER_ENQUEUE_MS of a late message, which was never entered in the wheel."""

RECALL_TAG: Final = "_RECALL_TAG_"

_LONG = re.compile(r"[+-]?[0-9]{1,19}")
_LONG_MAX = (1 << 63) - 1
# A delivery adds at most three names, their longest numbers and the separators.
_ROOM_FOR_DELIVERY = 3 * (len(TIMER_ENQUEUE_MS) + 19 + 2)


def parse_long(text: str | None) -> int | None:
    """`Long.parseLong`; None where Java throws."""
    if text is None or not _LONG.fullmatch(text):
        return None
    value = int(text)
    return value if -_LONG_MAX - 1 <= value <= _LONG_MAX else None


# ---------------------------------------------------------------------- on the way in


def deliver_time(properties: Mapping[str, str], now_ms: int) -> int | None:
    """When a message with these properties is to be delivered; None when the value is not a number.

    As in RocketMQ, a delay in seconds wins over one in milliseconds, and both over a moment.
    """
    seconds, milliseconds = properties.get(TIMER_DELAY_SEC), properties.get(TIMER_DELAY_MS)
    if seconds is not None:
        delay = parse_long(seconds)
        return None if delay is None else now_ms + delay * 1000
    if milliseconds is not None:
        delay = parse_long(milliseconds)
        return None if delay is None else now_ms + delay
    return parse_long(properties.get(TIMER_DELIVER_MS))


def slot_of(deliver_ms: int, precision_ms: int) -> int:
    """The slot for a moment of delivery: the last one that is over at that moment.

    >>> slot_of(10_500, 1000), slot_of(10_000, 1000)
    (10000, 9000)
    """
    return (deliver_ms - 1) // precision_ms * precision_ms


def plain(message: Message, properties: dict[str, str]) -> Rewritten:
    """A message that is stored at once; it keeps the properties that asked for a time."""
    return Rewritten(_with(message, properties), NEW_MAP_CAPACITY)


def waiting(message: Message, properties: dict[str, str], slot_ms: int) -> Rewritten:
    """A message as it waits in the timer's topic."""
    properties[TIMER_OUT_MS] = str(slot_ms)
    properties[REAL_TOPIC] = message.topic
    properties[REAL_QUEUE_ID] = str(message.queue_id)
    if not _has_room(properties):
        raise InvalidMessage(
            f"the properties leave no room for the {_ROOM_FOR_DELIVERY} bytes that a delivery adds",
            status="PROPERTIES_SIZE_EXCEEDED",
        )
    return Rewritten(
        msgspec.structs.replace(_with(message, properties), topic=TIMER_TOPIC, queue_id=0), PARSED_MAP_CAPACITY
    )


def _has_room(properties: dict[str, str]) -> bool:
    characters = sum(map(len, properties)) + sum(map(len, properties.values())) + 2 * len(properties)
    if 3 * characters + _ROOM_FOR_DELIVERY <= MAX_PROPERTIES_SIZE:
        return True
    return len(join_properties(properties)) + _ROOM_FOR_DELIVERY <= MAX_PROPERTIES_SIZE


def _with(message: Message, properties: dict[str, str]) -> Message:
    return msgspec.structs.replace(message, tags=None, keys=(), properties=properties, deliver_at_ms=None)


# ---------------------------------------------------------------------- on the way out


@dataclass(frozen=True, slots=True)
class Timed:
    """A waiting message of the timer's topic."""

    message: StoredMessage
    slot_ms: int
    topic: str
    topic_hash: int
    queue_id: int
    roll_times: int
    cancels: str | None
    """The unique key of the message that it cancels; None for a message to deliver."""

    @property
    def identity(self) -> tuple[object, ...]:
        """Equal for a message and its rolled and delivered copies, and different for other messages."""
        message = self.message
        place = (self.topic, self.queue_id, self.slot_ms, self.cancels)
        return (*place, message.born_timestamp, message.born_host, message.body_crc, len(message.body), self.key)

    @property
    def step(self) -> int:
        """The change of the waiting count when it is entered; subtracted again when it is done."""
        return 1 if self.cancels is None else -1

    @property
    def key(self) -> str | None:
        return self.message.properties.get(UNIQ_KEY)


def parse_timed(message: StoredMessage) -> Timed | None:
    """Parse a message of the timer's topic; None when it could never be delivered."""
    properties = message.properties
    slot_ms = parse_long(properties.get(TIMER_OUT_MS))
    topic = properties.get(REAL_TOPIC, "")
    try:
        queue_id = parse_int(properties.get(REAL_QUEUE_ID, ""))
        roll_times = parse_int(properties[TIMER_ROLL_TIMES]) if TIMER_ROLL_TIMES in properties else 0
    except FormatError:
        return None
    topic_hash = _topic_hash(topic)
    if slot_ms is None or slot_ms < 0 or queue_id < 0 or topic_hash is None:
        return None
    return Timed(message, slot_ms, topic, topic_hash, queue_id, roll_times, properties.get(TIMER_DEL_UNIQKEY))


@lru_cache(maxsize=1024)
def _topic_hash(topic: str) -> int | None:
    """Java's hash of a topic; None for an impossible topic."""
    return string_hash(topic) if can_be_topic(topic) else None


def delivered(timed: Timed, entered_ms: int, now_ms: int) -> Rewritten:
    """The message in the form in which it is put into its own topic."""
    properties = {**timed.message.properties, TIMER_ENQUEUE_MS: str(entered_ms), TIMER_DEQUEUE_MS: str(now_ms)}
    return _rebuilt(timed.message, timed.topic, timed.queue_id, properties)


def rolled(timed: Timed, entered_ms: int, now_ms: int) -> Rewritten:
    """The copy of a message that is due later than the window, to be entered again."""
    properties = {**timed.message.properties, TIMER_ENQUEUE_MS: str(entered_ms)}
    properties[TIMER_ROLL_TIMES] = str(timed.roll_times + 1)
    properties[TIMER_DEQUEUE_MS] = str(now_ms)
    return _rebuilt(timed.message, TIMER_TOPIC, 0, properties)


def _rebuilt(message: StoredMessage, topic: str, queue_id: int, properties: dict[str, str]) -> Rewritten:
    return Rewritten(put_again(message, topic, queue_id, properties), PARSED_MAP_CAPACITY)


def cancel_key(topic: str, unique_key: str, *, with_topic: bool) -> str:
    """The key under which a message is cancelled (`appendTopicForTimerDeleteKey`)."""
    return f"{topic}+{unique_key}" if with_topic else unique_key


def cancellation(topic: str, unique_key: str, deliver_ms: int, key: str) -> Message:
    """The message that cancels another one, in the form of RocketMQ's recall."""
    properties = {TIMER_DEL_UNIQKEY: key, UNIQ_KEY: unique_key}
    return Message(topic, b"0", tags=RECALL_TAG, properties=properties, deliver_at_ms=deliver_ms)
