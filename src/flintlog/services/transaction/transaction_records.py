"""The records of a transaction: the message that each step puts, as in RocketMQ 5.5.0.

    begin      RMQ_SYS_TRANS_HALF_TOPIC/0       the message itself, with its topic and queue in REAL_TOPIC, REAL_QID,
                                                TRAN_MSG=true, PGROUP, UNIQ_KEY and __transactionId__
    check      the same again at the queue's end, TRANSACTION_CHECK_TIMES one higher; one that is not to be checked yet
               also names its first queue offset in TRAN_PREPARED_QUEUE_OFFSET
    commit     its own topic and queue          without REAL_TOPIC and REAL_QID; sys flag "commit"; the half message's
                                                physical offset as prepared transaction offset
    both ends  RMQ_SYS_TRANS_OP_HALF_TOPIC/0    tag "d", body: queue offsets of half messages, each followed by a comma
    give up    TRANS_CHECK_MAX_TIME_TOPIC/0     the half message as it is

A half message is identified by its key, which all its copies share: UNIQ_KEY and the born timestamp. All functions here
are pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import msgspec

from flintlog.errors import InvalidMessage
from flintlog.format import record
from flintlog.format.java import hash_map_order
from flintlog.format.message_fields import merged_properties
from flintlog.format.properties import (
    CHECK_IMMUNITY_TIME_IN_SECONDS,
    INNER_MULTI_DISPATCH,
    NEW_MAP_CAPACITY,
    PRODUCER_GROUP,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    TAGS,
    TRANSACTION_CHECK_TIMES,
    TRANSACTION_ID,
    TRANSACTION_PREPARED,
    TRANSACTION_PREPARED_QUEUE_OFFSET,
    UNIQ_KEY,
    WAIT_STORE_MSG_OK,
)
from flintlog.format.sys_flag import TransactionType, with_transaction_type
from flintlog.services.rebuilding import put_again
from flintlog.store.model.message import Message
from flintlog.store.model.stored_message import StoredMessage
from flintlog.store.runtime.service import Rewritten

HALF_TOPIC: Final = record.HALF_TOPIC
OP_TOPIC: Final = record.OP_TOPIC
DISCARD_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
GROUP: Final = record.TRANSACTION_GROUP
QUEUE_ID: Final = 0
"""Half and op messages have one queue each."""

REMOVE_TAG: Final = "d"
OFFSET_SEPARATOR: Final = ","

_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,18}")
_OURS: Final = frozenset({TRANSACTION_CHECK_TIMES, TRANSACTION_PREPARED_QUEUE_OFFSET})
"""A copy is recognised by these properties, so a message that begins a transaction must not have them."""

Key = tuple[str, int]
"""UNIQ_KEY and born timestamp: equal for all copies of one half message."""


@dataclass(frozen=True, slots=True)
class Half:
    """The fields of an undecided half message that are kept in memory; its body stays in the log."""

    queue_offset: int
    physical_offset: int
    id: str
    producer_group: str
    topic: str
    queue_id: int
    born_timestamp: int
    store_timestamp: int
    check_times: int | None
    immunity: str | None
    is_copy: bool

    @property
    def key(self) -> Key:
        return self.id, self.born_timestamp


def read_half(stored: StoredMessage) -> Half | None:
    """Parse a record of the half topic; None when it names no valid destination."""
    properties = stored.properties
    queue_id = _number(properties.get(REAL_QUEUE_ID, ""))
    if REAL_TOPIC not in properties or queue_id is None or queue_id < 0:
        return None
    times = properties.get(TRANSACTION_CHECK_TIMES)
    return Half(
        queue_offset=stored.queue_offset,
        physical_offset=stored.physical_offset,
        id=properties.get(UNIQ_KEY) or stored.message_id,
        producer_group=properties.get(PRODUCER_GROUP, ""),
        topic=properties[REAL_TOPIC],
        queue_id=queue_id,
        born_timestamp=stored.born_timestamp,
        store_timestamp=stored.store_timestamp,
        check_times=None if times is None else _times(times),
        immunity=properties.get(CHECK_IMMUNITY_TIME_IN_SECONDS),
        is_copy=times is not None or TRANSACTION_PREPARED_QUEUE_OFFSET in properties,
    )


def _times(text: str) -> int:
    """How often a half message was checked; -1 for a malformed number, as in RocketMQ."""
    times = _number(text)
    return -1 if times is None else times


def prepare(message: Message, producer_group: str, id: str) -> Rewritten:
    """The half message of a transaction that begins."""
    _refuse_what_cannot_wait(message)
    client = {**merged_properties(message), TRANSACTION_PREPARED: "true", PRODUCER_GROUP: producer_group, UNIQ_KEY: id}
    # The producer's map is built first, then the broker's: two names in one bucket keep the order of insertion.
    # A broker parses the producer's text, which drops empty values.
    properties = {name: client[name] for name in hash_map_order(client, NEW_MAP_CAPACITY) if client[name]}
    properties |= {TRANSACTION_ID: id, REAL_TOPIC: message.topic, REAL_QUEUE_ID: str(message.queue_id)}
    half = msgspec.structs.replace(
        message,
        topic=HALF_TOPIC,
        queue_id=QUEUE_ID,
        tags=None,
        keys=(),
        properties=properties,
        sys_flag=with_transaction_type(message.sys_flag, TransactionType.NONE),
    )
    return Rewritten(half)


def _refuse_what_cannot_wait(message: Message) -> None:
    if message.delay_level or message.deliver_at_ms is not None:
        raise InvalidMessage(
            "a message of a transaction cannot be delayed",
            advice="leave delay_level and deliver_at_ms out, or put it without a transaction",
        )
    if (message.properties or {}).get(INNER_MULTI_DISPATCH):
        # RocketMQ shows the half message in the light queues at once, before any decision.
        raise InvalidMessage(
            "a message of a transaction cannot go to light queues",
            advice="leave INNER_MULTI_DISPATCH out, or put it without a transaction",
        )
    if message.prepared_transaction_offset:
        raise InvalidMessage("a transaction that begins has no prepared_transaction_offset yet")
    if message.queue_id < 0:
        raise InvalidMessage(f"queue_id cannot be {message.queue_id}")
    reserved = sorted(_OURS & (message.properties or {}).keys())
    if reserved:
        raise InvalidMessage(f"the property {reserved[0]} belongs to the transaction service")


def commit(stored: StoredMessage, half: Half) -> Rewritten:
    """The message that consumers get."""
    properties = {name: value for name, value in stored.properties.items() if name not in (REAL_TOPIC, REAL_QUEUE_ID)}
    message = put_again(stored, half.topic, half.queue_id, properties)
    message.sys_flag = with_transaction_type(stored.sys_flag, TransactionType.COMMIT)
    message.prepared_transaction_offset = stored.physical_offset
    return Rewritten(message)


def check_again(stored: StoredMessage, half: Half) -> Rewritten:
    """The copy that is put before the producer is asked."""
    return Rewritten(put_again(stored, HALF_TOPIC, stored.queue_id, _counted(stored, half)))


def put_off(stored: StoredMessage, half: Half) -> Rewritten:
    """The copy of a half message that is not checked yet; it lets the queue's progress pass the original."""
    properties = {**_counted(stored, half), WAIT_STORE_MSG_OK: "false"}
    properties.setdefault(TRANSACTION_PREPARED_QUEUE_OFFSET, str(stored.queue_offset))
    return Rewritten(put_again(stored, HALF_TOPIC, stored.queue_id, properties))


