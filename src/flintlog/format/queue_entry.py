"""One consume queue entry: where a message lies, and a hint for tag filters.

    0                 8        12                20
    +-----------------+--------+-----------------+
    | physical offset | size   | tags code       |      big-endian; place in the queue = queue offset x 20
    +-----------------+--------+-----------------+

The tags code of a delayed message is its delivery time instead; with extension, it is the address
of an extension unit. A queue that starts in the middle of a file is filled up before with
entries of offset 0 and size 2^31 - 1. The unused end of a file is zeros: the first entry with
a negative offset or without a size ends the data.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from flintlog.errors import FormatError

ENTRY_SIZE: Final = 20
QUEUE_ENTRY: Final = struct.Struct("!qiq")
PHYSICAL_OFFSET: Final = struct.Struct("!q")
"""How an entry begins, that of a batch queue too."""
OFFSET_AND_SIZE: Final = struct.Struct("!qi")
"""The same, with the record's size."""
TAGS_CODE: Final = struct.Struct("!12xq")

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

    @property
    def is_prefill(self) -> bool:
        """Whether it only fills the place before the queue's first message."""
        return self == PREFILL_ENTRY


PREFILL_ENTRY: Final = QueueEntry(0, 0x7FFF_FFFF, 0)


def encode_queue_entry(entry: QueueEntry) -> bytes:
    """The 20 bytes of an entry."""
    try:
        return QUEUE_ENTRY.pack(entry.physical_offset, entry.size, entry.tags_code)
    except struct.error as error:
        raise FormatError(f"a field is out of its range: {entry}") from error


PREFILL: Final = encode_queue_entry(PREFILL_ENTRY)


def physical_offset_at(buffer: bytes | bytearray | memoryview, position: int = 0) -> int:
    """The physical offset of the entry at a position, of a batch queue too."""
    return int(PHYSICAL_OFFSET.unpack_from(buffer, position)[0])


def parse_queue_entry(buffer: bytes | bytearray | memoryview, position: int = 0) -> QueueEntry:
    """The entry at a position of the buffer."""
    if not 0 <= position <= len(buffer) - ENTRY_SIZE:
        raise FormatError(f"no {ENTRY_SIZE}-byte queue entry in {len(buffer)} bytes", offset=position)
    return QueueEntry(*QUEUE_ENTRY.unpack_from(buffer, position))


def parse_queue_entries(buffer: bytes | bytearray | memoryview) -> Iterator[QueueEntry]:
    """All entries of a whole buffer, valid or not."""
    if len(buffer) % ENTRY_SIZE:
        raise FormatError(f"{len(buffer)} bytes are no whole number of queue entries")
    return (QueueEntry(*fields) for fields in QUEUE_ENTRY.iter_unpack(buffer))
