"""One entry of a batch consume queue: where a batch of messages lies, which is one record of the log.

    0          8      12          20           28           36      38           42         46
    +----------+------+-----------+------------+------------+-------+------------+----------+
    | physical | size | tags code | store      | base queue | batch | compacted  | reserved |      big-endian
    | offset   |      |           | timestamp  | offset     | size  | offset, -1 | 0        |
    +----------+------+-----------+------------+------------+-------+------------+----------+

Entries follow each other without gaps, so an entry's place says nothing about its queue offset: the
entry covers the queue offsets from its base up to base + batch size.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import astuple, dataclass
from typing import Final

from flintlog.errors import FormatError

ENTRY_SIZE: Final = 46
NOT_COMPACTED: Final = -1

BATCH_ENTRY: Final = struct.Struct("!qiqqqhii")
STORE_TIME_AT: Final = 20
BASE_AT: Final = 28
BASE_AND_COUNT: Final = struct.Struct("!qh")


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
        """The queue offset behind the batch."""
        return self.base_offset + self.batch_size


def encode_batch_queue_entry(entry: BatchQueueEntry) -> bytes:
    """The 46 bytes of an entry."""
    try:
        return BATCH_ENTRY.pack(*astuple(entry))
    except struct.error as error:
        raise FormatError(f"a field is out of its range: {entry}") from error


def parse_batch_queue_entry(buffer: bytes | bytearray | memoryview, position: int = 0) -> BatchQueueEntry:
    """The entry at a position of the buffer."""
    if not 0 <= position <= len(buffer) - ENTRY_SIZE:
        raise FormatError(f"no {ENTRY_SIZE}-byte batch queue entry in {len(buffer)} bytes", offset=position)
    return BatchQueueEntry(*BATCH_ENTRY.unpack_from(buffer, position))


def parse_batch_queue_entries(buffer: bytes | bytearray | memoryview) -> Iterator[BatchQueueEntry]:
    """All entries of a whole buffer, valid or not."""
    if len(buffer) % ENTRY_SIZE:
        raise FormatError(f"{len(buffer)} bytes are no whole number of batch queue entries")
    return (BatchQueueEntry(*fields) for fields in BATCH_ENTRY.iter_unpack(buffer))
