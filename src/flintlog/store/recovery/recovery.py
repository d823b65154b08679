"""Opening a store: from files of unknown worth to a log, queues and an index that agree.

The log is the truth. Queues and index are believed as far as the last stop allows and built again from the log where
they are behind, missing or doubtful:

    stop      queues                                        index
    clean     believed; all built again if there are none   believed; built again if there is none
    unclean   each compared with its end at the             full files that the checkpoint covers are believed,
              checkpoint (`queue_claims.py`), cut           the others deleted and built again
              there and built again after it
    unclean,  both believed as far as a dispatcher outside has published, cut and built again behind it
    external

Whatever is deleted here can be built again from the log, so a crash at any step only makes the next opening do the
same once more. Four rules keep that true. Before all queues are deleted, what they know and the log may lack is noted:
which offsets were given, and how far the log reached. Before anything derived is deleted, the checkpoint stops vouching
for it. Before anything derived changes, the store is marked as not cleanly stopped. And before anything is derived from
what was found in the log, the log is synced, because a process that was killed leaves bytes that are still only in
memory. Loading does that. Queue files that were found are synced by the first flush, before the
checkpoint vouches for them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from msgspec.structs import replace as replace_claim

from flintlog import kernel
from flintlog.derive.parallel_scan import Batch
from flintlog.disk.media.medium import Medium
from flintlog.disk.segments.segment import Segment
from flintlog.disk.segments.segment_queue import SegmentQueue
from flintlog.errors import DamagedStore
from flintlog.format.names import FAR
from flintlog.kernel import Scan
from flintlog.store.dispatch.dispatcher import Dispatcher
from flintlog.store.dispatch.external.dispatch_journal import Progress
from flintlog.store.dispatch.external.rollback import set_back
from flintlog.store.index.index_service import IndexService
from flintlog.store.log.checkpoint import CheckpointFile
from flintlog.store.log.damage import DamageMap
from flintlog.store.log.record_crc import RecordCrc
from flintlog.store.log.segment_bytes import held, written_end
from flintlog.store.log.set_aside import keep_aside
from flintlog.store.queues.covered_queues import CoveredNote, QueueClaim, before_rebuild
from flintlog.store.queues.queue_table import QueueTable
from flintlog.store.recovery.log_recovery import LogRecovery
from flintlog.store.recovery.lost_log import Reached, note_missing_files, note_short_log, reached_by_queues
from flintlog.store.recovery.queue_claims import cut_to_note, join_doubts
from flintlog.store.recovery.recovery_report import Finding, RecoveryReport
from flintlog.store.recovery.stop_marker import StopMarker
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
    find_reaching_behind,
    find_wrong_batch,
)


@dataclass(slots=True)
class Opening:
    """The parts of a store that is being opened."""

    segments: SegmentQueue
    queues: QueueTable
    index: IndexService | None
    checkpoint: CheckpointFile
    dispatcher: Dispatcher
    damage: DamageMap
    medium: Medium
    cut_directory: Path
    marker: StopMarker
    delay_levels_ms: tuple[int, ...]
    threads: int
    mark_unclean: Callable[[], None]
    store_time_at: Callable[[int], int]
    record_at: Callable[[int], bytes | None]
    progress: Callable[[int, int], None] | None = None
    read_only: bool = False
    is_durable: bool = False
    """Whether the last stop has synced every file, and said so."""
    ledger_end: int | None = None
    """Where a ledger has the log end: what it has committed. Behind that lies what may still be cut, by the ledger."""
    end_beside_writer: int | None = None
    """Where the log ends for a read-only opening beside a writer; what is derived from it may be half done there."""
    published: Progress | None = None
    record_crc: RecordCrc | None = None
    is_others: bool = False
    """Whether nothing is believed but the log, because of who derived the rest."""


class Recovery:
    """One opening, after everything was loaded and before anything is written."""

    def __init__(self, opening: Opening, *, clean: bool) -> None:
        self._open = opening
        self._clean = clean
        self._findings: list[Finding] = []
        self._is_marked = not clean
        self._is_deriving = False
        self._is_index_missing = False
        self._min = max(0, opening.segments.min_offset)
        self._vouched = opening.checkpoint.values.logics_physical_offset
        self._before = opening.queues.covered.before_rebuild
        self._built_end = -1
        self._queue_ends: list[int] = []
        self._is_believed_unnoted = False

    def run(self) -> RecoveryReport:
        parts = self._open
        parts.queues.recall(self._noted_claims())
        if parts.segments.first is None:
            return self._without_log()
        queues_from, index_from = self._check_derived()
        dispatch_from, before = min(queues_from, index_from), len(self._findings)
        end = self._derive(dispatch_from, index_from)
        if self._is_believed_unnoted and (doubt := find_out_of_step(parts.queues)) is not None:
            del self._findings[before:]
            dispatch_from = self._build_again(*doubt)
            end = self._derive(dispatch_from, FAR)  # the index is complete
        self._note_short_log(end)
        self._cut(end)
        self._settle(end)
        return RecoveryReport(self._findings, clean=self._clean, log_end=end, dispatched_from=dispatch_from)

    def _derive(self, dispatch_from: int, index_from: int) -> int:
        """Read the log, and dispatch and index what is not believed; the log's end."""
        self._open.dispatcher.start_at(dispatch_from)
        start = self._scan_start(dispatch_from)
        if not self._clean:
            self._prepare_to_derive()
        self._findings += note_missing_files(self._open.segments, start, self._open.damage)
        return self._read_log(start, dispatch_from, index_from)

    def _without_log(self) -> RecoveryReport:
        """No log, no messages: what queues and index say is about nothing."""
        parts = self._open
        parts.queues.find_ends(self._clean, self._min)
        self._forget_queues()
        if parts.index is not None:
            parts.index.destroy()
        parts.queues.end_deletions(0)
        parts.queues.rebuild_offsets(self._min)
        parts.queues.keep_given_offsets(is_log_short=True)
        parts.dispatcher.start_at(0)
        return RecoveryReport(self._findings, clean=self._clean, log_end=0, dispatched_from=0)

    # ------------------------------------------------------------------ what is believed

    def _check_derived(self) -> tuple[int, int]:
        """Cut queues and index to what is believed; from where on records must be dispatched, and indexed, again."""
        parts = self._open
        if parts.published is None or self._clean:
            return self._check_queues(), self._check_index()
        try:
            set_back(parts.published, parts.queues, parts.index, parts.store_time_at)
        except DamagedStore as mismatch:
            self._note("unpublished", f"what was published is not there: {mismatch.what}", "the checkpoint is believed")
            if parts.index is not None:
                safe = parts.checkpoint.values.index_msg_timestamp
                parts.index.load(False, safe, parts.checkpoint.vouch_for_index)
            return self._check_queues(), self._check_index()
        end = max(parts.published.end, self._min)
        if parts.index is None:
            return end, FAR
        return end, end if parts.published.index_name else self._min

    def _check_queues(self) -> int:
        """Cut the queues to what is believed; from where on records must be dispatched again."""
        queues = self._open.queues
        queues.find_ends(self._clean, self._min)
        self._queue_ends = [queue.found_log_end for queue in queues.all()] + self._ends_before()
        self._built_end = max(self._queue_ends, default=-1)
        unknown = self._unknown_deletions()
        if unknown is not None:
            return self._build_again(*unknown)
        return self._check_stopped() if self._clean else self._check_crashed()

    def _check_stopped(self) -> int:
        queues = self._open.queues
        count, file_count = len(queues.all()), queues.file_count  # the stop has counted those that are removed now, too
        queues.cut_ends(was_clean=True, is_durable=self._open.is_durable)
        queues.finish_deletions(self._min)
        doubt = self._missing_queues(count, file_count)
        if doubt is None and self._open.is_others:
            self._forget_queues()
            return self._min
        doubt = doubt or self._doubt_stopped() or find_wrong_batch(queues, self._open.record_at)
        if doubt is not None:
            return self._build_again(*doubt)
        # What deleted queues held was dispatched as well.
        return max(queues.max_physical_offset(), queues.deleted_end(self._open.marker.log_end or 0), self._min)

    def _unknown_deletions(self) -> Doubt | None:
        """Without the note of deleted queues their offsets would be given again, so they are taken from the log."""
        problem = self._open.queues.deletions_problem
        return None if problem is None else Doubt("damaged-note", f"deleted.json is not believed: {problem}")

    def _doubt_stopped(self) -> Doubt | None:
        """What is wrong with queues that a clean stop left."""
        queues = self._open.queues
        return (
            find_broken(queues, FAR)
            or find_other_ends(queues, self._open.marker.queue_bytes, "at the last stop")
            or find_reaching_behind(queues, self._open.marker.log_end or FAR)
        )

    def _check_crashed(self) -> int:
        queues = self._open.queues
        note = self._note_in_force()
        covered = self._covered() if note is None else note.covered
        if self._open.is_others or self._vouched <= 0 or covered is None or self._before is not None:
            self._forget_queues()
            return self._min
        if queues.covered.is_damaged:
            return self._build_again("damaged-note", "queues.json is damaged, or of an earlier version")
        if note is None:
            return self._check_unnoted(covered)
        self._built_end = max((claim.log_end for claim in note.queues), default=-1)
        queues.cut_ends(was_clean=False)
        queues.finish_deletions(self._min)
        belief = cut_to_note(queues, note, self._min, self._open.record_at)
        self._is_believed_unnoted = covered < self._min
        for kind, evidence in join_doubts(belief.doubts):
            self._note(kind, evidence, "what is missing of these queues was built again from the log")
        return belief.dispatch_from

    def _note_in_force(self) -> CoveredNote | None:
        """Where the queues ended at the checkpoint, if that was noted.

        A checkpoint before the noted record was set back since, because the log was cut. One after it vouches for
        more than is noted: it is another program's, or damaged. The note still holds, and less is believed.
        """
        note = self._open.queues.covered.note
        return note if note is not None and note.covered <= self._vouched else None

    def _noted_claims(self) -> list[QueueClaim]:
        """Where queues ended, by the note. Of the checkpoint's those are left out that may have expired since."""
        if self._before is not None:
            return self._before.queues
        note = self._note_in_force()
        return [] if note is None else [claim for claim in note.queues if claim.log_end > self._min]

    def _ends_before(self) -> list[int]:
        """How far into the log the queues went that an earlier opening deleted."""
        return [] if self._before is None else [claim.log_end for claim in self._before.queues]

    def _check_unnoted(self, covered: int) -> int:
        """As RocketMQ: believe entries of records up to the checkpoint's, as far as the queues bear that out."""
        queues = self._open.queues
        doubt = self._doubt_unnoted(covered)
        if doubt is not None:
            return self._build_again(*doubt)
        queues.cut_ends(was_clean=False)
        queues.finish_deletions(self._min)
        queues.truncate(self._cut_after(covered))
        doubt = (
            find_lost_files(queues, self._min)  # asked now: a crash may lose any file after the checkpoint
            or find_broken(queues, covered)
            or find_reaching_behind(queues, self._end_of(covered))
            or find_wrong_batch(queues, self._open.record_at)
        )
        if doubt is not None:
            return self._build_again(*doubt)
        self._is_believed_unnoted = True
        return max(covered, self._min)

    def _doubt_unnoted(self, covered: int) -> Doubt | None:
        """What is wrong with queues before anything of them is cut."""
        queues = self._open.queues
        if not queues.all():
            return Doubt(MISSING, "the log has messages and there are no queues")
        doubt = find_broken(queues, covered) or find_holes(queues, covered)
        # A crash takes records from the log's last file, so an entry that points beyond all files is damaged itself.
        # Read-only it may also be the entry of a running writer, whose log was read before its queues.
        files_end = self._open.segments.segments[-1].end
        if doubt is None and not self._open.read_only and covered < files_end:
            doubt = find_reaching_behind(queues, files_end)
        return doubt or find_lost_entry(queues, covered, self._open.record_at)

    def _build_again(self, kind: str, evidence: str) -> int:
        if kind == DAMAGED:  # what such queues know of the log's end is not believed either
            self._queue_ends = self._ends_before()
            self._built_end = max(self._queue_ends, default=-1)
        self._note(kind, evidence, "all queues were built again from the log")
        self._forget_queues()
        return self._min

    def _covered(self) -> int | None:
        """The last record whose queue entry is known to be durable, by the checkpoint alone; None when it is wrong.

        A checkpoint that was damaged, or is that of another log, names a place where no record begins. One that names
        a place after a log that lost its end is right if a queue knows of a record there.
        """
        covered = self._vouched
        if covered < self._min:
            return covered
        segment = self._open.segments.find(covered)
        is_lost = segment is None or written_end(segment, covered - segment.base) == covered - segment.base
        if is_lost:
            return covered if any(end > covered for end in self._queue_ends) else None
        record = self._open.record_at(covered)
        is_intact = record is not None and kernel.scan(record, 0, len(record), covered, check_crc=True).count == 1
        return covered if is_intact else None

    def _cut_after(self, covered: int) -> int:
        """Where queues are cut. What lies between the checkpoint and the log's beginning is known to them alone."""
        return max(covered + 1, self._min)

    def _end_of(self, covered: int) -> int:
        """Where the checkpoint's record ends; after every log when it has expired."""
        record = self._open.record_at(covered)
        return FAR if record is None else covered + len(record)

    def _mark(self) -> None:
        """From here on a crash leaves something half done."""
        if not self._is_marked:
            self._is_marked = True
            self._open.mark_unclean()

    def _prepare_to_derive(self) -> None:
        if not self._is_deriving:
            self._is_deriving = True
            self._mark()

    def _forget_queues(self) -> None:
        """Delete all queues.

        What they know is noted first. Then the checkpoint stops vouching for them, while the stop still counts as
        clean: an opening after an unclean one would believe it, and not look for queues that are missing.
        """
        checkpoint = self._open.checkpoint
        known, covered = self._known_before_rebuild(), self._open.queues.covered
        if known.queues or known.log_end:
            covered.keep(known)
        else:
            covered.forget()
        if checkpoint.values.logics_physical_offset:
            checkpoint.set(logics_physical_offset=0, logics_msg_timestamp=0)
            checkpoint.flush()
        self._mark()
        self._open.queues.destroy()

    def _known_before_rebuild(self) -> CoveredNote:
        """What a later opening needs to know that finds neither the queues nor this stop."""
        believed = set(self._queue_ends)
        claims = [
            replace_claim(claim, log_end=claim.log_end if claim.log_end in believed else 0)
            for claim in self._open.queues.recalled
        ]
        reached = max((self._open.marker.log_end or 0) if self._clean else 0, self._noted_log_end())
        vouched = max(self._vouched, (self._before and self._before.vouched) or 0)
        return before_rebuild(claims, reached, FAR if self._clean else vouched)

    def _noted_log_end(self) -> int:
        """How far the log reached by the note of the checkpoint, or by that from before a rebuild."""
        note = self._before
        if note is None and not self._clean:  # after a clean stop of another program the checkpoint's may be too old
            note = self._note_in_force()
        return 0 if note is None else note.log_end

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
        return find_lost_files(self._open.queues, self._min)

    def _check_index(self) -> int:
        """Drop what is not believed of the index; from where on records must be indexed again."""
        index = self._open.index
        if index is None:
            return FAR
        if self._open.is_others and index.files:
            return self._forget_index(index)
        if not index.files:
            return self._without_index()
        known = self._open.marker.index_file_count
        if self._clean and known is not None and len(index.files) < known:
            evidence = f"there were {known} index files at the last stop, and there are {len(index.files)}"
            self._note("missing-index", evidence, "the index was built again from the log")
            return self._forget_index(index)
        if self._clean:
            return FAR
        last = index.last_header.end_physical_offset
        if not self._ends_with_a_record(index):
            evidence = f"the last file that was full says that it ends with the message at {last}, and does not"
            self._note("wrong-index-header", evidence, "the index was built again from the log")
            return self._forget_index(index)
        # The last record of a kept file may have more keys than that file holds: take it out and put it in again.
        # The checkpoint first stops vouching for the file, in case of a crash while it is changed.
        before = index.files[-2].header.end_timestamp if len(index.files) > 1 else 0
        self._open.checkpoint.set(index_msg_timestamp=before)
        self._open.checkpoint.flush()
        index.truncate(last, self._open.store_time_at)
        return max(last, self._min)

    def _ends_with_a_record(self, index: IndexService) -> bool:
        """Records are dispatched again from the index's end on: elsewhere than at a record some would be passed."""
        header = index.last_header
        last = header.end_physical_offset
        if index.files[-1].last_offset_at(header.next_entry) not in (None, last):
            return False
        return last < self._min or self._open.store_time_at(last) == header.end_timestamp

    def _forget_index(self, index: IndexService) -> int:
        self._open.checkpoint.set(index_msg_timestamp=0)
        self._open.checkpoint.flush()
        self._mark()
        index.destroy()
        return self._min

    def _without_index(self) -> int:
        if self._clean and self._open.marker.index_file_count == 0:
            return FAR
        self._is_index_missing = self._clean  # a power loss may take all that was not synced
        return self._min

    # ------------------------------------------------------------------ reading the log

    def _scan_start(self, dispatch_from: int) -> int:
        """Where reading begins: a segment whose first record is intact and that everything doubtful lies behind."""
        segments = self._open.segments.segments
        doubtful = min(dispatch_from, segments[-1].base + segments[-1].size - 1)
        physic = self._open.checkpoint.values.physic_msg_timestamp
        for segment in reversed(segments):
            if segment.base > doubtful:
                continue
            first = _first_store_time(segment)
            if first is None:
                continue
            if not self._clean and physic > 0 and first > physic:
                continue
            return segment.base
        return segments[0].base

    def _read_log(self, start: int, dispatch_from: int, index_from: int) -> int:
        parts = self._open

        def consume(batch: Batch, scan: Scan) -> None:
            if batch.base + scan.end > dispatch_from:
                self._prepare_to_derive()
                self._apply(batch, scan, index_from)

        reading = LogRecovery(
            parts.segments,
            damage=parts.damage,
            consume=consume,
            threads=parts.threads,
            delay_levels_ms=parts.delay_levels_ms,
            expected_end=self._expected_end(),
            cut_at=self._earlier_cut(),
            known_end=parts.marker.log_end if self._clean else None,
            clean_end=self._clean_end(),
            limit=parts.end_beside_writer if parts.ledger_end is None else parts.ledger_end,
            reached=None if parts.read_only else self._reached,
            record_crc=parts.record_crc,
            progress=parts.progress,
        )
        end = reading.run(start)
        self._findings += reading.findings
        parts.dispatcher.lane.index_enabled = parts.index is not None
        return end

    def _reached(self, end: int) -> Reached | None:
        """How far a log that ends here is known to have reached."""
        if self._earlier_cut() == end:
            return None
        marked, note = self._open.marker.log_end, self._note_in_force()
        if self._clean and marked is not None:
            return Reached(marked, "the last stop left")
        by_queues = reached_by_queues(self._queue_ends, end, self._open.segments.segment_size)
        if not self._clean and note is not None:
            noted = max((note.covered + 1, note.log_end, *(claim.log_end for claim in note.queues)))
            if noted <= end:
                return None  # a crash may take any record after those that were noted
            return Reached(max(noted, by_queues.end if by_queues else 0), "the checkpoint knows")
        by_queues = by_queues if self._are_ends_believed(end) else None
        if self._noted_log_end() > end:
            return Reached(max(self._noted_log_end(), by_queues.end if by_queues else 0), "an earlier opening found")
        return by_queues

    def _are_ends_believed(self, end: int) -> bool:
        """Whether queues tell how far a log reached that ends here. After the checkpoint's record a crash may have left
        more of the queues than of the log."""
        before = 0 if self._before is None else self._before.vouched or 0
        return self._clean or max(self._vouched, before) >= max(1, end)

    def _clean_end(self) -> int | None:
        """How far the log is known to have been whole at a clean stop: by our marker, or by its queues."""
        if not self._clean:
            return None
        return max(0, self._open.queues.max_physical_offset(), self._open.marker.log_end or 0)

    def _expected_end(self) -> int:
        """Where the log ended at a clean stop; zeros before it are damage, however the log goes on behind them."""
        clean_end = self._clean_end()
        return FAR if clean_end is None or self._open.queues.max_physical_offset() < 0 else clean_end

    def _earlier_cut(self) -> int | None:
        """Where Java's last recovery ended the log: it leaves the bytes behind, intact records among them."""
        confirmed = self._open.checkpoint.values.earlier_cut if self._clean else None
        record = None if confirmed is None else self._open.record_at(confirmed)
        return None if confirmed is None or record is None else confirmed + len(record)

    def _apply(self, batch: Batch, scan: Scan, index_from: int) -> None:
        """Dispatch a batch; records below `index_from` are in the index already."""
        place = index_from - batch.base
        if batch.start < place < scan.end:
            for start, stop in ((batch.start, place), (place, scan.end)):
                part = kernel.scan(batch.view, start, stop, batch.base, delay_levels_ms=self._open.delay_levels_ms)
                self._apply(Batch(batch.view, start, stop, batch.base), part, index_from)
            return
        dispatcher = self._open.dispatcher
        dispatcher.lane.index_enabled = self._open.index is not None and batch.start >= place
        dispatcher.apply(batch.view, batch.base, scan)

    def _cut(self, end: int) -> None:
        """End the log here; what lay behind is kept aside before it is cleared."""
        parts = self._open
        if parts.ledger_end is not None:
            return
        # A clean stop of ours leaves nothing behind the end: then the rest of the file is not read. Read-only, nothing
        # will be appended that stray bytes could follow, and those of a running writer are none.
        is_known = self._clean and parts.marker.log_end == end
        where = (parts.cut_directory, parts.medium)
        kept = [] if parts.read_only else keep_aside(parts.segments, end, *where, later_files_only=is_known)
        parts.segments.truncate(end)
        if not parts.read_only:
            parts.segments.reach(end)
        if kept:
            self._note_kept(end, ", ".join(map(str, kept)))

    def _note_kept(self, end: int, where: str) -> None:
        """Say where the bytes behind the log's end are; that there were any, if nobody has."""
        told = ("torn-tail", "short-log")
        if not any(found.id in told for found in self._findings) and self._earlier_cut() != end:
            evidence = "there are files with bytes behind the log's end"
            self._findings.append(
                Finding("torn-tail", "warning", evidence, "the log ends before them", None, None, end)
            )
        self._findings = [replace(found, kept_in=where) if found.id in told else found for found in self._findings]

    def _note_short_log(self, end: int) -> None:
        """Compare the end that was found with what the stop, the queues or the checkpoint know of it."""
        is_limited = self._open.ledger_end is not None or self._open.end_beside_writer is not None
        if is_limited or self._earlier_cut() == end:
            return
        stopped_at = (self._open.marker.log_end or 0) if self._clean else 0
        if stopped_at > end:
            self._findings += note_short_log(end, stopped_at, "the last stop left")
        elif self._noted_log_end() > end:
            self._findings += note_short_log(end, self._noted_log_end(), "an earlier opening found")
        elif self._are_ends_believed(end):
            self._findings += note_short_log(end, self._built_end, "the queues know")

    def _settle(self, end: int) -> None:
        """Bring queues, index and positions in line with the log's end, and make all of it durable."""
        parts = self._open
        parts.queues.truncate(end)
        parts.queues.end_deletions(end)
        if parts.published is None:
            parts.queues.finish_deletions(self._min)  # of such a queue the log may have given back a part, too
        if parts.checkpoint.values.logics_physical_offset >= end:
            # The log lost records that it had: other ones will come to lie at their offsets.
            parts.checkpoint.set(logics_physical_offset=0, logics_msg_timestamp=0)
            parts.checkpoint.flush()
        if parts.index is not None and parts.index.last_header.end_physical_offset >= end:
            parts.index.truncate(end, parts.store_time_at)
        if self._is_index_missing and parts.index is not None and parts.index.files:  # some message has a key
            self._note("missing-index", "the log has messages and there was no index", "it was built from the log")
        if self._is_deriving or not parts.is_durable:
            parts.queues.sync_names()
        if not parts.read_only:
            parts.queues.settle_deletions()
        parts.queues.rebuild_offsets(self._min)
        parts.queues.keep_given_offsets(is_log_short=any(found.id == "short-log" for found in self._findings))
        parts.dispatcher.start_at(end)

    def _note(self, kind: str, evidence: str, remedy: str) -> None:
        if self._open.end_beside_writer is not None:
            return  # of what is derived from the log, which the writer may not have made yet
        self._findings.append(Finding(kind, "warning", evidence, remedy))


def _first_store_time(segment: Segment) -> int | None:
    """When the first record was stored that a segment begins with; None when it begins with none."""
    with held(segment) as view:
        seen = kernel.scan(view, 0, segment.size, segment.base, max_count=1)
        return seen.row(0).store_timestamp if seen.count else None
