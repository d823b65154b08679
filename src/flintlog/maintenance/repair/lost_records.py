"""Stand-ins: records for the place of a lost message that both stores can read.

After a crash RocketMQ would end its log at a record with a damaged body, and lose everything after it. A stand-in takes
exactly as many bytes as the lost record:

    the head is known                  same topic, queue, offsets, times, tags and keys; a body of zeros, and the
                                       property FLINTLOG_LOST, if it fits
    nothing is known                   a rolled back record of the topic FLINTLOG_LOST: in no queue, in no index
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from flintlog.errors import FormatError
from flintlog.format import sys_flag
from flintlog.format.properties import (
    INNER_BASE,
    INNER_MULTI_DISPATCH,
    INNER_MULTI_QUEUE_OFFSET,
    INNER_NUM,
    MAX_PROPERTIES_SIZE,
    drop_property,
)
from flintlog.format.record import (
    CRC_PROPERTY_SIZE,
    Record,
    body_crc,
    encode_record,
    has_good_crc_property,
    magic_of_topic,
    with_crc_property,
)

LOST_PROPERTY: Final = "FLINTLOG_LOST"
LOST_TOPIC: Final = b"FLINTLOG_LOST"
_MARK: Final = f"{LOST_PROPERTY}\x01body\x02".encode()
_BATCH: Final = f"{INNER_BASE}\x01%d\x02{INNER_NUM}\x01%d\x02".encode()
_CRC_NAME: Final = "__CRC32#"
_UNREADABLE: Final = sys_flag.COMPRESSED | sys_flag.COMPRESSION_MASK | sys_flag.NEED_UNWRAP


def stand_in(record: Record) -> bytes:
    """The bytes that replace a record whose body is lost; as many as the record has."""
    size = record.size
    is_sealed = _CRC_NAME.encode() in record.properties
    known = drop_property(record.properties, _CRC_NAME) if is_sealed else record.properties
    marked = (known if not known or known.endswith(b"\x02") else known + b"\x02") + _MARK
    for properties in (marked, known):
        bare = replace(record, body=b"", properties=properties)
        room = size - bare.size - (CRC_PROPERTY_SIZE if is_sealed else 0)
        if room >= 0 and len(properties) + CRC_PROPERTY_SIZE <= MAX_PROPERTIES_SIZE:
            return _encode(replace(bare, body=bytes(room), sys_flag=record.sys_flag & ~_UNREADABLE), is_sealed, size)
    zeros = bytes(len(record.body))
    return _encode(replace(record, body=zeros, sys_flag=record.sys_flag & ~_UNREADABLE), False, size)


def _encode(record: Record, is_sealed: bool, size: int) -> bytes:
    record = replace(record, body_crc=body_crc(record.body) if record.body else 0)
    encoded = encode_record(with_crc_property(record) if is_sealed else record)
    if len(encoded) != size or (is_sealed and not has_good_crc_property(encoded)):
        raise FormatError(f"a stand-in of {len(encoded)} bytes for {size}", offset=record.physical_offset)
    return encoded


def stand_in_for_entry(
    topic: str,
    queue_id: int,
    queue_offset: int,
    physical_offset: int,
    size: int,
    store_timestamp: int,
    batch_count: int | None = None,
    others: Sequence[tuple[str, int]] = (),
) -> bytes | None:
    """The same for a message of which only its queue entry is left; None when `size` is too small.

    `batch_count`: for an entry of a batch queue, how many messages it stands for. `others`: the light queues that have
    an entry for the same message, and its offsets there.
    """
    name = topic.encode()
    known = b"" if batch_count is None else _BATCH % (queue_offset, batch_count)
    if others:
        names, offsets = (",".join(map(str, column)) for column in zip(*others, strict=True))
        known += f"{INNER_MULTI_DISPATCH}\x01{names}\x02{INNER_MULTI_QUEUE_OFFSET}\x01{offsets}\x02".encode()
    bare = Record(
        topic_bytes=name,
        body=b"",
        queue_id=queue_id,
        queue_offset=queue_offset,
        physical_offset=physical_offset,
        born_timestamp=store_timestamp,
        store_timestamp=store_timestamp,
        magic=magic_of_topic(name),
        sys_flag=0 if batch_count is None else sys_flag.INNER_BATCH,
    )
    return _padded(bare, size, known)


def least_size(topic: str, *, is_marked: bool = False) -> int:
    """The fewest bytes that a stand-in for a message of a topic takes, with FLINTLOG_LOST or without."""
    name = topic.encode()
    return Record(topic_bytes=name, body=b"", magic=magic_of_topic(name), properties=_MARK if is_marked else b"").size


def filler(physical_offset: int, size: int, store_timestamp: int) -> bytes | None:
    """A record that is in no queue and no index; None when `size` is too small."""
    bare = Record(
        topic_bytes=LOST_TOPIC,
        body=b"",
        physical_offset=physical_offset,
        sys_flag=sys_flag.TransactionType.ROLLBACK,
        born_timestamp=store_timestamp,
        store_timestamp=store_timestamp,
    )
    return _padded(bare, size)


def _padded(bare: Record, size: int, known: bytes = b"") -> bytes | None:
    for properties in (known + _MARK, known):
        record = replace(bare, properties=properties)
        if record.size <= size:
            return _encode(replace(record, body=bytes(size - record.size)), False, size)
    return None
