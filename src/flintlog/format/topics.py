"""Names of topics: RocketMQ's own, and which names are possible.

%RETRY%<group>, %DLQ%<group>     messages that a group failed to consume, and those it gave up
%LMQ%<name>                      a light queue: one of many in which a record may be listed
"""

from __future__ import annotations

import re
from typing import Final

from flintlog.errors import InvalidTopic
from flintlog.format.record import HALF_TOPIC, OP_TOPIC, SCHEDULE_TOPIC

RETRY_PREFIX: Final = "%RETRY%"
DLQ_PREFIX: Final = "%DLQ%"
LMQ_PREFIX: Final = "%LMQ%"
OFFSET_MOVED_EVENT: Final = "OFFSET_MOVED_EVENT"
MAX_TOPIC_BYTES: Final = 255
LEGAL_NAME: Final = re.compile(r"[%|a-zA-Z0-9_-]+")
"""The names of topics and groups that a broker accepts; a store by itself accepts more."""

SYSTEM_PREFIX: Final = "rmq_sys_"
STATE_TOPIC: Final = "rmq_sys_flintlog_state"
"""The topic in which the members of a ledger's group share topics, groups and offsets."""
SYSTEM_NAMES: Final = frozenset(
    {
        *("TBW102", "BenchmarkTest", "CHECKPOINT_TOPIC", "SELF_TEST_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC"),
        *("RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC", "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC", "RMQ_SYS_TRACE_TOPIC"),
        *(SCHEDULE_TOPIC, HALF_TOPIC, OP_TOPIC, OFFSET_MOVED_EVENT),
    }
)


def is_system_topic(topic: str) -> bool:
    """Whether a topic is RocketMQ's own.

    >>> is_system_topic("SCHEDULE_TOPIC_XXXX"), is_system_topic("orders")
    (True, False)
    """
    return topic in SYSTEM_NAMES or topic.startswith(SYSTEM_PREFIX)


def is_user_topic(topic: str) -> bool:
    """Whether a topic is for producers: neither RocketMQ's own nor made for a group."""
    return not is_system_topic(topic) and not topic.startswith((RETRY_PREFIX, DLQ_PREFIX))


def encode_topic(topic: str) -> bytes:
    """A topic in UTF-8, if it can be one and can name a directory."""
    if not isinstance(topic, str):
        raise InvalidTopic(f"a topic is text, not {type(topic).__name__}")
    try:
        encoded = topic.encode()
    except UnicodeEncodeError:
        raise InvalidTopic(f"the topic holds a lone surrogate: {topic[:80]!a}") from None
    if not 1 <= len(encoded) <= MAX_TOPIC_BYTES:
        raise InvalidTopic(f"a topic has 1 to {MAX_TOPIC_BYTES} bytes, not {len(encoded)}")
    if topic in (".", "..") or any(char in "/\\" or char < " " or "\x7f" <= char <= "\x9f" for char in topic):
        raise InvalidTopic(f"a topic names a directory, which this cannot: {topic!a}")
    return encoded


def can_be_topic(name: str) -> bool:
    """Whether a name can be a topic, that is, a directory of a store.

    >>> can_be_topic("orders"), can_be_topic("../orders")
    (True, False)
    """
    try:
        encode_topic(name)
    except InvalidTopic:
        return False
    return True
