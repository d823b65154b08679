"""Infers the sizes that a store was written with from its files.

The configuration of a store is often not at hand. File lengths give most of it: a log, queue or extension file is
allocated with its configured size. The length of an index file is 40 + 4 · slots + 20 · entries; its header and entries
decide how many of each. A size that does not follow safely keeps its configured value. Every inference is reported.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from flintlog.derive.log_files import common_size
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
from flintlog.kernel import written_end

_DEFAULT_RATIO = SLOT_SIZE + 4 * ENTRY_SIZE
MAX_CANDIDATES = 1000


@dataclass(slots=True)
class Inferred:
    """Options that were read from the files, and a sentence for each."""

    values: dict[str, int | bool | str | dict[str, str]] = field(default_factory=dict)
    reasons: list[str] = field(default_factory=list)

    def add(self, name: str, value: int | bool | str | dict[str, str], reason: str) -> None:
        self.values[name] = value
        self.reasons.append(f"{name} = {value}: {reason}")


def log_file_size(files: Sequence[tuple[int, int]]) -> int | None:
    """The size of log files from (base, length) of each; None when bases and lengths do not fit together.

    >>> log_file_size([(0, 1024), (1024, 1024), (2048, 100)]), log_file_size([(0, 100), (1024, 1000)])
    (1024, 1024)
    """
    lengths = [length for _, length in files]
    size = common_size(lengths)
    steps = [after - before for (before, _), (after, _) in pairwise(files) if after > before]
    # A length that several files share is the size, whatever the names are. Otherwise some file is cut short, and the
    # distance of two neighbours is the size.
    if size is not None and lengths.count(size) == 1 and steps and size not in steps:
        size = min(steps)
    if size is None or any(base % size for base, _ in files):
        return None
    return size


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
        if number >= MAX_CANDIDATES:
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
