"""What follows the end of a ledger's chain of entries: writes that never reached the disk, or damage.

    … | e8 | e9 | ??? | e11 | e12 | ·····
                ^ end  ^ an entry that knows its place, of no earlier term, and whose body is intact

Entries are synced together, and after a loss of power some sectors of the last ones are on disk and others are not: an
intact entry after a bad one does not prove damage. But entries are written only over zeros, so a sector that was not
written is zeros, from its own beginning or the entry's. A bad entry all of whose sectors were written was once whole,
and may have been acknowledged: that is damage, and the ledger must not end before it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from flintlog import kernel
from flintlog.disk.segments.segment import Segment
from flintlog.errors import FormatError
from flintlog.format.ledger import (
    ENTRY_END_RESERVE,
    ENTRY_HEAD_SIZE,
    ENTRY_MAGIC_BYTES,
    EntryHead,
    parse_entry_blank,
    parse_entry_head,
)
from flintlog.kernel import Crc
from flintlog.store.log.segment_bytes import held
from flintlog.store.options.store_config import StoreConfig

BodyCheck = Callable[[bytes | memoryview, int], bool]
"""Whether a body, whose entry lies at this position, is what was written."""

SECTOR_BYTES: Final = 512
"""What a disk writes whole or not at all."""
_WINDOW: Final = 1 << 20


def body_check(config: StoreConfig) -> BodyCheck:
    """Whether a body is one record that knows its place and matches its CRC.

    The CRC over the whole record is looked at where a record has one, and never demanded: the records that a leader
    writes for itself have none, and neither have those of a Java leader.
    """
    checked_crc = Crc.RECORD if config.enabled_append_prop_crc or config.force_verify_prop_crc else Crc.BODY

    def is_record(body: bytes | memoryview, position: int) -> bool:
        return kernel.scan(body, 0, len(body), position + ENTRY_HEAD_SIZE, check_crc=checked_crc).end == len(body) > 0

    return is_record


def find_entry_after(
    files: Sequence[Segment], position: int, term: int, is_intact: BodyCheck | None
) -> EntryHead | None:
    """The first whole entry after a position. DLedger leaves entries of earlier terms in a tail that it gave up."""
    for segment in files:
        if segment.end <= position + 1:
            continue
        with held(segment) as view:
            place = max(0, position + 1 - segment.base)
            stop = segment.raw().data_end(place)
            while (place := _find_magic(view, place, stop)) >= 0:
                head = _whole_entry(view, place, segment.base, is_intact)
                if head is not None and head.term >= term:
                    return head
                place += 1
    return None


def continues_at(files: Sequence[Segment], position: int, index: int, is_intact: BodyCheck | None) -> bool:
    """Whether the chain continues here: with the whole entry of this index, or with the blank that closes a file."""
    segment = next((segment for segment in files if segment.base <= position < segment.end), None)
    if segment is None:
        return False
    place = position - segment.base
    with held(segment) as view:
        if place + ENTRY_END_RESERVE <= segment.size and parse_entry_blank(view, place) == segment.size - place:
            return True
        head = _whole_entry(view, place, segment.base, is_intact)
    return head is not None and head.index == index


def _find_magic(view: memoryview, start: int, stop: int) -> int:
    while start + ENTRY_HEAD_SIZE <= stop:
        found = bytes(view[start : min(start + _WINDOW, stop)]).find(ENTRY_MAGIC_BYTES)
        if found >= 0:
            return start + found
        start += _WINDOW - len(ENTRY_MAGIC_BYTES) + 1
    return -1


def _whole_entry(view: memoryview, place: int, base: int, is_intact: BodyCheck | None) -> EntryHead | None:
    try:
        head = parse_entry_head(view, place)
    except FormatError:
        return None
    if head.position != base + place or place + head.size > len(view):
        return None
    body = view[place + ENTRY_HEAD_SIZE : place + head.size]
    return head if is_intact is None or is_intact(body, head.position) else None


def was_written(files: Sequence[Segment], bad: int, index: int, later: int) -> bool:
    """Whether the bad entry of this index reached the disk whole; `later` is where the next whole entry is."""
    segment = next((segment for segment in files if segment.base <= bad < segment.end), None)
    if segment is None:
        return True  # a file is missing
    with held(segment) as view:
        start, stop = bad - segment.base, min(later - segment.base, segment.size)
        first_end = _sector_end(start)
        if first_end - start >= len(ENTRY_MAGIC_BYTES) and not any(view[start:first_end]):
            return False
        if _is_wrong_head(view, start, first_end, segment.base, index):
            return True
        if first_end - start >= ENTRY_HEAD_SIZE:
            stop = min(stop, start + parse_entry_head(view, start).size)
        elif later >= segment.end:
            stop = _blank_place(view, start, segment.size)
        sectors = range(first_end, stop, SECTOR_BYTES)
        return all(any(view[place : min(place + SECTOR_BYTES, segment.size)]) for place in sectors)


def _sector_end(place: int) -> int:
    return (place // SECTOR_BYTES + 1) * SECTOR_BYTES


def _is_wrong_head(view: memoryview, start: int, sector_end: int, base: int, index: int) -> bool:
    """Whether the part of a head that is in this sector, which was written, is damaged."""
    if sector_end - start < len(ENTRY_MAGIC_BYTES):
        return False
    if sector_end - start < ENTRY_HEAD_SIZE:
        return bytes(view[start : start + len(ENTRY_MAGIC_BYTES)]) != ENTRY_MAGIC_BYTES
    try:
        head = parse_entry_head(view, start)
    except FormatError:
        return True
    return head.position != base + start or (index > 0 and head.index != index)


def _blank_place(view: memoryview, start: int, size: int) -> int:
    """Where the blank is that closes a file; the file's end if there is none."""
    for place in range(start, size - ENTRY_END_RESERVE + 1):
        if parse_entry_blank(view, place) == size - place:
            return place
    return size
