"""The one definition of the checks: from ranges of a store's log to findings.

    plan_ranges ─▶ check_range (anywhere, in any order) ─▶ judge (once, with all results)
    open_index  ─▶ check_index_file (a file each)       ─┘

Threads of one process run it over mapped files (`flintlog.maintenance.verify.verify`), Spark over ranges on its
executors. It checks every record's magic, lengths, CRC and own offset; every record's queue entry and keys, and that
queues and index hold no others; that queue offsets have no gaps; and that every chain of the index is whole. Other
modules of this folder check the other files: checkpoint, consumer offsets, the timer, a ledger's entries and index.

Nothing here opens a file, and the memory that it needs does not grow with the log.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from flintlog.checks.derived_files import DataFile, DerivedFiles
from flintlog.checks.finding import ERROR, WARNING, Finding, damaged_properties
from flintlog.checks.index_check import IndexTally
from flintlog.checks.index_files import REBUILD, IndexSequence, check_index_file, open_index
from flintlog.checks.log_judgement import EmptyEnd, LogFacts, LogJudgement, judge_log
from flintlog.checks.queue_judgement import QueueJudgement, judge_queues
from flintlog.checks.range_check import (
    LogRange,
    RangeResult,
    check_range,
    join_ranges,
    plan_fetched_ranges,
    plan_ranges,
)
from flintlog.derive.stretches import QueueTally
from flintlog.format.index_file import parse_index_header
from flintlog.format.names import FAR
from flintlog.format.queue_entry import QueueKey

__all__ = [
    "Finding",
    "IndexSequence",
    "Judgement",
    "LogFacts",
    "LogRange",
    "RangeResult",
    "check_index_file",
    "check_range",
    "join_ranges",
    "judge",
    "merge_queues",
    "open_index",
    "plan_fetched_ranges",
    "plan_ranges",
]


@dataclass(slots=True)
class Judgement:
    """All findings about log, queues and index. Notes are about states that the next opening puts right."""

    log: LogJudgement
    queues: Mapping[QueueKey, QueueTally]
    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    key_count: int = 0


def merge_queues(results: Sequence[RangeResult]) -> dict[QueueKey, QueueTally]:
    """The tallies of each queue over all ranges; the results are in the order of the log."""
    merged: dict[QueueKey, QueueTally] = {}
    for result in results:
        for key, tally in result.queues.items():
            merged.setdefault(key, QueueTally()).merge(tally)
    return merged


def judge(
    results: Sequence[RangeResult],
    files: Sequence[DataFile],
    derived: DerivedFiles | None,
    index: IndexSequence | None,
    facts: LogFacts,
    *,
    logics_physical_offset: int = 0,
    index_safe_timestamp: int = 0,
    known_topics: frozenset[str] | None = None,
) -> Judgement:
    """Findings of a whole store from the results of its ranges, in the order of the log.

    Without `derived` queues are not judged; `index` is None when the store keeps none. The offset and the time are the
    checkpoint's: up to there an opening believes queues and index after an unclean stop.
    """
    log = judge_log(results, files, facts)
    tallies = merge_queues(results)
    queues = QueueJudgement(dispatched_to=FAR)
    if derived is not None:
        queues = judge_queues(
            tallies, derived, log, facts, logics_physical_offset=logics_physical_offset, known_topics=known_topics
        )
    # A finding about queues may be the trace of a lost message.
    is_decidable = derived is not None and derived.ledger is None and not facts.is_running and not queues.findings
    for empty in list(log.empty_ends):
        log.settle(empty, is_unused=is_decidable and _is_unused(empty, queues, tallies, results))
    log.sort_findings()
    judgement = Judgement(log, tallies, [*log.findings, *queues.findings], list(queues.notes))
    if index is not None:
        _judge_index(judgement, results, index, facts, queues.dispatched_to, index_safe_timestamp)
        _judge_rekeyed(judgement, results, facts)
        if not facts.is_running and facts.cut_at is None:
            _judge_end_of_index(judgement, index, files[-1].end if files else 0)
    return judgement


def _is_unused(
    empty: EmptyEnd,
    queues: QueueJudgement,
    tallies: Mapping[QueueKey, QueueTally],
    results: Sequence[RangeResult],
) -> bool:
    """Whether no message was in the empty end of a log file.

    Queues are built in the log's order: if a later record has an entry, every message before it got its own. So no
    message is lost if no entry of a queue or of the index points there, and no queue lacks an offset there.
    """
    odd = (each.physical_offset for result in results for each in result.index.odd)
    is_known = any(empty.start <= at < empty.end for at in (*queues.lost, *odd))
    return (
        not is_known
        and queues.dispatched_to >= empty.end
        and not any(_skips_offsets(tally, empty) for tally in tallies.values())
    )


def _skips_offsets(tally: QueueTally, empty: EmptyEnd) -> bool:
    """Whether a queue's offsets after an empty end do not follow those before it."""
    return any(
        left.last_physical_offset < empty.start
        and right.first_physical_offset >= empty.end
        and right.first != left.stop
        for left, right in pairwise(tally.records.in_log_order())
    )


