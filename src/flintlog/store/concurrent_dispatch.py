"""Dispatch on threads of its own: a reader, a crew that parses, and the order kept by a ring.

    log ─▶ numbered batches ─▶ parsed in parallel ─▶ ring ─▶ applied in order

Asked for by `enableBuildConsumeQueueConcurrently`. It pays where records come in faster than one thread can parse them
(a replica, a log that another process writes); for a store's own puts the serial dispatcher is both faster and sooner.
Puts wake the reader, and only when it sleeps. What the crew found is applied by the same code as in the serial mode,
by the reader alone.
"""

from __future__ import annotations

import contextlib
import threading
from contextlib import closing

from flintlog.derive.parallel_scan import Batch, scan_in_order
from flintlog.derive.ranges import BATCH_BYTES, cut_batches
from flintlog.disk.segment import Segment
from flintlog.kernel import ScanStop
from flintlog.store.dispatch import Dispatcher

WORTH_BYTES = 2 * BATCH_BYTES
"""Below this a range is dispatched by the reader itself."""


class ConcurrentDispatcher(Dispatcher):
    """See the module."""

    threads = 2
    """How many parse at a time."""

    _reader: threading.Thread | None = None

    @property
    def leaves_puts_to_lane(self) -> bool:
        """Never: records are for the crew."""
        return False

    def start(self) -> None:
        """Start the reader; before that, `advance` dispatches in the caller's thread."""
        self._bell = threading.Lock()
        self._bell.acquire()
        self._is_asleep = False
        self._is_stopping = False
        self._reader = threading.Thread(target=self._read, name="flintlog-dispatch", daemon=True)
        self._reader.start()

    def advance(self) -> None:
        """Wake the reader, if it sleeps."""
        if self._reader is None:
            super().advance()
            return
        self._wanted = True
        if self._is_asleep:
            self._ring()

    def stop(self) -> None:
        """End the reader and let go of the files; what it had not reached is dispatched here."""
        reader, self._is_stopping = self._reader, True
        if reader is not None:
            self._ring()
            reader.join()
            self._reader = None
        super().stop()

    def _ring(self) -> None:
        self._is_asleep = False
        with contextlib.suppress(RuntimeError):  # it rings already
            self._bell.release()

    def _read(self) -> None:
        while not self._is_stopping:
            self._is_asleep = True
            if not self._wanted:
                self._bell.acquire()
            self._is_asleep = False
            super().advance()

    def _step(self, segment: Segment, end: int) -> bool:
        start, stop = self.position - segment.base, min(segment.read_position, end - segment.base)
        if stop - start < WORTH_BYTES or self.lane.stopped_at_index:
            return super()._step(segment, end)
        view, base = self._view, segment.base
        batches = (Batch(view, begin, cut, base) for begin, cut in cut_batches(view, start, stop, base))
        scans = scan_in_order(batches, threads=self.threads, check_crc=False, delay_levels_ms=self._delay_levels_ms)
        with closing(scans):
            for batch, scan in scans:
                self.apply(view, base, scan)
                if scan.reason is not ScanStop.LIMIT or scan.end != batch.stop:
                    break
        # A blank, damage, or a batch that was cut inside a body: the serial step knows what to do there.
        return True if self.position - base > start else super()._step(segment, end)
