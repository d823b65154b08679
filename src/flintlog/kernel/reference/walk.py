"""Parses one record at a position of the log, and extracts the facts that dispatch needs.

Every length is checked against the record's size, and the size against the readable range, before anything after it
is read. A record is accepted only at the place that its own physical offset names.

In a DLedger log each record has a head before it (`flintlog.format.ledger`), and DLedger's own blanks close its
files. Both begin with a number that is too small to be a record's size. So the walk recognizes them anywhere, and a log
may change from one form to the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from flintlog.errors import FormatError
from flintlog.format.index_file import index_keys
from flintlog.format.java import index_hash, string_hash
from flintlog.format.ledger import (
    ENTRY_BLANK_MAGIC,
    ENTRY_END_RESERVE,
    ENTRY_HEAD,
    ENTRY_HEAD_SIZE,
    ENTRY_MAGIC,
)
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
    SIZE_AND_MAGIC,
    Record,
    has_crc_property,
    has_good_crc_property,
    parse_record,
)
from flintlog.format.record import tags_code as strict_tags_code
from flintlog.format.sys_flag import INNER_BATCH as INNER_BATCH_FLAG
from flintlog.format.sys_flag import TransactionType, transaction_type
from flintlog.kernel.types import INNER_BATCH, MULTI_DISPATCH, Crc, ScanStop


def record_at(view: memoryview, position: int, stop: int, base: int, check_crc: int = Crc.NONE) -> Record | ScanStop:
    """The record at this position of the buffer, with DLedger's head before it or without, or why there is none."""
    remaining = stop - position
    if remaining < SIZE_AND_MAGIC.size:
        return ScanStop.SHORT if remaining > 0 else ScanStop.LIMIT
    size, magic = SIZE_AND_MAGIC.unpack_from(view, position)
    if size == ENTRY_MAGIC:
        reason = _check_head(view, position, stop, base)
        return _plain_record_at(view, position + ENTRY_HEAD_SIZE, stop, base, check_crc) if reason is None else reason
    if magic == BLANK_MAGIC or (size == ENTRY_BLANK_MAGIC and magic >= ENTRY_END_RESERVE):
        return ScanStop.BLANK
    return _plain_record_at(view, position, stop, base, check_crc)


def has_head(view: memoryview, position: int, stop: int, base: int) -> bool:
    """Whether DLedger's head of an entry is here, and its body size is that of the record after it."""
    if stop - position < ENTRY_HEAD_SIZE or SIZE_AND_MAGIC.unpack_from(view, position)[0] != ENTRY_MAGIC:
        return False
    return _check_head(view, position, stop, base) is None


def place_after(record: Record, base: int) -> int:
    """The position in the buffer where the next record, or its head, may begin."""
    return record.physical_offset + record.size - base


def _check_head(view: memoryview, position: int, stop: int, base: int) -> ScanStop | None:
    """Why this is no DLedger head of the record after it; None if it is one."""
    if stop - position < ENTRY_HEAD_SIZE:
        return ScanStop.SHORT
    _, size, index, term, place, _, _, _, body_size = ENTRY_HEAD.unpack_from(view, position)
    if body_size < MIN_RECORD_SIZE or size != ENTRY_HEAD_SIZE + body_size:
        return ScanStop.BAD_LENGTH
    if index < 0 or term < 0 or place != base + position:
        return ScanStop.BAD_OFFSET
    if stop - position < size:
        return ScanStop.SHORT
    is_as_large = SIZE_AND_MAGIC.unpack_from(view, position + ENTRY_HEAD_SIZE)[0] == body_size
    return None if is_as_large else ScanStop.BAD_LENGTH


def _plain_record_at(view: memoryview, position: int, stop: int, base: int, check_crc: int) -> Record | ScanStop:
    remaining = stop - position
    size, magic = SIZE_AND_MAGIC.unpack_from(view, position)
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
    if check_crc >= Crc.RECORD and not has_good_crc_property(view[position : position + size]):
        if has_crc_property(view[position : position + size]):
            return ScanStop.BAD_RECORD_CRC
        if check_crc == Crc.FORCED:
            return ScanStop.NO_RECORD_CRC
    return record


class Facts(NamedTuple):
    """The facts that dispatch needs of a record besides its fixed fields."""

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
    """The tags code of the queue entry: the hash of the tags, or the delivery time of a delayed message.

    A delay level that is no number counts as none. Java's dispatch fails at such a record and never passes it.
    """
    try:
        code = strict_tags_code(record, delay_levels_ms)
    except FormatError:
        code = string_hash(record.property_map().get(TAGS, ""))
    return (code + (1 << 63)) % (1 << 64) - (1 << 63)


def keys_of(properties: dict[str, str]) -> list[str]:
    """The keys of a message: the non-empty parts of KEYS."""
    return [key for key in properties.get(KEYS, "").split(KEY_SEPARATOR) if key]
