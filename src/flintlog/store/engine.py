"""What makes a store run: its parts, its threads, and the order in which they start and stop.

Opening loads the files, recovers them (see `recovery.py`) and starts the threads. Stopping ends them in the order in
which they feed each other: flush, dispatch, queues, index, checkpoint, and at last the `abort` file, whose absence
says that all of it happened.

Its threads are those of `flushing.py` and the allocator's. A put needs none but group commit.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from flintlog.disk.medium import LockFile, Medium
from flintlog.disk.overlay import OverlayMedium
from flintlog.errors import DamagedStore, DiskFull, FlintlogError, StoreClosed
from flintlog.format.names import encode_abort
from flintlog.store.batch_notes import BatchNotes, settle_opened_batch
from flintlog.store.bloom import BloomFilter
from flintlog.store.broker_stats import BrokerStats
from flintlog.store.clock import Milliseconds
from flintlog.store.concurrent_dispatch import ConcurrentDispatcher
from flintlog.store.config import StoreConfig
from flintlog.store.dispatch import BitmapHook, Dispatcher
from flintlog.store.dispatch_journal import Progress as Published
from flintlog.store.dispatch_side import DispatchSide
from flintlog.store.external_dispatch import ExternalDispatcher
from flintlog.store.flushing import Flushing
from flintlog.store.forking import close_in_children
from flintlog.store.json_file import JsonFile
from flintlog.store.ledger_door import prepare_ledger
from flintlog.store.lifecycle import Flag, Lifecycle, State
from flintlog.store.parts import make_parts, scan_threads
from flintlog.store.paths import StorePaths, is_store, refuse_rocksdb, remove_store
from flintlog.store.pending_cut import PendingCut
from flintlog.store.put_figures import PutFigures
from flintlog.store.put_waits import PutWaits
from flintlog.store.recovery import Opening, Recovery
from flintlog.store.recovery_report import RecoveryReport
from flintlog.store.stats import PutTotals, StoreStatsService
from flintlog.store.stop_marker import StopMarker
from flintlog.store.subscriptions import Subscriptions
from flintlog.store.swap import finish_swap

log = logging.getLogger(__name__)

SAMPLE_INTERVAL_MS = 1000

Progress = Callable[[int, int], None]
"""Told (done, total) in bytes while a long opening goes on."""


class Engine:
    """One store directory, running. Any thread may call its public methods."""

    def __init__(
        self, path: Path, config: StoreConfig, medium: Medium, now_ms: Milliseconds, *, read_only: bool
    ) -> None:
        self.path = path
        self.config = config
        self.read_only = read_only
        self.recovery = RecoveryReport((), clean=True, log_end=0, dispatched_from=0)
        self.lifecycle = Lifecycle()
        self.parts = parts = make_parts(path, config, medium, now_ms)
        self.log = parts.commit_log
        self._side = DispatchSide(parts.paths.dispatch, medium, patience_ms=config.dispatch_patience_ms)
        self.dispatcher = self._make_dispatcher()
        self.put_figures = PutFigures(
            parts.queues, lambda: self.log.end_offset, lambda: self.dispatcher.position, self.log.unqueued
        )
        self.broker_stats = BrokerStats(
            now_ms,
            self.put_figures.take,
            lambda: self.counters.get_transferred_count,
            puts_wait=config.flush == "sync" or config.waits_for_replicas,
            light_as_one=config.enable_lmq,
        )
        self.counters = StoreStatsService(now_ms, self._put_totals, self.broker_stats.put_totals)
        self.samples_itself = True
        self.is_left_to_parent = False
        self.subscriptions = Subscriptions(
            JsonFile(parts.paths.consumer_filter, medium, before_save=self.check_open),
            BloomFilter(config.max_error_rate_of_bloom_filter, config.expect_consumer_num_use_filter),
            now_ms,
            read_only=read_only,
        )
        self.use_bitmap_hook(None)
        self.flushing = Flushing(
            config, parts, self.dispatcher, self.lifecycle, PutWaits(self.counters, self.broker_stats)
        )
        self.is_replica = config.broker_role == "SLAVE"
        self.medium = medium
        self.now_ms = now_ms
        self.batch_notes = BatchNotes(parts.paths.batches, medium)
        self._marker = StopMarker(parts.paths.stop_marker, medium)
        self._lock: LockFile | None = None
        self._offsets_before = 0
        self._totals = PutTotals(0, 0)
        self._next_sample_s = 0.0
        self._closing = threading.Lock()

    def _make_dispatcher(self) -> Dispatcher:
        parts, config = self.parts, self.config
        kind = ConcurrentDispatcher if config.enable_build_consume_queue_concurrently else Dispatcher
        made = (ExternalDispatcher if self._is_external else kind)(
            parts.commit_log,
            parts.queues,
            parts.index,
            parts.lane,
            readable_end=self.readable_end,
            damage=parts.damage,
            delay_levels_ms=config.delay_levels_ms,
            extension=config.enable_consume_queue_ext,
        )
        if isinstance(made, ExternalDispatcher):
            patience_ms, read_only = config.dispatch_patience_ms, self.read_only
            made.use(self._side, poll_ms=config.dispatch_poll_ms, patience_ms=patience_ms, read_only=read_only)
        return made

    @property
    def _is_external(self) -> bool:
        return self.config.dispatch == "external"

    # ------------------------------------------------------------------ opening

    def open(self, progress: Progress | None) -> None:
        paths, medium = self.parts.paths, self.medium
        refuse_rocksdb(paths, medium)
        if not self.read_only:
            self._claim(paths)
        elif not medium.exists(self.path):
            raise DamagedStore("there is no such directory", path=self.path)
        try:
            self._take_dispatch()
            if not self.read_only:
                finish_swap(paths, medium)
            self._load()
            self._recover(progress)
            if self._is_cutting:
                PendingCut(paths, medium).done()
            self._start()
        except BaseException:
            self._abandon()
            raise

    def _claim(self, paths: StorePaths) -> None:
        """Take the lock before anything is looked at, so that nobody changes what is being read."""
        if self.medium.exists(self.path) and not self.medium.exists(paths.lock):
            # Loading fails on a directory that is no store: then not even a lock file is left in it.
            self._load_only()
        self.medium.make_directories(self.path)
        self._lock = self.medium.lock(paths.lock)

    def _take_dispatch(self) -> None:
        """Nobody outside writes queues and index while the store opens; nor later, if it dispatches itself."""
        if not self.read_only and (self._is_external or self._side.is_there):
            self._side.take("store" if self._is_external else "embedded")

    def _load_published(self) -> Published | None:
        """What a dispatcher outside has published, if that is to be believed.

        After a clean stop the files are complete. And RocketMQ, which may have had the store since, knows no journal
        but moves the checkpoint.
        """
        if not self._side.is_there or (self.read_only and not self._is_external):
            return None
        published = self._side.load()
        if not self.read_only and not self._is_external:
            self._side.forget()
        if published is None or self._was_clean or self._is_cutting:
            return None
        return published if self.parts.checkpoint.values.logics_physical_offset <= published.end else None

    def _load_only(self) -> None:
        medium = OverlayMedium(self.medium)
        probe = make_parts(self.path, self.config, medium, self.now_ms)
        probe.segments.load()
        probe.queues.load()
        if probe.index is not None:
            probe.index.load(last_exit_ok=True, index_safe_timestamp=0)

    def _load(self) -> None:
        parts, move_to = self.parts, self.lifecycle.move_to
        move_to(State.LOAD_BEGIN)
        self._was_clean = not self.medium.exists(parts.paths.abort)
        parts.segments.load()
        self._load_ledger()
        move_to(State.LOAD_COMMITLOG_OK)
        parts.queues.load()
        move_to(State.LOAD_CONSUME_QUEUE_OK)
        parts.checkpoint.load()
        if self.config.enable_calc_filter_bit_map:
            self._load_subscriptions()  # before recovery, which may dispatch
        self._marker.load()
        self._settle_batch()
        self._is_cutting = self._cut_as_asked(PendingCut(parts.paths, self.medium))
        self._published = self._load_published()
        self._dropped_index_files: list[str] = []
        if parts.index is not None:
            safe = parts.checkpoint.values.index_msg_timestamp
            self._dropped_index_files = parts.index.load(self._was_clean or self._published is not None, safe)
        move_to(State.LOAD_INDEX_OK)

    def _load_ledger(self) -> None:
        """In a ledger the log ends where the group has committed it, whatever lies behind."""
        parts = self.parts
        if parts.ledger is not None:
            if not self.read_only:
                prepare_ledger(parts.segments, parts.paths, self.config)
            parts.ledger.load()
            parts.segments.readable_limit = parts.ledger.position_behind(parts.ledger.committed)

    def _load_subscriptions(self) -> None:
        try:
            self.subscriptions.load()
        except DamagedStore:
            if not self.read_only:
                raise  # one that is only read goes on without, and says so once its config folder is loaded

    def _settle_batch(self) -> None:
        parts = self.parts
        self.batch_notes.load()
        self._unclosed = settle_opened_batch(
            self.batch_notes, parts.segments, parts.checkpoint, paths=parts.paths, medium=self.medium
        )

    def _cut_as_asked(self, cut: PendingCut) -> bool:
        """End the log where an earlier run asked for; recovery then brings queues and index in line."""
        end = cut.wanted()
        if end is None or self.read_only:
            return False
        self._mark_unclean()
        self._was_clean = False
        self._marker.remove()
        cut.lower(end, self.parts.segments, self.parts.checkpoint)
        cut.clear_behind(end, self.parts.segments)
        return True

    def _recover(self, progress: Progress | None) -> None:
        parts = self.parts
        self.lifecycle.move_to(State.RECOVER_BEGIN)
        if self.read_only and self._published is not None and isinstance(self.dispatcher, ExternalDispatcher):
            self._look_at_published(self.dispatcher, self._published)
            return
        opening = Opening(
            segments=parts.segments,
            queues=parts.queues,
            index=parts.index,
            checkpoint=parts.checkpoint,
            dispatcher=self.dispatcher,
            damage=parts.damage,
            medium=self.medium,
            cut_directory=parts.paths.cut,
            marker=self._marker,
            delay_levels_ms=self.config.delay_levels_ms,
            threads=scan_threads(),
            mark_unclean=self._mark_unclean,
            store_time_at=self.log.store_time_at,
            record_at=self.log.record_at,
            dropped_index_files=self._dropped_index_files,
            progress=progress,
            read_only=self.read_only,
            published=self._published,
            ledger_end=parts.segments.readable_limit,
        )
        self.recovery = Recovery(opening, clean=self._was_clean).run()
        if self._unclosed is not None:
            self.recovery = self.recovery.with_findings([self._unclosed])
        self.lifecycle.move_to(State.RECOVER_TOPIC_QUEUE_TABLE_OK)

    def _look_at_published(self, dispatcher: ExternalDispatcher, published: Published) -> None:
        """Another process runs the store: serve what was published, and nothing has to be recovered."""
        self.parts.segments.follow(published.end)
        dispatcher.adopt(published)
        self.parts.queues.rebuild_offsets(max(0, self.parts.segments.min_offset))
        self.recovery = RecoveryReport((), clean=self._was_clean, log_end=published.end, dispatched_from=published.end)
        self.lifecycle.move_to(State.RECOVER_TOPIC_QUEUE_TABLE_OK)

    def _start(self) -> None:
        parts = self.parts
        self.put_figures.start()
        if self.read_only:
            if self._is_external and (self._published is not None or self._was_clean):
                self.dispatcher.start()
            self.lifecycle.set(Flag.NOT_WRITEABLE)
            self.lifecycle.move_to(State.RUNNING)
            return
        if parts.pool is not None:
            parts.pool.start()
        parts.allocator.start()
        self.log.start(parts.queues.next_offsets)
        self.log.on_wait = self.counters.put_took
        self._offsets_before = parts.queues.offsets_handed_out
        self._mark_unclean()
        self._marker.remove()
        self.flushing.start(self.tick)
        self.dispatcher.start()
        close_in_children(self)
        self.lifecycle.move_to(State.RUNNING)
        if not self._was_clean and self.flushing.queue_flush is not None:
            self.flushing.queue_flush.flush_all()

    def _mark_unclean(self) -> None:
        self.medium.write(self.parts.paths.abort, encode_abort(os.getpid()))

    def _abandon(self) -> None:
        """Opening failed: give everything back, leave the directory as it is."""
        self.flushing.stop()
        self.flushing.stop_queue_flush()
        self.parts.allocator.shut_down()
        self._give_back()

    # ------------------------------------------------------------------ closing

    def shutdown(self) -> None:
        """Stop cleanly: flush everything, dispatch the rest, remove `abort`. A second call does nothing."""
        with self._closing:
            if self.lifecycle.state is not State.RUNNING:
                return
            self.lifecycle.move_to(State.SHUTDOWN_BEGIN)
            try:
                if not self.read_only:
                    self.log.close()
                    self._stop_threads()
                    self._close_files()
            finally:
                try:
                    self._give_back()
                finally:
                    self.lifecycle.move_to(State.SHUTDOWN_OK)

    def _stop_threads(self) -> None:
        self.flushing.stop()
        if self.lifecycle.flags & Flag.NOT_WRITEABLE == 0:
            # What nobody waits for may have come while the last flush ran; under sync flush only flushed records are
            # dispatched, and a clean stop promises that all are.
            self.parts.segments.flush_all()
        self._is_finished = self.dispatcher.finish()
        self.flushing.stop_queue_flush()

    def _close_files(self) -> None:
        """Make everything durable; only if all of it worked is the stop a clean one."""
        parts = self.parts
        is_clean = not self.lifecycle.flags & Flag.NOT_WRITEABLE and self._is_finished
        try:
            if is_clean and self.flushing.queue_flush is not None:
                parts.segments.flush_all()
                self.flushing.note_flushed()
                if parts.index is not None:
                    parts.index.flush()
                    parts.checkpoint.set(index_msg_timestamp=parts.index.last_header.end_timestamp)
                self.flushing.queue_flush.flush_all()
                if parts.ledger is not None:
                    parts.ledger.settle()
        finally:
            parts.allocator.shut_down()
        if is_clean:
            self._side.forget()
            self._write_marker()
            self.medium.remove(parts.paths.abort)
            self.medium.sync_directory(self.path)

    def _write_marker(self) -> None:
        parts = self.parts
        index_files = 0 if parts.index is None else len(parts.index.files)
        try:
            self._marker.write(
                log_end=self.log.max_offset, queue_count=len(parts.queues.all()), index_file_count=index_files
            )
        except DiskFull as failure:
            # The stop is clean without it: the next opening believes the directory alone.
            log.warning("the stop was not written down: %s", failure)

    def _give_back(self) -> None:
        """Give everything back, from the dispatcher to the lock; what fails on the way stops none of the rest."""
        parts = self.parts
        with ExitStack() as last_to_first:
            last_to_first.callback(self._release_lock)
            last_to_first.callback(self._side.close)
            last_to_first.callback(parts.checkpoint.close)
            if parts.pool is not None:
                last_to_first.callback(parts.pool.shut_down)
            last_to_first.callback(parts.segments.shut_down)
            if parts.ledger is not None:
                last_to_first.callback(parts.ledger.release)
            if parts.index is not None:
                last_to_first.callback(parts.index.shut_down)
            last_to_first.callback(parts.queues.shut_down)
            last_to_first.callback(self.dispatcher.stop)

    def leave_to_parent(self) -> None:
        """This is a forked child: the store is its parent's. The lock stays with the parent's own descriptor."""
        self._closing = threading.Lock()
        self.is_left_to_parent = True
        self.lifecycle.end()
        self._side.release()
        self._release_lock()

    def check_open(self) -> None:
        """Raise when the directory is not, or no longer, this store's to write into."""
        if self.lifecycle.state is not State.RUNNING:
            raise StoreClosed("the store is not open", path=self.path)

    def _release_lock(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def destroy(self) -> None:
        """Shut down and remove the store's files, and nothing else that lies in the directory."""
        if self.read_only:
            raise StoreClosed("a store that was opened read-only is not destroyed", path=self.path)
        self.shutdown()
        paths = self.parts.paths
        if not is_store(paths, self.medium):
            raise DamagedStore("this directory is not a store", path=self.path)
        lock = self.medium.lock(paths.lock)
        try:
            remove_store(paths, self.medium)
        finally:
            lock.release()

    # ------------------------------------------------------------------ behind a put

    def use_bitmap_hook(self, hook: BitmapHook | None) -> None:
        """Who makes the bitmaps of queue extensions: a hook of the user's, or the registered subscriptions."""
        if hook is None and self.config.enable_calc_filter_bit_map:
            hook = self.subscriptions.bitmap_of
        self.dispatcher.bitmap_hook = hook

    def readable_end(self) -> int:
        """How far dispatch may go: what is flushed under sync flush, what can be read under async flush."""
        segments = self.parts.segments
        if self.parts.ledger is not None:
            return segments.max_offset
        if self.config.flush == "sync" and not self.config.read_un_committed:
            return segments.flushed_where
        return segments.max_offset

    def tick(self) -> None:
        """Once a second: totals are kept for the rates, and what stalled for want of space is tried again."""
        if self.samples_itself and time.monotonic() >= self._next_sample_s:
            self._next_sample_s = time.monotonic() + 0.999
            self.sample()
        if self.dispatcher.failure is not None:
            self.dispatcher.advance()
        if self.dispatcher.failure is not None:
            self.lifecycle.set(Flag.LOGICS_QUEUE_ERROR)
        else:
            self.lifecycle.clear(Flag.LOGICS_QUEUE_ERROR)

    def flush(self) -> None:
        """Make everything put so far durable, in the caller's thread."""
        if self.read_only:
            return
        self.flushing.flush()

    def wait_dispatched(self) -> None:
        """Return when everything put so far is visible; in an arrival listener it returns at once."""
        if self.read_only:
            return
        self.flushing.make_readable()
        self.dispatcher.advance_and_wait()

    # ------------------------------------------------------------------ figures

    def sample(self) -> int:
        """Keep the totals of this second for the rates; when to do it again, by the store's clock."""
        self.counters.dispatch_behind(self.dispatcher.backlog_bytes)
        self.counters.sample()
        self.broker_stats.tick()
        return self.now_ms() + SAMPLE_INTERVAL_MS

    def stats(self) -> dict[str, int | float | str]:
        """Counters, rates and offsets under RocketMQ's names; numbers where RocketMQ shows one number."""
        paths = self.parts.paths
        ratios = {str(path): self._used_ratio(path) for path in paths.commit_logs}
        found = self.counters.values()
        found["commitLogDiskRatio"] = min(ratios.values())
        if len(ratios) > 1:
            found.update({f"commitLogDiskRatio_{path}": ratio for path, ratio in ratios.items()})
        found["consumeQueueDiskRatio"] = self._used_ratio(paths.consume_queue)
        found["commitLogMinOffset"] = max(0, self.log.min_offset)
        found["commitLogMaxOffset"] = self.log.max_offset
        found["dispatchBehindBytes"] = self.dispatcher.backlog_bytes
        found.update(self.broker_stats.values())
        return found

    def _used_ratio(self, path: Path) -> float:
        """How full the disk of a directory is; -1.0, as in RocketMQ, when that cannot be said."""
        try:
            return self.medium.usage(path if self.medium.exists(path) else self.path).used_ratio
        except FlintlogError:
            return -1.0

    def _put_totals(self) -> PutTotals:
        """Puts and their bytes since the opening, read off the queue offsets and the log instead of being counted."""
        if self.read_only:
            return PutTotals(0, 0)
        appended = self.log.appended_bytes
        if appended != self._totals.bytes:  # adding up 100,000 queues is not for every second
            times = self.parts.queues.offsets_handed_out - self._offsets_before + self.log.unqueued.count
            self._totals = PutTotals(times, appended)
        return self._totals
