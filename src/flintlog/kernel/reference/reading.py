"""Records that consume queue entries point at, copied out of the log."""

from __future__ import annotations

import struct
from collections.abc import Set as AbstractSet

from flintlog.format.queue_entry import ENTRY_SIZE
from flintlog.format.record import Record
from flintlog.kernel.reference.scanning import check_range
from flintlog.kernel.reference.walk import record_at
from flintlog.kernel.types import Buffer

_ENTRY = struct.Struct("!qiq")


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
    check: bool = False,
) -> tuple[list[bytes], int]:
    """Copies of the records that the entries in entries[position:stop] point at, and where it stopped.

    Only entries whose tags code is in `tag_codes` are taken, if that is given. Ends before the first
    entry that points outside of `log` (which begins at physical offset `log_base` and is readable up to
    `log_end`), at `max_count` records, and before `max_bytes` are exceeded; one record always goes in. With
    `check` it also ends before a record that is not intact.
    """
    records: list[bytes] = []
    size_so_far = 0
    with memoryview(entries).cast("B") as entry_view, memoryview(log).cast("B") as log_view:
        check_range(entry_view, position, stop)
        readable = min(log_end - log_base, log_view.nbytes)
        while stop - position >= ENTRY_SIZE and len(records) < max_count:
            physical_offset, size, tags_code = _ENTRY.unpack_from(entry_view, position)
            if tag_codes is None or tags_code in tag_codes:
                start = physical_offset - log_base
                if start < 0 or size <= 0 or start + size > readable or (records and size_so_far + size > max_bytes):
                    break
                if check and not isinstance(record_at(log_view, start, start + size, log_base, True), Record):
                    break
                records.append(bytes(log_view[start : start + size]))
                size_so_far += size
            position += ENTRY_SIZE
    return records, position
