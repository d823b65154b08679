"""The threads that make a store's own log durable, and the order in which they start and stop.

    pool buffers ──Commit──▶ log files ──GroupCommit or AsyncFlush──▶ disk ──ReplicaWait──▶ enough replicas
                                                                       └──QueueFlush: queues, checkpoint

Which of them run follows from the configuration. Each thread is owned by its class, and this class owns them all.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING

from flintlog.disk.segments.page_toucher import PageToucher
from flintlog.kernel import ClosedFor
from flintlog.store.dispatch.dispatcher import Dispatcher
from flintlog.store.flush.flushing import Flushing
from flintlog.store.flush.group_commit import GroupCommit
from flintlog.store.flush.periodic_flush import AsyncFlush, Commit
from flintlog.store.flush.put_wait import PutWait
from flintlog.store.flush.replica_wait import ReplicaWait
from flintlog.store.flush.waiters import PutCounts
from flintlog.store.options.store_config import StoreConfig
from flintlog.store.runtime.lifecycle import Lifecycle

if TYPE_CHECKING:
    from flintlog.store.components import Components


class FlushStages(Flushing):
    """The threads of a store that syncs its own log."""

    def __init__(
        self, config: StoreConfig, parts: Components, dispatcher: Dispatcher, lifecycle: Lifecycle, counted: PutCounts
    ) -> None:
        super().__init__(config, parts, dispatcher, lifecycle)
        self.commit: Commit | None = None
        self.group_commit: GroupCommit | None = None
        self._counted = counted
        self._async_flush: AsyncFlush | None = None
        self._toucher: PageToucher | None = None

    @property
    def waiting(self) -> PutWait | None:
        return self.group_commit if self.group_commit is not None else self.replica_wait

    @property
    def is_in_own_thread(self) -> bool:
        stages = (self.group_commit, self.replica_wait)
        return any(stage is not None and stage.is_in_own_thread for stage in stages)

    def start(self, on_tick: Callable[[], None]) -> None:
        """Start what the configuration asks for."""
        config = self._config
        if self._parts.pool is not None:
            self.commit = self._make_commit()
        if self.is_sync or self.commit is not None or config.wake_flush_when_put_message:
            self._parts.commit_log.fast_put.close(ClosedFor.FLUSH)
        if config.waits_for_replicas:
            self.replica_wait = self._make_replica_wait()
            self.replica_wait.start()
        if self.is_sync:
            self.group_commit = self._make_group_commit()
            self.group_commit.start()
        else:
            self._async_flush = self._make_async_flush()
            self._async_flush.start()
        if self.commit is not None:
            self.commit.start()
        super().start(on_tick)
        if config.warm_ahead_bytes:
            self._toucher = PageToucher(
                lambda: self._parts.segments.last, ahead_bytes=config.warm_ahead_bytes, for_syncs=self.is_sync
            )
            self._toucher.start()

    def _make_commit(self) -> Commit:
        return Commit(
            self._parts.segments.commit,
            interval_ms=self._config.commit_interval_commit_log,
            least_pages=self._config.commit_commit_log_least_pages,
            thorough_interval_ms=self._config.commit_commit_log_thorough_interval,
            after_commit=self._after_commit,
        )

    def _make_replica_wait(self) -> ReplicaWait:
        return ReplicaWait(
            timeout_ms=self._config.slave_timeout,
            before_wait=_nothing if self.is_sync else self._after_put,
            counted=self._counted,
        )

    def _make_group_commit(self) -> GroupCommit:
        return GroupCommit(
            self._parts.segments,
            timeout_ms=self._config.sync_flush_timeout,
            before_flush=None if self.commit is None else self.commit.commit_now,
            after_flush=self._after_flush,
            on_failure=self._on_sync_failure,
            counted=self._counted,
            then=self.replica_wait,
        )

    def _make_async_flush(self) -> AsyncFlush:
        return AsyncFlush(
            self._parts.segments,
            interval_ms=self._config.flush_interval_commit_log,
            least_pages=self._config.flush_commit_log_least_pages,
            thorough_interval_ms=self._config.flush_commit_log_thorough_interval,
            is_timed=self._config.flush_commit_log_timed,
            after_flush=self.note_flushed,
            on_failure=self._on_sync_failure,
        )

    def stop(self) -> None:
        threads = (self._toucher, self.commit, self.group_commit, self.replica_wait, self._async_flush)
        with ExitStack() as ending:  # the last is called first, and all are, whatever one of them raises
            for thread in reversed(threads):
                if thread is not None:
                    ending.callback(thread.stop)

    # ------------------------------------------------------------------ after a put

    def after_append(self) -> None:
        if self.commit is not None and self._config.wake_commit_when_put_message:
            self.commit.nudge()
        if self._config.wake_flush_when_put_message and self._async_flush is not None:
            self._async_flush.nudge()
        self._dispatcher.keep_up()

    def _after_put(self) -> None:
        """A put waits for replicas; the kernel may have dispatched its record already."""
        if self._parts.commit_log.fast_put.is_behind:
            self.after_append()

    def flush(self) -> None:
        if self.commit is not None:
            self.commit.commit_now()
        super().flush()

    def beside_no_commit(self, work: Callable[[], None]) -> None:
        if self.commit is None:
            work()
            return
        with self.commit.committing:
            work()

    def make_readable(self) -> None:
        if self.commit is not None:
            self.commit.commit_now()
        if self.is_sync:
            self._parts.segments.flush_all()

    def _after_commit(self) -> None:
        if self.group_commit is not None:
            self.group_commit.nudge()
        if self._async_flush is not None:
            self._async_flush.nudge()
        self._dispatcher.advance()


def _nothing() -> None:
    """Do nothing: group commit has dispatched already."""
