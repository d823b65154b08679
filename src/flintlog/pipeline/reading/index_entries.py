"""Finds, by a store's index, the records of a range that may have one of some keys.

Index files are searched from one end of the range to the other, by the hashes of their entries. The chains of these
hashes are followed too: an entry whose hash was damaged is found by its chain, and one that a damaged link has cut off
by its hash. Records that no entry names may have a key all the same, because the index does not reach so far, or was
switched off; they are among the results. So are those of each file's last entry, which may be written half.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection
from contextlib import suppress
from pathlib import PurePath
from typing import Final

from flintlog import kernel
from flintlog.derive.index_plan import index_layout
from flintlog.disk.media.source import ByteSource
from flintlog.errors import DiskError, FormatError
from flintlog.format.index_file import (
    ENTRY_SIZE,
    HEADER_SIZE,
    IndexLayout,
    parse_index_entry,
    parse_index_header,
    parse_slot,
)
from flintlog.format.names import INDEX, is_number

MAX_CHAIN: Final = 100_000
"""Longer ones are damaged, or cost more than a scan."""


class KeySearch:
    """The records of [start, stop) that the index names; `others` has a mark for each that has none of the keys."""

    def __init__(self, hashes: Collection[int], start: int, stop: int) -> None:
        self.hits: set[int] = set()
        self.others = bytearray((stop - start + 7) // 8)
        self._hashes = hashes
        self._start, self._stop = start, stop

    def search(self, source: ByteSource, root: PurePath) -> bool:
        """Look through all index files; whether all could be trusted."""
        unsure: set[int] = set()
        for info in source.listing(root / INDEX):
            if info.is_directory or not is_number(info.name) or info.size <= HEADER_SIZE:
                continue
            with suppress(DiskError):
                last = self._search_file(source.view(root / INDEX / info.name, 0, info.size))
                if last is None:
                    return False
                unsure.add(last)
        for place in (offset - self._start for offset in self.hits | unsure):
            if 0 <= place < self._stop - self._start:
                self.others[place >> 3] &= ~(1 << (place & 7))
        return True

    def _search_file(self, view: memoryview) -> int | None:
        """The last physical offset that a file names, -1 if it names none; None if it cannot be trusted."""
        try:
            layout, header = index_layout(view), parse_index_header(view)
        except FormatError:
            return None
        count = header.next_entry - 1
        if count == 0:
            return -1
        if layout is None or count >= layout.index_count:
            return None
        last = layout.physical_offset_of(view, count)
        if last != header.end_physical_offset or not all(
            _has_chain(view, layout, count, each) for each in self._hashes
        ):
            return None
        numbers = range(1, count + 1)
        low = bisect_left(numbers, self._start, key=lambda number: layout.physical_offset_of(view, number))
        high = bisect_left(numbers, self._stop, key=lambda number: layout.physical_offset_of(view, number))
        entries = view[layout.entry_position(1 + low) :][: max(0, high - low) * ENTRY_SIZE]
        self.hits.update(kernel.find_keys(entries, self._start, self._stop, self._hashes, self.others))
        return last


def _has_chain(view: memoryview, layout: IndexLayout, count: int, key_hash: int) -> bool:
    """Whether the chain of a hash leads through entries of its slot alone, from newer to older ones, to an end."""
    slot = layout.slot_of(key_hash)
    number, before, steps = parse_slot(view, layout, slot), count + 1, 0
    while number != 0:
        if not 0 < number < before or steps > MAX_CHAIN:
            return False
        entry = parse_index_entry(view, layout, number)
        if entry.key_hash < 0 or layout.slot_of(entry.key_hash) != slot:
            return False
        before, number, steps = number, entry.previous_entry, steps + 1
    return True
