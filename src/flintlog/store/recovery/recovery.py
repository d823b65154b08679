"""Opening a store: from files of unknown worth to a log, queues and an index that agree.

The log is the truth. Queues and index are believed as far as the last stop allows and built again from the log where
they are incomplete, missing or doubtful:

    stop      queues (`queue_recovery.py`)                  index (`index_recovery.py`)
    clean     believed; all built again if there are none   believed; built again if there is none
    unclean   each compared with its end at the             full files that the checkpoint covers are believed,
              checkpoint (`queue_claims.py`), cut           the others deleted and built again
              there and built again after it
    unclean,  both believed as far as a dispatcher outside has published, cut and built again after it
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

from dataclasses import replace
from pathlib import Path

from flintlog import kernel
from flintlog.derive.parallel_scan import Batch
from flintlog.disk.segments.segment import Segment
from flintlog.errors import DamagedStore
from flintlog.format.names import FAR
from flintlog.kernel import Scan
from flintlog.store.components import scan_threads
from flintlog.store.dispatch.external.rollback import set_back
from flintlog.store.log.record_crc import RecordCrc
from flintlog.store.log.segment_bytes import held
from flintlog.store.log.set_aside import keep_aside
from flintlog.store.model.recovery_report import Finding, RecoveryReport
from flintlog.store.recovery.index_recovery import IndexRecovery
from flintlog.store.recovery.log_recovery import LogRecovery
from flintlog.store.recovery.lost_log import LogReach, note_missing_files
from flintlog.store.recovery.opening import Opening
from flintlog.store.recovery.queue_recovery import QueueRecovery


class Recovery:
    """One opening, after everything was loaded and before anything is written."""

    def __init__(self, opening: Opening) -> None:
        self._open = opening
        self._parts = opening.parts
        self._reach = LogReach(opening)
        self._queues = QueueRecovery(opening, self._reach)
        self._index = IndexRecovery(opening)
        self._is_deriving = False

    def run(self) -> RecoveryReport:
        parts, findings = self._parts, self._open.findings
        parts.queues.recall(self._reach.noted_claims())
        if parts.segments.first is None:
            return self._without_log()
        queues_from, index_from = self._check_derived()
        dispatch_from, before = min(queues_from, index_from), len(findings)
        end = self._derive(dispatch_from, index_from)
        doubt = self._queues.find_out_of_step()
        if doubt is not None:
            del findings[before:]
            dispatch_from = self._queues.build_again(doubt)
            end = self._derive(dispatch_from, FAR)  # the index is complete
        findings += self._reach.find_short_log(end)
        self._cut(end)
        self._settle(end)
        return RecoveryReport(findings, clean=self._open.clean, log_end=end, dispatched_from=dispatch_from)

    def _derive(self, dispatch_from: int, index_from: int) -> int:
        """Read the log; dispatch and index the records whose entries are not believed. Returns the log's end."""
        self._open.dispatcher.start_at(dispatch_from)
        start = self._scan_start(dispatch_from)
        if not self._open.clean:
            self._prepare_to_derive()
        self._open.findings += note_missing_files(self._parts.segments, start, self._parts.damage)
        return self._read_log(start, dispatch_from, index_from)

    def _prepare_to_derive(self) -> None:
        if not self._is_deriving:
            self._is_deriving = True
            self._open.mark()

    def _without_log(self) -> RecoveryReport:
        """Without a log there are no messages: delete queues and index."""
        queues, index, opening = self._parts.queues, self._parts.index, self._open
        queues.find_ends(opening.clean, opening.log_min)
        self._queues.forget()
        if index is not None:
            index.destroy()
        queues.deleted.end_at(0)
        queues.rebuild_offsets(opening.log_min)
        queues.keep_given_offsets(self._parts.damage, is_log_short=True)
        opening.dispatcher.start_at(0)
        return RecoveryReport(opening.findings, clean=opening.clean, log_end=0, dispatched_from=0)

    def _check_derived(self) -> tuple[int, int]:
        """Cut queues and index to what is believed. Returns from where on to dispatch, and to index, again."""
        parts, published = self._parts, self._open.published
        if published is None or self._open.clean:
            return self._queues.check(), self._index.check()
        try:
            set_back(published, parts.queues, parts.index, parts.commit_log.store_time_at)
        except DamagedStore as mismatch:
            evidence = f"what was published is not there: {mismatch.what}"
            self._open.note("unpublished", evidence, "the checkpoint is believed")
            if parts.index is not None:
                safe = parts.checkpoint.values.index_msg_timestamp
                parts.index.load(False, safe, parts.checkpoint.vouch_for_index)
            return self._queues.check(), self._index.check()
        end = max(published.end, self._open.log_min)
        if parts.index is None:
            return end, FAR
        return end, end if published.index_name else self._open.log_min

    # ------------------------------------------------------------------ reading the log

    def _scan_start(self, dispatch_from: int) -> int:
        """Where reading begins: a segment whose first record is intact and that everything doubtful follows."""
        segments = self._parts.segments.segments
        doubtful = min(dispatch_from, segments[-1].base + segments[-1].size - 1)
        physic = self._parts.checkpoint.values.physic_msg_timestamp
        for segment in reversed(segments):
            if segment.base > doubtful:
                continue
            first = _first_store_time(segment)
            if first is None:
                continue
            if not self._open.clean and physic > 0 and first > physic:
                continue
            return segment.base
        return segments[0].base

    def _read_log(self, start: int, dispatch_from: int, index_from: int) -> int:
        opening, parts, reach = self._open, self._parts, self._reach

        def consume(batch: Batch, scan: Scan) -> None:
            if batch.base + scan.end > dispatch_from:
                self._prepare_to_derive()
                self._apply(batch, scan, index_from)

        reading = LogRecovery(
            parts.segments,
            damage=parts.damage,
            consume=consume,
            threads=scan_threads(),
            delay_levels_ms=opening.config.delay_levels_ms,
            expected_end=reach.expected_end(),
            queue_ends=reach.queue_ends,
            cut_at=reach.earlier_cut(),
            known_end=reach.known_end(),
            clean_end=reach.clean_end(),
            limit=opening.log_end,
            reached=None if opening.read_only else reach.reached,
            record_crc=RecordCrc(opening.config),
            progress=opening.progress,
        )
        end = reading.run(start)
        opening.findings += reading.findings
        opening.dispatcher.fast_dispatch.index_enabled = parts.index is not None
        return end

    def _apply(self, batch: Batch, scan: Scan, index_from: int) -> None:
        """Dispatch a batch; records below `index_from` are in the index already."""
        place, delay_levels_ms = index_from - batch.base, self._open.config.delay_levels_ms
        if batch.start < place < scan.end:
            for start, stop in ((batch.start, place), (place, scan.end)):
                part = kernel.scan(batch.view, start, stop, batch.base, delay_levels_ms=delay_levels_ms)
                self._apply(Batch(batch.view, start, stop, batch.base), part, index_from)
            return
        dispatcher = self._open.dispatcher
        dispatcher.fast_dispatch.index_enabled = self._parts.index is not None and batch.start >= place
        start = batch.start
        for row in self._queues.old_entries.misplaced(scan):
            place = row.physical_offset - batch.base
            self._apply_range(batch, start, place)
            start = place + row.size
            dispatcher.apply_by_hand(batch.view, batch.base, self._scan(batch, place, start))
        if start == batch.start:
            dispatcher.apply(batch.view, batch.base, scan)
        else:
            self._apply_range(batch, start, scan.end)

    def _apply_range(self, batch: Batch, start: int, stop: int) -> None:
        if start < stop:
            self._open.dispatcher.apply(batch.view, batch.base, self._scan(batch, start, stop))

    def _scan(self, batch: Batch, start: int, stop: int) -> Scan:
        return kernel.scan(batch.view, start, stop, batch.base, delay_levels_ms=self._open.config.delay_levels_ms)

    # ------------------------------------------------------------------ ending the log

    def _cut(self, end: int) -> None:
        """End the log here; the bytes after it are set aside before they are cleared.

        A read-only opening sets nothing aside: it appends nothing before stray bytes, and a writer may own them.
        """
        kept = self._parts.commit_log.end_at(end, None if self._open.read_only else self._keep_aside)
        if kept:
            self._note_kept(end, ", ".join(map(str, kept)))

    def _keep_aside(self, end: int) -> list[Path]:
        # A clean stop of ours leaves nothing after the end: then the rest of the file is not read.
        is_known, parts = self._reach.known_end() == end, self._parts
        return keep_aside(parts.segments, end, parts.paths.cut, parts.medium, later_files_only=is_known)

    def _note_kept(self, end: int, where: str) -> None:
        """Add to the findings where the bytes after the log's end were kept; make a finding if there is none."""
        findings, kinds = self._open.findings, ("torn-tail", "short-log")
        if not any(found.id in kinds for found in findings) and self._reach.earlier_cut() != end:
            evidence = "there are files with bytes after the log's end"
            findings.append(Finding("torn-tail", "warning", evidence, "the log ends before them", None, None, end))
        findings[:] = [replace(found, kept_in=where) if found.id in kinds else found for found in findings]

    def _settle(self, end: int) -> None:
        """Bring queues, index and positions in line with the log's end, and make all of it durable."""
        self._queues.cut(end)
        self._index.cut(end)
        self._queues.settle(is_derived=self._is_deriving)
        self._open.dispatcher.entries.places_before = None
        self._open.dispatcher.start_at(end)


def _first_store_time(segment: Segment) -> int | None:
    """When the first record was stored that a segment begins with; None when it begins with none."""
    with held(segment) as view:
        seen = kernel.scan(view, 0, segment.size, segment.base, max_count=1)
        return seen.row(0).store_timestamp if seen.count else None
