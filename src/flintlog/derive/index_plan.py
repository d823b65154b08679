"""Which keys go into which index file, when the keys are counted before any file is built; and a file's own layout.

    keys of split 0   keys of split 1      keys of split 2          in the log's order
    |----------------|--------------------|------------|
    |<-- capacity -->|<-- capacity -->|<-- capacity -->|            capacity = index count − 1: entry 0 is never used
      file 0            file 1            file 2

A file is filled before the next one is begun, even in the middle of a record's keys. Of the files before it, a file
needs only the last key: its header begins with that key's time and offset.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import NamedTuple

from flintlog.errors import FormatError
from flintlog.format.index_file import (
    ENTRY_SIZE,
    HEADER_SIZE,
    INDEX_ENTRY,
    SLOT_SIZE,
    IndexHeader,
    IndexLayout,
    parse_index_header,
    parse_slot,
)
from flintlog.format.names import index_file_name, parse_index_file_name
from flintlog.kernel import written_end

_DEFAULT_RATIO = SLOT_SIZE + 4 * ENTRY_SIZE
_MAX_CANDIDATES = 1000


class KeyRange(NamedTuple):
    """The keys [start, stop) of one split, counted within it."""

    split: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class IndexFilePlan:
    """The keys of one index file, in order, and the last key before them (None: there is none)."""

    ranges: tuple[KeyRange, ...]
    previous: KeyRange | None


def count_believed(headers: Sequence[IndexHeader], safe_timestamp: int) -> int:
    """How many leading files an opening keeps after a crash; the others are built again from the log.

    A file is kept if its keys end within the time that the checkpoint has made safe, and a later file has keys. Time
    alone is not enough: two files may be filled within one millisecond.
    """
    with_keys = [place for place, header in enumerate(headers) if header.next_entry > 1]
    last = with_keys[-1] if with_keys else 0
    return next((place for place in range(last) if headers[place].end_timestamp > safe_timestamp), last)


def plan_index_files(key_counts: Sequence[int], layout: IndexLayout) -> list[IndexFilePlan]:
    """The files for splits that have these numbers of keys.

    >>> [plan.ranges for plan in plan_index_files([3, 0, 2], IndexLayout(10, 5))]
    [(KeyRange(split=0, start=0, stop=3), KeyRange(split=2, start=0, stop=1)), (KeyRange(split=2, start=1, stop=2),)]
    """
    capacity = layout.index_count - 1
    if capacity < 1:
        raise FormatError(f"an index file of {layout.index_count} entries holds no key")
    plans: list[IndexFilePlan] = []
    ranges: list[KeyRange] = []
    room, previous = capacity, None
    for split, count in enumerate(key_counts):
        start = 0
        while start < count:
            taken = min(room, count - start)
            ranges.append(KeyRange(split, start, start + taken))
            start, room = start + taken, room - taken
            if room == 0:
                plans.append(IndexFilePlan(tuple(ranges), previous))
                previous = KeyRange(split, start - 1, start)
                ranges, room = [], capacity
    return [*plans, IndexFilePlan(tuple(ranges), previous)] if ranges else plans


def starting_header(end_timestamp: int, end_physical_offset: int) -> IndexHeader:
    """The header of a file that follows one with this end. Its first key is timed against it, then overwrites it."""
    time, offset = max(0, end_timestamp), max(0, end_physical_offset)
    return IndexHeader(time, time, offset, offset)


def index_file_names(first_timestamps: Sequence[int]) -> list[str]:
    """Names for files whose first keys have these store times: each is that time, or the name after the one before."""
    names: list[str] = []
    for timestamp in first_timestamps:
        name = index_file_name(max(0, timestamp))
        names.append(name if not names or name > names[-1] else name_after(names[-1]))
    return names


def name_after(name: str) -> str:
    """The next name: a millisecond later, or the number plus one where the name is no time."""
    try:
        moment = parse_index_file_name(name)
    except FormatError:
        return str(int(name) + 1).zfill(len(name))
    later = moment + timedelta(milliseconds=1)
    return f"{later:%Y%m%d%H%M%S}{later.microsecond // 1000:03d}"


def index_layout(view: memoryview) -> IndexLayout | None:
    """The slots and entries of an index file of this length and content; None when they do not follow from it."""
    length = len(view)
    if length < HEADER_SIZE + SLOT_SIZE + ENTRY_SIZE:
        return None
    header = parse_index_header(view)
    usual, rest = divmod(length - HEADER_SIZE, _DEFAULT_RATIO)
    if rest == 0 and (_fits(view, usual, header) or _ends_well(view, IndexLayout(usual, 4 * usual))):
        return IndexLayout(usual, 4 * usual)
    for slots in _candidates(view, header):
        if _fits(view, slots, header):
            return IndexLayout(slots, (length - HEADER_SIZE - SLOT_SIZE * slots) // ENTRY_SIZE)
    # Four entries a slot is the default ratio; for a damaged file it is the best guess.
    return None if rest else IndexLayout(usual, 4 * usual)


def _ends_well(view: memoryview, layout: IndexLayout) -> bool:
    """Whether the slot of the last written entry leads to it, whatever the header says."""
    first = layout.entry_position(1)
    last = -(-(written_end(view, first, len(view)) - first) // ENTRY_SIZE)
    if last < 1:
        return False
    key_hash = INDEX_ENTRY.unpack_from(view, layout.entry_position(last))[0]
    return key_hash >= 0 and parse_slot(view, layout, layout.slot_of(key_hash)) == last


def _candidates(view: memoryview, header: IndexHeader) -> Iterable[int]:
    """Slot counts that put the header's last physical offset at the place of the last entry."""
    after_slots = HEADER_SIZE + ENTRY_SIZE * (header.next_entry - 1) + 4
    wanted = re.compile(re.escape(header.end_physical_offset.to_bytes(8, "big", signed=True)))
    for number, match in enumerate(wanted.finditer(view, min(len(view), after_slots + SLOT_SIZE))):
        slots, rest = divmod(match.start() - after_slots, SLOT_SIZE)
        if rest == 0 and slots > 0:
            yield slots
        if number >= _MAX_CANDIDATES:
            return


def _fits(view: memoryview, slots: int, header: IndexHeader) -> bool:
    """Whether an index file of so many slots begins and ends with the records that its header names."""
    entries, rest = divmod(len(view) - HEADER_SIZE - SLOT_SIZE * slots, ENTRY_SIZE)
    if slots < 1 or rest or entries < max(1, header.next_entry):
        return False
    if header.next_entry <= 1:
        return True
    layout = IndexLayout(slots, entries)
    first = INDEX_ENTRY.unpack_from(view, layout.entry_position(1))
    last = INDEX_ENTRY.unpack_from(view, layout.entry_position(header.next_entry - 1))
    if last[0] < 0 or last[1] != header.end_physical_offset or first[1] != header.begin_physical_offset or first[3]:
        return False
    return parse_slot(view, layout, layout.slot_of(last[0])) == header.next_entry - 1
