"""The files of a consume queue: plain entries, batch entries, and extension units.

A plain entry says where a message lies, and gives a hint to tag filters. Its place is its queue offset x 20:

    0                 8        12                20
    +-----------------+--------+-----------------+
    | physical offset | size   | tags code       |      big-endian, as everything here
    +-----------------+--------+-----------------+

The tags code of a delayed message is its delivery time; with extension, it is the address of an extension unit. If a
queue starts in the middle of a file, the places before it hold entries of offset 0 and size 2^31 - 1. The unused end of
a file is zeros: the first entry with a negative offset or without a size ends the data.

A batch entry says where a batch of messages lies, which is one record of the log:

    0          8      12          20           28           36      38           42         46
    +----------+------+-----------+------------+------------+-------+------------+----------+
    | physical | size | tags code | store      | base queue | batch | compacted  | reserved |
    | offset   |      |           | timestamp  | offset     | size  | offset, -1 | 0        |
    +----------+------+-----------+------------+------------+-------+------------+----------+

Batch entries follow each other without gaps, so the place of one does not give its queue offset: it covers the queue
offsets from its base up to base + batch size.

An extension unit holds what does not fit in a tags code:

    0      2           10          18       20
    +------+-----------+-----------+--------+--------+
    | size | tags code | store     | bitmap | bitmap |      size = 20 + bitmap size, at most 32767
    |      |           | timestamp | size   |        |
    +------+-----------+-----------+--------+--------+

Units follow each other. A file that has no room for the next one ends with a size of -1 (2 bytes), and the last 4 bytes
of a file are never used. A unit's address is its byte offset minus 2^63, far below any 32-bit hash.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import astuple, dataclass
from typing import Final

from flintlog.errors import FormatError
from flintlog.format.java import Buffer, check_room, pack

ENTRY_SIZE: Final = 20
QUEUE_ENTRY: Final = struct.Struct("!qiq")
PHYSICAL_OFFSET: Final = struct.Struct("!q")
"""The begin of an entry, of a batch entry too."""
OFFSET_AND_SIZE: Final = struct.Struct("!qi")
"""The same, with the record's size."""
TAGS_CODE: Final = struct.Struct("!12xq")
SIZE_OF_ENTRY: Final = struct.Struct("!8xi8x")
"""A whole entry, of which only the record's size is read."""

BATCH_ENTRY_SIZE: Final = 46
BATCH_ENTRY: Final = struct.Struct("!qiqqqhii")
NOT_COMPACTED: Final = -1
STORE_TIME_AT: Final = 20
BASE_AT: Final = 28
BASE_AND_COUNT: Final = struct.Struct("!qh")
SIZE_OF_BATCH_ENTRY: Final = struct.Struct("!8xi34x")

MIN_UNIT_SIZE: Final = 20
MAX_UNIT_SIZE: Final = 32767
UNIT_END_RESERVE: Final = 4
UNIT_END_MARK: Final = b"\xff\xff"
MAX_ADDRESS: Final = -0x8000_0001
MAX_REAL_OFFSET: Final = MAX_ADDRESS + (1 << 63)

_UNIT_HEAD = struct.Struct("!hqqh")
_I16 = struct.Struct("!h")

QueueKey = tuple[str, int]
"""Topic and queue id."""


@dataclass(frozen=True, slots=True)
class QueueEntry:
    """The place of one message in the log."""

    physical_offset: int
    size: int
    tags_code: int

    @property
    def is_valid(self) -> bool:
        """Whether it points at a message at all (zeros do not)."""
        return self.physical_offset >= 0 and self.size > 0


@dataclass(frozen=True, slots=True)
class BatchQueueEntry:
    """The place of one batch in the log, and the queue offsets it covers."""

    physical_offset: int
    size: int
    tags_code: int
    store_timestamp: int
    base_offset: int
    batch_size: int
    compacted_offset: int = NOT_COMPACTED
    reserved: int = 0

    @property
    def is_valid(self) -> bool:
        """Whether it points at a batch at all (zeros do not)."""
        return self.physical_offset >= 0 and self.size > 0 and self.base_offset >= 0 and self.batch_size > 0

    @property
    def end_offset(self) -> int:
        """The queue offset after the batch."""
        return self.base_offset + self.batch_size


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


PREFILL_ENTRY: Final = QueueEntry(0, 0x7FFF_FFFF, 0)
"""Fills the places before a queue's first message."""


def encode_queue_entry(entry: QueueEntry) -> bytes:
    """The 20 bytes of an entry."""
    return pack(QUEUE_ENTRY, *astuple(entry))


PREFILL: Final = encode_queue_entry(PREFILL_ENTRY)


def physical_offset_at(buffer: Buffer, position: int = 0) -> int:
    """The physical offset of the entry at a position, of a batch entry too."""
    return int(PHYSICAL_OFFSET.unpack_from(buffer, position)[0])


def parse_queue_entry(buffer: Buffer, position: int = 0) -> QueueEntry:
    """The entry at a position of the buffer."""
    check_room(buffer, position, ENTRY_SIZE, "queue entry")
    return QueueEntry(*QUEUE_ENTRY.unpack_from(buffer, position))


def parse_queue_entries(buffer: Buffer) -> Iterator[QueueEntry]:
    """All entries of a whole buffer, valid or not."""
    if len(buffer) % ENTRY_SIZE:
        raise FormatError(f"{len(buffer)} bytes are no whole number of queue entries")
    return (QueueEntry(*fields) for fields in QUEUE_ENTRY.iter_unpack(buffer))


# ---------------------------------------------------------------------- batch entries


def encode_batch_queue_entry(entry: BatchQueueEntry) -> bytes:
    """The 46 bytes of an entry."""
    return pack(BATCH_ENTRY, *astuple(entry))


def parse_batch_queue_entry(buffer: Buffer, position: int = 0) -> BatchQueueEntry:
    """The entry at a position of the buffer."""
    check_room(buffer, position, BATCH_ENTRY_SIZE, "batch queue entry")
    return BatchQueueEntry(*BATCH_ENTRY.unpack_from(buffer, position))


def parse_batch_queue_entries(buffer: Buffer) -> Iterator[BatchQueueEntry]:
    """All entries of a whole buffer, valid or not."""
    if len(buffer) % BATCH_ENTRY_SIZE:
        raise FormatError(f"{len(buffer)} bytes are no whole number of batch queue entries")
    return (BatchQueueEntry(*fields) for fields in BATCH_ENTRY.iter_unpack(buffer))


# ---------------------------------------------------------------------- extension units


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
    return pack(_UNIT_HEAD, unit.size, unit.tags_code, unit.store_timestamp, len(unit.bitmap)) + unit.bitmap


def parse_extension_unit(buffer: Buffer, position: int = 0) -> ExtensionUnit:
    """The unit at a position of the buffer."""
    check_room(buffer, position, MIN_UNIT_SIZE, "extension unit")
    room = len(buffer) - position
    size, tags_code, store_timestamp, bitmap_size = _UNIT_HEAD.unpack_from(buffer, position)
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
