"""A delayed message's two shapes in the log: waiting in its level's queue, and delivered.

                    topic                 queue            properties
    asked for       orders                3                TAGS, KEYS, ...
    waiting         SCHEDULE_TOPIC_XXXX   level - 1        the same, and DELAY, REAL_TOPIC, REAL_QID
    delivered       orders                3                as waiting

RocketMQ removes DELAY from a delivered message only after it has encoded the properties, so all three stay on disk.
They stay here too. Both property texts are in the order of a Java map that was parsed from a record: capacity 128.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from flintlog.errors import FormatError, InvalidMessage
from flintlog.format.java import parse_int
from flintlog.format.message_fields import merged_properties
from flintlog.format.properties import (
    DELAY_TIME_LEVEL,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    TIMER_DELAY_MS,
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
)
from flintlog.format.record import HALF_TOPIC, SCHEDULE_TOPIC
from flintlog.format.sys_flag import TRANSACTION_MASK, TransactionType
from flintlog.format.topics import can_be_topic
from flintlog.services.rebuilding import put_again
from flintlog.store.model.message import Message
from flintlog.store.model.stored_message import StoredMessage
from flintlog.store.runtime.service import Rewritten

# A level wins over a time: RocketMQ drops these when a message has both.
_TIMER_PROPERTIES: Final = frozenset({TIMER_DELIVER_MS, TIMER_DELAY_SEC, TIMER_DELAY_MS})
_DELAYABLE: Final = frozenset({TransactionType.NONE, TransactionType.COMMIT})


def scheduled(message: Message, level_count: int) -> Rewritten:
    """Return a message with a delay level in the form in which it waits.

    RocketMQ lowers a level that is too high to the highest one. Here it is refused, because the message would be
    delivered sooner than the caller asked.
    """
    level = message.delay_level
    if not 1 <= level <= level_count:
        known = f"levels go from 1 to {level_count}" if level_count else "message_delay_level names no level"
        raise InvalidMessage(f"there is no delay level {level}", advice=known)
    if message.sys_flag & TRANSACTION_MASK not in _DELAYABLE:
        raise InvalidMessage("a half message or a rollback cannot be delayed", advice="delay the message itself")
    if message.queue_id < 0:
        raise InvalidMessage(f"queue_id cannot be {message.queue_id}")
    properties = {name: text for name, text in merged_properties(message).items() if name not in _TIMER_PROPERTIES}
    properties |= {DELAY_TIME_LEVEL: str(level), REAL_TOPIC: message.topic, REAL_QUEUE_ID: str(message.queue_id)}
    waiting = msgspec.structs.replace(
        message, topic=SCHEDULE_TOPIC, queue_id=level - 1, tags=None, keys=(), properties=properties, delay_level=0
    )
    return Rewritten(waiting)


def destination(properties: Mapping[str, str]) -> tuple[str, int]:
    """The topic and queue of a waiting message; `InvalidMessage` when they are missing or cannot exist."""
    topic = properties.get(REAL_TOPIC, "")
    if not can_be_topic(topic):
        raise InvalidMessage(f"a delayed message for the topic {topic!a}")
    if topic == HALF_TOPIC:
        raise InvalidMessage("a delayed message that would be a half message")
    try:
        queue_id = parse_int(properties.get(REAL_QUEUE_ID, ""))
    except (FormatError, ValueError):
        queue_id = -1
    if queue_id < 0:
        raise InvalidMessage(f"a delayed message for the queue {properties.get(REAL_QUEUE_ID)!a}")
    return topic, queue_id


def delivered(waiting: StoredMessage) -> Rewritten:
    """Return a due message in the form that consumers get."""
    topic, queue_id = destination(waiting.properties)
    return Rewritten(put_again(waiting, topic, queue_id, waiting.properties))
