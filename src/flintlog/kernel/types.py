"""The types that both kernels share: why a loop stopped, and the layout of its results.

A scan's rows are packed little-endian structs, 56 bytes each, so that a million of them are one buffer:

     0          8         16        24         32     36      40      44      48      52      56
    +----------+---------+---------+----------+------+-------+-------+-------+-------+-------+
    | physical | queue   | tags    | store    | size | queue | sys   | first | hash  | marks |
    | offset   | offset  | code    | timestamp|      |       | flag  | hash  | count |       |
    +----------+---------+---------+----------+------+-------+-------+-------+-------+-------+

`queue` is an ordinal into the scan's `queues`, `first hash` an index into its `hashes`.
"""

from __future__ import annotations

import mmap
import struct
from array import array
from enum import IntEnum, IntFlag
from typing import Final, NamedTuple, TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview | mmap.mmap | array  # type: ignore[type-arg]  # any item type will do

ROW: Final = struct.Struct("<qqqqiiiiii")
ROW_PLACE: Final = struct.Struct("<q24xi20x")
"""Of a row, physical offset and size alone."""
KEY: Final = struct.Struct("<qqi")
"""One key of one record: physical offset, store timestamp, hash."""
LINK: Final = struct.Struct("<i")
"""The previous entry in a key's slot; 0 if there is none."""

# Bits of Row.marks.
MULTI_DISPATCH: Final = 1
INNER_BATCH: Final = 2

END_OF_FILE: Final = 0

Moves: TypeAlias = tuple[dict[tuple[str, int], int], dict[tuple[str, int], int], dict[str, int], dict[str, int]]
"""Next offsets that an append sets together with the end of the log: a table and its new values, twice.

Both kernels set them without a point at which Python could switch threads or run a signal handler.
"""


class ClosedFor(IntFlag):
    """Why the fast path of a put is closed. Each reason has one owner, which alone closes and opens for it."""

    NOT_WRITEABLE = 1
    """The store does not run, or a flag forbids writing."""
    REFUSAL = 2
    """A replica, or too few replicas in sync."""
    CLOSING = 4
    """Callers are refused; services may still put."""
    HOOKS = 8
    BATCH_TOPICS = 16
    MULTI_DISPATCH = 32
    LEDGER = 64
    # The reasons from here on leave the put open, and close only its dispatch.
    LISTENERS = 1 << 16
    """A listener is called for each message, in order."""
    DISPATCHER = 1 << 17
    """The dispatcher needs more than the kernel does, or leaves it to others."""
    FLUSH = 1 << 18
    """A record is visible only after a sync or a commit, or wakes the flush."""


PUT_REASONS: Final = 0xFFFF
DISPATCH_REASONS: Final = 0x7FFF0000


class Crc(IntEnum):
    """Which sums of a record are checked; `False` means NONE and `True` means BODY."""

    NONE = 0
    BODY = 1
    RECORD = 2
    """The body's sum, and the sum over the whole record if it has one."""
    FORCED = 3
    """Both sums; a record without the sum over the whole record counts as damaged."""


class ScanStop(IntEnum):
    """Why a scan ended where it did."""

    LIMIT = 0
    BLANK = 1
    NO_RECORD = 2
    BAD_LENGTH = 3
    BAD_CRC = 4
    BAD_OFFSET = 5
    SHORT = 6
    BAD_RECORD_CRC = 7
    NO_RECORD_CRC = 8


class DispatchStop(IntEnum):
    """Why fast dispatch stopped. At everything but DONE the caller has to act."""

    DONE = 0
    BLANK = 1
    BAD = 2
    QUEUE = 3
    INDEX = 4


class Row(NamedTuple):
    """One record of a scan."""

    physical_offset: int
    queue_offset: int
    tags_code: int
    store_timestamp: int
    size: int
    queue: int
    sys_flag: int
    first_hash: int
    hash_count: int
    marks: int


class QueueRun(NamedTuple):
    """Records of one queue with consecutive queue offsets; `position` is where their entries begin in the buffer."""

    queue: int
    first_queue_offset: int
    length: int
    position: int
    first_physical_offset: int
    last_physical_offset: int


class ChainFault(NamedTuple):
    """A slot of an index file, or the link of an entry, that does not hold the value that its chain needs."""

    is_slot: bool
    number: int
    expected: int
    found: int


class Column(NamedTuple):
    """One column in Arrow's layout.

    `kind` is int32, int64, utf8, binary, list or map. Offsets are int32. A list's items are the column
    `<name>.item`, a map's entries the columns `<name>.key` and `<name>.value`.
    """

    kind: str
    length: int
    null_count: int
    validity: Buffer | None
    offsets: Buffer | None
    data: Buffer | None
