"""The hash index: from `topic#key` to physical offsets.

    0                40                  40 + 4 · slots                  40 + 4 · slots + 20 · indexes
    +----------------+-------------------+-------------------------------+
    | header         | slot 0 | slot 1 … | entry 0 (unused) | entry 1 …  |
    +----------------+-------------------+-------------------------------+

    header   +------------+----------+--------------+------------+------------+-------------+
             | begin time | end time | begin offset | end offset | used slots | index count |   4 x i64, 2 x i32
             +------------+----------+--------------+------------+------------+-------------+
    slot     number of the newest entry in it, i32; 0: empty
    entry    +----------+-----------------+-----------------+----------------+
             | key hash | physical offset | time difference | previous entry |       i32, i64, i32 (s), i32
             +----------+-----------------+-----------------+----------------+

Big-endian. The index count is the number of the *next* entry, so it starts at 1 (a file without keys may still
say 0); entries of one slot are chained from the newest to the oldest. Key texts are not stored.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import astuple, dataclass, fields
from typing import Final

from flintlog.errors import FormatError
from flintlog.format.java import Buffer, check_room, pack
from flintlog.format.properties import KEY_SEPARATOR, KEYS, TAGS, UNIQ_KEY

HEADER_SIZE: Final = 40
SLOT_SIZE: Final = 4
ENTRY_SIZE: Final = 20
DEFAULT_SLOT_COUNT: Final = 5_000_000
DEFAULT_INDEX_COUNT: Final = 20_000_000
TAG_INDEX_TYPE: Final = "T"

INDEX_HEADER: Final = struct.Struct("!4q2i")
INDEX_SLOT: Final = struct.Struct("!i")
INDEX_ENTRY: Final = struct.Struct("!iqii")
LINK_AT: Final = 16
"""Where an entry holds the number of the previous one."""
INDEXED_OFFSET: Final = struct.Struct("!4xq")
"""Of an entry, the physical offset alone."""
_MAX_I32: Final = 0x7FFF_FFFF


@dataclass(frozen=True, slots=True)
class IndexHeader:
    """The times and offsets that an index file covers, and how full it is."""

    begin_timestamp: int = 0
    end_timestamp: int = 0
    begin_physical_offset: int = 0
    end_physical_offset: int = 0
    used_slot_count: int = 0
    index_count: int = 0

    @staticmethod
    def place_of(name: str) -> int:
        """Where a field lies in the file."""
        place = [field.name for field in fields(IndexHeader)].index(name)
        return 8 * place if place < 5 else 36

    @property
    def next_entry(self) -> int:
        """The number of the next entry; entry 0 is never used."""
        return max(1, self.index_count)


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """One key of one message."""

    key_hash: int
    physical_offset: int
    time_difference_s: int
    previous_entry: int


@dataclass(frozen=True, slots=True)
class IndexLayout:
    """The places in an index file of this many slots and entries."""

    slot_count: int = DEFAULT_SLOT_COUNT
    index_count: int = DEFAULT_INDEX_COUNT

    def __post_init__(self) -> None:
        if not (0 < self.slot_count <= _MAX_I32 and 0 < self.index_count <= _MAX_I32):
            raise FormatError(f"an index file cannot have {self.slot_count} slots and {self.index_count} entries")

    @property
    def file_size(self) -> int:
        """The length of the file."""
        return self.entry_position(self.index_count)

    def slot_of(self, key_hash: int) -> int:
        """The slot in which a (non-negative) key hash is chained."""
        return key_hash % self.slot_count

    def slot_position(self, slot: int) -> int:
        """Where a slot lies in the file."""
        return HEADER_SIZE + SLOT_SIZE * slot

    def entry_position(self, entry: int) -> int:
        """Where an entry lies in the file."""
        return HEADER_SIZE + SLOT_SIZE * self.slot_count + ENTRY_SIZE * entry

    def physical_offset_of(self, buffer: Buffer, entry: int) -> int:
        """The physical offset that an entry of a file holds."""
        return int(INDEXED_OFFSET.unpack_from(buffer, self.entry_position(entry))[0])


@dataclass(frozen=True, slots=True)
class IndexImage:
    """A whole index file: its header, all slots, and the entries up to the index count (entry 0 first)."""

    layout: IndexLayout
    header: IndexHeader
    slots: tuple[int, ...]
    entries: tuple[IndexEntry, ...]


def parse_index_header(buffer: Buffer) -> IndexHeader:
    """The header at the start of the buffer."""
    check_room(buffer, 0, HEADER_SIZE, "index header")
    return IndexHeader(*INDEX_HEADER.unpack_from(buffer))


def encode_index_header(header: IndexHeader) -> bytes:
    """The 40 bytes of a header."""
    return pack(INDEX_HEADER, *astuple(header))


def parse_slot(buffer: Buffer, layout: IndexLayout, slot: int) -> int:
    """The number in a slot, unchecked."""
    if not 0 <= slot < layout.slot_count:
        raise FormatError(f"no slot {slot} in an index file of {layout.slot_count}")
    check_room(buffer, layout.slot_position(slot), SLOT_SIZE, "index slot")
    return int(INDEX_SLOT.unpack_from(buffer, layout.slot_position(slot))[0])


def encode_slot(entry: int) -> bytes:
    """The 4 bytes of a slot."""
    return pack(INDEX_SLOT, entry)


def parse_index_entry(buffer: Buffer, layout: IndexLayout, entry: int) -> IndexEntry:
    """One entry by its number."""
    if not 0 <= entry < layout.index_count:
        raise FormatError(f"no entry {entry} in an index file of {layout.index_count}")
    check_room(buffer, layout.entry_position(entry), ENTRY_SIZE, "index entry")
    return IndexEntry(*INDEX_ENTRY.unpack_from(buffer, layout.entry_position(entry)))


def encode_index_entry(entry: IndexEntry) -> bytes:
    """The 20 bytes of an entry."""
    return pack(INDEX_ENTRY, *astuple(entry))


def parse_index_file(buffer: Buffer, layout: IndexLayout) -> IndexImage:
    """A whole file, which must have its full length; bytes after the counted entries are ignored."""
    if len(buffer) != layout.file_size:
        raise FormatError(f"an index file of {len(buffer)} bytes; its layout has {layout.file_size}")
    header = parse_index_header(buffer)
    if not 0 <= header.index_count <= layout.index_count:
        raise FormatError(f"an index file of {layout.index_count} entries that counts {header.index_count}")
    view = memoryview(buffer)
    first = layout.entry_position(0)
    slots = struct.unpack(f"!{layout.slot_count}i", view[HEADER_SIZE:first])
    used = view[first : layout.entry_position(header.index_count)]
    return IndexImage(layout, header, slots, tuple(IndexEntry(*fields) for fields in INDEX_ENTRY.iter_unpack(used)))


def encode_index_file(image: IndexImage) -> bytes:
    """The whole file, with zeros after the last entry."""
    if len(image.slots) != image.layout.slot_count or len(image.entries) > image.layout.index_count:
        raise FormatError(f"{len(image.slots)} slots and {len(image.entries)} entries do not fit {image.layout}")
    slots = pack(struct.Struct(f"!{len(image.slots)}i"), *image.slots)
    parts = [encode_index_header(image.header), slots, *map(encode_index_entry, image.entries)]
    return b"".join(parts).ljust(image.layout.file_size, b"\x00")


def index_key(topic: str, key: str, index_type: str | None = None) -> str:
    """The text that is hashed for a key of a topic: `topic#key`, for tags `topic#T#tags`."""
    return f"{topic}#{key}" if index_type is None else f"{topic}#{index_type}#{key}"


def index_keys(topic: str, properties: Mapping[str, str]) -> list[str]:
    """All texts under which a message is indexed, in the order RocketMQ puts them."""
    unique = [properties[UNIQ_KEY]] if UNIQ_KEY in properties else []
    parts = [part for part in properties.get(KEYS, "").split(KEY_SEPARATOR) if part]
    keys = [index_key(topic, key) for key in unique + parts]
    tags = properties.get(TAGS)
    return [*keys, index_key(topic, tags, TAG_INDEX_TYPE)] if tags else keys


def time_difference_s(store_timestamp: int, begin_timestamp: int) -> int:
    """The seconds an entry records: since the file's begin, none before it or without one, at most 2^31 - 1."""
    if begin_timestamp <= 0:
        return 0
    return min(max(0, store_timestamp - begin_timestamp) // 1000, _MAX_I32)