def _judge_index(
    judgement: Judgement,
    results: Sequence[RangeResult],
    index: IndexSequence,
    facts: LogFacts,
    dispatched_to: int,
    safe_timestamp: int,
) -> None:
    tally = IndexTally()
    for result in results:
        tally.merge(result.index)
    judgement.key_count = tally.key_count
    if not index.files:
        if tally.missing and not facts.is_late(tally.missing[0].first_physical_offset):
            evidence = f"messages of the log have {tally.key_count} keys, and there is no index"
            judgement.findings.append(Finding("missing-index", WARNING, evidence, "build the index from the log"))
        return
    _judge_missing_keys(judgement, tally, facts, dispatched_to)
    believed = frozenset[str]() if facts.is_clean else index.believed(safe_timestamp)
    _judge_odd_entries(judgement, tally, believed, facts)


def _judge_missing_keys(judgement: Judgement, tally: IndexTally, facts: LogFacts, dispatched_to: int) -> None:
    # After a clean stop an opening indexes from the first record on that has no queue entry.
    late_from = dispatched_to if facts.is_clean else tally.matched_last
    for missing in tally.missing:
        if facts.is_late(missing.first_physical_offset):
            continue
        if missing.first_physical_offset > late_from:
            note = f"{missing.key_count} keys at the log's end are not indexed yet; the next opening adds them"
            judgement.notes.append(note)
            continue
        evidence = (
            f"{missing.key_count} keys of the messages from {missing.first_physical_offset} "
            f"to {missing.last_physical_offset} are not in the index"
        )
        at, count = missing.first_physical_offset, missing.key_count
        judgement.findings.append(
            Finding("missing-index-entries", WARNING, evidence, REBUILD, physical_offset=at, size=count)
        )


def _judge_rekeyed(judgement: Judgement, results: Sequence[RangeResult], facts: LogFacts) -> None:
    known = {found.physical_offset for found in judgement.findings if found.id == "damaged-properties"}
    for result in results:
        for at in result.index.rekeyed:
            if at not in known and not facts.is_late(at) and not judgement.log.is_damaged(at):
                evidence = "the index has other keys for it than it names"
                judgement.findings.append(damaged_properties(judgement.log.files, at, evidence))


def _judge_end_of_index(judgement: Judgement, index: IndexSequence, files_end: int) -> None:
    """Report that the log lost files with messages that the index has, unless that is reported already.

    The index is believed if its last entry and its header agree.
    """
    last = index.entry(len(index) - 1)[1] if len(index) else -1
    is_reported = any(finding.id == "short-log" for finding in judgement.findings)
    if last < files_end or is_reported or parse_index_header(index.view(index.files[-1])).end_physical_offset != last:
        return
    end = judgement.log.end
    evidence = f"the index knows a message at {last}, and the files of the log end at {files_end}"
    remedy = "is a disk of the log not mounted? restore the messages from a replica or a backup"
    judgement.findings.append(Finding("short-log", ERROR, evidence, remedy, physical_offset=end, size=last - end))


def _judge_odd_entries(judgement: Judgement, tally: IndexTally, believed: frozenset[str], facts: LogFacts) -> None:
    """`believed` are the files that the next opening keeps as they are, with entries after the log's end."""
    log = judgement.log
    ahead = 0
    for odd in tally.odd:
        if facts.is_late(odd.physical_offset):
            continue
        if odd.physical_offset >= log.end and facts.may_run_ahead and odd.file not in believed:
            ahead += 1
        elif not log.is_damaged(odd.physical_offset):
            judgement.findings.append(
                Finding("wrong-index-entry", WARNING, odd.evidence, REBUILD, odd.file, odd.offset, odd.physical_offset)
            )
    if tally.odd_count > len(tally.odd):
        judgement.notes.append(f"{tally.odd_count - len(tally.odd)} more index entries are wrong and are not listed")
    if ahead:
        judgement.notes.append(f"{ahead} index entries point after the log's end; the next opening drops them")
