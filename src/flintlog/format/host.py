"""Host addresses as records hold them.

    IPv4   0        4        8              IPv6   0                 16       20
           +--------+--------+                     +-----------------+--------+
           | IP     | port   |                     | IP              | port   |      big-endian, port 32 bits
           +--------+--------+                     +-----------------+--------+

Which of the two it is stands in the record's sys flag, not in the address.
"""

from __future__ import annotations

import ipaddress
import re
import struct
from typing import Final

from flintlog.errors import FormatError

IPV4_SIZE: Final = 8
IPV6_SIZE: Final = 20
MAX_PORT: Final = 65535

_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]{2,45})\]|([0-9.]{7,15})):([0-9]{1,5})")
_PORT = struct.Struct("!i")


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
