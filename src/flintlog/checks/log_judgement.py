"""From the results of all ranges to one judgement of the log: what is damaged, what is torn, where it ends.

… record | bad place … intact record …     damage, wherever the next record is: in this range, or files later
… record | bad place, nothing intact       the torn end of the log; damage, if a clean stop had left it whole
… record | zeros                           the plain end
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from operator import itemgetter

from flintlog.checks.derived_files import DataFile
from flintlog.checks.finding import ERROR, WARNING, Finding
from flintlog.checks.range_check import RangeResult


@dataclass(frozen=True, slots=True)
class LogFacts:
    """What is known of a log before it is read.

    Nothing after `cut_at` is judged: an earlier recovery of Java's ended the log there and left bytes, or a running
    writer had published so much when the reading began. `known_end` is where a clean stop of ours ended it.
    `queues_end` is how far the queues say the log went, which is looked for only where it matters.

    Beside a running writer `derived_end` is where the last record begins that was dispatched before any queue or index
    file was listed. Dispatch keeps the log's order, so below it queues and index are complete, and what is derived from
    later records is not judged.
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


@dataclass(slots=True)
class LogJudgement:
    """The log as a whole: [min_offset, end), with stretches in it whose records are not known."""

    min_offset: int = 0
    end: int = 0
    record_count: int = 0
    damaged_count: int = 0
    """How many of these have a damaged body."""
    last_record: int = -1
    last_store_timestamp: int = -1
    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    damages: list[tuple[int, int]] = field(default_factory=list)
    """In the log's order; none overlaps another."""
    has_files: bool = True
    cut_blanks: set[str] = field(default_factory=set)
    """Files that end inside of their blank: only unused bytes are missing."""

    def is_damaged(self, start: int, stop: int | None = None) -> bool:
        """Whether an offset lies in a damage, or any damage in [start, stop)."""
        stop = start + 1 if stop is None else stop
        first = bisect_right(self.damages, start, key=itemgetter(1))
        return first < len(self.damages) and self.damages[first][0] < stop


@dataclass(slots=True)
class _OpenEnd:
    """A place from which on no record was found yet."""

    start: int
    evidence: str
    written_end: int
    record_end: int = -1


def judge_log(results: Sequence[RangeResult], files: Sequence[DataFile], facts: LogFacts) -> LogJudgement:
    """Put the ranges together, in the order of the log."""
    judgement = LogJudgement(min_offset=files[0].base if files else 0, has_files=bool(files))
    judgement.end = judgement.min_offset
    pending: _OpenEnd | None = None
    next_bases = {file.path: following.base for file, following in pairwise(files)}
    for each in results:
        # A blank that reaches into the next file is none that was cut: its size is damaged.
        is_cut_blank = each.blank_to == next_bases.get(each.range.file.path)
        result = _without_blank(each) if is_cut_blank else each
        judgement.record_count += result.record_count
        judgement.damaged_count += len(result.damaged_bodies)
        pending = _join(judgement, pending, result, files)
        if is_cut_blank and pending is None:
            judgement.end = result.blank_to
            judgement.cut_blanks.add(result.range.file.path)
        judgement.findings += result.findings
        if result.last_record >= 0:
            judgement.last_record = result.last_record
            judgement.last_store_timestamp = result.last_store_timestamp
    _judge_end(judgement, pending, files, facts)
    if files and facts.is_clean and judgement.end == facts.known_end:
        judgement.cut_blanks.add(files[-1].path)  # whatever its length is, the log ends in it
    judgement.findings.sort(key=lambda finding: finding.physical_offset or 0)
    return judgement


def _without_blank(result: RangeResult) -> RangeResult:
    """The same without what was seen of a blank that lacks its end."""
    findings = [finding for finding in result.findings if finding.id != "damaged-blank"]
    return replace(
        result, findings=findings, bad_places=[place for place in result.bad_places if place.end is not None]
    )


def _join(
    judgement: LogJudgement, pending: _OpenEnd | None, result: RangeResult, files: Sequence[DataFile]
) -> _OpenEnd | None:
    first = result.range.first_physical_offset
    if pending is None and first > judgement.end and judgement.record_count > result.record_count:
        pending = _OpenEnd(judgement.end, "a file of the log is missing", judgement.end)
    places = result.bad_places
    if pending is not None and result.first_record >= 0:
        _damage(judgement, pending.start, result.first_record, pending.evidence, files)
        pending = None
        places = [place for place in places if place.end is None or place.end > result.first_record]
    for place in places:
        if place.end is not None:
            _damage(judgement, place.start, place.end, place.evidence, files)
    tail = _open_end(result)
    if pending is not None:
        if tail is not None and tail.written_end > tail.start:
            pending.written_end, pending.record_end = max(pending.written_end, tail.written_end), -1
        return pending
    judgement.end = result.range.stop_physical_offset if tail is None else tail.start
    return tail


