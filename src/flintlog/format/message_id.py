"""Host addresses, and the two ids of a message that are made of them.

A host, as a record holds it. The record's sys flag says which of the two it is:

    IPv4   0        4        8              IPv6   0                 16       20
           +--------+--------+                     +-----------------+--------+
           | IP     | port   |                     | IP              | port   |      big-endian, port 32 bits
           +--------+--------+                     +-----------------+--------+

Both ids are upper-case hex. Offset message id: where the record lies.

    +--------------+--------+-----------------+
    | store IP     | port   | physical offset |      4 or 16 + 4 + 8 bytes: 32 or 56 characters
    +--------------+--------+-----------------+

Unique key: made by the producer, kept in the property UNIQ_KEY.

    +--------------+-----+-------------+--------------------+---------+
    | producer IP  | pid | loader hash | ms since the month | counter |      4 or 16 + 2 + 4 + 4 + 2 bytes
    +--------------+-----+-------------+--------------------+---------+
"""

from __future__ import annotations

import ipaddress
import re
import struct
from dataclasses import dataclass
from typing import Final

from flintlog.errors import FormatError
from flintlog.format.java import pack

IPV4_SIZE: Final = 8
IPV6_SIZE: Final = 20
MAX_PORT: Final = 65535
V4_ID_CHARS: Final = 32
V6_ID_CHARS: Final = 56

_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]{2,45})\]|([0-9.]{7,15})):([0-9]{1,5})")
_PORT = struct.Struct("!i")
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


def parse_host(text: str) -> bytes:
    """`"1.2.3.4:10911"` or `"[::1]:10911"` as 8 or 20 bytes.

    >>> parse_host("10.1.2.3:10911").hex()
    '0a01020300002a9f'
    """
    matched = _HOST.fullmatch(text)
    if matched is None:
        raise _bad_host(text)
    v6, v4, port_text = matched.groups()
    port = int(port_text)
    if port > MAX_PORT:
        raise _bad_host(text)
    try:
        address = ipaddress.IPv4Address(v4) if v6 is None else ipaddress.IPv6Address(v6)
    except ValueError as error:
        raise _bad_host(text) from error
    return address.packed + _PORT.pack(port)


def format_host(packed: bytes) -> str:
    """The text of 8 or 20 packed bytes; a port that no socket can have is shown as it is.

    >>> format_host(bytes(15) + b"\\x01" + bytes.fromhex("00002a9f"))
    '[::1]:10911'
    """
    check_packed_host(packed)
    port = _PORT.unpack_from(packed, len(packed) - 4)[0]
    if len(packed) == IPV4_SIZE:
        return f"{packed[0]}.{packed[1]}.{packed[2]}.{packed[3]}:{port}"
    return f"[{ipaddress.IPv6Address(bytes(packed[:16])).compressed}]:{port}"


def check_packed_host(packed: bytes) -> None:
    """Raise unless these bytes have the length of an address."""
    if len(packed) not in (IPV4_SIZE, IPV6_SIZE):
        raise FormatError(f"a packed host has 8 or 20 bytes, not {len(packed)}")


def _bad_host(text: str) -> FormatError:
    return FormatError(f"not a host: {text[:80]!a}", advice='write "1.2.3.4:10911" or "[::1]:10911"')


def encode_message_id(packed_host: bytes, physical_offset: int) -> str:
    """The offset message id of a record at this offset of this host's log.

    >>> encode_message_id(bytes.fromhex("c0a8000900002a9f"), 0x8B)
    'C0A8000900002A9F000000000000008B'
    """
    check_packed_host(packed_host)
    return (packed_host + pack(_OFFSET, physical_offset)).hex().upper()


def parse_message_id(text: str) -> tuple[bytes, int]:
    """The packed store host and the physical offset of an offset message id."""
    data = _parse_hex(text, "message id")
    return data[:-8], _OFFSET.unpack_from(data, len(data) - 8)[0]


def encode_unique_key(key: UniqueKey) -> str:
    """The text of a unique key."""
    if len(key.ip) not in (4, 16):
        raise FormatError(f"an IP address has 4 or 16 bytes, not {len(key.ip)}")
    tail = pack(_UNIQUE_TAIL, key.process_id, key.class_loader_hash, key.since_month_start_ms, key.counter)
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
