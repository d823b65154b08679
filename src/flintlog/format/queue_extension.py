"""Consume queue extension: what does not fit in a queue entry's tags code.

    0      2           10          18       20
    +------+-----------+-----------+--------+--------+
    | size | tags code | store     | bitmap | bitmap |      big-endian; size = 20 + bitmap size, at most 32767
    |      |           | timestamp | size   |        |
    +------+-----------+-----------+--------+--------+

Units follow each other; a file that has no room for the next one ends with a size of -1 (2 bytes), and the
last 4 bytes of a file are never used. The queue entry holds the unit's address in place of its tags code:
the byte offset minus 2^63, so far below any 32-bit hash that the two cannot be mistaken.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from flintlog.errors import FormatError

MIN_UNIT_SIZE: Final = 20
MAX_UNIT_SIZE: Final = 32767
END_RESERVE: Final = 4
END_MARK: Final = b"\xff\xff"
MAX_ADDRESS: Final = -0x8000_0001
MAX_REAL_OFFSET: Final = MAX_ADDRESS + (1 << 63)

_HEAD = struct.Struct("!hqqh")
_I16 = struct.Struct("!h")

Buffer = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class ExtensionUnit:
    """The real tags code of an entry, its store time, and which filters its message passes."""

    tags_code: int
    store_timestamp: int
    bitmap: bytes = b""

    @property
    def size(self) -> int:
        """How many bytes the unit takes."""
        return MIN_UNIT_SIZE + len(self.bitmap)


def is_extension_address(tags_code: int) -> bool:
    """Whether the tags code of a queue entry is the address of a unit."""
    return tags_code <= MAX_ADDRESS


def encode_extension_address(offset: int) -> int:
    """The address of the unit at a byte offset of the extension."""
    if not 0 <= offset <= MAX_REAL_OFFSET:
        raise FormatError(f"no offset in a queue extension: {offset}")
    return offset - (1 << 63)


def parse_extension_address(address: int) -> int:
    """The byte offset of the unit at an address."""
    if not -(1 << 63) <= address <= MAX_ADDRESS:
        raise FormatError(f"no address in a queue extension: {address}")
    return address + (1 << 63)


def encode_extension_unit(unit: ExtensionUnit) -> bytes:
    """The bytes of a unit."""
    if unit.size > MAX_UNIT_SIZE:
        raise FormatError(f"a unit of {unit.size} bytes; its size holds {MAX_UNIT_SIZE}")
    try:
        head = _HEAD.pack(unit.size, unit.tags_code, unit.store_timestamp, len(unit.bitmap))
    except struct.error as error:
        raise FormatError(f"a number does not fit in its field: {error}") from error
    return head + unit.bitmap


def parse_extension_unit(buffer: Buffer, position: int = 0) -> ExtensionUnit:
    """The unit at a position of the buffer."""
    room = len(buffer) - position
    if position < 0 or room < MIN_UNIT_SIZE:
        raise FormatError(f"no extension unit in {len(buffer)} bytes", offset=position)
    size, tags_code, store_timestamp, bitmap_size = _HEAD.unpack_from(buffer, position)
    if not MIN_UNIT_SIZE <= size <= room or size != MIN_UNIT_SIZE + bitmap_size:
        what = f"an extension unit of {size} bytes with a bitmap of {bitmap_size}, in room for {room}"
        raise FormatError(what, offset=position)
    return ExtensionUnit(tags_code, store_timestamp, bytes(buffer[position + MIN_UNIT_SIZE : position + size]))


def parse_extension_units(buffer: Buffer) -> Iterator[tuple[int, ExtensionUnit]]:
    """Each unit of a file with its position, up to the first size that is not positive: the end of the data."""
    position = 0
    while position + _I16.size <= len(buffer) and _I16.unpack_from(buffer, position)[0] > 0:
        unit = parse_extension_unit(buffer, position)
        yield position, unit
        position += unit.size
