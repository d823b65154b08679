"""Sending back: a message that could not be consumed is stored again, for a later try or as a dead letter.

    consumed n times before        n < retry_max_times         %RETRY%group, after a delay
                                   n >= retry_max_times,       %DLQ%group, at once
                                   or a negative level

The delay level is the given one; 0 means 3 + n (at most the highest level), so that the pauses grow. The stored message
counts one more try. Its properties are in the order of a parsed Java map, and among them are:

    RETRY_TOPIC          the topic it was first put to
    ORIGIN_MESSAGE_ID    the id of the message that was sent back first
    WAIT                 false
    DELAY                the level; 0 for a dead letter
"""

from __future__ import annotations

import random

import msgspec

from flintlog.errors import InvalidConfig, InvalidMessage, InvalidTopic
from flintlog.format.properties import (
    CRC32,
    DELAY_TIME_LEVEL,
    ORIGIN_MESSAGE_ID,
    RETRY_TOPIC,
    WAIT_STORE_MSG_OK,
)
from flintlog.format.sys_flag import BORN_HOST_V6, STORE_HOST_V6
from flintlog.store.model.message import Message, Receipt
from flintlog.store.model.stored_message import StoredMessage
from flintlog.store.put.service_host import ServiceHost
from flintlog.store.runtime.service import Rewritten
from flintlog.store.settings.groups import GroupConfig
from flintlog.store.settings.topics import dead_letter_topic, retry_topic

FIRST_RETRY_LEVEL = 3


def send_back(
    host: ServiceHost,
    group: str,
    message: StoredMessage,
    delay_level: int = 0,
    *,
    max_reconsume_times: int | None = None,
    check: bool = True,
) -> Receipt:
    """Store a message again that its group could not consume; `max_reconsume_times` overrides the group's limit.

    A retry needs the service "schedule". When this returns, the new message is as durable as after a put, and the
    failed one may be acknowledged. Otherwise it raises `PutFailed`, or with `check=False` returns another status.
    """
    if not isinstance(message, StoredMessage):
        raise InvalidMessage(f"only a stored message can be sent back, not {type(message).__name__}")
    if not isinstance(delay_level, int):
        raise InvalidMessage(f"a delay level is an integer, not {type(delay_level).__name__}")
    config = host.store.groups.get_or_create(group)
    most = config.retry_max_times if max_reconsume_times is None else max_reconsume_times
    is_dead = message.reconsume_times >= most or delay_level < 0
    if is_dead:
        receipt = host.put_rewritten(_dead_letter(host, group, message), Rewritten, check=False)
    else:
        receipt = _put_retry(host, config, message, delay_level)
    if receipt:
        topic = message.properties.get(RETRY_TOPIC, message.topic)
        host.store.broker_stats.sent_back(group, topic, is_dead=is_dead)
    return receipt.check() if check else receipt


def _put_retry(host: ServiceHost, config: GroupConfig, message: StoredMessage, delay_level: int) -> Receipt:
    schedule = host.store.service("schedule")
    level = delay_level or min(FIRST_RETRY_LEVEL + message.reconsume_times, len(host.store.config.delay_levels_ms))
    # Not by `put`: WAIT=false in its properties would let it return before the message is durable.
    receipt = host.put_rewritten(_retry(host, config, message, level), schedule.rewrite, check=False)
    if receipt.physical_offset >= 0:  # also after a sync timeout: it is in the log, and will be due
        schedule.stored(receipt)
    return receipt


def _retry(host: ServiceHost, config: GroupConfig, message: StoredMessage, level: int) -> Message:
    if config.retry_queue_nums < 1:
        raise InvalidConfig(f"group {config.name!r} has no retry queue", advice="change its retry_queue_nums")
    topic = retry_topic(config.name)
    _check_writeable(host, topic, config.retry_queue_nums)
    again = _again(host, message, topic, level)
    queue_id = random.randrange(config.retry_queue_nums)
    return msgspec.structs.replace(again, queue_id=queue_id, delay_level=level)


def _dead_letter(host: ServiceHost, group: str, message: StoredMessage) -> Message:
    topic = dead_letter_topic(group)
    _check_writeable(host, topic, 1)
    return _again(host, message, topic, 0)


def _check_writeable(host: ServiceHost, topic: str, queue_nums: int) -> None:
    if not host.store.topics.get_or_create(topic, queue_nums).is_writeable:
        raise InvalidTopic(f"topic {topic!r} may not be written", advice="change its perm")


def _again(host: ServiceHost, message: StoredMessage, topic: str, level: int) -> Message:
    """The message in the form in which it is stored again."""
    properties = dict(message.properties)
    properties.pop(CRC32, None)
    properties.setdefault(RETRY_TOPIC, message.topic)
    properties[WAIT_STORE_MSG_OK] = "false"
    properties[DELAY_TIME_LEVEL] = str(level)
    if not properties.get(ORIGIN_MESSAGE_ID, "").strip():
        properties[ORIGIN_MESSAGE_ID] = message.message_id
    return Message(
        topic,
        message.body,
        properties=properties,
        flag=message.flag,
        # The encoder sets these flags again, because the store host is a different one now.
        sys_flag=message.sys_flag & ~(BORN_HOST_V6 | STORE_HOST_V6),
        born_timestamp=message.born_timestamp,
        born_host=message.born_host,
        store_host=host.store.config.store_host,
        reconsume_times=message.reconsume_times + 1,
    )
