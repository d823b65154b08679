"""The two ids of a message, both upper-case hex.

Offset message id: where the record lies.

    +--------------+--------+-----------------+
    | store IP     | port   | physical offset |      4 or 16 + 4 + 8 bytes: 32 or 56 characters
    +--------------+--------+-----------------+

Unique key: made by the producer, kept in the property UNIQ_KEY.

    +--------------+-----+-------------+--------------------+---------+
    | producer IP  | pid | loader hash | ms since the month | counter |      4 or 16 + 2 + 4 + 4 + 2 bytes
    +--------------+-----+-------------+--------------------+---------+
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from typing import Final

from flintlog.errors import FormatError
from flintlog.format.host import check_packed_host

V4_ID_CHARS: Final = 32
V6_ID_CHARS: Final = 56

_HEX = re.compile(r"[0-9A-Fa-f]*")
_OFFSET = struct.Struct("!q")
_UNIQUE_TAIL = struct.Struct("!HiiH")


@dataclass(frozen=True, slots=True)
class UniqueKey:
    """The parts of a client's unique key; `ip` has 4 or 16 bytes."""

    ip: bytes
    process_id: int
    class_loader_hash: int
    since_month_start_ms: int
    counter: int


def encode_message_id(packed_host: bytes, physical_offset: int) -> str:
    """The offset message id of a record at this offset of this host's log.

    >>> encode_message_id(bytes.fromhex("c0a8000900002a9f"), 0x8B)
    'C0A8000900002A9F000000000000008B'
    """
    check_packed_host(packed_host)
    try:
        return (packed_host + _OFFSET.pack(physical_offset)).hex().upper()
    except struct.error as error:
        raise FormatError(f"not a physical offset: {physical_offset}") from error


def parse_message_id(text: str) -> tuple[bytes, int]:
    """The packed store host and the physical offset of an offset message id."""
    data = _parse_hex(text, "message id")
    return data[:-8], _OFFSET.unpack_from(data, len(data) - 8)[0]


def encode_unique_key(key: UniqueKey) -> str:
    """The text of a unique key."""
    if len(key.ip) not in (4, 16):
        raise FormatError(f"an IP address has 4 or 16 bytes, not {len(key.ip)}")
    try:
        tail = _UNIQUE_TAIL.pack(key.process_id, key.class_loader_hash, key.since_month_start_ms, key.counter)
    except struct.error as error:
        raise FormatError(f"a part of the unique key is out of its range: {key}") from error
    return (key.ip + tail).hex().upper()


def parse_unique_key(text: str) -> UniqueKey:
    """The parts of a unique key made by a RocketMQ client; other producers may use any text."""
    data = _parse_hex(text, "unique key")
    ip_size = len(data) - _UNIQUE_TAIL.size
    return UniqueKey(data[:ip_size], *_UNIQUE_TAIL.unpack_from(data, ip_size))


def _parse_hex(text: str, what: str) -> bytes:
    if len(text) not in (V4_ID_CHARS, V6_ID_CHARS) or not _HEX.fullmatch(text):
        raise FormatError(f"not a {what}: {text[:80]!a}", advice="it has 32 or 56 hexadecimal digits")
    return bytes.fromhex(text)
