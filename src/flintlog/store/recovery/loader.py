"""Opening a directory: its files are loaded, and recovery brings them in line with the log.

    log ─▶ queues ─▶ checkpoint ─▶ notes (batches, cuts, what a dispatcher outside published) ─▶ index ─▶ recovery

Invariant: a store that is opened read-only finds its directory unchanged. One that is opened for writing marks it as
unclean before anything in it is changed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from flintlog.checks.derived_files import DataFile
from flintlog.disk.media.durable_names import sync_names
from flintlog.disk.media.lock import is_locked
from flintlog.disk.media.medium import Medium
from flintlog.disk.media.overlay import OverlayMedium
from flintlog.disk.media.source import MappedSource
from flintlog.errors import DamagedStore
from flintlog.format.names import CONFIG, encode_abort
from flintlog.store.components import Components, make_components
from flintlog.store.dispatch.dispatcher import Dispatcher
from flintlog.store.dispatch.external.dispatch_journal import Published
from flintlog.store.dispatch.external.follower import ExternalDispatcher
from flintlog.store.dispatch.external.handshake import Handshake
from flintlog.store.log.batch_markers import ClosingMarker, find_markers
from flintlog.store.log.misnamed import Misnamed, find_misnamed, list_log, refuse_misnamed
from flintlog.store.log.segment_bytes import held
from flintlog.store.model.recovery_report import Finding, RecoveryReport
from flintlog.store.options.store_config import StoreConfig
from flintlog.store.recovery.batch_notes import BatchNotes, settle_opened_batch
from flintlog.store.recovery.lost_log import had_log
from flintlog.store.recovery.opening import Opening
from flintlog.store.recovery.pending_cut import PendingCut
from flintlog.store.recovery.published_end import WrittenLog, published_end
from flintlog.store.recovery.recovery import Recovery
from flintlog.store.recovery.stop_marker import StopMarker
from flintlog.store.runtime.clock import Milliseconds
from flintlog.store.runtime.jobs import Progress
from flintlog.store.runtime.lifecycle import Lifecycle, State
from flintlog.store.runtime.note_file import damaged_note
from flintlog.store.settings.config_files import ConfigFiles

_LOOKS = 3


def try_loading(path: Path, config: StoreConfig, medium: Medium, now_ms: Milliseconds) -> None:
    """Raise what loading this directory would raise, and change nothing in it."""
    probe = make_components(path, config, OverlayMedium(medium), now_ms)
    settings = ConfigFiles(probe.paths, config, medium, now_ms, is_trial=True)
    settings.load()
    probe.queues.set_types(settings.queue_types)
    refuse_misnamed(_find_misnamed(probe))
    probe.segments.load()
    probe.queues.load()
    if probe.index is not None:
        probe.index.load(last_exit_ok=True, index_safe_timestamp=0)


@dataclass(frozen=True, slots=True)
class Notes:
    """Files beside the log that are read while it is loaded."""

    handshake: Handshake
    marker: StopMarker
    batches: BatchNotes


class Loader:
    """Loads and recovers the files of one store, once; in the thread that opens it."""

    def __init__(
        self,
        config: StoreConfig,
        parts: Components,
        dispatcher: Dispatcher,
        lifecycle: Lifecycle,
        notes: Notes,
        *,
        read_only: bool,
    ) -> None:
        self.was_clean = True
        self.published: Published | None = None
        self._config = config
        self._parts = parts
        self._medium = parts.medium
        self._dispatcher = dispatcher
        self._lifecycle = lifecycle
        self._notes = notes
        self._read_only = read_only
        self._cut = PendingCut(parts.paths, parts.medium)
        self._is_cutting = False
        self._is_others = False
        self._misnamed: list[Misnamed] = []
        self._findings: list[Finding] = []
        self._end_beside_writer: int | None = None

    def mark_unclean(self) -> None:
        """Write `abort`: from here on a stop is clean only if it removes the file."""
        paths, process = self._parts.paths, encode_abort(os.getpid())
        self._parts.commit_log.note_writer(process)
        self._medium.write(paths.abort, process)

    # ------------------------------------------------------------------ loading

    def load(self) -> None:
        """Find every file, and what the last run left to be done."""
        parts, move_to = self._parts, self._lifecycle.move_to
        move_to(State.LOAD_BEGIN)
        self.was_clean = not self._medium.exists(parts.paths.abort)
        if not self._read_only:
            paths = parts.paths
            folders = paths.root, paths.own, paths.cut, paths.root / CONFIG, *paths.commit_logs
            sync_names(folders, self._medium)
        self._load_log()
        self._end_beside_writer = self._find_end_beside_writer()  # before the queues, which follow the log
        self._findings += parts.commit_log.load(read_only=self._read_only)
        move_to(State.LOAD_COMMITLOG_OK)
        parts.queues.load()
        move_to(State.LOAD_CONSUME_QUEUE_OK)
        parts.checkpoint.load()
        self._load_marker()
        stopped_at = self._notes.marker.log_end if self.was_clean else None
        if parts.segments.first is None and had_log(
            parts.checkpoint.values, stopped_at, parts.queues, clean=self.was_clean
        ):
            parts.commit_log.refuse_lost(parts.paths.root)
        parts.segments.take_over(is_durable=self._is_durable)
        self._is_others = not self._read_only and parts.commit_log.was_others(
            clean=self.was_clean, stopped_at=stopped_at
        )
        self._settle_batch()
        self._is_cutting = self._cut_as_asked()
        self.published = self._load_published()
        if parts.index is not None:
            safe = parts.checkpoint.values.index_msg_timestamp
            is_believed = self.was_clean or self.published is not None
            parts.index.load(is_believed, safe, parts.checkpoint.vouch_for_index)
            if not self._is_durable:
                parts.index.take_over()
        move_to(State.LOAD_INDEX_OK)

    @property
    def _is_durable(self) -> bool:
        """Whether the last stop has synced every file: only a clean one of ours says so.

        A marker without a checksum is of an earlier version, which did not sync what its openings took over.
        """
        marker = self._notes.marker
        return self.was_clean and marker.is_checked and marker.log_end is not None

    def _load_log(self) -> None:
        """Load the log's files. If one is misnamed, a writer is refused, and a reader uses its records' offsets."""
        self._misnamed = _find_misnamed(self._parts)
        if not self._read_only:
            refuse_misnamed(self._misnamed)
        segments = self._parts.segments
        bases = {file.path: None if file.obstacle else file.base for file in self._misnamed}
        for _ in range(_LOOKS):
            segments.load(bases)
            if not self._read_only or not segments.gaps():
                break  # while a writer makes files, a listing may miss some of them and show later ones

    def _find_end_beside_writer(self) -> int | None:
        """Where the log ends for a reader, if another process writes it now."""
        paths, segments = self._parts.paths, self._parts.segments.segments
        if not self._read_only or not is_locked(paths.lock):
            return None
        files = [DataFile(str(segment.path), segment.base, segment.size) for segment in segments]
        return published_end(MappedSource(self._medium), WrittenLog(files, paths.batches, paths.ledger))

    def _load_marker(self) -> None:
        """Load the marker of the last stop. If it is damaged, the stop counts as an unclean one."""
        marker = self._notes.marker
        marker.load(self._parts.checkpoint.values)
        if marker.problem is None or not self.was_clean:
            return
        self._findings.append(damaged_note(marker.path, marker.problem, "the last stop counts as an unclean one"))
        self.was_clean = False
        if not self._read_only:
            self.mark_unclean()

    def _settle_batch(self) -> None:
        parts, batches = self._parts, self._notes.batches
        try:
            batches.load()
        except DamagedStore as damage:
            if not self._read_only:
                raise
            remedy = "if a batch was being written, a part of it may be seen"
            self._findings.append(damaged_note(parts.paths.batches, damage.what, remedy))
            return
        unclosed = settle_opened_batch(
            batches, parts.commit_log, parts.checkpoint, paths=parts.paths, medium=self._medium
        )
        if unclosed is not None:
            self._findings.append(unclosed)

    def _cut_as_asked(self) -> bool:
        """End the log where an earlier process has asked for; recovery then cuts queues and index."""
        if self._read_only:
            return False
        end = self._cut.wanted()
        if end is None:
            self._cut.done()  # a request without a checksum is dropped
            return False
        self.mark_unclean()
        self.was_clean = False
        self._notes.marker.remove()
        self._notes.batches.reopen(self._closing_markers(end))
        self._cut.lower(end, self._parts.segments, self._parts.checkpoint)
        self._parts.queues.covered.cut(end)
        self._cut.clear_after(end, self._parts.segments)
        return True

    def _closing_markers(self, start: int) -> Iterator[ClosingMarker]:
        """The markers of the batches that end after this place in the log."""
        for segment in self._parts.segments.segments:
            if segment.end > start:
                with held(segment) as view:
                    for found in find_markers(view, segment.base, start):
                        if isinstance(found.marker, ClosingMarker):
                            yield found.marker

    def _load_published(self) -> Published | None:
        """What a dispatcher outside has published, if that is to be believed.

        After a clean stop the files are complete. And RocketMQ, which may have had the store since, knows no journal
        but moves the checkpoint.
        """
        handshake, is_external = self._notes.handshake, self._config.dispatch == "external"
        if not handshake.is_there or (self._read_only and not is_external):
            return None
        published = handshake.load()
        if not self._read_only and not is_external:
            handshake.forget()
        if published is None or self.was_clean or self._is_cutting:
            return None
        return published if self._parts.checkpoint.values.logics_physical_offset <= published.end else None

    # ------------------------------------------------------------------ recovery

    def recover(self, progress: Progress | None) -> RecoveryReport:
        """Bring everything in line with the log; what was found on the way."""
        self._lifecycle.move_to(State.RECOVER_BEGIN)
        if self._read_only and self.published is not None and isinstance(self._dispatcher, ExternalDispatcher):
            report = self._look_at_published(self._dispatcher, self.published)
        else:
            report = Recovery(self._opening(progress)).run()
            report = report.with_findings(self._findings)
        if self._misnamed:
            report = report.with_findings([file.finding() for file in self._misnamed])
        self._lifecycle.move_to(State.RECOVER_TOPIC_QUEUE_TABLE_OK)
        if self._is_cutting:
            self._cut.done()
        return report

    def _opening(self, progress: Progress | None) -> Opening:
        committed = self._parts.segments.readable_limit
        return Opening(
            self._parts,
            self._config,
            self._dispatcher,
            self._notes.marker,
            self.was_clean,
            self.mark_unclean,
            progress,
            read_only=self._read_only,
            is_durable=self._is_durable,
            log_end=self._end_beside_writer if committed is None else committed,
            is_beside_writer=self._end_beside_writer is not None,
            published=self.published,
            is_others=self._is_others,
        )

    def _look_at_published(self, dispatcher: ExternalDispatcher, published: Published) -> RecoveryReport:
        """Another process runs the store: serve what was published, and nothing has to be recovered."""
        parts = self._parts
        parts.segments.follow(published.end)
        dispatcher.adopt(published)
        parts.queues.rebuild_offsets(max(0, parts.segments.min_offset))
        return RecoveryReport((), clean=self.was_clean, log_end=published.end, dispatched_from=published.end)


def _find_misnamed(parts: Components) -> list[Misnamed]:
    files = list_log((*parts.paths.commit_logs, *parts.paths.read_only_commit_logs), parts.medium)
    return find_misnamed(files, parts.segments.segment_size, parts.medium)
