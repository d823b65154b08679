"""One record, taken apart as far as scans, dispatch and columns need it.

Every length is checked against the record's size, and the size against the readable range, before
anything behind it is read. A record is accepted only where its own physical offset says it lies.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from flintlog.errors import FormatError
from flintlog.format.java import decode_text, index_hash, parse_int, string_hash
from flintlog.format.properties import (
    DELAY_TIME_LEVEL,
    INNER_MULTI_DISPATCH,
    INNER_MULTI_QUEUE_OFFSET,
    KEY_SEPARATOR,
    KEYS,
    TAGS,
    UNIQ_KEY,
    parse_properties,
)
from flintlog.format.sys_flag import BORN_HOST_V6, STORE_HOST_V6, TransactionType, transaction_type
from flintlog.format.sys_flag import INNER_BATCH as INNER_BATCH_FLAG
from flintlog.kernel.reference.encoder import MAGIC_V1, MAGIC_V2
from flintlog.kernel.reference.sums import crc32
from flintlog.kernel.types import INNER_BATCH, MULTI_DISPATCH, ScanStop

BLANK_MAGIC: Final = -875286124
MIN_RECORD_SIZE: Final = 91
SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"

_SIZE_AND_MAGIC: Final = struct.Struct("!ii")
_HEAD: Final = struct.Struct("!iiiiiqqiq")
_STORED_AT: Final = struct.Struct("!q")
_RETRIES: Final = struct.Struct("!iqi")
_SHORT: Final = struct.Struct("!h")
_SIGNED_BYTE: Final = struct.Struct("!b")


class Parts(NamedTuple):
    """The fields of one record; of its body only the place."""

    size: int
    magic: int
    body_crc: int
    queue_id: int
    flag: int
    queue_offset: int
    physical_offset: int
    sys_flag: int
    born_timestamp: int
    born_host: bytes
    store_timestamp: int
    store_host: bytes
    reconsume_times: int
    prepared_transaction_offset: int
    body_start: int
    body_size: int
    topic: bytes
    properties: bytes


def measure(view: memoryview, position: int, stop: int, base: int, check_crc: bool = False) -> Parts | ScanStop:
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
    parts = _take_apart(bytes(view[position : position + size]), magic, position)
    if parts is None:
        return ScanStop.BAD_LENGTH
    if parts.physical_offset != base + position:
        return ScanStop.BAD_OFFSET
    body = view[parts.body_start : parts.body_start + parts.body_size]
    # Java never looks at the sum of an empty body.
    if check_crc and body and crc32(body) != parts.body_crc:
        return ScanStop.BAD_CRC
    return parts


def _take_apart(record: bytes, magic: int, position: int) -> Parts | None:
    fixed = _HEAD.unpack_from(record)
    sys_flag = fixed[7]
    born_size = 20 if sys_flag & BORN_HOST_V6 else 8
    store_size = 20 if sys_flag & STORE_HOST_V6 else 8
    topic_length = _SIGNED_BYTE if magic == MAGIC_V1 else _SHORT
    left = len(record) - (_HEAD.size + born_size + 8 + store_size + _RETRIES.size + topic_length.size + _SHORT.size)
    if left < 0:
        return None
    stored_at = _HEAD.size + born_size
    retries_at = stored_at + 8 + store_size
    body_at = retries_at + _RETRIES.size
    reconsume_times, prepared_transaction_offset, body_size = _RETRIES.unpack_from(record, retries_at)
    if not 0 <= body_size <= left:
        return None
    topic_at = body_at + body_size + topic_length.size
    topic_size = topic_length.unpack_from(record, topic_at - topic_length.size)[0]
    if not 0 <= topic_size <= left - body_size:
        return None
    properties_at = topic_at + topic_size + _SHORT.size
    if _SHORT.unpack_from(record, properties_at - _SHORT.size)[0] != left - body_size - topic_size:
        return None
    return Parts(
        *fixed,
        record[_HEAD.size : stored_at],
        _STORED_AT.unpack_from(record, stored_at)[0],
        record[stored_at + 8 : retries_at],
        reconsume_times,
        prepared_transaction_offset,
        position + body_at,
        body_size,
        record[topic_at : topic_at + topic_size],
        record[properties_at:],
    )


class Facts(NamedTuple):
    """What dispatch wants to know of a record beside its fixed fields."""

    tags_code: int
    hashes: list[int]
    marks: int


def facts_of(parts: Parts, delay_levels_ms: Sequence[int]) -> Facts:
    """The tags code, index hashes and marks of a record."""
    topic, properties = decode_text(parts.topic), parse_properties(parts.properties)
    marks = INNER_BATCH if parts.sys_flag & INNER_BATCH_FLAG else 0
    if INNER_MULTI_DISPATCH in properties and INNER_MULTI_QUEUE_OFFSET in properties:
        marks |= MULTI_DISPATCH
    tags_code = tags_code_of(topic, properties, parts.store_timestamp, delay_levels_ms)
    return Facts(tags_code, _hashes(topic, properties, parts.sys_flag), marks)


def tags_code_of(topic: str, properties: dict[str, str], store_timestamp: int, delay_levels_ms: Sequence[int]) -> int:
    """The hash of the tags; of a message that waits in the schedule topic, the time of its delivery."""
    if topic == SCHEDULE_TOPIC and delay_levels_ms and DELAY_TIME_LEVEL in properties:
        level = min(_level(properties[DELAY_TIME_LEVEL]), len(delay_levels_ms))
        if level > 0:
            return _wrapped(store_timestamp + delay_levels_ms[level - 1])
    return string_hash(properties.get(TAGS, ""))


def keys_of(properties: dict[str, str]) -> list[str]:
    """The keys of a message: the non-empty parts of KEYS."""
    return [key for key in properties.get(KEYS, "").split(KEY_SEPARATOR) if key]


def _hashes(topic: str, properties: dict[str, str], sys_flag: int) -> list[int]:
    if transaction_type(sys_flag) is TransactionType.ROLLBACK:
        return []
    keys = [properties[UNIQ_KEY]] if UNIQ_KEY in properties else []
    keys += keys_of(properties)
    if TAGS in properties:
        keys.append(f"T#{properties[TAGS]}")
    return [index_hash(f"{topic}#{key}") for key in keys]


def _level(text: str) -> int:
    """A delay level; text that is no number asks for no delay, where Java would stop dispatching for good."""
    try:
        return parse_int(text)
    except FormatError:
        return 0


def _wrapped(value: int) -> int:
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)