def _counted(stored: StoredMessage, half: Half) -> dict[str, str]:
    """The properties with one more check; like RocketMQ, this counts a check that is put off."""
    return {**stored.properties, TRANSACTION_CHECK_TIMES: str(1 if half.check_times is None else half.check_times + 1)}


def give_up(stored: StoredMessage, half: Half, check_max: int) -> Rewritten:
    """The half message in the topic of those that were checked too often, or are too old."""
    was_checked_out = half.check_times is not None and half.check_times >= check_max
    properties = dict(stored.properties) if was_checked_out else _counted(stored, half)
    return Rewritten(put_again(stored, DISCARD_TOPIC, 0, properties))


def op_message(half_offsets: Iterable[int]) -> Rewritten:
    """The note that half messages are decided."""
    body = "".join(f"{offset}{OFFSET_SEPARATOR}" for offset in half_offsets).encode()
    properties = {TAGS: REMOVE_TAG, WAIT_STORE_MSG_OK: "true"}
    return Rewritten(Message(OP_TOPIC, body, queue_id=QUEUE_ID, properties=properties), NEW_MAP_CAPACITY)


def read_op(stored: StoredMessage) -> list[int]:
    """The queue offsets in an op message; malformed numbers are skipped."""
    if stored.tags != REMOVE_TAG:
        return []
    found = (_number(text) for text in stored.body.decode("utf-8", "replace").split(OFFSET_SEPARATOR))
    return [offset for offset in found if offset is not None]


def immunity_ms(text: str | None, time_out_ms: int) -> int:
    """How old a half message has to be before its producer is asked."""
    seconds = _number(text or "")
    return time_out_ms if seconds is None or seconds == -1 else seconds * 1000


def _number(text: str) -> int | None:
    """A number as Java reads it; None when malformed."""
    return int(text) if _NUMBER.fullmatch(text) else None
