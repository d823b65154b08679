"""Checks one range of the log by itself: its records, their queue entries, their keys.

    range:  [ record | record | … | bad place | record … ]        a range begins at a record or at its file's begin

Ranges begin where `derive.ranges.cut_batches` cuts. A body may hold bytes that look like a record at their own place.
Then the range before ends inside a record, says so (`cut_inside_record_at`), and both are checked again as one.

A range knows only its own bytes. Whether a bad place at its end is damage (an intact record follows somewhere) or the
torn end of the log is decided when all results are joined (`log_judgement.py`). A result is small and can be sent from
another process or machine.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from flintlog import kernel
from flintlog.checks.derived_files import DataFile, DerivedFiles
from flintlog.checks.finding import ERROR, WARNING, Finding
from flintlog.checks.index_check import IndexTally, IndexWalk
from flintlog.checks.index_files import IndexSequence
from flintlog.checks.ledger_check import LedgerTally, compare_entries
from flintlog.checks.queue_check import compare_queues
from flintlog.derive.ranges import Fetch, cut_batches, cut_fetched
from flintlog.derive.stretches import QueueTally
from flintlog.format.ledger import blank_at, size_at
from flintlog.format.queue_entry import QueueKey
from flintlog.format.record import END_RESERVE, stated_size
from flintlog.kernel import Crc, Scan, ScanStop

SCAN_ROWS = 32768
END_SLACK_BYTES = 4096

REASONS: Mapping[ScanStop, str] = {
    ScanStop.NO_RECORD: "no record begins here",
    ScanStop.BAD_LENGTH: "a record's lengths do not add up",
    ScanStop.BAD_CRC: "a record's body does not match its CRC",
    ScanStop.BAD_OFFSET: "a record says that it belongs elsewhere",
    ScanStop.SHORT: "a record is longer than its file",
    ScanStop.BAD_RECORD_CRC: "a record does not match the CRC over all of it",
    ScanStop.NO_RECORD_CRC: "a record has no CRC over all of it, and must have one",
}
_PASSED = {
    ScanStop.BAD_CRC: "the body does not match its CRC",
    ScanStop.NO_RECORD_CRC: REASONS[ScanStop.NO_RECORD_CRC],
}
"""Faults of a record whose queue and keys are still known."""
_SUMS = (*_PASSED, ScanStop.BAD_RECORD_CRC)
"""Faults of a record whose lengths are right."""


@dataclass(frozen=True, slots=True)
class LogRange:
    """Bytes [start, stop) of a log file; `is_last` when the file has only zeros after it, or ends with it.

    A range that `is_cut` ends where the log does. Bytes after it do not count.
    """

    file: DataFile
    start: int
    stop: int
    is_last: bool
    is_cut: bool = False

    @property
    def first_physical_offset(self) -> int:
        return self.file.base + self.start

    @property
    def stop_physical_offset(self) -> int:
        return self.file.end if self.is_last and not self.is_cut else self.file.base + self.stop


@dataclass(frozen=True, slots=True)
class BadPlace:
    """Physical offsets [start, end) where no record could be read; `end` is None when none follows in the range.

    `written_end` is the place after the last byte there that is not zero. `record_end` is where the record ends that
    begins there, if its lengths are right and nothing is written after it; -1 otherwise.
    """

    start: int
    end: int | None
    evidence: str
    written_end: int
    record_end: int = -1


@dataclass(slots=True)
class RangeResult:
    """The result of one range. Physical offsets throughout; -1 where there is none."""

    range: LogRange
    record_count: int = 0
    first_record: int = -1
    last_record: int = -1
    last_record_end: int = -1
    first_store_timestamp: int = -1
    last_store_timestamp: int = -1
    cut_inside_record_at: int = -1
    zeros_from: int = -1
    blank_to: int = -1
    """The end that the blank at the file's end states, if the file ends before it."""
    bad_places: list[BadPlace] = field(default_factory=list)
    damaged_bodies: list[tuple[int, int]] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    queues: dict[QueueKey, QueueTally] = field(default_factory=dict)
    index: IndexTally = field(default_factory=IndexTally)
    entries: LedgerTally = field(default_factory=LedgerTally)


