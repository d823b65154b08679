"""How far the consume queues are believed when a store is opened. The rest is cut, and built again from the log.

After a clean stop all queues are believed, if they are as the stop left them. After an unclean one each is compared
with its end at the checkpoint (`queue_claims.py`); without a note of those ends, entries up to the checkpoint's record
are believed, as RocketMQ does, unless `suspects.py` finds a reason not to.
"""

from __future__ import annotations

from flintlog import kernel
from flintlog.format.names import FAR
from flintlog.store.log.segment_bytes import written_end
from flintlog.store.queues.covered_queues import CoveredNote
from flintlog.store.recovery.lost_log import LogReach
from flintlog.store.recovery.old_entries import OldEntries
from flintlog.store.recovery.opening import Opening
from flintlog.store.recovery.queue_claims import cut_to_note, join_doubts
from flintlog.store.recovery.suspects import (
    DAMAGED,
    MISSING,
    Doubt,
    find_broken,
    find_holes,
    find_lost_entry,
    find_lost_files,
    find_other_ends,
    find_out_of_step,
    find_reaching_beyond,
    find_wrong_batch,
)


class QueueRecovery:
    """The queues of one opening."""

    def __init__(self, opening: Opening, reach: LogReach) -> None:
        self._open = opening
        self._reach = reach
        self._queues = opening.parts.queues
        self._record_at = opening.parts.commit_log.record_at
        self._min = opening.log_min
        self._is_believed_unnoted = False
        self.old_entries = OldEntries()

    def check(self) -> int:
        """Cut the queues to what is believed. Returns the offset from which on records must be dispatched again."""
        self._queues.find_ends(self._open.clean, self._min)
        self._reach.add_queue_ends()
        unknown = self._unknown_deletions()
        if unknown is not None:
            return self.build_again(unknown)
        return self._check_stopped() if self._open.clean else self._check_crashed()

    def find_out_of_step(self) -> Doubt | None:
        """Whether dispatching has shown that entries were missing which the checkpoint alone vouched for."""
        return find_out_of_step(self._queues) if self._is_believed_unnoted else None

    def build_again(self, doubt: Doubt) -> int:
        if doubt.kind == DAMAGED:  # what such queues know of the log's end is not believed either
            self._reach.drop_queue_ends()
        self._open.note(doubt.kind, doubt.evidence, "all queues were built again from the log")
        return self.forget()

    def forget(self) -> int:
        """Delete all queues.

        What they know is noted first. Then the checkpoint stops vouching for them, while the stop still counts as
        clean: an opening after an unclean one would believe it, and not look for queues that are missing.
        """
        checkpoint, covered = self._open.parts.checkpoint, self._queues.covered
        known = self._reach.known_before_rebuild()
        if known.queues or known.log_end:
            covered.keep(known)
        else:
            covered.forget()
        if checkpoint.values.logics_physical_offset:
            checkpoint.set(logics_physical_offset=0, logics_msg_timestamp=0)
            checkpoint.flush()
        self._open.mark()
        self._queues.destroy()
        return self._min

    # ------------------------------------------------------------------ after a clean stop

    def _check_stopped(self) -> int:
        queues = self._queues
        count, file_count = len(queues.all()), queues.file_count  # the stop has counted those that are removed now, too
        queues.cut_ends(was_clean=True, is_durable=self._open.is_durable)
        queues.finish_deletions(self._min)
        doubt = self._missing_queues(count, file_count)
        if doubt is None and self._open.is_others:
            return self.forget()
        doubt = doubt or self._doubt_stopped() or find_wrong_batch(queues, self._record_at)
        if doubt is not None:
            return self.build_again(doubt)
        # What deleted queues held was dispatched as well.
        return max(
            queues.max_physical_offset(), queues.deleted.dispatched_end(self._open.marker.log_end or 0), self._min
        )

    def _unknown_deletions(self) -> Doubt | None:
        """Without the note of deleted queues their offsets would be given again, so they are taken from the log."""
        problem = self._queues.deleted.problem
        return None if problem is None else Doubt("damaged-note", f"deleted.json is not believed: {problem}")

    def _missing_queues(self, count: int, file_count: int) -> Doubt | None:
        """Whether a clean stop left more queues, or queue files, than were found."""
        known = self._open.marker.queue_count
        if not count and known != 0:
            return Doubt(MISSING, "the log has messages and there are no queues")
        if known is not None and count < known:
            return Doubt(MISSING, f"there were {known} queues at the last stop, and there are {count}")
        known = self._open.marker.queue_file_count
        if known is not None:
            evidence = f"there were {known} queue files, and there are {file_count}"
            return Doubt(MISSING, evidence) if file_count < known else None
        return find_lost_files(self._queues, self._min)

    def _doubt_stopped(self) -> Doubt | None:
        """What is wrong with queues that a clean stop left."""
        return (
            find_broken(self._queues, FAR)
            or find_other_ends(self._queues, self._open.marker.queue_bytes, "at the last stop")
            or find_reaching_beyond(self._queues, self._open.marker.log_end or FAR)
        )

    # ------------------------------------------------------------------ after an unclean stop

    def _check_crashed(self) -> int:
        queues, reach = self._queues, self._reach
        note = reach.note_in_force()
        covered = self._covered() if note is None else note.covered
        if self._open.is_others or reach.vouched <= 0 or covered is None or reach.before is not None:
            return self.forget()
        if queues.covered.is_damaged:
            return self.build_again(Doubt("damaged-note", "queues.json is damaged, or of an earlier version"))
        if note is None:
            return self._check_unnoted(covered)
        reach.use_ends_of(note)
        queues.cut_ends(was_clean=False)
        queues.finish_deletions(self._min)
        self._keep_old_entries(note)
        belief = cut_to_note(queues, note, self._min, self._record_at)
        self._is_believed_unnoted = covered < self._min
        for kind, evidence in join_doubts(belief.doubts):
            self._open.note(kind, evidence, "what is missing of these queues was built again from the log")
        return belief.dispatch_from

    def _keep_old_entries(self, note: CoveredNote) -> None:
        ends = {(claim.topic, claim.queue_id): claim.end_byte for claim in note.queues}
        for queue in self._queues.all():
            self.old_entries.keep(queue, ends.get((queue.topic, queue.queue_id), 0))
        self._open.dispatcher.entries.places_before = self.old_entries.places

    def _covered(self) -> int | None:
        """The last record whose queue entry is known to be durable, by the checkpoint alone; None when it is wrong.

        A checkpoint that was damaged, or is that of another log, names a place where no record begins. One that names
        a place after a log that lost its end is right if a queue knows of a record there.
        """
        covered = self._reach.vouched
        if covered < self._min:
            return covered
        segment = self._open.parts.segments.find(covered)
        is_lost = segment is None or written_end(segment, covered - segment.base) == covered - segment.base
        if is_lost:
            return covered if any(end > covered for end in self._reach.queue_ends) else None
        record = self._record_at(covered)
        is_intact = record is not None and kernel.scan(record, 0, len(record), covered, check_crc=True).count == 1
        return covered if is_intact else None

    def _check_unnoted(self, covered: int) -> int:
        """As RocketMQ: believe entries of records up to the checkpoint's, as far as the queues bear that out."""
        queues = self._queues
        doubt = self._doubt_unnoted(covered)
        if doubt is not None:
            return self.build_again(doubt)
        queues.cut_ends(was_clean=False)
        queues.finish_deletions(self._min)
        queues.truncate(max(covered + 1, self._min))  # only the queues know what the log no longer has
        doubt = (
            find_lost_files(queues, self._min)  # after the cut: a crash may lose any file after the checkpoint
            or find_broken(queues, covered)
            or find_reaching_beyond(queues, self._end_of(covered))
            or find_wrong_batch(queues, self._record_at)
        )
        if doubt is not None:
            return self.build_again(doubt)
        self._is_believed_unnoted = True
        return max(covered, self._min)

    def _doubt_unnoted(self, covered: int) -> Doubt | None:
        """What is wrong with queues before anything of them is cut."""
        queues = self._queues
        if not queues.all():
            return Doubt(MISSING, "the log has messages and there are no queues")
        doubt = find_broken(queues, covered) or find_holes(queues, covered)
        # A crash takes records from the log's last file, so an entry that points beyond all files is damaged itself.
        # Read-only it may also be the entry of a running writer, whose log was read before its queues.
        files_end = self._open.parts.segments.segments[-1].end
        if doubt is None and not self._open.read_only and covered < files_end:
            doubt = find_reaching_beyond(queues, files_end)
        return doubt or find_lost_entry(queues, covered, self._record_at)

    def _end_of(self, covered: int) -> int:
        """Where the checkpoint's record ends; after every log when it has expired."""
        record = self._record_at(covered)
        return FAR if record is None else covered + len(record)

    # ------------------------------------------------------------------ after the log was read

    def cut(self, end: int) -> None:
        """The log ends here: remove the entries of records that it does not have."""
        queues, checkpoint = self._queues, self._open.parts.checkpoint
        queues.truncate(end)
        queues.deleted.end_at(end)
        if self._open.published is None:
            queues.finish_deletions(self._min)  # of such a queue the log may have given back a part, too
        if checkpoint.values.logics_physical_offset >= end:
            # The log was cut below the checkpoint; its offsets will be reused.
            checkpoint.set(logics_physical_offset=0, logics_msg_timestamp=0)
            checkpoint.flush()

    def settle(self, *, is_derived: bool) -> None:
        """Everything is built: make the names of files durable, and find the next offset of each queue."""
        queues, opening = self._queues, self._open
        if is_derived or not opening.is_durable:
            queues.sync_names()
        if not opening.read_only:
            queues.deleted.settle()
        queues.rebuild_offsets(self._min)
        is_log_short = any(found.id == "short-log" for found in opening.findings)
        queues.keep_given_offsets(opening.parts.damage, is_log_short=is_log_short)
