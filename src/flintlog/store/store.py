"""`Store`: one directory of messages, open.

    with open_store("orders-store") as store:
        store.put(Message("orders", b"..."))
        store.get("orders", queue_id=0, offset=0).messages

Opening loads the files, recovers them (see `recovery.py`) and starts the threads; `shutdown` stops them in the order in
which they feed each other: flush, dispatch, queues, index, checkpoint, and at last the `abort` file, whose absence
says that all of it happened. Everything a store does is done by its parts (`parts.py`); this class
connects them and is what users see. Every method may be called from any thread.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self, cast

import msgspec

from flintlog.disk.local import LocalMedium
from flintlog.disk.medium import LockFile, Medium, load_medium
from flintlog.disk.overlay import OverlayMedium
from flintlog.disk.page_toucher import PageToucher
from flintlog.errors import (
    DamagedStore,
    DiskFull,
    FlintlogError,
    InvalidConfig,
    InvalidMessage,
    ServiceNotEnabled,
    StoreClosed,
    SyncFailed,
)
from flintlog.format.names import encode_abort
from flintlog.format.properties import INNER_MULTI_DISPATCH, INNER_NUM, WAIT_STORE_MSG_OK
from flintlog.format.sys_flag import INNER_BATCH, TRANSACTION_MASK, is_compressed, takes_queue_offset
from flintlog.store.checks import (
    check_batch,
    check_count,
    check_int64,
    check_offset,
    check_queue,
    check_text,
    check_topics,
    check_types,
)
from flintlog.store.clock import Clock, Milliseconds, as_milliseconds
from flintlog.store.commit_log import Placement
from flintlog.store.compression import Codec, compress
from flintlog.store.concurrent_dispatch import ConcurrentDispatcher
from flintlog.store.config import StoreConfig
from flintlog.store.dispatch import BitmapHook, Dispatcher, Listener, may_multi_dispatch
from flintlog.store.filters import MessageFilter, as_filter
from flintlog.store.flush import AsyncFlush, Commit, GroupCommit
from flintlog.store.housekeeping import QueueFlush
from flintlog.store.lifecycle import Flag, Lifecycle, State
from flintlog.store.logical_queue import QueueType
from flintlog.store.message import Message, PutStatus, Receipt, Receipts, refused
from flintlog.store.parts import make_parts, scan_threads
from flintlog.store.paths import StorePaths, is_store, refuse_rocksdb, remove_store
from flintlog.store.placement import InBatchQueue, MultiDispatched, Unqueued, inner_count
from flintlog.store.reading import MAX_PULL_BYTES, Reader
from flintlog.store.recovery import Opening, Recovery
from flintlog.store.recovery_report import RecoveryReport
from flintlog.store.stats import StoreStatsService
from flintlog.store.stop_marker import StopMarker
from flintlog.store.stored import Page, QueueInfo, StoredMessage

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)

_OK = PutStatus.PUT_OK
_SPECIAL_FLAGS = TRANSACTION_MASK | INNER_BATCH

BeforePut = Callable[[Message], "Message | Receipt | None"]
"""Looks at a message before it is appended: returns another one, a receipt that ends the put, or None."""
Progress = Callable[[int, int], None]
"""Told (done, total) in bytes while a long opening goes on."""


def open_store(
    path: str | os.PathLike[str],
    config: StoreConfig | None = None,
    *,
    clock: Clock | Milliseconds | None = None,
    read_only: bool = False,
    medium: Medium | None = None,
    progress: Progress | None = None,
) -> Store:
    """Open a store directory: load, recover, start. A directory that does not exist becomes an empty store.

    `read_only` takes no lock and writes nothing: what has to be recovered is recovered in memory.

    >>> import tempfile
    >>> config = StoreConfig(mapped_file_size_commit_log=65536, max_hash_slot_num=100, max_index_num=400)
    >>> with tempfile.TemporaryDirectory() as folder, open_store(folder, config) as store:
    ...     receipt = store.put(Message("orders", b"42 pieces", tags="paid", keys=["o-17"])).check()
    ...     [message.body for message in store.get("orders", queue_id=0, offset=0, filter="paid || shipped").messages]
    [b'42 pieces']
    """
    config = StoreConfig() if config is None else config
    if not isinstance(config, StoreConfig):
        raise InvalidConfig(f"a store is opened with a StoreConfig, not {type(config).__name__}")
    disk = medium if medium is not None else _make_medium(config)
    held = disk.stat(Path(path))
    if held is not None and not held.is_directory:
        raise DamagedStore("this is a file, not a store's directory", path=path)
    if read_only:
        disk = OverlayMedium(disk)
    store = Store(Path(path), config, disk, as_milliseconds(clock), read_only=read_only)
    store._open(progress)
    return store


def _make_medium(config: StoreConfig) -> Medium:
    return LocalMedium(config.max_mapped_files) if config.medium == "local" else load_medium(config.medium)


class Store:
    """An open store; made by `open_store`."""

    def __init__(
        self, path: Path, config: StoreConfig, medium: Medium, now_ms: Milliseconds, *, read_only: bool
    ) -> None:
        self.path = path
        self.config = config
        self.read_only = read_only
        self.recovery = RecoveryReport((), clean=True, log_end=0, dispatched_from=0)
        self._put_hooks: list[BeforePut] = []
        self._medium = medium
        self._now_ms = now_ms
        self._parts = parts = make_parts(path, config, medium, now_ms)
        self._log = parts.commit_log
        self._put_lane = parts.commit_log.put_lane
        self._put_plain = self._put_lane.put
        self._is_sync = config.flush == "sync"
        kind = ConcurrentDispatcher if config.enable_build_consume_queue_concurrently else Dispatcher
        self._dispatcher = kind(
            parts.commit_log,
            parts.queues,
            parts.index,
            parts.lane,
            readable_end=self._readable_end,
            damage=parts.damage,
            delay_levels_ms=config.delay_levels_ms,
            extension=config.enable_consume_queue_ext,
        )
        self._reader = Reader(parts.commit_log, parts.queues, parts.index, parts.damage, config)
        self._marker = StopMarker(parts.paths.stop_marker, medium)
        self._lock: LockFile | None = None
        self._group_commit: GroupCommit | None = None
        self._async_flush: AsyncFlush | None = None
        self._commit: Commit | None = None
        self._queue_flush: QueueFlush | None = None
        self._toucher: PageToucher | None = None
        self._multi_dispatch = config.enable_lmq and config.enable_multi_dispatch
        self._has_batch_topics = False
        self._wakes_flush = config.wake_flush_when_put_message
        self._wakes_commit = config.wake_commit_when_put_message
        self._offsets_before = 0
        self._stats = StoreStatsService(now_ms, self._put_totals)
        self._next_sample_s = 0.0
        self._closing = threading.Lock()
        self.lifecycle = Lifecycle(self._open_short_way)

    # ------------------------------------------------------------------ opening

    def _open(self, progress: Progress | None) -> None:
        paths, medium = self._parts.paths, self._medium
        refuse_rocksdb(paths, medium)
        if not self.read_only:
            self._claim(paths)
        elif not medium.exists(self.path):
            raise DamagedStore("there is no such directory", path=self.path)
        try:
            self._load()
            self._recover(progress)
            self._start()
        except BaseException:
            self._abandon()
            raise

    def _claim(self, paths: StorePaths) -> None:
        """Take the lock before anything is looked at, so that nobody changes what is being read."""
        if self._medium.exists(self.path) and not self._medium.exists(paths.lock):
            # Loading fails on a directory that is no store: then not even a lock file is left in it.
            self._load_only()
        self._medium.make_directories(self.path)
        self._lock = self._medium.lock(paths.lock)

    def _load_only(self) -> None:
        medium = OverlayMedium(self._medium)
        probe = make_parts(self.path, self.config, medium, self._now_ms)
        probe.segments.load()
        probe.queues.load()
        if probe.index is not None:
            probe.index.load(last_exit_ok=True, index_safe_timestamp=0)

    def _load(self) -> None:
        parts, move_to = self._parts, self.lifecycle.move_to
        move_to(State.LOAD_BEGIN)
        self._was_clean = not self._medium.exists(parts.paths.abort)
        parts.segments.load()
        move_to(State.LOAD_COMMITLOG_OK)
        parts.queues.load()
        move_to(State.LOAD_CONSUME_QUEUE_OK)
        parts.checkpoint.load()
        self._marker.load()
        self._dropped_index_files: list[str] = []
        if parts.index is not None:
            safe = parts.checkpoint.values.index_msg_timestamp
            self._dropped_index_files = parts.index.load(self._was_clean, safe)
        move_to(State.LOAD_INDEX_OK)

    def _recover(self, progress: Progress | None) -> None:
        parts = self._parts
        self.lifecycle.move_to(State.RECOVER_BEGIN)
        opening = Opening(
            segments=parts.segments,
            queues=parts.queues,
            index=parts.index,
            checkpoint=parts.checkpoint,
            dispatcher=self._dispatcher,
            damage=parts.damage,
            medium=self._medium,
            cut_directory=parts.paths.cut,
            marker=self._marker,
            delay_levels_ms=self.config.delay_levels_ms,
            threads=scan_threads(),
            mark_unclean=self._mark_unclean,
            store_time_at=self._log.store_time_at,
            record_at=self._log.record_at,
            dropped_index_files=self._dropped_index_files,
            progress=progress,
        )
        self.recovery = Recovery(opening, clean=self._was_clean).run()
        self.lifecycle.move_to(State.RECOVER_TOPIC_QUEUE_TABLE_OK)

    def _start(self) -> None:
        parts, config = self._parts, self.config
        if self.read_only:
            self.lifecycle.set(Flag.NOT_WRITEABLE)
            self.lifecycle.move_to(State.RUNNING)
            return
        if parts.pool is not None:
            parts.pool.start()
        parts.allocator.start()
        self._log.start(parts.queues.next_offsets)
        self._log.on_wait = self._stats.put_took
        self._offsets_before = parts.queues.offsets_handed_out
        self._has_batch_topics = parts.queues.has_batch_topics
        self._mark_unclean()
        self._marker.remove()
        self._start_threads(config)
        self._dispatcher.start()
        self.lifecycle.move_to(State.RUNNING)
        if not self._was_clean and self._queue_flush is not None:
            self._queue_flush.flush_all()

    def _mark_unclean(self) -> None:
        self._medium.write(self._parts.paths.abort, encode_abort(os.getpid()))

    def _start_threads(self, config: StoreConfig) -> None:
        parts = self._parts
        if parts.pool is not None:
            self._commit = Commit(
                parts.segments.commit,
                interval_ms=config.commit_interval_commit_log,
                least_pages=config.commit_commit_log_least_pages,
                thorough_interval_ms=config.commit_commit_log_thorough_interval,
                after_commit=self._after_commit,
            )
        if self._is_sync:
            self._group_commit = GroupCommit(
                parts.segments,
                timeout_ms=config.sync_flush_timeout,
                before_flush=None if self._commit is None else self._commit.commit_now,
                after_flush=self._after_flush,
                on_failure=self._on_sync_failure,
                counted=self._stats,
            )
            self._group_commit.start()
        else:
            self._async_flush = AsyncFlush(
                parts.segments,
                interval_ms=config.flush_interval_commit_log,
                least_pages=config.flush_commit_log_least_pages,
                thorough_interval_ms=config.flush_commit_log_thorough_interval,
                after_flush=self._note_flushed,
                on_failure=self._on_sync_failure,
            )
            self._async_flush.start()
        if self._commit is not None:
            self._commit.start()
        self._queue_flush = QueueFlush(
            parts.segments,
            parts.queues,
            parts.checkpoint,
            self._dispatcher,
            interval_ms=config.flush_interval_consume_queue,
            least_pages=config.flush_consume_queue_least_pages,
            thorough_interval_ms=config.flush_consume_queue_thorough_interval,
            on_tick=self._tick,
        )
        self._queue_flush.start()
        if config.warm_ahead_bytes:
            self._toucher = PageToucher(lambda: parts.segments.last, ahead_bytes=config.warm_ahead_bytes)
            self._toucher.start()

    def _abandon(self) -> None:
        """Opening failed: give everything back, leave the directory as it is."""
        for service in (self._toucher, self._commit, self._group_commit, self._async_flush, self._queue_flush):
            if service is not None:
                service.stop()
        self._parts.allocator.shut_down()
        self._give_back()

    # ------------------------------------------------------------------ closing

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shutdown()

    def shutdown(self) -> None:
        """Stop cleanly: flush everything, dispatch the rest, remove `abort`. A second call does nothing."""
        with self._closing:
            if self.lifecycle.state is not State.RUNNING:
                return
            self.lifecycle.move_to(State.SHUTDOWN_BEGIN)
            try:
                if not self.read_only:
                    self._log.close()
                    self._stop_threads()
                    self._close_files()
            finally:
                try:
                    self._give_back()
                finally:
                    self.lifecycle.move_to(State.SHUTDOWN_OK)

    close = shutdown

    def _stop_threads(self) -> None:
        for service in (self._toucher, self._commit, self._group_commit, self._async_flush):
            if service is not None:
                service.stop()
        self._dispatcher.advance_and_wait()  # a thread that is still at it would leave a backlog: an unclean stop
        if self._queue_flush is not None:
            self._queue_flush.stop()

    def _close_files(self) -> None:
        """Make everything durable; only if all of it worked is the stop a clean one."""
        parts = self._parts
        is_clean = not self.lifecycle.flags & Flag.NOT_WRITEABLE and self._dispatcher.backlog_bytes == 0
        try:
            if is_clean and self._queue_flush is not None:
                parts.segments.flush_all()
                self._note_flushed()
                if parts.index is not None:
                    parts.index.flush()
                    parts.checkpoint.set(index_msg_timestamp=parts.index.last_header.end_timestamp)
                self._queue_flush.flush_all()
        except FlintlogError:
            is_clean = False
            raise
        finally:
            parts.allocator.shut_down()
            if is_clean:
                self._write_marker()
                self._medium.remove(parts.paths.abort)
                self._medium.sync_directory(self.path)

    def _write_marker(self) -> None:
        parts = self._parts
        index_files = 0 if parts.index is None else len(parts.index.files)
        try:
            self._marker.write(
                log_end=self._log.max_offset, queue_count=len(parts.queues.all()), index_file_count=index_files
            )
        except DiskFull as failure:
            # The stop is clean without it: the next opening believes the directory alone.
            log.warning("the stop was not written down: %s", failure)

    def _give_back(self) -> None:
        """Give everything back, from the dispatcher to the lock; what fails on the way stops none of the rest."""
        parts = self._parts
        with ExitStack() as last_to_first:
            last_to_first.callback(self._release_lock)
            last_to_first.callback(parts.checkpoint.close)
            if parts.pool is not None:
                last_to_first.callback(parts.pool.shut_down)
            last_to_first.callback(parts.segments.shut_down)
            if parts.index is not None:
                last_to_first.callback(parts.index.shut_down)
            last_to_first.callback(parts.queues.shut_down)
            last_to_first.callback(self._dispatcher.stop)

    def _release_lock(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def destroy(self) -> None:
        """Shut down and remove the store's files, and nothing else that lies in the directory."""
        if self.read_only:
            raise StoreClosed("a store that was opened read-only is not destroyed", path=self.path)
        self.shutdown()
        paths = self._parts.paths
        if not is_store(paths, self._medium):
            raise DamagedStore("this directory is not a store", path=self.path)
        lock = self._medium.lock(paths.lock)
        try:
            remove_store(paths, self._medium)
        finally:
            lock.release()

    # ------------------------------------------------------------------ putting

    def put(self, message: Message) -> Receipt:
        """Store one message. Under sync flush it is on disk when this returns PUT_OK."""
        receipt: Receipt | None = self._put_plain(message)
        if receipt is None:
            receipt = self._append(message)
            if receipt.status is not _OK:
                return self._count_failed(receipt)
        if self._group_commit is None:
            if self._put_lane.is_behind:
                self._after_append()
            return receipt
        if _waits_not(message):
            self._group_commit.nudge()
            return receipt
        return cast(Receipt, self._group_commit.wait(receipt))

    def put_batch(self, messages: Sequence[Message]) -> Receipts:
        """Store messages of one queue as one write; a receipt for each."""
        receipts: Receipts | None = self._put_lane.put_batch(messages)
        if receipts is None:
            receipts = self._append_batch(messages)
            if receipts.status is not _OK:
                self._stats.put_failed(len(receipts))
                return receipts
        if self._group_commit is None:
            if self._put_lane.is_behind:
                self._after_append()
            return receipts
        return cast(Receipts, self._group_commit.wait(receipts))

    def put_async(self, message: Message) -> Future[Receipt]:
        """Store one message; the future is done when it is as durable as the configuration says."""
        receipt = self._append(message)
        if receipt.status is _OK and self._group_commit is not None and not _waits_not(message):
            return cast("Future[Receipt]", self._group_commit.future(receipt))
        done: Future[Receipt] = Future()
        done.set_result(self._without_waiting(receipt))
        return done

    async def aput(self, message: Message) -> Receipt:
        """Store one message from asyncio; a group of waiting producers is woken by one call into the loop."""
        receipt: Receipt | None = self._put_plain(message)
        if receipt is None:
            receipt = self._append(message)
        if receipt.status is _OK and self._group_commit is not None and not _waits_not(message):
            return cast(Receipt, await self._group_commit.task(receipt))
        return self._without_waiting(receipt)

    async def aput_batch(self, messages: Sequence[Message]) -> Receipts:
        """`put_batch` from asyncio."""
        receipts = self._append_batch(messages)
        if receipts.status is _OK and self._group_commit is not None:
            return cast(Receipts, await self._group_commit.task(receipts))
        if receipts.status is _OK:
            self._after_append()
        else:
            self._stats.put_failed(len(receipts))
        return receipts

    def _without_waiting(self, receipt: Receipt) -> Receipt:
        """The end of a put that nobody waits for: tell those who make it durable and visible."""
        if receipt.status is not _OK:
            return self._count_failed(receipt)
        if self._group_commit is None:
            self._after_append()
        else:
            self._group_commit.nudge()
        return receipt

    def _count_failed(self, receipt: Receipt) -> Receipt:
        self._stats.put_failed()
        return receipt

    def _append(self, message: Message) -> Receipt:
        if not self.lifecycle.is_writeable:
            return self._refuse()
        if type(message) is not Message:
            raise InvalidMessage(f"put takes a Message, not {type(message).__name__}")
        properties = message.properties
        try:
            if (
                self._put_hooks
                or message.sys_flag & _SPECIAL_FLAGS
                or message.delay_level
                or message.deliver_at_ms is not None
                or message.compress is not None
                or (properties is not None and INNER_NUM in properties)
                or self._has_batch_topics
                or self._multi_dispatch
                or self._log.locked_since is not None
            ):
                return self._append_special(message)
            return self._log.put(message)
        except (TypeError, AttributeError):
            check_types(message)
            raise

    def add_put_hook(self, hook: BeforePut) -> None:
        """Let a function look at each message before it is appended."""
        self._put_hooks.append(hook)
        self._open_short_way()

    def _open_short_way(self) -> None:
        """Whether plain messages may go through the kernel's put lane, and be dispatched there."""
        lane = self._put_lane
        lane.is_open = (
            self.lifecycle.is_writeable
            and not self._put_hooks
            and not self._has_batch_topics
            and not self._multi_dispatch
        )
        lane.dispatches = (
            self._dispatcher.leaves_puts_to_lane
            and not self._is_sync
            and not self._wakes_flush
            and self._commit is None
        )

    def _append_batch(self, messages: Sequence[Message]) -> Receipts:
        messages = check_batch(messages)
        if not self.lifecycle.is_writeable:
            return refused(self._refuse().status, len(messages))
        if self._is_busy():
            return refused(PutStatus.OS_PAGE_CACHE_BUSY, len(messages))
        if self._put_hooks:
            answers = [self._ask_hooks(message) for message in messages]
            refusal = next((answer for answer in answers if isinstance(answer, Receipt)), None)
            if refusal is not None:
                return refused(refusal.status, len(messages))
            messages = check_batch(cast("list[Message]", answers))
        try:
            if self._has_batch_topics and self._parts.queues.type_of(messages[0].topic) is QueueType.BATCH:
                raise InvalidMessage("a topic with a batch queue takes inner batches", advice="put each as one message")
            if any(_is_special_in_batch(message) for message in messages):
                messages = [_compressed(_not_inner(message)) for message in messages]
            return self._log.put_batch(messages)
        except (TypeError, AttributeError):
            for message in messages:
                check_types(message)
            raise

    def _ask_hooks(self, message: Message) -> Message | Receipt:
        for hook in self._put_hooks:
            answer = hook(message)
            if isinstance(answer, Receipt):
                return answer
            if answer is None:
                continue
            if type(answer) is not Message:
                raise InvalidMessage(f"a hook before a put answers a Message, a Receipt or None, not {answer!r}")
            message = answer
        return message

    def _is_busy(self) -> bool:
        """Whether a put has held the log for so long that another would only wait behind it."""
        since = self._log.locked_since
        return since is not None and (time.monotonic() - since) * 1000 > self.config.os_page_cache_busy_time_out_mills

    def _append_special(self, message: Message) -> Receipt:
        if self._is_busy():
            return Receipt(PutStatus.OS_PAGE_CACHE_BUSY)
        answer = self._ask_hooks(message)
        if isinstance(answer, Receipt):
            return answer
        message = answer
        check_types(message)
        if message.delay_level or message.deliver_at_ms is not None:
            service = "schedule" if message.delay_level else "timer"
            raise ServiceNotEnabled(
                f"a delayed message needs the service {service!r}",
                advice=f"StoreConfig(services={{{service!r}}})",
            )
        message = _compressed(message)
        placement = self._place(message)
        if isinstance(placement, Receipt):
            return placement
        return self._log.put(message) if placement is None else self._log.put_placed(placement)

    def _place(self, message: Message) -> Placement | Receipt | None:
        """Who decides the queue offset of this message; None for the plain case."""
        queues = self._parts.queues
        if not takes_queue_offset(message.sys_flag):
            return Unqueued(message)
        is_batch = queues.type_of(message.topic) is QueueType.BATCH
        if message.sys_flag & INNER_BATCH and not is_batch:
            raise InvalidMessage("an inner batch needs a topic with a batch queue")
        if is_batch:
            return InBatchQueue(message, queues)
        inner_count(message)
        names = (message.properties or {}).get(INNER_MULTI_DISPATCH)
        if not names or not self._multi_dispatch or not may_multi_dispatch(message.topic):
            return None
        placement = MultiDispatched(message, queues)
        placement.check_names()
        if queues.light_queue_count + placement.new_queue_count > self.config.max_lmq_consume_queue_num:
            return Receipt(PutStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED)
        return placement

    def _refuse(self) -> Receipt:
        if self.read_only:
            raise StoreClosed("the store was opened read-only", path=self.path)
        return Receipt(PutStatus.SERVICE_NOT_AVAILABLE)

    # ------------------------------------------------------------------ behind a put

    def _readable_end(self) -> int:
        """How far dispatch may go: what is flushed under sync flush, what can be read under async flush."""
        segments = self._parts.segments
        if self._is_sync and not self.config.read_un_committed:
            return segments.flushed_where
        return segments.max_offset

    def _after_append(self) -> None:
        if self._commit is not None and self._wakes_commit:
            self._commit.nudge()
        if self._wakes_flush and self._async_flush is not None:
            self._async_flush.nudge()
        self._dispatcher.advance()

    def _after_flush(self) -> None:
        self._dispatcher.advance()
        self._note_flushed()

    def _after_commit(self) -> None:
        if self._group_commit is not None:
            self._group_commit.nudge()
        self._dispatcher.advance()

    def _note_flushed(self) -> None:
        timestamp = self._parts.segments.store_timestamp
        if timestamp > 0:
            self._parts.checkpoint.set(physic_msg_timestamp=timestamp)

    def _on_sync_failure(self, failure: SyncFailed) -> None:
        """After a failed sync nothing is known about the dirty pages: stop writing, go on serving."""
        self.lifecycle.set(Flag.NOT_WRITEABLE)

    def _tick(self) -> None:
        """Once a second: totals are kept for the rates, and what stalled for want of space is tried again."""
        if time.monotonic() >= self._next_sample_s:
            self._next_sample_s = time.monotonic() + 0.999
            self._stats.dispatch_behind(self._dispatcher.backlog_bytes)
            self._stats.sample()
        if self._dispatcher.failure is not None:
            self._dispatcher.advance()
        if self._dispatcher.failure is not None:
            self.lifecycle.set(Flag.LOGICS_QUEUE_ERROR)
        else:
            self.lifecycle.clear(Flag.LOGICS_QUEUE_ERROR)

    def wait_dispatched(self) -> None:
        """Return when everything put so far is visible; in an arrival listener it returns at once."""
        self._check_readable()
        if self.read_only:
            return
        if self._commit is not None:
            self._commit.commit_now()
        if self._is_sync:
            self._parts.segments.flush_all()
        self._dispatcher.advance_and_wait()

    # ------------------------------------------------------------------ reading

    def get(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_count: int = 32,
        filter: str | MessageFilter | None = None,
        max_bytes: int = MAX_PULL_BYTES,
    ) -> Page:
        """Messages of one queue from an offset on, with RocketMQ's status and limits."""
        self._check_readable()
        check_queue(topic, queue_id)
        check_count("max_count", max_count)
        check_count("max_bytes", max_bytes)
        check_int64("a queue offset", offset)
        chosen = None if filter is None else as_filter(filter)
        began = time.monotonic()
        page = self._reader.get(topic, queue_id, offset, max_count, chosen, max_bytes)
        self._stats.get_done(len(page.messages), int((time.monotonic() - began) * 1000))
        return page

    def query(
        self,
        topic: str,
        key: str,
        begin: int = 0,
        end: int = (1 << 63) - 1,
        max_count: int = 32,
        index_type: str | None = None,
    ) -> list[StoredMessage]:
        """Messages that carry a key, stored between two times; `index_type="T"` looks for a tag instead."""
        self._check_readable()
        check_queue(topic, 0)
        check_text("a key", key)
        if index_type is not None:
            check_text("an index type", index_type)
        check_int64("begin", begin)
        check_int64("end", end)
        check_count("max_count", max_count)
        return self._reader.query(topic, key, begin, end, max_count, index_type)

    def message_at(self, physical_offset: int) -> StoredMessage | None:
        """The message whose record begins at this offset of the log."""
        self._check_readable()
        return self._reader.message_at(physical_offset)

    def message_by_id(self, message_id: str) -> StoredMessage | None:
        """The message with this id, as a receipt gives it."""
        self._check_readable()
        return self._reader.message_by_id(message_id)

    def offset_at(self, topic: str, queue_id: int, timestamp_ms: int, boundary: str = "lower") -> int:
        """The queue offset for a point in time."""
        self._check_readable()
        check_queue(topic, queue_id)
        check_int64("a timestamp", timestamp_ms)
        return self._reader.offset_at(topic, queue_id, timestamp_ms, boundary)

    def min_offset(self, topic: str, queue_id: int) -> int:
        """The first offset of a queue that can still be read; 0 when there is no such queue."""
        self._check_readable()
        check_queue(topic, queue_id)
        queue = self._parts.queues.get(topic, queue_id)
        return 0 if queue is None else queue.min_offset

    def max_offset(self, topic: str, queue_id: int) -> int:
        """The offset that the next visible message of a queue will have; 0 when there is no such queue."""
        self._check_readable()
        check_queue(topic, queue_id)
        queue = self._parts.queues.get(topic, queue_id)
        return 0 if queue is None else queue.max_offset

    def queues(self) -> list[QueueInfo]:
        """Every queue, by topic and queue id."""
        self._check_readable()
        found = [
            QueueInfo(queue.topic, queue.queue_id, queue.min_offset, queue.max_offset, queue.type.value)
            for queue in self._parts.queues.all()
        ]
        return sorted(found, key=lambda info: (info.topic, info.queue_id))

    def scan(
        self,
        topics: Sequence[str] | None = None,
        start: int | None = None,
        end: int | None = None,
        include_body: bool = True,
    ) -> Iterator[pa.RecordBatch]:
        """The log as Arrow record batches, in log order, one range at a time."""
        from flintlog.store.scan import scan_log

        self._check_readable()
        check_topics(topics)
        for offset in (start, end):
            if offset is not None:
                check_offset("a physical offset", offset)
        return scan_log(
            self._parts.segments,
            self._parts.damage,
            topics=topics,
            start=start,
            end=end,
            include_body=include_body,
            delay_levels_ms=self.config.delay_levels_ms,
        )

    def stats(self) -> dict[str, int | float | str]:
        """Counters, rates and offsets under RocketMQ's names; numbers where RocketMQ shows one number."""
        paths = self._parts.paths
        ratios = {str(path): self._used_ratio(path) for path in paths.commit_logs}
        found = self._stats.values()
        found["commitLogDiskRatio"] = min(ratios.values())
        if len(ratios) > 1:
            found.update({f"commitLogDiskRatio_{path}": ratio for path, ratio in ratios.items()})
        found["consumeQueueDiskRatio"] = self._used_ratio(paths.consume_queue)
        found["commitLogMinOffset"] = self.min_physical_offset
        found["commitLogMaxOffset"] = self.max_physical_offset
        return found

    def _used_ratio(self, path: Path) -> float:
        """How full the disk of a directory is; -1.0, as in RocketMQ, when that cannot be said."""
        try:
            return self._medium.usage(path if self._medium.exists(path) else self.path).used_ratio
        except FlintlogError:
            return -1.0

    def _put_totals(self) -> tuple[int, int]:
        """Puts and their bytes since the opening, read off the queue offsets and the log instead of being counted."""
        if self.read_only:
            return 0, 0
        times = self._parts.queues.offsets_handed_out - self._offsets_before + self._log.unqueued_count
        return times, self._log.appended_bytes

    def on_arrival(self, callback: Listener) -> None:
        """Call back with an `Arrival` for each message that becomes visible, in log order.

        The callback runs in the thread that made the message visible, which goes on when it returns.
        """
        if not callable(callback):
            raise InvalidConfig(f"a listener is a function, not {type(callback).__name__}")
        self._dispatcher.add_listener(callback)
        self._open_short_way()

    def set_bitmap_hook(self, hook: BitmapHook | None) -> None:
        """Give each record's filter bitmap for its queue extension (`enableConsumeQueueExt`)."""
        self._dispatcher.bitmap_hook = hook

    @property
    def min_physical_offset(self) -> int:
        """Where the log begins: what lies below was deleted."""
        return max(0, self._log.min_offset)

    @property
    def max_physical_offset(self) -> int:
        """Where the log ends, as far as it can be read."""
        return self._log.max_offset

    @property
    def flushed_offset(self) -> int:
        """Everything below is on disk."""
        return self._parts.segments.flushed_where

    def _check_readable(self) -> None:
        if not self.lifecycle.is_readable:
            raise StoreClosed("the store is not open for reading", path=self.path)


def _waits_not(message: Message) -> bool:
    properties = message.properties
    return bool(properties) and properties.get(WAIT_STORE_MSG_OK, "true").lower() != "true"  # type: ignore[union-attr]


def _is_special_in_batch(message: Message) -> bool:
    properties = message.properties
    return (
        message.compress is not None
        or bool(message.sys_flag & INNER_BATCH)
        or (properties is not None and INNER_NUM in properties)
    )


def _not_inner(message: Message) -> Message:
    if message.sys_flag & INNER_BATCH or inner_count(message) != 1:
        raise InvalidMessage("an inner batch cannot be in a batch", advice="put it alone")
    return message


def _compressed(message: Message) -> Message:
    if message.compress is None:
        return message
    if is_compressed(message.sys_flag):
        raise InvalidMessage("the body is compressed already, as sys_flag says", advice="leave compress out")
    body, bits = compress(bytes(message.body), cast(Codec, message.compress))
    return msgspec.structs.replace(message, body=body, sys_flag=message.sys_flag | bits, compress=None)
