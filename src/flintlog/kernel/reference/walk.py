"""One record where it lies in the log, and what dispatch wants to know of it.

Every length is checked against the record's size, and the size against the readable range, before
anything behind it is read. A record is accepted only where its own physical offset says it lies.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from flintlog.errors import FormatError
from flintlog.format.index_file import index_keys
from flintlog.format.java import index_hash, string_hash
from flintlog.format.properties import (
    INNER_MULTI_DISPATCH,
    INNER_MULTI_QUEUE_OFFSET,
    KEY_SEPARATOR,
    KEYS,
    TAGS,
)
from flintlog.format.record import (
    BLANK_MAGIC,
    MAGIC_V1,
    MAGIC_V2,
    MIN_RECORD_SIZE,
    Record,
    parse_record,
)
from flintlog.format.record import tags_code as strict_tags_code
from flintlog.format.sys_flag import INNER_BATCH as INNER_BATCH_FLAG
from flintlog.format.sys_flag import TransactionType, transaction_type
from flintlog.kernel.types import INNER_BATCH, MULTI_DISPATCH, ScanStop

_SIZE_AND_MAGIC = struct.Struct("!ii")


def record_at(view: memoryview, position: int, stop: int, base: int, check_crc: bool = False) -> Record | ScanStop:
    """The record at this position of the buffer, or why there is none."""
    remaining = stop - position
    if remaining < _SIZE_AND_MAGIC.size:
        return ScanStop.SHORT if remaining > 0 else ScanStop.LIMIT
    size, magic = _SIZE_AND_MAGIC.unpack_from(view, position)
    if magic == BLANK_MAGIC:
        return ScanStop.BLANK
    if magic not in (MAGIC_V1, MAGIC_V2):
        return ScanStop.NO_RECORD
    if size < MIN_RECORD_SIZE:
        return ScanStop.BAD_LENGTH
    if size > remaining:
        return ScanStop.SHORT
    try:
        record = parse_record(view, position, position + size)
    except FormatError:
        return ScanStop.BAD_LENGTH
    if record.physical_offset != base + position:
        return ScanStop.BAD_OFFSET
    if check_crc and not record.has_good_body:
        return ScanStop.BAD_CRC
    return record


class Facts(NamedTuple):
    """What dispatch wants to know of a record beside its fixed fields."""

    tags_code: int
    hashes: list[int]
    marks: int


def facts_of(record: Record, delay_levels_ms: Sequence[int]) -> Facts:
    """The tags code, the index hashes and the marks of a record."""
    properties = record.property_map()
    marks = INNER_BATCH if record.sys_flag & INNER_BATCH_FLAG else 0
    if INNER_MULTI_DISPATCH in properties and INNER_MULTI_QUEUE_OFFSET in properties:
        marks |= MULTI_DISPATCH
    keys = index_keys(record.topic, properties)
    if transaction_type(record.sys_flag) is TransactionType.ROLLBACK:
        keys = []
    return Facts(tags_code(record, delay_levels_ms), [index_hash(key) for key in keys], marks)


def tags_code(record: Record, delay_levels_ms: Sequence[int]) -> int:
    """What stands for the tags in the queue entry.

    A delay level that is no number asks for no delay: Java would never dispatch anything behind it.
    """
    try:
        code = strict_tags_code(record, delay_levels_ms)
    except FormatError:
        code = string_hash(record.property_map().get(TAGS, ""))
    return (code + (1 << 63)) % (1 << 64) - (1 << 63)


def keys_of(properties: dict[str, str]) -> list[str]:
    """The keys of a message: the non-empty parts of KEYS."""
    return [key for key in properties.get(KEYS, "").split(KEY_SEPARATOR) if key]
