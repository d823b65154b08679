"""Records that consume queue entries point at, copied out of the log, and the body cut out of a record."""

from __future__ import annotations

import struct
from typing import Self, TypeVar

from flintlog.errors import FormatError
from flintlog.format.queue_entry import ENTRY_SIZE, QUEUE_ENTRY
from flintlog.format.record import BODY_SIZE_AT, HOST_BITS_AT, HOST_SHIFT, MIN_RECORD_SIZE, Record
from flintlog.kernel.reference.scanning import check_range
from flintlog.kernel.reference.walk import record_at
from flintlog.kernel.types import Buffer, Crc, ScanStop

_I32 = struct.Struct("!i")
Kept = TypeVar("Kept", bound="KeptRecord")


class KeptRecord:
    """The bytes of one record; `body` cuts the body out of them. Subclasses keep in it what they have parsed.

    Nothing else of the record is parsed for the body; only IPv6 hosts move it.
    """

    __slots__ = ("_parsed", "_properties", "delay_levels_ms", "record")

    record: bytes
    delay_levels_ms: tuple[int, ...]
    _parsed: Record | None
    _properties: dict[str, str] | None

    def __new__(cls, *_: object, **__: object) -> Self:
        kept = super().__new__(cls)
        kept._parsed = kept._properties = None
        return kept

    def __init__(self, record: bytes, delay_levels_ms: tuple[int, ...] = ()) -> None:
        self.record = record
        self.delay_levels_ms = delay_levels_ms

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        assert isinstance(other, KeptRecord)
        return self.record == other.record and self.delay_levels_ms == other.delay_levels_ms

    def __hash__(self) -> int:
        return hash(self.record)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.record, self.delay_levels_ms)

    @property
    def body(self) -> bytes:
        record = self.record
        if len(record) < MIN_RECORD_SIZE:
            raise FormatError(f"{len(record)} bytes are no record")
        place = BODY_SIZE_AT + HOST_SHIFT[record[HOST_BITS_AT] >> 4 & 3]
        size = _I32.unpack_from(record, place)[0] if place + 4 <= len(record) else -1
        if not 0 <= size <= len(record) - place - 4:
            raise FormatError("the body goes past its record")
        return record[place + 4 : place + 4 + size]


def collect(
    kind: type[Kept],
    levels: tuple[int, ...],
    entries: Buffer,
    position: int,
    stop: int,
    log: Buffer,
    log_base: int,
    log_end: int,
    max_count: int,
    max_bytes: int,
    check_crc: int = Crc.NONE,
    home: tuple[bytes, int, int] | None = None,
) -> tuple[list[Kept], int]:
    """Messages with copies of the records that the entries in entries[position:stop] point at, and where it stopped.

    It makes objects of class `kind` with these delay levels, without calling its `__init__`. It stops before the first
    entry that points outside of `log` (which begins at physical offset `log_base` and is readable up to `log_end`), at
    `max_count` records, and before `max_bytes` would be exceeded; the first record is always included. With `check_crc`
    (a `types.Crc`) it also stops before a record that is not intact, or whose size differs from its entry's. `home` is
    the topic, queue id and queue offset that the first entry's record must have: it stops before a record of another
    queue or another place in this queue, and always checks the body's CRC.
    """
    messages: list[Kept] = []
    size_so_far = 0
    first = position
    check_crc = Crc.BODY if home is not None and not check_crc else check_crc
    with memoryview(entries).cast("B") as entry_view, memoryview(log).cast("B") as log_view:
        check_range(entry_view, position, stop)
        readable = min(log_end - log_base, log_view.nbytes)
        while stop - position >= ENTRY_SIZE and len(messages) < max_count:
            physical_offset, size, _ = QUEUE_ENTRY.unpack_from(entry_view, position)
            start = physical_offset - log_base
            if start < 0 or size <= 0 or start + size > readable or (messages and size_so_far + size > max_bytes):
                break
            found = record_at(log_view, start, start + size, log_base, check_crc) if check_crc else None
            if isinstance(found, ScanStop) or (found is not None and found.size != size):
                break
            if home is not None and found is not None:
                topic, queue_id, queue_offset = home
                right = topic, queue_id, queue_offset + (position - first) // ENTRY_SIZE
                if (found.topic_bytes, found.queue_id, found.queue_offset) != right:
                    break
            message = kind.__new__(kind)
            KeptRecord.__init__(message, bytes(log_view[start : start + size]), levels)
            messages.append(message)
            size_so_far += size
            position += ENTRY_SIZE
    return messages, position