def plan_ranges(view: memoryview, file: DataFile, data_end: int, range_bytes: int) -> Iterator[LogRange]:
    """The ranges of one log file; from `data_end` on nothing was ever written."""
    # A record may end in zeros (no properties), so it may end after `data_end`.
    stop = min(file.size, data_end + END_SLACK_BYTES)
    for start, end in cut_batches(view, 0, stop, file.base, range_bytes):
        yield LogRange(file, start, end, is_last=end == stop)


def plan_fetched_ranges(fetch: Fetch, file: DataFile, range_bytes: int) -> Iterator[LogRange]:
    """The ranges of one log file of which only ranges can be read; its unused end is part of the last one."""
    for start, end in cut_fetched(fetch, file.size, file.base, range_bytes):
        yield LogRange(file, start, end, is_last=end == file.size)


def join_ranges(first: LogRange, second: LogRange) -> LogRange:
    """Two neighbours of one file as one range."""
    return LogRange(first.file, first.start, second.stop, second.is_last, second.is_cut)


def check_range(
    view: memoryview,
    log_range: LogRange,
    derived: DerivedFiles | None,
    index: IndexSequence | None,
    *,
    delay_levels_ms: Sequence[int] = (),
    checked_crc: Crc = Crc.BODY,
) -> RangeResult:
    """Check one range of the log; `view` is as long as its file, and holds the range.

    Without `derived` or `index` these are not compared.
    """
    return _RangeCheck(view, log_range, derived, index, tuple(delay_levels_ms), checked_crc).run()


