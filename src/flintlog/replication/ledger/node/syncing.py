"""Makes a node's entries durable: one sync at a time, in a separate thread, each for all entries written before it.

Entries written while a sync runs wait for the next one, which starts as soon as this one has ended. So the busier the
node, the more entries share a sync.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor

from flintlog.errors import LedgerHalted
from flintlog.replication.ledger.core.interface import Synced
from flintlog.replication.ledger.node.storage import LedgerStorage

log = logging.getLogger(__name__)


class EntrySync:
    """Syncs for one loop, in which `on_synced` and `on_failed` are called."""

    def __init__(
        self,
        storage: LedgerStorage,
        on_synced: Callable[[Synced], None],
        on_failed: Callable[[Exception], None],
    ) -> None:
        self._storage = storage
        self._on_synced = on_synced
        self._on_failed = on_failed
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="flintlog-ledger-sync")
        self._running: Future[None] | None = None
        self._saved_committed = storage.committed
        self._is_stopped = False
        self.is_dirty = False
        self.generation = 0

    def start_if_due(self) -> None:
        """Start a sync if entries were written and none runs."""
        if not self.is_dirty or self._running is not None:
            return
        self.is_dirty = False
        loop = asyncio.get_running_loop()
        event = Synced(self._storage.log.end, self.generation)
        self._running = self._executor.submit(self._storage.sync)
        self._running.add_done_callback(lambda done: loop.call_soon_threadsafe(self._ended, done, event))

    def wait(self) -> None:
        """Block until the thread is idle, because the log is about to be cut."""
        self._executor.submit(_nothing).result()

    def save_committed(self, index: int) -> None:
        """Write the checkpoint after the running sync, if it has changed."""
        if index != self._saved_committed:
            self._saved_committed = index
            self._executor.submit(self._storage.save_committed, index).add_done_callback(_log_failure)

    async def stop(self, committed: int | None) -> None:
        """End the thread; with a committed index, first sync all entries and write the checkpoint."""
        self._is_stopped = True
        if committed is not None:
            await asyncio.get_running_loop().run_in_executor(self._executor, self._last_sync, committed)
        self._executor.shutdown()

    def _last_sync(self, committed: int) -> None:
        self._storage.sync()
        self._storage.save_committed(committed)

    def _ended(self, done: Future[None], event: Synced) -> None:
        self._running = None
        if self._is_stopped:
            return
        error = CancelledError() if done.cancelled() else done.exception()
        if error is None:
            self._on_synced(event)
        else:
            self._on_failed(error if isinstance(error, Exception) else LedgerHalted(f"a sync was ended: {error!r}"))


def _nothing() -> None:
    pass


def _log_failure(done: Future[None]) -> None:
    if done.exception() is not None:
        log.warning("the ledger's checkpoint was not saved: %s", done.exception())
