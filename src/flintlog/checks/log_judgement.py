"""Joins the results of all ranges to one judgement of the log: what is damaged, what is torn, where it ends.

… record | bad place … intact record …     damage, wherever the next record is: in this range, or files later
… record | zeros to the file's end | file  an empty end: its blank lost its head, or records are lost there
… record | bad place, nothing intact       the torn end of the log; damage, if a clean stop had left it whole
… record | zeros                           the plain end

The log alone cannot say what an empty end is. It stays undecided until the queues were judged: `LogJudgement.settle`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from operator import itemgetter

from flintlog.checks.derived_files import DataFile, file_at
from flintlog.checks.finding import ERROR, WARNING, Finding, finding_in_log
from flintlog.checks.range_check import RangeResult
from flintlog.format.record import END_RESERVE

RESTORE_RANGE = "restore these bytes from a replica or a backup; everything else is kept"


@dataclass(frozen=True, slots=True)
class LogFacts:
    """Facts about a log that are known before it is read.

    Nothing after `cut_at` is judged: an earlier recovery of Java's ended the log there and left bytes, or a running
    writer had published the log up to there when the reading began. `known_end` is where a clean stop of ours ended it.
    `queues_end` is how far the queues say the log went; it is found out only where it matters.

    Beside a running writer, `derived_end` is where the last record begins that was dispatched before any queue or index
    file was listed. Dispatch keeps the log's order, so below it queues and index are complete. Entries of later
    records are not judged.
    """

    is_clean: bool
    is_running: bool = False
    cut_at: int | None = None
    known_end: int | None = None
    checked_from: int = 0
    queues_end: int = 0
    derived_end: int | None = None

    def is_late(self, physical_offset: int) -> bool:
        """Whether a running writer may be about to derive queue and index entries from the record there."""
        return self.derived_end is not None and physical_offset >= self.derived_end

    def was_whole_at(self, physical_offset: int) -> bool:
        """Whether a clean stop left a whole record there."""
        return self.is_clean and physical_offset < max(self.known_end or 0, self.queues_end)

    @property
    def may_run_ahead(self) -> bool:
        """Whether queues and index may have entries after the log's end, which the next opening drops."""
        return not self.is_clean or self.is_running or self.cut_at is not None


@dataclass(frozen=True, slots=True)
class EmptyEnd:
    """Bytes [start, end) of the log with nothing written, from inside a file to the begin of the next one."""

    file: DataFile
    start: int
    end: int
    evidence: str


@dataclass(slots=True)
class LogJudgement:
    """The log as a whole: [min_offset, end), and the places in it whose records are not known."""

    min_offset: int = 0
    end: int = 0
    record_count: int = 0
    damaged_count: int = 0
    """How many of these have a damaged body."""
    last_record: int = -1
    last_store_timestamp: int = -1
    findings: list[Finding] = field(default_factory=list)
    damages: list[tuple[int, int]] = field(default_factory=list)
    """In the log's order; none overlaps another. Empty ends count as damage until they are settled."""
    empty_ends: list[EmptyEnd] = field(default_factory=list)
    files: Sequence[DataFile] = ()
    cut_blanks: set[str] = field(default_factory=set)
    """Files that end inside of their blank: only unused bytes are missing."""

    def is_damaged(self, start: int, stop: int | None = None) -> bool:
        """Whether an offset lies in a damage, or any damage in [start, stop)."""
        stop = start + 1 if stop is None else stop
        first = bisect_right(self.damages, start, key=itemgetter(1))
        return first < len(self.damages) and self.damages[first][0] < stop

    def settle(self, empty: EmptyEnd, *, is_unused: bool) -> None:
        """Decide what an empty end is: a blank that lost its head, or lost records."""
        self.empty_ends.remove(empty)
        if not is_unused:
            self.report_damage(empty.start, empty.end, empty.evidence)
            return
        self.damages.remove((empty.start, empty.end))
        if empty.file.end < empty.end:
            self.cut_blanks.add(empty.file.path)
        else:
            evidence = "the blank at the file's end is empty, and no queue has a message there"
            remedy = "none is needed to read it; repair writes it again"
            self.report("damaged-blank", WARNING, evidence, remedy, empty.start, END_RESERVE)

    def report_damage(self, start: int, end: int, evidence: str) -> None:
        """Report bytes that are followed by intact records."""
        kind = "missing-log-file" if file_at(self.files, start) is None else "damaged-range"
        evidence = f"{evidence}; {end - start} bytes, then intact records"
        self.report(kind, ERROR, evidence, RESTORE_RANGE, start, end - start)

    def report(self, kind: str, severity: str, evidence: str, remedy: str, start: int, size: int) -> None:
        self.findings.append(finding_in_log(self.files, kind, severity, evidence, remedy, start, size))

    def sort_findings(self) -> None:
        """Put the findings in the log's order."""
        self.findings.sort(key=lambda finding: finding.physical_offset or 0)


@dataclass(slots=True)
class _OpenEnd:
    """A place after which no record was found yet. Everything from `written_end` on is zero."""

    start: int
    evidence: str
    written_end: int
    record_end: int = -1


