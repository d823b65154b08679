"""Makes findings about queues from the tallies of all ranges: entries that are missing, wrong, or of no record.

Damage in the log explains some faults, which are not reported again: a gap where records were lost, an entry that
points at a torn record. Queues may not have reached the log's end, and after an unclean stop they may run ahead of it.
The next opening puts that right, so it is a note. If neither that nor a torn end explains entries after the log's end,
the log has lost its end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, pairwise

from flintlog import kernel
from flintlog.checks.derived_files import DerivedFiles, QueueFilesView, Read, file_at
from flintlog.checks.finding import ERROR, WARNING, Finding, damaged_properties, finding_in_log
from flintlog.checks.log_judgement import LogFacts, LogJudgement
from flintlog.checks.misplaced import find_gap, mend_place
from flintlog.derive.offset_order import OffsetGap, find_doubtful, find_gaps
from flintlog.derive.stretches import QueueTally, Stretch
from flintlog.format.names import FAR
from flintlog.format.queue_entry import (
    BATCH_ENTRY_SIZE,
    ENTRY_SIZE,
    OFFSET_AND_SIZE,
    PREFILL,
    QueueKey,
    physical_offset_at,
)
from flintlog.format.topics import can_be_topic

REBUILD = "build this queue again from the log"
OF_THE_LOG = {
    "queue-gap": "look at the two messages beside the gap; `repair` leaves it, because the log itself says so",
    "repeated-queue-offset": "look at both messages with `cat`, and put the hidden one again; `repair` leaves it",
}
"""Remedies for faults that a rebuild keeps: the offsets are those of the records."""

MAX_STRETCHES = 100


@dataclass(slots=True)
class QueueJudgement:
    """Findings about the queues. Notes are about states that the next opening puts right.

    `dispatched_to` is where the last record begins that has an entry. An opening dispatches from there on, so later
    records without an entry are late, not lost.
    """

    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    lagging_count: int = 0
    ahead_count: int = 0
    dispatched_to: int = -1
    lost: list[int] = field(default_factory=list)
    """Physical offsets that queue entries point at, inside damage of the log."""


def judge_queues(
    tallies: Mapping[QueueKey, QueueTally],
    derived: DerivedFiles,
    log: LogJudgement,
    facts: LogFacts,
    *,
    logics_physical_offset: int = 0,
    known_topics: frozenset[str] | None = None,
) -> QueueJudgement:
    """`known_topics` are those of `topics.json`: missing queues of other topics were deleted."""
    return _Judge(derived, log, facts, logics_physical_offset, known_topics).run(tallies)


@dataclass(slots=True)
class _Judge:
    derived: DerivedFiles
    log: LogJudgement
    facts: LogFacts
    vouched: int
    known_topics: frozenset[str] | None
    result: QueueJudgement = field(default_factory=QueueJudgement)
    gone_count: int = 0
    gone_end: int = 0

    def run(self, tallies: Mapping[QueueKey, QueueTally]) -> QueueJudgement:
        result = self.result
        if tallies and not self.derived.queues and not self.facts.is_late(self.log.min_offset):
            count = sum(tally.entry_count for tally in tallies.values())
            evidence = f"the log has {count} messages for {len(tallies)} queues, and there are no queues"
            result.findings.append(Finding("missing-queues", WARNING, evidence, "build the queues from the log"))
        else:
            result.dispatched_to = max((tally.matched_to for tally in tallies.values()), default=-1)
            for key in sorted(tallies):
                self._judge_records(key, tallies[key])
        for key in sorted(tallies):
            self._judge_offsets(key, tallies[key])
        for key in sorted(self.derived.queues):
            self._judge_strays(self.derived.queues[key], tallies.get(key) or QueueTally())
        if self.gone_count:
            self._report_short_log()
        if result.lagging_count and not self.facts.is_running:
            result.notes.append(
                f"{result.lagging_count} messages at the log's end have no queue entry yet; the next opening adds them"
            )
        if result.ahead_count:
            result.notes.append(
                f"{result.ahead_count} queue entries point after the log's end; the next opening drops them"
            )
        return result

    # ------------------------------------------------------------------ the log's side

    def _judge_records(self, key: QueueKey, tally: QueueTally) -> None:
        if key not in self.derived.queues:
            self._judge_missing_queue(key, tally)
            return
        is_batch = self.derived.queues[key].is_batch
        doubtful = [] if is_batch else find_doubtful(tally.records.in_log_order())
        for stretch in _believed(self._absent(key, tally), doubtful)[:MAX_STRETCHES]:
            if self._is_lagging(stretch):
                self.result.lagging_count += stretch.count
                continue
            evidence = f"{_messages(key, stretch)} have no queue entry"
            self._report("missing-queue-entries", evidence, key, stretch)
        for stretch in _believed(tally.wrong.items, doubtful)[:MAX_STRETCHES]:
            if self.facts.is_late(stretch.first_physical_offset):
                continue  # it may have been read while it was written
            evidence = f"the entry of {_messages(key, stretch)}: {stretch.evidence}"
            self._report("wrong-queue-entries", evidence, key, stretch)
        for stretch in _believed(tally.retagged.items, doubtful)[:MAX_STRETCHES]:
            if not self.facts.is_late(stretch.first_physical_offset):
                found = damaged_properties(self.log.files, stretch.first_physical_offset, stretch.evidence)
                self.result.findings.append(found)

    def _absent(self, key: QueueKey, tally: QueueTally) -> list[Stretch]:
        """Messages that lack an entry; those that were deleted with their topic must have none."""
        deleted = self.derived.deleted.get(key)
        if deleted is None:
            return tally.absent.items
        return [
            stretch
            if stretch.first_physical_offset >= deleted.log_end
            else replace(stretch, first=max(stretch.first, deleted.next_offset))
            for stretch in tally.absent
            if stretch.first_physical_offset >= deleted.log_end or stretch.stop > deleted.next_offset
        ]

    def _judge_missing_queue(self, key: QueueKey, tally: QueueTally) -> None:
        if not can_be_topic(key[0]) or key[1] < 0:
            evidence = f"{tally.entry_count} records are for {key[0][:80]!a}/{key[1]}, which cannot be a queue"
            remedy = "look at the records with `cat`; no consumer can read them"
            first = tally.records.items[0].first_physical_offset
            self.result.findings.append(Finding("impossible-queue", WARNING, evidence, remedy, physical_offset=first))
            return
        absent = self._absent(key, tally)
        is_deleted = not absent and bool(tally.absent.items)
        if not is_deleted and all(self._is_lagging(stretch) for stretch in absent):
            self.result.lagging_count += sum(stretch.count for stretch in absent)
        elif is_deleted or (self.known_topics is not None and key[0] not in self.known_topics):
            self.result.notes.append(f"the topic {key[0]} was deleted; the log still has messages of it")
        else:
            evidence = f"the log has {tally.entry_count} messages for {key[0]}/{key[1]}, and there is no such queue"
            first = absent[0].first_physical_offset
            self.result.findings.append(
                Finding("missing-queue", WARNING, evidence, REBUILD, physical_offset=first, size=tally.entry_count)
            )

    def _is_lagging(self, stretch: Stretch) -> bool:
        """Whether these were not dispatched yet or, after an unclean stop, their entries were not flushed."""
        at = stretch.first_physical_offset
        if self.facts.is_running:
            return self.facts.is_late(at)
        return at > self.result.dispatched_to or (not self.facts.is_clean and 0 < self.vouched < at)

    def _report(self, kind: str, evidence: str, key: QueueKey, stretch: Stretch) -> None:
        file, offset = stretch.file, stretch.offset
        remedy = OF_THE_LOG.get(kind, REBUILD)
        if file is None:
            file, offset = self._place(self.derived.queues.get(key), stretch.first)
        self.result.findings.append(
            Finding(kind, WARNING, evidence, remedy, file, offset, stretch.first_physical_offset, stretch.count)
        )

    def _place(self, queue: QueueFilesView | None, queue_offset: int) -> tuple[str | None, int | None]:
        at = queue_offset * ENTRY_SIZE
        file = None if queue is None or queue.is_batch else file_at(queue.files, at)
        return (None, None) if file is None else (file.path, at - file.base)

    def _judge_offsets(self, key: QueueKey, tally: QueueTally) -> None:
        """Queue offsets count up. They have gaps only where records were lost, or where a topic was deleted."""
        items = tally.records.in_log_order()
        for before, after in islice(pairwise(items), MAX_STRETCHES):
            at = after.first_physical_offset
            where = f"{key[0]}/{key[1]}"
            if after.first < before.stop:
                evidence = f"queue offset {after.first} of {where} was given twice; {before.stop} was next"
                self._report("repeated-queue-offset", evidence, key, after)
            elif not self._is_left_by_deletion(key, before, after) and not self.log.is_damaged(
                before.last_physical_offset + 1, at
            ):
                evidence = f"queue offsets {before.stop} to {after.first - 1} of {where} were never given"
                self._report("queue-gap", evidence, key, after)

    def _is_left_by_deletion(self, key: QueueKey, before: Stretch, after: Stretch) -> bool:
        """Whether the offsets between were given before the topic was deleted.

        The note of a deletion is durable at once. A power cut may then take deleted messages that were never flushed,
        and their offsets are not given again.
        """
        deleted = self.derived.deleted.get(key)
        if deleted is None:
            return False
        return before.last_physical_offset < deleted.log_end and after.first <= deleted.next_offset

    # ------------------------------------------------------------------ the queue's side

    def _judge_strays(self, queue: QueueFilesView, tally: QueueTally) -> None:
        strays = self._stray_batches(queue, tally) if queue.is_batch else self._stray_entries(queue, tally)
        gaps = [] if queue.is_batch else find_gaps(tally.records.in_log_order())
        first: tuple[str, int, int] | None = None
        count = 0
        for path, place, physical_offset in strays:
            if self._is_gone(physical_offset):
                self.gone_count += 1
                self.gone_end = max(self.gone_end, physical_offset + self._size_at(path, place))
            elif self.facts.is_late(physical_offset):
                pass
            elif physical_offset >= self.log.end and self.facts.may_run_ahead:
                self.result.ahead_count += 1
            elif self._is_misplaced(queue, gaps, path, place, physical_offset):
                self._report_misplaced(queue, physical_offset)
            elif self.log.is_damaged(physical_offset):
                # Any of the batches may be the one in excess, so it may lie in any damage.
                self.result.lost += [begin for begin, _ in self.log.damages] if queue.is_batch else [physical_offset]
            else:
                first = first or (path, place, physical_offset)
                count += 1
        if first is not None:
            path, place, at = first
            evidence = f"{count} entries of {queue.topic}/{queue.queue_id} point at no message of it, the first at {at}"
            inside = at if 0 <= at < FAR else None
            self.result.findings.append(
                Finding("dangling-queue-entries", WARNING, evidence, REBUILD, path, place, inside, count)
            )

    def _is_misplaced(
        self, queue: QueueFilesView, gaps: Sequence[OffsetGap], path: str, place: int, physical_offset: int
    ) -> bool:
        """Whether an entry points at its record, which names another place because one of its bits is wrong."""
        file = file_at(self.log.files, physical_offset)
        base = next(each.base for each in queue.files if each.path == path)
        offset = (base + place) // ENTRY_SIZE
        gap = find_gap(gaps, offset, physical_offset)
        if file is None or gap is None or self._points_at(queue, gap.first - 1) != gap.after:
            return False
        start = physical_offset - file.base
        record = bytes(self.derived.read(file.path, start, min(file.size, start + self._size_at(path, place))))
        return mend_place(record, physical_offset, queue.topic, queue.queue_id, offset) is not None

    def _points_at(self, queue: QueueFilesView, queue_offset: int) -> int:
        at = queue_offset * ENTRY_SIZE
        for _, _, view in queue.pieces(self.derived.read, at, at + ENTRY_SIZE):
            if len(view) == ENTRY_SIZE:
                return physical_offset_at(view)
        return -1

    def _report_misplaced(self, queue: QueueFilesView, physical_offset: int) -> None:
        where = f"{queue.topic}/{queue.queue_id}"
        evidence = f"{where} has an entry for this record, and a gap there; a bit of the record says another place"
        remedy = "`repair` sets the bit right"
        self.result.findings.append(
            finding_in_log(self.log.files, "misplaced-record", ERROR, evidence, remedy, physical_offset)
        )

    def _is_gone(self, physical_offset: int) -> bool:
        """Whether the log had a message there and lost it.

        It had one if the log was stopped cleanly since, or if the checkpoint vouches for it. A crash loses the end of a
        log but never a file with records in it. So an offset after all files was in a file that was deleted, and a log
        without any file was not lost by a crash.
        """
        facts, log = self.facts, self.log
        if not log.end <= physical_offset < FAR or facts.is_running or facts.cut_at is not None:
            return False
        had_it = facts.is_clean or physical_offset <= self.vouched > 0 or self._is_after_files(physical_offset)
        return had_it and not log.is_damaged(log.end)

    def _is_after_files(self, physical_offset: int) -> bool:
        return not self.log.files or physical_offset >= self.log.files[-1].end

    def _size_at(self, path: str, place: int) -> int:
        size: int = OFFSET_AND_SIZE.unpack(self.derived.read(path, place, place + OFFSET_AND_SIZE.size))[1]
        return max(0, size)

    def _report_short_log(self) -> None:
        end, log_end = self.gone_end, self.log.end
        said = "and the last stop was clean" if self.facts.is_clean else "and the checkpoint vouches for them"
        if not self.facts.is_clean and self._is_after_files(end - 1) and self.vouched < log_end:
            said = "and no file of the log holds them"
        said = said if self.log.files else "and the log has no file"
        evidence = f"{self.gone_count} queue entries point after the log's end {log_end}, up to {end}, {said}"
        remedy = "is a disk of the log not mounted? restore the messages from a replica or a backup"
        self.result.findings.append(
            Finding("short-log", ERROR, evidence, remedy, physical_offset=log_end, size=max(0, end - log_end))
        )

    def _stray_entries(self, queue: QueueFilesView, tally: QueueTally) -> Iterator[tuple[str, int, int]]:
        """Entries at places that no record accounts for: file, place, physical offset."""
        low = max(self.log.min_offset, self.facts.checked_from)
        end = max((stretch.stop for stretch in tally.records), default=0)
        for start, stop, is_before in _uncovered(tally, queue):
            if start >= end and self.facts.is_running:
                return  # a writer may be putting an entry there, and we may see half of it
            for path, place, entry in _backwards(queue, self.derived.read, start, stop):
                at = physical_offset_at(entry)
                if not any(entry):
                    continue
                if bytes(entry) == PREFILL or (0 <= at < low):
                    if is_before:
                        break  # all entries before it are older
                    continue
                if not self._is_lost_place(queue, path, place, entry):
                    yield path, place, at

    def _is_lost_place(self, queue: QueueFilesView, path: str, place: int, entry: memoryview) -> bool:
        """Whether an entry repeats the one before it: a message is lost there (`store/dispatch/gap_filling.py`).

        In a wide gap the one before it lies in an earlier file that the queue has.
        """
        number = next(number for number, file in enumerate(queue.files) if file.path == path)
        at = queue.files[number].base + place if place or not number else queue.files[number - 1].end
        before = [bytes(view) for _, _, view in queue.pieces(self.derived.read, at - ENTRY_SIZE, at)]
        return before == [bytes(entry)]

    def _stray_batches(self, queue: QueueFilesView, tally: QueueTally) -> Iterator[tuple[str, int, int]]:
        """Batch entries in excess of those that records account for; the last ones are named."""
        low = max(self.log.min_offset, self.facts.checked_from)
        inside: list[tuple[str, int, int]] = []
        for file in queue.files:
            view = self.derived.read(file.path, 0, file.size)
            end = kernel.written_end(view, 0, len(view))
            for place in range(0, end, BATCH_ENTRY_SIZE):
                at = physical_offset_at(bytes(view[place : place + 8]).ljust(8, b"\0"))
                if (at >= low or at < 0) and not self.facts.is_late(at):
                    inside.append((file.path, place, at))
        excess = len(inside) - (tally.entry_count - len(tally.absent))
        yield from inside[len(inside) - excess :] if excess > 0 else ()


def _believed(items: Sequence[Stretch], doubtful: Sequence[tuple[Stretch, int]]) -> list[Stretch]:
    """Without the stretches of records whose queue offset is not believed: such a record has no entry."""

    def is_explained(item: Stretch) -> bool:
        at = item.first_physical_offset
        return any(
            part.first <= item.first
            and item.stop <= stop
            and part.first_physical_offset <= at <= part.last_physical_offset
            for part, stop in doubtful
        )

    return [item for item in items if not is_explained(item)] if doubtful else list(items)


def _uncovered(tally: QueueTally, queue: QueueFilesView) -> Iterator[tuple[int, int, bool]]:
    """Queue offsets that the files cover and no record has; and whether they lie before all records."""
    if not queue.files:
        return
    begin, end = queue.files[0].base // ENTRY_SIZE, queue.files[-1].end // ENTRY_SIZE
    at = begin
    for stretch in sorted(tally.records, key=lambda stretch: stretch.first):
        if at < stretch.first:
            yield at, min(stretch.first, end), at == begin
        at = max(at, stretch.stop)
    if at < end:
        yield at, end, at == begin


def _backwards(queue: QueueFilesView, read: Read, start: int, stop: int) -> Iterator[tuple[str, int, memoryview]]:
    """Written entries [start, stop) of a queue, the last first."""
    for file, place, view in reversed(list(queue.pieces(read, start * ENTRY_SIZE, stop * ENTRY_SIZE))):
        end = kernel.written_end(view, 0, len(view))
        last = (end - 1) // ENTRY_SIZE * ENTRY_SIZE if end else -1
        for position in range(last, -1, -ENTRY_SIZE):
            entry = view[position : position + ENTRY_SIZE]
            if len(entry) == ENTRY_SIZE:
                yield file.path, place + position, entry


def _messages(key: QueueKey, stretch: Stretch) -> str:
    if stretch.count == 1:
        return f"queue offset {stretch.first} of {key[0]}/{key[1]}"
    return f"queue offsets {stretch.first} to {stretch.stop - 1} of {key[0]}/{key[1]}"
