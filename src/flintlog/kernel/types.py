"""What both kernels share: why a loop stopped, and the shape of what it found.

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
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Final, NamedTuple, Protocol, TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview | mmap.mmap | array  # type: ignore[type-arg]  # any item type will do

ROW: Final = struct.Struct("<qqqqiiiiii")
KEY: Final = struct.Struct("<qqi")
"""One key of one record: physical offset, store timestamp, hash."""
LINK: Final = struct.Struct("<i")
"""The entry before a key in its slot; 0: there is none."""

# Bits of Row.marks.
MULTI_DISPATCH: Final = 1
INNER_BATCH: Final = 2

END_OF_FILE: Final = 0

Moves: TypeAlias = tuple[dict[tuple[str, int], int], dict[tuple[str, int], int], dict[str, int], dict[str, int]]
"""What an append moves on with the end of the log: a table of next offsets and its new values, another table and its.

Both kernels do it without a point at which Python could switch threads or raise the exception of a signal's handler.
"""


class Crc(IntEnum):
    """Which sums of a record are checked; `True` and `False` mean the first two."""

    NONE = 0
    BODY = 1
    RECORD = 2
    """That of the body, and the one over the whole record, if it has one."""
    FORCED = 3
    """Both: a record without the one over all of it is damaged."""


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


class LaneStop(IntEnum):
    """Why a lane gave a record back: everything but DONE is for the caller to look at."""

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
    """A slot of an index file, or the link of one of its entries, that does not hold what the chain needs."""

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


class MessageFields(Protocol):
    """What an encoder reads of a message."""

    @property
    def topic(self) -> str: ...
    @property
    def body(self) -> Buffer: ...
    @property
    def tags(self) -> str | None: ...
    @property
    def keys(self) -> Sequence[str]: ...
    @property
    def queue_id(self) -> int: ...
    @property
    def properties(self) -> Mapping[str, str] | None: ...
    @property
    def flag(self) -> int: ...
    @property
    def sys_flag(self) -> int: ...
    @property
    def born_timestamp(self) -> int | None: ...
    @property
    def born_host(self) -> str | None: ...
    @property
    def store_host(self) -> str | None: ...
    @property
    def reconsume_times(self) -> int: ...
    @property
    def prepared_transaction_offset(self) -> int: ...
