"""Which queue entries a record has: one in its own queue, and one in each queue that it is also dispatched to.

This is the one definition of "record → queue entries" for every record that is not plain. The kernel's fast dispatch
handles the plain case (one entry, right after the last one) and leaves all others to its caller.

    plain message              one entry at its queue offset
    inner batch, batch topic   one entry for the batch: its first offset and how many messages it holds
    the same in a ledger       RocketMQ does not write the first offset there, and makes it an entry of one message
    multi dispatch             one more entry in each queue that it names; light queues have no other id than 0
    prepared, rolled back      none

Reasons and costs: docs/decisions/0001.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from flintlog.format.properties import (
    INNER_BASE,
    INNER_MULTI_DISPATCH,
    INNER_MULTI_QUEUE_OFFSET,
    INNER_NUM,
    parse_properties,
)
from flintlog.format.record import SCHEDULE_TOPIC, parse_record
from flintlog.format.sys_flag import takes_queue_offset
from flintlog.format.topics import DLQ_PREFIX, LMQ_PREFIX, RETRY_PREFIX, SYSTEM_PREFIX, can_be_topic
from flintlog.kernel import INNER_BATCH, MULTI_DISPATCH, Row

MAX_BATCH_COUNT: Final = 32_767
MAX_QUEUE_OFFSET: Final = 1 << 58
"""A queue file's name could not hold the position of a larger offset."""


class Place(NamedTuple):
    """One entry's place: a queue, the offset in it, and how many messages it stands for.

    `given_count` is how many offsets its put took. In a ledger, RocketMQ's entry of an inner batch covers fewer.
    """

    topic: str
    queue_id: int
    queue_offset: int
    batch_count: int = 1
    given_count: int = 1


def places_of(
    topic: str, queue_id: int, row: Row, record: bytes, *, is_batch: Callable[[str], bool], lmq: bool
) -> list[Place]:
    """The entries of a record, that of its own queue first.

    A record with an impossible topic, queue id or offset has none: its path could lie outside of the store's directory.
    """
    if not takes_queue_offset(row.sys_flag):
        return []
    if not can_be_topic(topic) or queue_id < 0 or not 0 <= row.queue_offset <= MAX_QUEUE_OFFSET:
        return []
    if is_batch(topic):
        return [_batch_place(topic, queue_id, row, record)]
    own = Place(topic, queue_id, row.queue_offset)
    return [own, *_multi_places(topic, queue_id, record)] if lmq and row.marks & MULTI_DISPATCH else [own]


def _batch_place(topic: str, queue_id: int, row: Row, record: bytes) -> Place:
    """An inner batch has one entry for all its messages; a plain message in a batch queue is a batch of one."""
    properties = parse_properties(parse_record(record).properties)
    first = _number(properties.get(INNER_BASE, ""), MAX_QUEUE_OFFSET)
    count = stated_count(properties)
    if first is not None and count:
        return Place(topic, queue_id, first, count, count)
    return Place(topic, queue_id, row.queue_offset, 1, count if count and row.marks & INNER_BATCH else 1)


def _multi_places(topic: str, queue_id: int, record: bytes) -> list[Place]:
    properties = parse_properties(parse_record(record).properties)
    names = properties[INNER_MULTI_DISPATCH].split(",")
    offsets = properties[INNER_MULTI_QUEUE_OFFSET].split(",")
    if len(names) != len(offsets) or not may_multi_dispatch(topic):
        return []
    return [
        Place(name, 0 if name.startswith(LMQ_PREFIX) else queue_id, offset)
        for name, text in zip(names, offsets, strict=True)
        if can_be_topic(name) and (offset := _number(text, MAX_QUEUE_OFFSET)) is not None
    ]


def may_multi_dispatch(topic: str) -> bool:
    """RocketMQ does not multi-dispatch retries, dead letters, delayed messages or its own topics."""
    return not topic.startswith((RETRY_PREFIX, DLQ_PREFIX, SYSTEM_PREFIX)) and topic != SCHEDULE_TOPIC


def stated_count(properties: Mapping[str, str]) -> int | None:
    """How many messages an inner batch states that it holds; None if that is impossible, as in a damaged record."""
    return _number(properties.get(INNER_NUM, ""), MAX_BATCH_COUNT)


def _number(text: str, most: int) -> int | None:
    """The number that a property holds; None if it is none or above `most`. The text may be of any length."""
    if not text.isdecimal() or len(text) > len(str(most)):
        return None
    number = int(text)
    return number if number <= most else None
