"""Compares the index with the keys of a scanned range of the log: it must hold all of them, and no others.

Both are in the log's order, so the kernel compares them in one pass, and only where they differ are they compared
entry by entry. Repeated keys of one record are no fault: Java indexes those of the last record again when it recovers.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection
from dataclasses import dataclass, field

from flintlog import kernel
from flintlog.checks.index_files import IndexSequence
from flintlog.format.index_file import time_difference_s
from flintlog.kernel import Row, Scan

MAX_ODD_ENTRIES = 1000


@dataclass(frozen=True, slots=True)
class OddEntry:
    """An index entry that no key of a record accounts for, or one with a wrong time."""

    file: str
    offset: int
    physical_offset: int
    evidence: str


@dataclass(slots=True)
class MissingKeys:
    """Records in a row whose keys the index lacks, all or some."""

    first_physical_offset: int
    last_physical_offset: int
    key_count: int


@dataclass(slots=True)
class IndexTally:
    """The result of comparing the index with a range of the log."""

    odd: list[OddEntry] = field(default_factory=list)
    odd_count: int = 0
    rekeyed: list[int] = field(default_factory=list)
    """Physical offsets of records that were indexed by other keys than they have."""
    missing: list[MissingKeys] = field(default_factory=list)
    key_count: int = 0
    matched_first: int = -1
    matched_last: int = -1

    def add_rekeyed(self, physical_offset: int) -> None:
        if len(self.rekeyed) < MAX_ODD_ENTRIES:
            self.rekeyed.append(physical_offset)

    def add_odd(self, entry: OddEntry) -> None:
        self.odd_count += 1
        if len(self.odd) < MAX_ODD_ENTRIES:
            self.odd.append(entry)

    def add_missing(self, first: int, last: int, key_count: int) -> None:
        """Records in [first, last] lack keys; joined with those before, unless the index had one in between."""
        before = self.missing[-1] if self.missing else None
        if before is not None and before.last_physical_offset > self.matched_last:
            before.last_physical_offset = last
            before.key_count += key_count
        else:
            self.missing.append(MissingKeys(first, last, key_count))

    def matched(self, physical_offset: int) -> None:
        """The index has keys of this record."""
        self.matched_last = physical_offset
        if self.matched_first < 0:
            self.matched_first = physical_offset

    def merge(self, later: IndexTally) -> None:
        """Add the tally of a later range."""
        self.rekeyed += later.rekeyed[: MAX_ODD_ENTRIES - len(self.rekeyed)]
        self.odd += later.odd[: MAX_ODD_ENTRIES - len(self.odd)]
        self.odd_count += later.odd_count
        for number, keys in enumerate(later.missing):
            if number == 0 and 0 <= later.matched_first < keys.first_physical_offset:
                self.matched_last = later.matched_first
            if number == 0:
                self.add_missing(keys.first_physical_offset, keys.last_physical_offset, keys.key_count)
            else:
                self.missing.append(keys)
        self.matched_last = max(self.matched_last, later.matched_last)
        self.key_count += later.key_count


class IndexWalk:
    """Goes along the index entries of one range of the log, scan by scan."""

    def __init__(self, sequence: IndexSequence, start: int, stop: int, tally: IndexTally) -> None:
        """Compare the entries of records that begin in [start, stop), physical offsets."""
        self._sequence = sequence
        self._at = sequence.find(start)
        self._stop = max(self._at, sequence.find(stop))
        self._tally = tally
        self._before: tuple[int, frozenset[int]] = (-1, frozenset())

    def take(self, scan: Scan) -> None:
        """Compare the keys of a scan's records with the entries that come next."""
        self._tally.key_count += len(scan.hashes)
        row = key = 0
        while row < scan.count:
            if row:
                self._remember(scan, row - 1)
            if self._at >= self._stop:
                self._rest_is_missing(scan, row, key)
                return
            row, key, goes_on = self._along(scan, row, key)
            if not goes_on and row < scan.count:
                row, key = self._sort_out(scan, row, key)
        self._remember(scan, scan.count - 1)

    def _remember(self, scan: Scan, row: int) -> None:
        """Keep the keys of the last record up to this row that has any."""
        while len(scan.hashes) and row >= 0:
            record = scan.row(row)
            if record.hash_count:
                hashes = scan.hashes[record.first_hash : record.first_hash + record.hash_count]
                self._before = record.physical_offset, frozenset(hashes)
                return
            row -= 1

    def _is_repeat(self, position: int) -> bool:
        """Whether an entry is one more of the record before."""
        key_hash, physical_offset, *_ = self._sequence.entry(position)
        return physical_offset == self._before[0] and key_hash in self._before[1]

    def finish(self) -> None:
        """The entries that are left in the range belong to no record."""
        while self._at < self._stop:
            if not self._is_repeat(self._at):
                self._odd(self._at, "no record with a key begins there")
            self._at += 1

    def _along(self, scan: Scan, row: int, key: int) -> tuple[int, int, bool]:
        """Go as far as both agree within one file; the last value is whether the next file may go on."""
        sequence = self._sequence
        file = sequence.file_at(self._at)
        first = entry = file.entry_of(self._at)
        stop = 2 if entry == 1 else file.entry_of(min(self._stop, file.stop_position))
        view = sequence.view(file)
        entry, row, key = kernel.match_index(
            view, file.layout.slot_count, entry, stop, file.begin_of(entry), scan, row, key
        )
        self._at += entry - first
        if entry > first:
            self._tally.matched(scan.row(row if key else row - 1).physical_offset)
        return row, key, entry == stop

    def _rest_is_missing(self, scan: Scan, row: int, key: int) -> None:
        count = len(scan.hashes) - scan.row(row).first_hash - key
        if count:
            first = next(found for at in range(row, scan.count) if (found := scan.row(at)).hash_count)
            last = scan.row(scan.count - 1)
            self._tally.add_missing(first.physical_offset, last.physical_offset, count)

    # ------------------------------------------------------------------ where they differ

    def _sort_out(self, scan: Scan, row: int, key: int) -> tuple[int, int]:
        """Judge the record at which log and index differ; returns where to go on."""
        record = scan.row(row)
        self._at -= key  # the keys of this record that matched
        ahead = self._sequence.physical_offset(self._at)
        if ahead > record.physical_offset and self._is_ahead(self._at, record.physical_offset):
            return self._pass_missing(scan, row, ahead)
        found, odd = self._collect(record)
        expected = list(scan.hashes[record.first_hash : record.first_hash + record.hash_count])
        self._judge(record, expected, found, odd)
        return row + 1, 0

    def _is_ahead(self, position: int, physical_offset: int) -> bool:
        """Whether the entry is one of a later record, and not one of this record with a damaged offset."""
        following = position + 1
        if following >= self._stop:
            return True
        following_offset = self._sequence.physical_offset(following)
        return not physical_offset <= following_offset < self._sequence.physical_offset(position)

    def _pass_missing(self, scan: Scan, row: int, until: int) -> tuple[int, int]:
        """The index goes on with a later record: those before it are missing."""
        stop = bisect_left(range(scan.count), until, lo=row, key=lambda index: scan.row(index).physical_offset)
        first, last = scan.row(row), scan.row(stop - 1)
        keys = last.first_hash + last.hash_count - first.first_hash
        if keys:
            self._tally.add_missing(first.physical_offset, last.physical_offset, keys)
        return stop, 0

    def _collect(self, record: Row) -> tuple[list[tuple[int, int, int]], list[int]]:
        """The entries of this record from here on (position, hash, seconds), and odd ones among them."""
        found: list[tuple[int, int, int]] = []
        odd: list[int] = []
        while self._at < self._stop:
            key_hash, physical_offset, seconds, _ = self._sequence.entry(self._at)
            if physical_offset == record.physical_offset:
                found.append((self._at, key_hash, seconds))
            elif physical_offset < record.physical_offset or not self._is_ahead(self._at, record.physical_offset):
                if not self._is_repeat(self._at):
                    odd.append(self._at)
            else:
                break
            self._at += 1
        return found, odd

    def _judge(self, record: Row, expected: list[int], found: list[tuple[int, int, int]], odd: list[int]) -> None:
        other: dict[int, int] = {}
        for position, key_hash, seconds in found:
            file = self._sequence.file_at(position)
            right = time_difference_s(record.store_timestamp, file.begin_of(file.entry_of(position)))
            if key_hash not in expected:
                other[position] = key_hash
            elif seconds != right:
                self._odd(position, f"its time is {seconds} s after the file's begin and should be {right}")
        lacking = set(expected) - {key_hash for _, key_hash, _ in found}
        if not odd and _is_rekeyed(other.values(), lacking):
            self._tally.add_rekeyed(record.physical_offset)
            self._tally.matched(record.physical_offset)
            return
        odd += other
        for position in odd:
            self._odd(position, f"no key of a record accounts for it; the record at {record.physical_offset} is near")
        if lacking and not odd:
            at = record.physical_offset
            self._tally.add_missing(at, at, len(lacking))
        if found:
            self._tally.matched(record.physical_offset)

    def _odd(self, position: int, evidence: str) -> None:
        path, offset = self._sequence.place(position)
        key_hash, physical_offset, *_ = self._sequence.entry(position)
        self._tally.add_odd(OddEntry(path, offset, physical_offset, f"hash {key_hash}: {evidence}"))


def _is_rekeyed(found: Collection[int], lacking: Collection[int]) -> bool:
    """Whether a record has other keys than those it was indexed by: as many, and no hash with only one wrong bit."""
    differences = [(one ^ other).bit_count() for one in found for other in lacking]
    return len(found) == len(lacking) > 0 and min(differences) > 1
