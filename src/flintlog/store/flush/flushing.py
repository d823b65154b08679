"""Between a put and its durability: what is the same for every log.

A running store has one `Flushing`, which owns its threads:

    FlushStages       `flush_stages.py`   the store syncs its own log, as its configuration says
    LedgerFlushing    `ledger_wait.py`    the group's node syncs the log; the store waits for the group

A store that is only read starts none of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING

from flintlog.errors import SyncFailed
from flintlog.store.dispatch.dispatcher import Dispatcher
from flintlog.store.flush.put_wait import PutWait
from flintlog.store.flush.queue_flush import QueueFlush
from flintlog.store.flush.replica_wait import ReplicaWait
from flintlog.store.options.store_config import StoreConfig
from flintlog.store.runtime.lifecycle import Flag, Lifecycle

if TYPE_CHECKING:
    from flintlog.store.components import Components


class Flushing(ABC):
    """Starts, feeds and stops the threads between a put and its durability."""

    def __init__(self, config: StoreConfig, parts: Components, dispatcher: Dispatcher, lifecycle: Lifecycle) -> None:
        self.is_sync = config.flush == "sync"
        self.replica_wait: ReplicaWait | None = None
        self.queue_flush: QueueFlush | None = None
        self._config = config
        self._parts = parts
        self._dispatcher = dispatcher
        self._lifecycle = lifecycle

    @property
    @abstractmethod
    def waiting(self) -> PutWait | None:
        """Where a put waits; None when it is done once it is appended."""

    @property
    @abstractmethod
    def is_in_own_thread(self) -> bool:
        """Whether the caller runs in a thread that `stop` waits for: as the callback of a future does."""

    def start(self, on_tick: Callable[[], None]) -> None:
        """Start the threads; `on_tick` is called by the queue flush, about once a second."""
        self.queue_flush = QueueFlush(
            self._parts.segments,
            self._parts.queues,
            self._parts.checkpoint,
            self._dispatcher,
            interval_ms=self._config.flush_interval_consume_queue,
            least_pages=self._config.flush_consume_queue_least_pages,
            thorough_interval_ms=self._config.flush_consume_queue_thorough_interval,
            on_tick=on_tick,
        )
        self.queue_flush.start()

    @abstractmethod
    def stop(self) -> None:
        """Stop the threads between a put and the disk. The queue flush continues, for records to be dispatched."""

    def stop_queue_flush(self) -> None:
        if self.queue_flush is not None:
            self.queue_flush.stop()

    # ------------------------------------------------------------------ after a put

    @abstractmethod
    def after_append(self) -> None:
        """A record was appended, and no put waits for it."""

    def flush(self) -> None:
        """Make everything put so far durable, in the caller's thread."""
        try:
            self._parts.commit_log.sync()
        except SyncFailed as failure:
            self._on_sync_failure(failure)
            raise
        self._after_flush()

    @abstractmethod
    def make_readable(self) -> None:
        """Bring everything put so far to where dispatch may read it."""

    @abstractmethod
    def beside_no_commit(self, work: Callable[[], None]) -> None:
        """Do this while no bytes are moved from write buffers to their files."""

    def note_flushed(self) -> None:
        """The log is durable: let the checkpoint say up to when."""
        timestamp = self._parts.segments.store_timestamp
        if timestamp > 0:
            self._parts.checkpoint.set(physic_msg_timestamp=timestamp)

    def _after_flush(self) -> None:
        self._dispatcher.advance()
        self.note_flushed()

    def _on_sync_failure(self, failure: SyncFailed) -> None:
        """After a failed sync nothing is known about the dirty pages: stop writing, continue to serve reads."""
        self._lifecycle.set(Flag.NOT_WRITEABLE)
