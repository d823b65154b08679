"""A delayed message's two shapes in the log: waiting in its level's queue, and delivered.

                    topic                 queue            properties
    asked for       orders                3                TAGS, KEYS, ...
    waiting         SCHEDULE_TOPIC_XXXX   level - 1        the same, and DELAY, REAL_TOPIC, REAL_QID
    delivered       orders                3                as waiting

RocketMQ means to take DELAY off a delivered message, but writes the property text before it does, so all three stay on
disk; they stay here too. Both texts are in the order of a Java map that was parsed from a record: capacity 128.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from flintlog.derive.entries import can_be_topic
from flintlog.errors import FormatError, InvalidMessage
from flintlog.format.java import parse_int
from flintlog.format.properties import (
    DELAY_TIME_LEVEL,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    TIMER_DELAY_MS,
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
)
from flintlog.format.record import SCHEDULE_TOPIC
from flintlog.format.sys_flag import TRANSACTION_MASK, TransactionType
from flintlog.kernel.reference.encoder import merged_properties
from flintlog.services.rebuilding import put_again
from flintlog.store.model.message import Message
from flintlog.store.runtime.service import Rewritten
from flintlog.store.model.stored_message import StoredMessage

HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"

# A level goes before a time: RocketMQ drops these when a message has both.
_TIMER_PROPERTIES: Final = frozenset({TIMER_DELIVER_MS, TIMER_DELAY_SEC, TIMER_DELAY_MS})
_DELAYABLE: Final = frozenset({TransactionType.NONE, TransactionType.COMMIT})


def scheduled(message: Message, level_count: int) -> Rewritten:
    """A message with a delay level as it waits for its time.

    RocketMQ lowers a level that is too high to the highest one; here it is refused, because a message would come
    sooner than was asked for.
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
    """Topic and queue that a waiting message is for; `InvalidMessage` when it names none that could exist."""
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
    """A message whose time has come, as its consumers get it."""
    topic, queue_id = destination(waiting.properties)
    return Rewritten(put_again(waiting, topic, queue_id, waiting.properties))
