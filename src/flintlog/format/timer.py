"""The timer's three files: the wheel, the log that its slots point into, and the checkpoint. Big-endian throughout.

A wheel is a ring of slots, one for each stretch of time (`precision`), at index `time / precision mod slots`:

    0            8            16           24       28       32
    +------------+------------+------------+--------+--------+
    | time /     | first unit | last unit  | number | magic  |      positions in the timer log, -1: none
    | precision  |            |            |        | 0      |      number: timed messages less cancellations
    +------------+------------+------------+--------+--------+

The units of a slot are valid only if the slot holds their time: slots are overwritten, never emptied.

The timer log is a chain of units for each slot, newest to oldest, each pointing at one record of the commit log:

    0      4            12     16           24      28           36     40      44          52
    +------+------------+------+------------+-------+------------+------+-------+-----------+
    | 52   | unit before| magic| entered at | delay | record's   | its  | topic | 0         |
    |      | -1: none   |      | ms         | ms    | offset     | size | hash  |           |
    +------+------------+------+------------+-------+------------+------+-------+-----------+

Magic is 1, with 2 (due later than the window: enter it again) and 4 (cancels another message) added. A file is closed
when fewer than 52 + 16 bytes are left, by 16 bytes: how many are left (i32), 0 (i64), 0xCBD43194.

The checkpoint (4096 bytes) says how far messages were delivered and entered:

    0           8           16          24          32          40          48          56        4096
    +-----------+-----------+-----------+-----------+-----------+-----------+-----------+-- ... --+
    | read up to| log is    | entered up| the same, | state     | changed at| counter   | zeros   |
    | ms        | flushed to| to (queue)| master    | version   | ms        |           |         |
    +-----------+-----------+-----------+-----------+-----------+-----------+-----------+-- ... --+
"""

from __future__ import annotations

import struct
from dataclasses import astuple, dataclass
from typing import Final

from flintlog.errors import FormatError
from flintlog.format.java import Buffer, check_room, pack

TIMER_TOPIC: Final = "rmq_sys_wheel_timer"
TIMER_METRICS: Final = "timermetrics"
DEFAULT_SLOTS: Final = 2 * 7 * 24 * 3600
NO_UNIT: Final = -1

SLOT_SIZE: Final = 32
UNIT_SIZE: Final = 52
BLANK_SIZE: Final = 16
TIMER_CHECKPOINT_SIZE: Final = 4096

MAGIC_DEFAULT: Final = 1
MAGIC_ROLL: Final = 2
MAGIC_DELETE: Final = 4
BLANK_MAGIC: Final = -875286124  # 0xCBD43194
_ALL_MAGIC: Final = 15

SLOT: Final = struct.Struct("!3q2i")
UNIT: Final = struct.Struct("!iqiqiqiiq")
_BLANK: Final = struct.Struct("!iqi")
CHECKPOINT: Final = struct.Struct("!7q")


@dataclass(frozen=True, slots=True)
class Slot:
    """One slot of a wheel; `time` is in units of the precision, and 0 in a slot that was never used."""

    time: int
    first: int
    last: int
    number: int = 0
    magic: int = 0


@dataclass(frozen=True, slots=True)
class TimerUnit:
    """One timed message, as the timer log holds it."""

    previous: int
    magic: int
    entered_ms: int
    delay_ms: int
    physical_offset: int
    size: int
    topic_hash: int
    reserved: int = 0

    @property
    def slot_ms(self) -> int:
        """The time of the slot that it is entered in."""
        return self.entered_ms + self.delay_ms

    @property
    def rolls(self) -> bool:
        """Whether it is to be entered again, not delivered."""
        return bool(self.magic & MAGIC_ROLL)

    @property
    def cancels(self) -> bool:
        """Whether it cancels others of its slot; one that rolls cancels only after it was entered again."""
        return bool(self.magic & MAGIC_DELETE) and not self.rolls

    @property
    def step(self) -> int:
        """The change that it makes to its slot's number."""
        return -1 if self.magic & MAGIC_DELETE else 1


@dataclass(frozen=True, slots=True)
class TimerCheckpoint:
    """How far messages were delivered and entered durably."""

    read_ms: int = 0
    log_flushed: int = 0
    queue_offset: int = 0
    master_queue_offset: int = 0
    state_version: int = 0
    timestamp: int = 0
    counter: int = 0


def encode_slot(slot: Slot) -> bytes:
    """The 32 bytes of a slot."""
    return pack(SLOT, *astuple(slot))


def parse_slot(buffer: Buffer, position: int = 0) -> Slot:
    """The slot at a position of a wheel."""
    check_room(buffer, position, SLOT_SIZE, "slot")
    return Slot(*SLOT.unpack_from(buffer, position))


def encode_unit(unit: TimerUnit) -> bytes:
    """The 52 bytes of a unit.

    >>> len(encode_unit(TimerUnit(-1, 1, 1_700_000_000_000, 5000, 0, 139, 0)))
    52
    """
    return pack(UNIT, UNIT_SIZE, *astuple(unit))


def parse_unit(buffer: Buffer, position: int = 0) -> TimerUnit:
    """The unit at a position of a timer log file, if there is one."""
    check_room(buffer, position, UNIT_SIZE, "unit")
    size, previous, magic, *rest = UNIT.unpack_from(buffer, position)
    unit = TimerUnit(previous, magic, *rest)
    if size != UNIT_SIZE or not magic & MAGIC_DEFAULT or magic & ~_ALL_MAGIC or previous < NO_UNIT:
        raise FormatError(f"not a unit of the timer log: size {size}, magic {magic}", offset=position)
    if unit.physical_offset < 0 or unit.size <= 0:
        raise FormatError(f"a unit points at no record: {unit}", offset=position)
    return unit


def is_timer_blank(buffer: Buffer, position: int) -> bool:
    """Whether a blank, or a unit, at a position has the magic of a blank."""
    return bool(UNIT.unpack_from(buffer, position)[2] == BLANK_MAGIC)


def units_per_file(file_size: int) -> int:
    """How many units a timer log file takes before it is closed."""
    return max(0, file_size - BLANK_SIZE) // UNIT_SIZE


def encode_timer_blank(room: int) -> bytes:
    """The blank that closes a file with this many bytes left, as much of it as fits."""
    return _BLANK.pack(room, 0, BLANK_MAGIC)[:room]


def encode_timer_checkpoint(checkpoint: TimerCheckpoint) -> bytes:
    """The whole file."""
    return pack(CHECKPOINT, *astuple(checkpoint)).ljust(TIMER_CHECKPOINT_SIZE, b"\x00")


def parse_timer_checkpoint(buffer: Buffer) -> TimerCheckpoint:
    """The fields of the file; bytes after them are ignored."""
    if len(buffer) < CHECKPOINT.size:
        raise FormatError(f"a timer checkpoint has {TIMER_CHECKPOINT_SIZE} bytes, not {len(buffer)}")
    checkpoint = TimerCheckpoint(*CHECKPOINT.unpack_from(buffer))
    if min(checkpoint.read_ms, checkpoint.log_flushed, checkpoint.queue_offset) < 0:
        raise FormatError(f"a timer checkpoint without sense: {checkpoint}")
    return checkpoint
