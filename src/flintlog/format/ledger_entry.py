"""One entry of a DLedger log, the blank that ends a data file, and the index record that finds an entry.

A data file, `data/<20 digits>`:

     0       4       8           16          24          32       36       40       44       48
    +-------+-------+-----------+-----------+-----------+--------+--------+--------+--------+------+
    | magic | size  | index     | term      | position  | chan-  | chain  | body   | body   | body |
    | 1     |       |           |           |           | nel, 0 | CRC, 0 | CRC, 0 | size   |      |
    +-------+-------+-----------+-----------+-----------+--------+--------+--------+--------+------+

    +-------+-----------+---------------------------+
    | magic | remaining | zeros                     |      a blank: nothing more in this file
    | -1    |           |                           |
    +-------+-----------+---------------------------+

An index file, `index/<20 digits>`; the record of entry i stands at i x 32:

     0       4           12      16          24          32
    +-------+-----------+-------+-----------+-----------+
    | magic | position  | size  | index     | term      |
    | 1     |           |       |           |           |
    +-------+-----------+-------+-----------+-----------+

Big-endian and signed. `size` counts the head too; `position` is the entry's own place in the log, from the start of the
first file there ever was. Java always writes the channel and both CRCs as 0, so a body has to guard itself: that of a
broker's entry is one commit log record, whose own physical offset is `position + 48`. An entry must leave 8 bytes free
behind it in its file, for a blank.

The first two numbers tell an entry from a plain record (`flintlog.format.record`), whose second number is its magic: no
entry is as large as a record's magic says.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from flintlog.errors import FormatError
from flintlog.format.record import parse_blank

ENTRY_MAGIC: Final = 1
ENTRY_BLANK_MAGIC: Final = -1
ENTRY_HEAD_SIZE: Final = 48
ENTRY_END_RESERVE: Final = 8
"""An entry must leave this much room behind it in its file, for a blank."""
INDEX_RECORD_SIZE: Final = 32
NO_INDEX: Final = -1
"""What DLedger says for the beginning and the end of an empty ledger."""
MAX_ENTRY_SIZE: Final = 4 * 1024 * 1024
"""What Java's encoder takes at most, the head included."""
RECORD_OFFSET_PLACE: Final = 28
"""Where the record in a body keeps its own physical offset."""

ENTRY_HEAD: Final = struct.Struct("!iiqqqiiii")
ENTRY_BLANK: Final = struct.Struct("!ii")
INDEX_RECORD: Final = struct.Struct("!iqiqq")

Buffer = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class EntryHead:
    """Everything about an entry but its body."""

    index: int
    term: int
    position: int
    body_size: int
    channel: int = 0
    chain_crc: int = 0
    body_crc: int = 0

    @property
    def size(self) -> int:
        """How many bytes the entry takes, head and body."""
        return ENTRY_HEAD_SIZE + self.body_size

    @property
    def end(self) -> int:
        """The position behind the entry."""
        return self.position + self.size

    @property
    def index_record(self) -> IndexRecord:
        """What the index says of this entry."""
        return IndexRecord(self.position, self.size, self.index, self.term)


@dataclass(frozen=True, slots=True)
class IndexRecord:
    """Where an entry lies."""

    position: int
    size: int
    index: int
    term: int


def encode_entry_head(head: EntryHead) -> bytes:
    """The 48 bytes before the body."""
    if not 0 <= head.body_size <= MAX_ENTRY_SIZE - ENTRY_HEAD_SIZE:
        raise FormatError(f"a body of {head.body_size} bytes", advice=f"an entry has at most {MAX_ENTRY_SIZE} bytes")
    place = (head.index, head.term, head.position)
    rest = (head.channel, head.chain_crc, head.body_crc, head.body_size)
    return _packed(ENTRY_HEAD, head, (ENTRY_MAGIC, head.size, *place, *rest))


def parse_entry_head(buffer: Buffer, place: int = 0) -> EntryHead:
    """The head at a place of the buffer; checks magic and sizes, not that the body is there."""
    if not 0 <= place <= len(buffer) - ENTRY_HEAD_SIZE:
        raise FormatError(f"no head of {ENTRY_HEAD_SIZE} bytes in {len(buffer)}", offset=place)
    magic, size, index, term, position, channel, chain_crc, body_crc, body_size = ENTRY_HEAD.unpack_from(buffer, place)
    if magic != ENTRY_MAGIC:
        raise FormatError(f"no entry: {'a blank' if magic == ENTRY_BLANK_MAGIC else f'magic {magic}'}", offset=place)
    if body_size < 0 or size != ENTRY_HEAD_SIZE + body_size:
        raise FormatError(f"an entry of {size} bytes with a body of {body_size}", offset=place)
    if index < 0 or term < 0 or position < 0:
        raise FormatError(f"an entry with index {index}, term {term}, position {position}", offset=place)
    return EntryHead(index, term, position, body_size, channel, chain_crc, body_crc)


def encode_entry_blank(remaining: int) -> bytes:
    """The 8 bytes that say: nothing more in this file, `remaining` bytes counted from here. The rest is zeros."""
    if not ENTRY_END_RESERVE <= remaining <= 0x7FFF_FFFF:
        raise FormatError(f"a blank cannot stand for {remaining} bytes")
    return ENTRY_BLANK.pack(ENTRY_BLANK_MAGIC, remaining)


def parse_entry_blank(buffer: Buffer, place: int = 0) -> int | None:
    """How many bytes the blank at a place says remain, or None if no blank is there."""
    if not 0 <= place <= len(buffer) - ENTRY_BLANK.size:
        return None
    magic, remaining = ENTRY_BLANK.unpack_from(buffer, place)
    return remaining if magic == ENTRY_BLANK_MAGIC and remaining >= ENTRY_END_RESERVE else None


def size_at(buffer: Buffer, place: int) -> int:
    """How many bytes a record says it takes, with DLedger's head if that is what stands at the place."""
    first, second = ENTRY_BLANK.unpack_from(buffer, place)
    return int(second if first == ENTRY_MAGIC else first)


def blank_at(buffer: Buffer, place: int) -> int | None:
    """How many bytes the blank at a place says remain, DLedger's or a plain log's; None if no blank is there."""
    plain = parse_blank(buffer, place)
    return parse_entry_blank(buffer, place) if plain is None else plain


def encode_index_record(record: IndexRecord) -> bytes:
    """The 32 bytes of an index record."""
    return _packed(INDEX_RECORD, record, (ENTRY_MAGIC, record.position, record.size, record.index, record.term))


def parse_index_record(buffer: Buffer, place: int = 0) -> IndexRecord:
    """The index record at a place of the buffer."""
    if not 0 <= place <= len(buffer) - INDEX_RECORD_SIZE:
        raise FormatError(f"no index record of {INDEX_RECORD_SIZE} bytes in {len(buffer)}", offset=place)
    magic, position, size, index, term = INDEX_RECORD.unpack_from(buffer, place)
    if magic != ENTRY_MAGIC:
        raise FormatError(f"no index record: magic {magic}", offset=place)
    if size < ENTRY_HEAD_SIZE or position < 0 or index < 0 or term < 0:
        raise FormatError(f"an index record of {size} bytes at {position}, index {index}, term {term}", offset=place)
    return IndexRecord(position, size, index, term)


def _packed(layout: struct.Struct, value: object, fields: tuple[int, ...]) -> bytes:
    try:
        return layout.pack(*fields)
    except struct.error as error:
        raise FormatError(f"a field is out of its range: {value}") from error
