"""The checkpoint file: how far log, queues and index were known to be on disk. 4096 bytes.

    0         8         16        24        32        40        48            4096
    +---------+---------+---------+---------+---------+---------+---- ... ----+
    | physic  | logics  | index   | master  | confirm | logics  |  zeros      |      big-endian i64 each
    | time    | time    | time    | flushed | offset  | offset  |             |
    +---------+---------+---------+---------+---------+---------+---- ... ----+

Times are store timestamps of messages, not of the clock. `logics offset` is where the last record begins
whose queue entry a full queue flush covered (0 in files written before 5.5). After an unclean stop,
recovery starts from `min_timestamp`.
"""

from __future__ import annotations

import struct
from dataclasses import astuple, dataclass, fields
from typing import Final

from flintlog.errors import FormatError
from flintlog.format.java import Buffer, pack

CHECKPOINT_SIZE: Final = 4096

_SAFETY_MARGIN_MS: Final = 3000
_FIELDS = struct.Struct("!6q")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The six numbers of a checkpoint file."""

    physic_msg_timestamp: int = 0
    logics_msg_timestamp: int = 0
    index_msg_timestamp: int = 0
    master_flushed_offset: int = 0
    confirm_physical_offset: int = 0
    logics_physical_offset: int = 0

    @staticmethod
    def place_of(name: str) -> int:
        """Where a field lies in the file."""
        return [field.name for field in fields(Checkpoint)].index(name) * 8

    @property
    def min_timestamp(self) -> int:
        """Messages stored before this moment are in the log and in their queues."""
        return max(0, min(self.physic_msg_timestamp, self.logics_msg_timestamp) - _SAFETY_MARGIN_MS)

    @property
    def earlier_cut(self) -> int | None:
        """The last record before the place where Java's recovery ended the log, if nothing was put since then."""
        is_cut = 0 < self.confirm_physical_offset == self.logics_physical_offset
        return self.confirm_physical_offset if is_cut else None


def encode_checkpoint(checkpoint: Checkpoint) -> bytes:
    """The whole file."""
    return pack(_FIELDS, *astuple(checkpoint)).ljust(CHECKPOINT_SIZE, b"\x00")


def parse_checkpoint(buffer: Buffer) -> Checkpoint:
    """The fields of a checkpoint file; bytes after them are ignored."""
    if len(buffer) < _FIELDS.size:
        raise FormatError(f"a checkpoint has {CHECKPOINT_SIZE} bytes, not {len(buffer)}")
    return Checkpoint(*_FIELDS.unpack_from(buffer))
