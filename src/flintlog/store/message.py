"""What goes into a store and what comes out of it.

`Message` is what a producer hands over, `Receipt` what it gets back, `StoredMessage` one record as
a reader sees it, `Page` the answer to one `get`. All are small structs: they are made once a message,
on the hottest paths there are, so a stored message keeps its record's bytes and decodes a part when
that part is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum

import msgspec


class PutStatus(IntEnum):
    """RocketMQ's PutMessageStatus, with its ordinals."""

    PUT_OK = 0
    FLUSH_DISK_TIMEOUT = 1
    FLUSH_SLAVE_TIMEOUT = 2
    SLAVE_NOT_AVAILABLE = 3
    SERVICE_NOT_AVAILABLE = 4
    CREATE_MAPPED_FILE_FAILED = 5
    MESSAGE_ILLEGAL = 6
    PROPERTIES_SIZE_EXCEEDED = 7
    OS_PAGE_CACHE_BUSY = 8
    UNKNOWN_ERROR = 9
    IN_SYNC_REPLICAS_NOT_ENOUGH = 10
    PUT_TO_REMOTE_BROKER_FAIL = 11
    LMQ_CONSUME_QUEUE_NUM_EXCEEDED = 12
    WHEEL_TIMER_FLOW_CONTROL = 13
    WHEEL_TIMER_MSG_ILLEGAL = 14
    WHEEL_TIMER_NOT_ENABLE = 15


class GetStatus(IntEnum):
    """RocketMQ's GetMessageStatus."""

    FOUND = 0
    NO_MATCHED_MESSAGE = 1
    MESSAGE_WAS_REMOVING = 2
    OFFSET_FOUND_NULL = 3
    OFFSET_OVERFLOW_BADLY = 4
    OFFSET_OVERFLOW_ONE = 5
    OFFSET_TOO_SMALL = 6
    NO_MATCHED_LOGIC_QUEUE = 7
    NO_MESSAGE_IN_QUEUE = 8


class _Addressed(msgspec.Struct, gc=False):
    """The two parts of a message that are given by position."""

    topic: str
    body: bytes


class Message(_Addressed, kw_only=True, gc=False):
    """One message to be stored.

    >>> Message("orders", b"42 pieces", tags="paid", keys=["o-17"], queue_id=3).topic
    'orders'
    """

    tags: str | None = None
    keys: Sequence[str] = ()
    queue_id: int = 0
    properties: Mapping[str, str] | None = None
    flag: int = 0
    sys_flag: int = 0
    born_timestamp: int | None = None
    born_host: str | None = None
    store_host: str | None = None
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    delay_level: int = 0
    deliver_at_ms: int | None = None
    compress: str | None = None