class _RangeCheck:
    """One pass over a range; a bounded number of records is in memory at a time."""

    def __init__(
        self,
        view: memoryview,
        log_range: LogRange,
        derived: DerivedFiles | None,
        index: IndexSequence | None,
        delay_levels_ms: tuple[int, ...],
        checked_crc: Crc,
    ) -> None:
        self._view = view
        self._range = log_range
        self._base = log_range.file.base
        self._stop = log_range.stop
        self._derived = derived
        self._delay_levels_ms = delay_levels_ms
        self._checked_crc = checked_crc
        self._result = RangeResult(log_range)
        self._walk = (
            None
            if index is None
            else IndexWalk(
                index, log_range.first_physical_offset, log_range.stop_physical_offset, self._result.index
            )
        )  # fmt: skip

    def run(self) -> RangeResult:
        place: int | None = self._range.start
        while place is not None and place < self._stop:
            scan = self._scan(place, self._stop, self._checked_crc)
            self._take(scan)
            place = scan.end if scan.reason is ScanStop.LIMIT else self._stopped(scan.end, scan.reason)
        if self._walk is not None:
            self._walk.finish()
        return self._result

    def _scan(self, start: int, stop: int, check_crc: Crc) -> Scan:
        return kernel.scan(
            self._view,
            start,
            stop,
            self._base,
            check_crc=check_crc,
            delay_levels_ms=self._delay_levels_ms,
            max_count=SCAN_ROWS,
        )

    def _take(self, scan: Scan) -> None:
        if not scan.count:
            return
        result = self._result
        first, last = scan.row(0), scan.row(scan.count - 1)
        if result.first_record < 0:
            result.first_record, result.first_store_timestamp = first.physical_offset, first.store_timestamp
        result.last_record, result.last_record_end = last.physical_offset, last.physical_offset + last.size
        result.last_store_timestamp = last.store_timestamp
        result.record_count += scan.count
        if self._derived is not None:
            compare_queues(self._view, self._base, scan, self._derived, result.queues)
            ledger = self._derived.ledger
            if ledger is not None and ledger.holds(self._range.file):
                compare_entries(self._view, self._base, scan, ledger, self._derived.read, result.entries)
        if self._walk is not None:
            self._walk.take(scan)
        else:
            result.index.key_count += len(scan.hashes)

    def _stopped(self, place: int, reason: ScanStop) -> int | None:
        """Find out why no record begins at a place; returns where to go on, or None when nothing more can be read."""
        view, stop = self._view, self._stop
        if reason is ScanStop.BLANK:
            self._check_blank(place)
            return None
        if reason is ScanStop.SHORT and not self._range.is_last:
            self._result.cut_inside_record_at = self._base + place
            return None
        written = kernel.written_end(view, place, stop)
        if written == place:
            self._result.zeros_from = self._base + place
            return None
        if reason in _PASSED and self._is_followed(place):
            return self._pass_damaged_body(place, _PASSED[reason])
        if reason is ScanStop.BAD_RECORD_CRC and self._is_followed(place):
            return self._pass_damaged_record(place)
        if reason is ScanStop.SHORT and len(view) - place < END_RESERVE and (size := stated_size(view, place)):
            # The first half of a blank, if it ends where the next file begins: no record ends so late in a file.
            self._result.blank_to = self._base + place + size
        found = kernel.find_record(view, place + 1, stop, self._base)
        if found < 0 and self._was_blank(place):
            self._note_blank(place, "the blank at the file's end has a damaged magic")
            return None
        end = None if found < 0 else self._base + found
        following = place + size_at(view, place) if reason in _SUMS else -1
        record_end = self._base + following if written <= following <= stop else -1
        self._result.bad_places.append(
            BadPlace(self._base + place, end, REASONS.get(reason, reason.name), self._base + written, record_end)
        )
        return None if found < 0 else found

    def _check_blank(self, place: int) -> None:
        remaining = blank_at(self._view, place)
        right = self._range.file.size - place
        if remaining is not None and remaining > right:
            self._result.blank_to = self._base + place + remaining
        if remaining != right:
            self._note_blank(
                place, f"the blank at the file's end says that {remaining} bytes remain, and there are {right}"
            )

    def _was_blank(self, place: int) -> bool:
        """Whether the size here reaches to the file's end. A record never does: a blank has to fit after it."""
        return stated_size(self._view, place) == self._range.file.size - place >= END_RESERVE

    def _note_blank(self, place: int, evidence: str) -> None:
        remedy = "none is needed to read it; repair writes it again"
        file, size = self._range.file.path, END_RESERVE
        self._result.findings.append(
            Finding("damaged-blank", WARNING, evidence, remedy, file, place, self._base + place, size)
        )

    def _is_followed(self, place: int) -> bool:
        """Whether a record or a blank begins where this record ends, or the range ends there."""
        following = place + size_at(self._view, place)
        if following >= self._stop:
            return following == self._stop
        seen = kernel.scan(self._view, following, self._stop, self._base, check_crc=True, max_count=1)
        return seen.count > 0 or seen.reason is ScanStop.BLANK

    def _pass_damaged_record(self, place: int) -> int:
        """Pass a record whose topic, queue, offset or keys may be wrong: its entries are not compared."""
        end = place + size_at(self._view, place)
        evidence = REASONS[ScanStop.BAD_RECORD_CRC]
        self._result.bad_places.append(BadPlace(self._base + place, self._base + end, evidence, self._base + end))
        return end

    def _pass_damaged_body(self, place: int, fault: str) -> int:
        size = size_at(self._view, place)
        self._take(self._scan(place, place + size, Crc.NONE))
        offset = self._base + place
        self._result.damaged_bodies.append((offset, offset + size))
        evidence = f"{fault}; what follows is intact"
        remedy = "restore the message from a replica or a backup; nothing else is lost"
        self._result.findings.append(
            Finding("damaged-record", ERROR, evidence, remedy, self._range.file.path, place, offset, size)
        )
        return place + size
