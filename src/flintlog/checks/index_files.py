"""The index files of a store as one sequence of entries, and the checks of each file by itself.

    file 0: entry 1 … n0-1 | file 1: entry 1 … n1-1 | …            position = number of entries before it
    └── physical offsets never fall ──────────────────┘

Keys are indexed in the log's order, so the entries of a range of the log are one stretch of positions, found by
bisection. A damaged entry must not mislead the search, so a probe counts only if it fits between its neighbours.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from flintlog import kernel
from flintlog.checks.derived_files import Read
from flintlog.checks.finding import WARNING, Finding
from flintlog.derive.index_plan import count_believed
from flintlog.format.index_file import (
    ENTRY_SIZE,
    INDEX_ENTRY,
    LINK_AT,
    IndexHeader,
    IndexLayout,
    parse_index_header,
)

REBUILD = "build the index again from the log"


StoreTimeAt = Callable[[int], "int | None"]
"""physical offset → store time of the record that begins there; None when none does."""


@dataclass(frozen=True, slots=True)
class IndexFileView:
    """One index file: its entries are [1, count); times count from `begin_timestamp`, entry 1 from the file before."""

    path: str
    layout: IndexLayout
    count: int
    begin_timestamp: int
    first_begin_timestamp: int
    first_position: int

    @property
    def stop_position(self) -> int:
        return self.first_position + max(0, self.count - 1)

    def begin_of(self, entry: int) -> int:
        """The timestamp from which the time of an entry counts."""
        return self.first_begin_timestamp if entry == 1 else self.begin_timestamp

    def entry_of(self, position: int) -> int:
        return position - self.first_position + 1


@dataclass(slots=True)
class IndexSequence:
    """All entries of all index files, in order."""

    read: Read
    files: tuple[IndexFileView, ...] = ()
    _firsts: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self._firsts = [file.first_position for file in self.files]

    def __len__(self) -> int:
        return self.files[-1].stop_position if self.files else 0

    def believed(self, safe_timestamp: int) -> frozenset[str]:
        """The files that an opening believes after a crash, with a checkpoint that knows this time to be safe."""
        headers = [parse_index_header(self.view(file)) for file in self.files]
        return frozenset(file.path for file in self.files[: count_believed(headers, safe_timestamp)])

    def file_at(self, position: int) -> IndexFileView:
        """The file that holds a position."""
        return self.files[bisect_right(self._firsts, position) - 1]

    def view(self, file: IndexFileView) -> memoryview:
        """All bytes of a file."""
        return self.read(file.path, 0, file.layout.file_size)

    def entry(self, position: int) -> tuple[int, int, int, int]:
        """Hash, physical offset, seconds and link of the entry at a position."""
        file = self.file_at(position)
        at = file.layout.entry_position(file.entry_of(position))
        found: tuple[int, int, int, int] = INDEX_ENTRY.unpack(self.read(file.path, at, at + ENTRY_SIZE))
        return found

    def place(self, position: int) -> tuple[str, int]:
        """File and byte offset of the entry at a position."""
        file = self.file_at(position)
        return file.path, file.layout.entry_position(file.entry_of(position))

    def physical_offset(self, position: int) -> int:
        return self.entry(position)[1]

    def find(self, physical_offset: int) -> int:
        """The first position whose record begins at or after an offset."""
        low, high = 0, len(self)
        while low < high:
            probe = self._trusted((low + high) // 2, low, high)
            if probe is None:
                break
            if self.physical_offset(probe) < physical_offset:
                low = probe + 1
            else:
                high = probe
        # Probes may have stepped aside from the middle, past a few damaged entries.
        while low < len(self) and self.physical_offset(low) < physical_offset and self._is_trusted(low):
            low += 1
        while low > 0 and self.physical_offset(low - 1) >= physical_offset and self._is_trusted(low - 1):
            low -= 1
        return low

    def _trusted(self, middle: int, low: int, high: int) -> int | None:
        for probe in range(middle, high):
            if self._is_trusted(probe):
                return probe
        return next((probe for probe in range(middle - 1, low - 1, -1) if self._is_trusted(probe)), None)

    def _is_trusted(self, position: int) -> bool:
        here = self.physical_offset(position)
        before = self.physical_offset(position - 1) if position else 0
        after = self.physical_offset(position + 1) if position + 1 < len(self) else here
        return before <= here <= after


def open_index(
    paths: Sequence[str],
    layout: IndexLayout,
    read: Read,
    store_time_at: StoreTimeAt,
    *,
    is_running: bool = False,
    data_end: Callable[[str], int] | None = None,
) -> tuple[IndexSequence, list[Finding]]:
    """The sequence of these files, oldest first, and findings about their headers and unused parts.

    `data_end` says from where on nothing was ever written to a file: that part need not be read.
    """
    findings: list[Finding] = []
    files: list[IndexFileView] = []
    previous = IndexHeader()
    for path in paths:
        view = read(path, 0, layout.file_size)
        stop = layout.file_size if data_end is None else min(layout.file_size, data_end(path))
        count, header = _read_header(path, view, layout, store_time_at, findings, is_running, stop)
        before = previous.end_timestamp or 0
        position = files[-1].stop_position if files else 0
        files.append(IndexFileView(path, layout, count, header.begin_timestamp, before, position))
        previous = header
    return IndexSequence(read, tuple(files)), findings


def _read_header(
    path: str,
    view: memoryview,
    layout: IndexLayout,
    store_time_at: StoreTimeAt,
    findings: list[Finding],
    is_running: bool,
    stop: int,
) -> tuple[int, IndexHeader]:
    """How many entries a file has, and the header that fits them."""
    header = parse_index_header(view)
    first = layout.entry_position(1)
    end = kernel.written_end(view, first, max(first, stop))
    written = 1 + -(-(end - first) // ENTRY_SIZE)
    count = header.next_entry if 1 <= header.next_entry <= layout.index_count else written
    if is_running:
        return min(count, written), header
    if written < count or (written > count and _reaches(view, layout, written, header)):
        count = written
    elif written > count:
        at = layout.entry_position(count)
        evidence = f"bytes after the {count - 1} entries that the header counts"
        findings.append(Finding("stray-index-bytes", WARNING, evidence, REBUILD, path, at, None, end - at))
    stray = kernel.written_end(view, layout.entry_position(0), first)
    if stray > layout.entry_position(0):
        evidence = "bytes in entry 0, which is never used"
        findings.append(Finding("stray-index-bytes", WARNING, evidence, REBUILD, path, layout.entry_position(0)))
    right = _right_header(view, layout, count, header, store_time_at)
    _compare_headers(path, header, right, findings)
    return count, right


def _reaches(view: memoryview, layout: IndexLayout, written: int, header: IndexHeader) -> bool:
    """Whether the last written entry is the last one by the header's offset: then the header's count is wrong."""
    return layout.physical_offset_of(view, written - 1) == header.end_physical_offset


def _right_header(
    view: memoryview, layout: IndexLayout, count: int, header: IndexHeader, store_time_at: StoreTimeAt
) -> IndexHeader:
    if count <= 1:
        return header
    first, last = layout.physical_offset_of(view, 1), layout.physical_offset_of(view, count - 1)
    begin, end = store_time_at(first), store_time_at(last)
    if begin is None or end is None:  # expired or damaged: the header cannot be checked
        return header
    return IndexHeader(begin, end, first, last, header.used_slot_count, count)


def _compare_headers(path: str, found: IndexHeader, right: IndexHeader, findings: list[Finding]) -> None:
    for name in ("begin_timestamp", "end_timestamp", "begin_physical_offset", "end_physical_offset", "index_count"):
        is_, should = getattr(found, name), getattr(right, name)
        if is_ != should:
            evidence = f"{name.replace('_', ' ')} is {is_} and should be {should}"
            findings.append(Finding("wrong-index-header", WARNING, evidence, REBUILD, path, IndexHeader.place_of(name)))


def check_index_file(read: Read, file: IndexFileView) -> list[Finding]:
    """Whether every entry can be reached from its slot, and every slot leads to its newest entry."""
    view = read(file.path, 0, file.layout.file_size)
    used, fault_count, faults = kernel.check_chains(view, file.layout.slot_count, file.count)
    findings: list[Finding] = []
    header = parse_index_header(view)
    if used != header.used_slot_count:
        evidence = f"used slot count is {header.used_slot_count} and should be {used}"
        at = IndexHeader.place_of("used_slot_count")
        findings.append(Finding("wrong-index-header", WARNING, evidence, REBUILD, file.path, at))
    if faults:
        fault = faults[0]
        layout = file.layout
        at = layout.slot_position(fault.number) if fault.is_slot else layout.entry_position(fault.number) + LINK_AT
        what = f"slot {fault.number}" if fault.is_slot else f"entry {fault.number}"
        evidence = f"{what} leads to entry {fault.found} and should lead to {fault.expected}"
        if fault_count > 1:
            evidence += f"; {fault_count - 1} more such links"
        findings.append(Finding("broken-index-chain", WARNING, evidence, REBUILD, file.path, at))
    return findings
