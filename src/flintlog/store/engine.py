"""A running store: its components, its threads, and the order in which they start and stop.

Opening loads the files, recovers them (see `recovery.py`) and starts the threads. Stopping ends them in the order in
which they feed each other: flush, dispatch, queues, index, checkpoint, and at last the `abort` file, whose absence
says that all of it happened.

Its threads are those of `flush_stages.py` and the allocator's. A put needs none but group commit.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from flintlog.disk.media.medium import LockFile, Medium
from flintlog.errors import DamagedStore, DiskFull, FlintlogError, StoreClosed
from flintlog.kernel import ClosedFor
from flintlog.store.components import Components, make_components, make_flushing
from flintlog.store.dispatch.concurrent_dispatch import ConcurrentDispatcher
from flintlog.store.dispatch.dispatcher import Dispatcher
from flintlog.store.dispatch.entry_writer import BitmapHook
from flintlog.store.dispatch.external.follower import ExternalDispatcher
from flintlog.store.dispatch.external.handshake import Handshake
from flintlog.store.flush.flushing import Flushing
from flintlog.store.flush.put_timing import PutTiming
from flintlog.store.log.batch_markers import OpeningMarker
from flintlog.store.log.log import OPEN
from flintlog.store.model.recovery_report import RecoveryReport
from flintlog.store.options.store_config import StoreConfig
from flintlog.store.paths import StorePaths, is_store, refuse_rocksdb, remove_store
from flintlog.store.recovery.batch_notes import BatchNotes, batch_at
from flintlog.store.recovery.loader import Loader, Notes, try_loading
from flintlog.store.recovery.stop_marker import StopMarker
from flintlog.store.recovery.swap import finish_swap
from flintlog.store.runtime.clock import Milliseconds
from flintlog.store.runtime.forking import close_in_children
from flintlog.store.runtime.jobs import Progress
from flintlog.store.runtime.lifecycle import Flag, Lifecycle, State
from flintlog.store.settings.config_files import ConfigFiles
from flintlog.store.settings.written_with import note_for_dispatch
from flintlog.store.stats.figures import Figures

log = logging.getLogger(__name__)


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
        self.parts = parts = make_components(path, config, medium, now_ms)
        self.log = parts.commit_log
        self._handshake = Handshake(parts.paths.dispatch, medium, patience_ms=config.dispatch_patience_ms)
        self.dispatcher = self._make_dispatcher()
        self.figures = Figures(config, parts, self.dispatcher, now_ms, read_only=read_only)
        self.is_left_to_parent = False
        self.settings = ConfigFiles(
            parts.paths,
            config,
            medium,
            now_ms,
            read_only=read_only,
            check_open=self.check_open,
            flush=self.flush,
        )
        self.use_bitmap_hook(None)
        waits = PutTiming(self.figures.counters, self.figures.broker)
        self.flushing = make_flushing(config, parts, self.dispatcher, self.lifecycle, waits)
        self.is_replica = config.broker_role == "SLAVE"
        self.medium = medium
        self.now_ms = now_ms
        self.batch_notes = BatchNotes(parts.paths.batches, medium)
        self.on_tick: Callable[[], None] = lambda: None
        """Called once a second, for the writer of closed batches."""
        self._marker = StopMarker(parts.paths.stop_marker, medium)
        self._lock: LockFile | None = None
        self._closing = threading.Lock()
        notes = Notes(self._handshake, self._marker, self.batch_notes)
        self._loader = Loader(config, parts, self.dispatcher, self.lifecycle, notes, read_only=read_only)

    def _make_dispatcher(self) -> Dispatcher:
        parts, config = self.parts, self.config
        kind = ConcurrentDispatcher if config.enable_build_consume_queue_concurrently else Dispatcher
        made = (ExternalDispatcher if self._is_external else kind)(
            parts.commit_log,
            parts.queues,
            parts.index,
            parts.fast_dispatch,
            readable_end=parts.commit_log.visible_end,
            damage=parts.damage,
            delay_levels_ms=config.delay_levels_ms,
            extension=config.enable_consume_queue_ext,
        )
        if isinstance(made, ExternalDispatcher):
            patience_ms, read_only = config.dispatch_patience_ms, self.read_only
            made.use(self._handshake, poll_ms=config.dispatch_poll_ms, patience_ms=patience_ms, read_only=read_only)
        if isinstance(made, ConcurrentDispatcher):
            made.threads = config.batch_dispatch_request_thread_pool_nums
        if not made.lets_puts_dispatch:
            parts.commit_log.fast_put.close(ClosedFor.DISPATCHER)
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
            self.settings.load()
            self.parts.queues.set_types(self.settings.queue_types)
            if not self.read_only:
                finish_swap(paths, medium)
            self._loader.load()
            self.recovery = self._loader.recover(progress)
            self._start()
        except BaseException:
            self._abandon()
            raise

    def _claim(self, paths: StorePaths) -> None:
        """Take the lock before anything is read, so that no other process changes it meanwhile."""
        if self.medium.exists(self.path) and not self.medium.exists(paths.lock):
            # Loading fails on a directory that is no store: then not even a lock file is left in it.
            try_loading(self.path, self.config, self.medium, self.now_ms)
        self.medium.make_directories(self.path)
        self._lock = self.medium.lock(paths.lock)

    def _take_dispatch(self) -> None:
        """Keep dispatchers outside from writing while the store opens; also later, if it dispatches itself."""
        if not self.read_only and (self._is_external or self._handshake.is_there):
            self._handshake.take("store" if self._is_external else "embedded")
        if self._is_external and not self.read_only:
            note_for_dispatch(self.parts.paths, self.config, self.medium)

    def _start(self) -> None:
        parts = self.parts
        self.figures.start()
        if self.read_only:
            if self._is_external and (self._loader.published is not None or self._loader.was_clean):
                self.dispatcher.start()
            self.lifecycle.set(Flag.NOT_WRITEABLE)
            self.lifecycle.move_to(State.RUNNING)
            return
        if parts.pool is not None:
            parts.pool.start()
        parts.allocator.start()
        self.log.start()
        self.log.on_wait = self.figures.counters.put_took
        self._loader.mark_unclean()
        self._marker.remove()
        self.flushing.start(self.tick)
        self.dispatcher.start()
        close_in_children(self)
        self.lifecycle.move_to(State.RUNNING)
        if not self._loader.was_clean and self.flushing.queue_flush is not None:
            self.flushing.queue_flush.flush_all()

    def _abandon(self) -> None:
        """Opening failed: close everything, leave the directory as it is."""
        self.flushing.stop()
        self.flushing.stop_queue_flush()
        self.parts.allocator.shut_down()
        self._close()

    # ------------------------------------------------------------------ closing

    def shutdown(self) -> None:
        """Stop cleanly: flush everything, dispatch the rest, remove `abort`. A second call does nothing.

        If the first was interrupted, the second ends what is left; the stop may then be an unclean one.
        """
        with self._closing:
            state = self.lifecycle.state
            if state is State.RUNNING:
                self.lifecycle.move_to(State.SHUTDOWN_BEGIN)
            elif state is not State.SHUTDOWN_BEGIN:  # else a signal's handler ended an earlier call in the middle
                return
            is_clean = False
            try:
                if not self.read_only:
                    try:
                        is_clean = self._settle()
                    except FlintlogError:
                        raise
                    except BaseException:
                        self._settle()  # a signal handler may have raised; closing drops what write buffers hold
                        raise
                if is_clean and state is State.RUNNING:
                    _mark_clean(self.parts, self._handshake, self._marker)
            finally:
                self._end()

    def _end(self) -> None:
        """Close everything, whatever was raised before. The lock is released last; then the store is shut down."""
        try:
            self._close()
        finally:
            if self._lock is None:
                self.lifecycle.move_to(State.SHUTDOWN_OK)

    def _settle(self) -> bool:
        """End the threads and make everything durable. Returns whether all of it worked: then the stop is clean."""
        try:
            is_finished = self._stop_threads()
            # A slave may be stopped inside a batch: after an unclean stop the next opening cuts the part.
            is_clean = is_finished and not self.log.is_batch_open and not self.lifecycle.flags & Flag.NOT_WRITEABLE
            if is_clean:
                _flush_everything(self.parts, self.flushing)
                if self.batch_notes.opened is not None:
                    self.batch_notes.close()  # put_closed was interrupted after the marker of its batch
            return is_clean
        finally:
            self.parts.allocator.shut_down()

    def _stop_threads(self) -> bool:
        """Stop them in the order in which they feed each other. Returns whether everything was dispatched."""
        try:
            self.log.close()
            self.flushing.stop()
            if self.lifecycle.flags & Flag.NOT_WRITEABLE == 0:
                # Puts that do not wait may have been appended while the last flush ran. Under sync flush only flushed
                # records are dispatched, and a clean stop promises that all are.
                self.log.sync()
            return self.dispatcher.finish()
        finally:
            self.flushing.stop_queue_flush()

    def _close(self) -> None:
        _close_everything(self.parts, self.dispatcher, self._handshake, self._release_lock)

    def leave_to_parent(self) -> None:
        """This is a forked child: the store is its parent's. The lock stays with the parent's own descriptor."""
        self._closing = threading.Lock()
        self.is_left_to_parent = True
        self.lifecycle.end()
        self._handshake.release()
        self._release_lock()

    def check_open(self) -> None:
        """Raise unless this store is open, and may write to its directory."""
        if self.lifecycle.state is not State.RUNNING:
            raise StoreClosed("the store is not open", path=self.path)

    def check_readable(self) -> None:
        """Raise unless queues and log can be read now."""
        if not self.lifecycle.is_readable:
            raise StoreClosed("the store is not open for reading", path=self.path)

    def check_writable(self) -> None:
        """Raise unless the store can be changed now."""
        if self.read_only:
            raise StoreClosed("the store was opened read-only", path=self.path)
        self.check_readable()

    def _release_lock(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def destroy(self) -> None:
        """Shut down and remove the store's files, `flintlog/` as a whole, and nothing else in the directory."""
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

    # ------------------------------------------------------------------ after a put

    def use_bitmap_hook(self, hook: BitmapHook | None) -> None:
        """Make the bitmaps of queue extensions with this hook; with None, by the registered subscriptions."""
        if hook is None and self.config.enable_calc_filter_bit_map:
            hook = self.settings.subscriptions.bitmap_of
        self.dispatcher.entries.bitmap_hook = hook

    def open_batch(self, start: int, marker: OpeningMarker) -> None:
        """Note durably that a batch begins here, before any of it is in the log."""
        self.log.batch_range = (start, OPEN)
        before = self.parts.checkpoint.values
        self.batch_notes.open(batch_at(start, marker, before, self.parts.paths.abort, self.medium))

    def tick(self) -> None:
        """Once a second: keep totals for the rates, and try a dispatch again that failed for lack of space."""
        self.figures.tick()
        self.on_tick()
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
        if not self.dispatcher.is_calling_listener:
            self.dispatcher.check_progress()


