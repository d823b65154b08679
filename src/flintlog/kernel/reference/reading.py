"""Records that consume queue entries point at, copied out of the log, and the body cut out of a record."""

from __future__ import annotations

import struct
from collections.abc import Set as AbstractSet
from typing import Protocol, Self, overload

from flintlog.errors import FormatError
from flintlog.format.queue_entry import ENTRY_SIZE, QUEUE_ENTRY
from flintlog.format.record import BODY_SIZE_AT, HOST_BITS_AT, HOST_SHIFT, MIN_RECORD_SIZE
from flintlog.kernel.reference.scanning import check_range
from flintlog.kernel.reference.walk import record_at
from flintlog.kernel.types import Buffer, Crc, ScanStop

_I32 = struct.Struct("!i")


class HasRecord(Protocol):
    """An object that keeps the bytes of one record."""

    @property
    def record(self) -> bytes: ...


class RecordBody:
    """The attribute `body` of a class that keeps a whole record in `record`; each access cuts it out.

    Nothing else of the record is parsed; only IPv6 hosts move the body.
    """

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self, instance: HasRecord, owner: type) -> bytes: ...
    def __get__(self, instance: HasRecord | None, owner: type) -> Self | bytes:
        if instance is None:
            return self
        record = instance.record
        if len(record) < MIN_RECORD_SIZE:
            raise FormatError(f"{len(record)} bytes are no record")
        place = BODY_SIZE_AT + HOST_SHIFT[record[HOST_BITS_AT] >> 4 & 3]
        size = _I32.unpack_from(record, place)[0] if place + 4 <= len(record) else -1
        if not 0 <= size <= len(record) - place - 4:
            raise FormatError("the body goes past its record")
        return record[place + 4 : place + 4 + size]


def collect(
    entries: Buffer,
    position: int,
    stop: int,
    log: Buffer,
    log_base: int,
    log_end: int,
    max_count: int,
    max_bytes: int,
    tag_codes: AbstractSet[int] | None = None,
    check_crc: int = Crc.NONE,
    home: tuple[bytes, int, int] | None = None,
) -> tuple[list[bytes], int]:
    """Copies of the records that the entries in entries[position:stop] point at, and where it stopped.

    With `tag_codes`, only entries with one of these tags codes are taken. It stops before the first entry that points
    outside of `log` (which begins at physical offset `log_base` and is readable up to `log_end`), at `max_count`
    records, and before `max_bytes` would be exceeded; the first record is always included. With `check_crc` (a
    `types.Crc`) it also stops before a record that is not intact, or whose size differs from its entry's. `home` is the
    topic, queue id and queue offset that the first entry's record must have: it stops before a record of another queue
    or another place in this queue, and always checks the body's CRC.
    """
    records: list[bytes] = []
    size_so_far = 0
    first = position
    check_crc = Crc.BODY if home is not None and not check_crc else check_crc
    with memoryview(entries).cast("B") as entry_view, memoryview(log).cast("B") as log_view:
        check_range(entry_view, position, stop)
        readable = min(log_end - log_base, log_view.nbytes)
        while stop - position >= ENTRY_SIZE and len(records) < max_count:
            physical_offset, size, tags_code = QUEUE_ENTRY.unpack_from(entry_view, position)
            if tag_codes is None or tags_code in tag_codes:
                start = physical_offset - log_base
                if start < 0 or size <= 0 or start + size > readable or (records and size_so_far + size > max_bytes):
                    break
                found = record_at(log_view, start, start + size, log_base, check_crc) if check_crc else None
                if isinstance(found, ScanStop) or (found is not None and found.size != size):
                    break
                if home is not None and found is not None:
                    topic, queue_id, queue_offset = home
                    right = topic, queue_id, queue_offset + (position - first) // ENTRY_SIZE
                    if (found.topic_bytes, found.queue_id, found.queue_offset) != right:
                        break
                records.append(bytes(log_view[start : start + size]))
                size_so_far += size
            position += ENTRY_SIZE
    return records, position
