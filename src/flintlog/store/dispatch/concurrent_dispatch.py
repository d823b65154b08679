"""Dispatch on threads of its own: one reads, several parse, and a ring keeps the order.

    log ─▶ numbered batches ─▶ parsed in parallel ─▶ ring ─▶ applied in order

`enableBuildConsumeQueueConcurrently` turns it on. It pays if records arrive faster than one thread can parse them (a
replica, a log that another process writes). For a store's own puts the serial dispatcher is faster. Puts wake the
reader only when it sleeps. The reader alone applies the parsed records, with the code of the serial mode.
"""

from __future__ import annotations

from contextlib import closing

from flintlog.derive.parallel_scan import Batch, scan_in_order
from flintlog.derive.ranges import BATCH_BYTES, cut_batches
from flintlog.disk.segments.segment import Segment
from flintlog.kernel import ScanStop
from flintlog.store.dispatch.dispatcher import Dispatcher

WORTH_BYTES = 2 * BATCH_BYTES
"""The reader dispatches a shorter range itself."""


class ConcurrentDispatcher(Dispatcher):
    """See the module."""

    threads = 1
    """The most threads that parse: `batchDispatchRequestThreadPoolNums`."""

    @property
    def lets_puts_dispatch(self) -> bool:
        """Never: the threads parse all records."""
        return False

    def advance(self, patience_s: float = 0) -> None:
        """Wake the reader, if it sleeps; before it was started, dispatch in the caller's thread."""
        if self._relief is None:
            super().advance(patience_s)
            return
        self._wanted = True
        self._relief.ring()

    def _step(self, segment: Segment, end: int) -> bool:
        start, stop = self.position - segment.base, min(segment.read_position, end - segment.base)
        if stop - start < WORTH_BYTES or self.fast_dispatch.stopped_at_index:
            return super()._step(segment, end)
        view, base = self._view, segment.base
        batches = (Batch(view, begin, cut, base) for begin, cut in cut_batches(view, start, stop, base, BATCH_BYTES))
        threads = min(self.threads, 1 + (stop - start) // BATCH_BYTES)  # no more than there are batches
        scans = scan_in_order(batches, threads=threads, check_crc=False, delay_levels_ms=self._delay_levels_ms)
        with closing(scans):
            for batch, scan in scans:
                self.apply(view, base, scan)
                if scan.reason is not ScanStop.LIMIT or scan.end != batch.stop:
                    break
        # A blank, damage, or a batch that was cut inside a body: the serial step handles it.
        return True if self.position - base > start else super()._step(segment, end)
