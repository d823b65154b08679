"""Which queue entries are believed after an unclean stop: those that were noted at the checkpoint, and are there.

    noted, and found as it was noted      believed up to the note, cut there: later entries are built from the log
    noted, and shorter                    entries were lost: they are built from the log after the last good entry
    noted, and another last entry         damaged: the queue is built again from the log
    noted, and not there                  lost: the queue is built again from the log
    not noted                             made after the note: its entries are built from the log

The note does not count for a queue that was deleted after it, or whose records have all expired. Only doubtful queues
are built again; for the others the records that are read again are duplicates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from flintlog import kernel
from flintlog.store.queues.covered_queues import CoveredNote, QueueClaim
from flintlog.store.queues.logical_queue import LogicalQueue
from flintlog.store.queues.queue_table import QueueTable
from flintlog.store.recovery.suspects import DAMAGED, MISSING, Doubt, RecordAt, has_lost_first_files


@dataclass(slots=True)
class Belief:
    """From where on the log must be dispatched again, and what was doubtful."""

    dispatch_from: int
    doubts: list[Doubt] = field(default_factory=list)


def cut_to_note(queues: QueueTable, note: CoveredNote, log_min: int, record_at: RecordAt) -> Belief:
    """Cut the queues to what is believed of them."""
    return _Cutting(queues, note, log_min, record_at).run()


class _Cutting:
    def __init__(self, queues: QueueTable, note: CoveredNote, log_min: int, record_at: RecordAt) -> None:
        self._queues = queues
        self._covered = note.covered
        self._claims = {(claim.topic, claim.queue_id): claim for claim in note.queues}
        self._min = log_min
        self._record_at = record_at
        self._belief = Belief(max(note.covered, log_min))

    def run(self) -> Belief:
        for queue in self._queues.all():
            claim = self._claims.pop((queue.topic, queue.queue_id), None)
            if claim is None or self._is_void(claim):
                self._cut_unnoted(queue)
            elif has_lost_first_files(self._queues, queue, self._min):
                self._doubt(MISSING, claim, "lacks its first files", self._min)
                self._queues.drop(queue)
            elif queue.end_byte < claim.end_byte:
                self._cut_shorter(queue, claim)
            else:
                self._cut_noted(queue, claim)
        missing = [claim for claim in self._claims.values() if not self._is_void(claim)]
        if missing:
            self._queues.deleted.load()  # beside a running writer, some may just have been deleted
        for claim in missing:
            if not self._is_void(claim):
                self._doubt(MISSING, claim, "is not there", self._min)
        return self._belief

    def _is_void(self, claim: QueueClaim) -> bool:
        """Whether the note does not count for a queue: its records have expired, or it was deleted since."""
        return claim.log_end <= self._min or self._queues.deleted.holds(claim.topic, claim.queue_id, self._covered)

    def _cut_unnoted(self, queue: LogicalQueue) -> None:
        queue.truncate(max(self._covered + 1, self._min))  # only the queue knows of expired records
        if queue.end_byte and queue.log_end > self._min:
            claim = QueueClaim(queue.topic, queue.queue_id, 0, 0, 0)
            self._doubt(DAMAGED, claim, "has entries from before the checkpoint that were not noted", self._min)
            self._queues.drop(queue)

    def _cut_shorter(self, queue: LogicalQueue, claim: QueueClaim) -> None:
        queue.truncate(self._covered + 1)
        evidence = f"had {claim.next_offset} messages at the checkpoint, and has entries up to {queue.max_offset}"
        if queue.end_byte and self._is_last_entry_right(queue):
            self._doubt(DAMAGED, claim, evidence, queue.max_physical_offset)
        else:
            self._doubt(DAMAGED, claim, evidence, self._min)
            self._queues.drop(queue)

    def _cut_noted(self, queue: LogicalQueue, claim: QueueClaim) -> None:
        if queue.end_byte > claim.end_byte:
            queue.set_back(claim.end_byte)
        if queue.log_end != claim.log_end:
            evidence = f"has another entry at offset {claim.next_offset - 1} than at the checkpoint"
            self._doubt(DAMAGED, claim, evidence, self._min)
            self._queues.drop(queue)

    def _is_last_entry_right(self, queue: LogicalQueue) -> bool:
        """Whether the last entry that is left is that of its record: the log is read from there on."""
        record = self._record_at(queue.last_physical_offset)
        seen = None if record is None else kernel.scan(record, 0, len(record), queue.last_physical_offset)
        if seen is None or seen.count != 1:
            return False
        return seen.queues[0] == (queue.topic, queue.queue_id) and seen.row(0).queue_offset == queue.max_offset - 1

    def _doubt(self, kind: str, claim: QueueClaim, evidence: str, dispatch_from: int) -> None:
        self._belief.dispatch_from = min(self._belief.dispatch_from, max(dispatch_from, self._min))
        self._belief.doubts.append(Doubt(kind, f"{claim.topic}/{claim.queue_id} {evidence}"))


def join_doubts(doubts: Sequence[Doubt]) -> list[Doubt]:
    """One for each kind, with the first as evidence."""
    found: list[Doubt] = []
    for kind in (MISSING, DAMAGED):
        alike = [doubt for doubt in doubts if doubt.kind == kind]
        if alike:
            more = f"; so are {len(alike) - 1} other queues" if len(alike) > 1 else ""
            found.append(Doubt(kind, alike[0].evidence + more))
    return found