def judge_log(results: Sequence[RangeResult], files: Sequence[DataFile], facts: LogFacts) -> LogJudgement:
    """Join the ranges, in the order of the log. The caller settles `empty_ends`."""
    judgement = LogJudgement(min_offset=files[0].base if files else 0, files=files)
    judgement.end = judgement.min_offset
    pending: _OpenEnd | None = None
    next_bases = {file.path: following.base for file, following in pairwise(files)}
    for each in results:
        # A blank that reaches into the next file was not cut short: its size is damaged.
        is_cut_blank = each.blank_to == next_bases.get(each.range.file.path)
        result = _without_blank(each) if is_cut_blank else each
        judgement.record_count += result.record_count
        judgement.damaged_count += len(result.damaged_bodies)
        pending = _join(judgement, pending, result)
        if is_cut_blank and pending is None:
            judgement.end = result.blank_to
            judgement.cut_blanks.add(result.range.file.path)
        judgement.findings += result.findings
        if result.last_record >= 0:
            judgement.last_record = result.last_record
            judgement.last_store_timestamp = result.last_store_timestamp
    _judge_end(judgement, pending, facts)
    if files and facts.is_clean and judgement.end == facts.known_end:
        judgement.cut_blanks.add(files[-1].path)  # the log ends in it, so its length does not matter
    judgement.sort_findings()
    return judgement


def _without_blank(result: RangeResult) -> RangeResult:
    """The same result without the findings about a blank that lacks its end."""
    findings = [finding for finding in result.findings if finding.id != "damaged-blank"]
    return replace(
        result, findings=findings, bad_places=[place for place in result.bad_places if place.end is not None]
    )


def _join(judgement: LogJudgement, pending: _OpenEnd | None, result: RangeResult) -> _OpenEnd | None:
    first = result.range.first_physical_offset
    if pending is None and first > judgement.end and judgement.record_count > result.record_count:
        pending = _OpenEnd(judgement.end, "a file of the log is missing", judgement.end)
    places = result.bad_places
    if pending is not None and result.first_record >= 0:
        _close(judgement, pending, result.first_record)
        pending = None
        places = [place for place in places if place.end is None or place.end > result.first_record]
    for place in places:
        if place.end is not None:
            judgement.damages.append((place.start, place.end))
            judgement.report_damage(place.start, place.end, place.evidence)
    tail = _open_end(result)
    if pending is not None:
        if tail is not None and tail.written_end > tail.start:
            pending.written_end, pending.record_end = max(pending.written_end, tail.written_end), -1
        return pending
    judgement.end = result.range.stop_physical_offset if tail is None else tail.start
    return tail


def _close(judgement: LogJudgement, pending: _OpenEnd, end: int) -> None:
    """An intact record follows at `end`: records are lost, or it is an empty end."""
    judgement.damages.append((pending.start, end))
    length = max(file.size for file in judgement.files)
    is_empty = pending.written_end <= pending.start
    for file, following in pairwise(judgement.files):
        is_next = following.base == end == file.base + length
        if is_empty and is_next and file.base < pending.start <= file.end:
            judgement.empty_ends.append(EmptyEnd(file, pending.start, end, pending.evidence))
            return
    judgement.report_damage(pending.start, end, pending.evidence)


def _open_end(result: RangeResult) -> _OpenEnd | None:
    if result.bad_places and result.bad_places[-1].end is None:
        place = result.bad_places[-1]
        return _OpenEnd(place.start, place.evidence, place.written_end, place.record_end)
    if result.zeros_from >= 0:
        return _OpenEnd(result.zeros_from, "no record begins here", result.zeros_from)
    return None


def _judge_end(judgement: LogJudgement, pending: _OpenEnd | None, facts: LogFacts) -> None:
    torn = 0 if pending is None else pending.written_end - pending.start
    if facts.cut_at is not None and judgement.end == facts.cut_at:
        return
    if pending is not None and torn > 0:
        if not _report_damaged_end(judgement, pending, facts):
            judgement.damages.append((pending.start, pending.written_end))
            evidence = f"{pending.evidence}, and no intact record follows; {torn} bytes"
            remedy = "open the store, or repair it: the log is cut there and the bytes are kept aside"
            judgement.report("torn-tail", WARNING, evidence, remedy, pending.start, torn)
    elif facts.known_end is not None and judgement.end < facts.known_end:
        lost = facts.known_end - judgement.end
        evidence = f"the last stop left the log at {facts.known_end}, and {lost} bytes at its end are empty now"
        judgement.damages.append((judgement.end, facts.known_end))
        judgement.report("short-log", ERROR, evidence, "restore them from a replica or a backup", judgement.end, lost)


def _report_damaged_end(judgement: LogJudgement, pending: _OpenEnd, facts: LogFacts) -> bool:
    """Report damage at the log's end that a clean stop had left whole; False when the stop itself tore it."""
    start, file = pending.start, file_at(judgement.files, pending.start)
    was_never_known = facts.known_end is not None and start >= facts.known_end
    if file is None or not facts.is_clean or was_never_known:
        return False
    if pending.record_end >= 0:
        kind, end = "damaged-record", pending.record_end
        evidence = f"{pending.evidence}; it is the last message, and the last stop was clean"
        remedy = "restore the message from a replica or a backup; nothing else is lost"
    elif facts.was_whole_at(start):
        # If the damage goes on in the next file, the queues show that the log lost its end.
        kind, end = "damaged-range", min(file.end, max(pending.written_end, facts.known_end or 0, facts.queues_end))
        evidence = f"{pending.evidence}; {end - start} bytes at the end of the log, and the last stop was clean"
        remedy = RESTORE_RANGE
    else:
        return False
    judgement.damages.append((start, end))
    judgement.end = end
    judgement.report(kind, ERROR, evidence, remedy, start, end - start)
    return True
