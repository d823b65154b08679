"""Whether a record is whole, and whether one with a damaged body keeps its place.

A record whose body alone is damaged has right lengths and its own offset, and the log continues after it: its queue
entry is written all the same, so that its queue has no gap, and reading it is an error that names it.

A crash tears a record by sectors: the log is written only where there are zeros, so a sector of zeros has not arrived.
A last record without such a sector was once whole, and has changed since.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Final

from flintlog import kernel
from flintlog.format.ledger import blank_at, size_at
from flintlog.format.record import parse_record

_SECTOR_BYTES: Final = 512
_HEAD_BYTES: Final = 8
"""The size and the magic of a record."""


def is_whole(view: memoryview, base: int, place: int) -> bool:
    """Whether a complete record lies here; one that is being written, or was cut off, is not complete."""
    seen = kernel.scan(view, place, len(view), base, check_crc=True, max_count=1)
    if not seen.count:
        return False
    return not parse_record(view, seen.row(0).physical_offset - base, seen.end).lacks_its_end


def begins_something(view: memoryview, base: int, place: int) -> bool:
    """Whether a complete record or a blank begins here."""
    return (place <= len(view) and is_whole(view, base, place)) or blank_at(view, place) is not None


def has_arrived(view: memoryview, start: int, stop: int) -> bool:
    """Whether every sector of a range was written: none of them holds only zeros there."""
    cuts = [start, *range(start - start % _SECTOR_BYTES + _SECTOR_BYTES, stop, _SECTOR_BYTES), stop]
    return all(any(view[begin:end]) for begin, end in pairwise(cuts))


def keeps_its_place(view: memoryview, base: int, place: int) -> bool:
    """Whether a record with a wrong body CRC and right lengths is damaged in its body alone.

    It is if the log continues after it, or if it is the last one and has wholly arrived.
    """
    following = place + size_at(view, place)
    if begins_something(view, base, following):
        return True
    return not any(view[following : following + _HEAD_BYTES]) and has_arrived(view, place, following)