# ------------------------------------------------------------------ stopping


def _flush_everything(parts: Components, flushing: Flushing) -> None:
    """Make everything durable, and let the checkpoint say so."""
    if flushing.queue_flush is None:
        return
    parts.commit_log.settle()
    flushing.note_flushed()
    if parts.index is not None:
        parts.index.flush()
        parts.checkpoint.set(index_msg_timestamp=parts.index.last_header.end_timestamp)
    flushing.queue_flush.flush_all()


def _mark_clean(parts: Components, handshake: Handshake, marker: StopMarker) -> None:
    """Everything is durable: leave the directory as one that was stopped cleanly."""
    handshake.forget()
    index_files = 0 if parts.index is None else len(parts.index.files)
    parts.checkpoint.flush()
    try:
        marker.write(
            parts.checkpoint.values,
            log_end=parts.commit_log.max_offset,
            queue_count=len(parts.queues.all()),
            queue_file_count=parts.queues.file_count,
            index_file_count=index_files,
            queue_bytes=parts.queues.wrote_bytes,
        )
    except DiskFull as failure:
        # The stop is clean without it: the next opening believes the directory alone.
        log.warning("the stop was not written down: %s", failure)
    parts.medium.remove(parts.paths.abort)
    parts.medium.sync_directory(parts.paths.root)


def _close_everything(
    parts: Components, dispatcher: Dispatcher, handshake: Handshake, release_lock: Callable[[], None]
) -> None:
    """Close everything, from the dispatcher to the lock; all are closed, whatever one of them raises."""
    with ExitStack() as last_to_first:
        last_to_first.callback(release_lock)
        last_to_first.callback(handshake.close)
        last_to_first.callback(parts.checkpoint.close)
        if parts.pool is not None:
            last_to_first.callback(parts.pool.shut_down)
        last_to_first.callback(parts.commit_log.release)
        if parts.index is not None:
            last_to_first.callback(parts.index.shut_down)
        last_to_first.callback(parts.queues.shut_down)
        last_to_first.callback(dispatcher.stop)
