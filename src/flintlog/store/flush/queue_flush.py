"""Flushing queue files in the background, and the checkpoint that says how far.

Thread: one, waking every `flushIntervalConsumeQueue`. A pass flushes queues with enough dirty pages; a thorough pass
flushes all of them, and only then does the checkpoint's queue fields move, to what had been dispatched *before* the
pass began. The log is flushed before the queues in a thorough pass, so the checkpoint never vouches for
entries whose records are not durable.

If nothing was dispatched since the last pass, there is none, and a pass visits only queues that were written: a store
of 100,000 idle queues costs nothing.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from flintlog.disk.bell import Latch
from flintlog.disk.segments.segment_queue import SegmentQueue
from flintlog.errors import FlintlogError
from flintlog.store.dispatch.dispatcher import Dispatcher
from flintlog.store.log.checkpoint import CheckpointFile
from flintlog.store.queues.covered_queues import CoveredNote
from flintlog.store.queues.queue_table import QueueTable

log = logging.getLogger(__name__)


class QueueFlush:
    """Flushes queues and checkpoint; see the module."""

    def __init__(
        self,
        segments: SegmentQueue,
        queues: QueueTable,
        checkpoint: CheckpointFile,
        dispatcher: Dispatcher,
        *,
        interval_ms: int,
        least_pages: int,
        thorough_interval_ms: int,
        on_tick: Callable[[], None],
    ) -> None:
        self._segments = segments
        self._queues = queues
        self._checkpoint = checkpoint
        self._dispatcher = dispatcher
        self._interval_s = interval_ms / 1000
        self._least_pages = least_pages
        self._thorough_interval_s = thorough_interval_ms / 1000
        self._on_tick = on_tick
        self._passed_at = self._thorough_at = -1
        # One pass at a time: a second one would not see the queues that the first is syncing, and count them as
        # durable. And an older note must not replace a newer one.
        self._passing = threading.Lock()
        self._stopped = Latch()
        self._thread = threading.Thread(target=self._run, name="flintlog-queue-flush", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        last_thorough = time.monotonic()
        while not self._stopped.wait(self._interval_s):
            try:
                self._on_tick()
                if time.monotonic() - last_thorough >= self._thorough_interval_s:
                    last_thorough = time.monotonic()
                    self._pass_thoroughly()
                else:
                    self._pass()
            except FlintlogError as failure:
                # Queues can be built again: what matters is that the checkpoint did not move.
                log.error("queues were not flushed: %s", failure)

    def _pass(self) -> None:
        position = self._dispatcher.position
        if position != self._passed_at:
            with self._passing:
                self._queues.sync.flush(self._least_pages)
            self._passed_at = position
        self._checkpoint.flush()

    def _pass_thoroughly(self) -> None:
        position = self._dispatcher.position
        if position != self._thorough_at:
            self.flush_all()
            self._thorough_at = position

    def flush_all(self) -> bool:
        """A thorough pass: everything dispatched so far is durable; whether the checkpoint could say so."""
        with self._passing:
            log_end = self._dispatcher.position  # before the claims: what they count is not below it in part
            (offset, timestamp), claims = self._dispatcher.claim_queues()
            self._segments.flush_all()
            self._queues.sync.flush_all()
            if offset >= 0 and claims is not None:
                self._queues.covered.write(CoveredNote(offset, claims, log_end))
                self._checkpoint.set(logics_physical_offset=offset, logics_msg_timestamp=timestamp)
            self._checkpoint.flush()
        return claims is not None

    def cover(self, end: int) -> bool:
        """Whether the queue offsets of the records below `end` are durable; a pass is made if they are not.

        Only those records show the offsets otherwise, so they are not deleted before.
        """
        if self._checkpoint.values.logics_physical_offset >= end:
            return True
        return self._dispatcher.position >= end and self.flush_all()