def _open_end(result: RangeResult) -> _OpenEnd | None:
    if result.bad_places and result.bad_places[-1].end is None:
        place = result.bad_places[-1]
        return _OpenEnd(place.start, place.evidence, place.written_end, place.record_end)
    if result.zeros_from >= 0:
        return _OpenEnd(result.zeros_from, "no record begins here", result.zeros_from)
    return None


def _damage(judgement: LogJudgement, start: int, end: int, evidence: str, files: Iterable[DataFile]) -> None:
    judgement.damages.append((start, end))
    file = _file_of(files, start)
    kind = "missing-log-file" if file is None else "damaged-range"
    judgement.findings.append(
        Finding(
            kind,
            ERROR,
            f"{evidence}; {end - start} bytes, then intact records",
            "restore these bytes from a replica or a backup; everything else is kept",
            None if file is None else file.path,
            None if file is None else start - file.base,
            start,
            end - start,
        )
    )


def _judge_end(judgement: LogJudgement, pending: _OpenEnd | None, files: Sequence[DataFile], facts: LogFacts) -> None:
    torn = 0 if pending is None else pending.written_end - pending.start
    if facts.cut_at is not None and judgement.end == facts.cut_at:
        return
    if pending is not None and torn > 0:
        if not _is_damaged_end(judgement, pending, files, facts):
            judgement.damages.append((pending.start, pending.written_end))
            _note_torn(judgement, pending, torn, files)
    elif facts.known_end is not None and judgement.end < facts.known_end:
        lost = facts.known_end - judgement.end
        evidence = f"the last stop left the log at {facts.known_end}, and {lost} bytes at its end are empty now"
        remedy = "restore them from a replica or a backup"
        file = _file_of(files, judgement.end)
        path, offset = (None, None) if file is None else (file.path, judgement.end - file.base)
        judgement.damages.append((judgement.end, facts.known_end))
        judgement.findings.append(Finding("short-log", ERROR, evidence, remedy, path, offset, judgement.end, lost))


def _is_damaged_end(judgement: LogJudgement, pending: _OpenEnd, files: Sequence[DataFile], facts: LogFacts) -> bool:
    """Tell what a clean stop had left whole at the log's end as damaged; False when it was torn by the stop itself."""
    start, file = pending.start, _file_of(files, pending.start)
    is_behind = facts.known_end is not None and start >= facts.known_end
    if file is None or not facts.is_clean or is_behind:
        return False
    if pending.record_end >= 0:
        kind, end = "damaged-record", pending.record_end
        evidence = f"{pending.evidence}; it is the last message, and the last stop was clean"
        remedy = "restore the message from a replica or a backup; nothing else is lost"
    elif facts.was_whole_at(start):
        # Where the damage goes on in the next file, the queues tell that the log lost its end.
        kind, end = "damaged-range", min(file.end, max(pending.written_end, facts.known_end or 0, facts.queues_end))
        evidence = f"{pending.evidence}; {end - start} bytes at the end of the log, and the last stop was clean"
        remedy = "restore these bytes from a replica or a backup; everything else is kept"
    else:
        return False
    judgement.damages.append((start, end))
    judgement.end = end
    place = start - file.base
    judgement.findings.append(Finding(kind, ERROR, evidence, remedy, file.path, place, start, end - start))
    return True


def _note_torn(judgement: LogJudgement, pending: _OpenEnd, torn: int, files: Sequence[DataFile]) -> None:
    file = _file_of(files, pending.start)
    judgement.findings.append(
        Finding(
            "torn-tail",
            WARNING,
            f"{pending.evidence}, and no intact record follows; {torn} bytes",
            "open the store, or repair it: the log is cut there and the bytes are kept aside",
            None if file is None else file.path,
            None if file is None else pending.start - file.base,
            pending.start,
            torn,
        )
    )


def _file_of(files: Iterable[DataFile], offset: int) -> DataFile | None:
    return next((file for file in files if file.base <= offset < file.end), None)
