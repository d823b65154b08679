"""Faults pages in just ahead of the writer, so that a put never waits for one.

The first write to a page of a new file traps into the kernel. With messages of 1 KiB this costs more than the rest of a
put. One thread reads the writer's position and has the kernel prepare the next pages without the GIL. Their content
does not change. It checks again when the writer, at its recent speed, will have used a part of the ready pages: each
check takes the GIL from the writers.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from flintlog.disk.bell import Latch
from flintlog.disk.segments.segment import DEFAULT_TOUCH_AHEAD_BYTES, Segment

_LOOKS_PER_DISTANCE: Final = 6  # pages are prepared in steps of half the distance: some checks for each


class PageToucher:
    """Follows the last segment of one queue, which `current` returns."""

    def __init__(
        self,
        current: Callable[[], Segment | None],
        *,
        ahead_bytes: int = DEFAULT_TOUCH_AHEAD_BYTES,
        for_syncs: bool = False,
        busy_interval_ms: float = 2,
        idle_interval_ms: float = 100,
    ) -> None:
        """It checks at least every `idle_interval_ms`, and at most every `busy_interval_ms`."""
        self._current = current
        self._ahead_bytes = ahead_bytes
        self._for_syncs = for_syncs
        self._busy_s = busy_interval_ms / 1000
        self._idle_s = idle_interval_ms / 1000
        self._stop = Latch()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._stop.clear()
        self._thread = threading.Thread(target=self._run, name="flintlog-touch", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join()

    def touch_once(self) -> int:
        """Touch the pages ahead of the writer; returns how many bytes."""
        segment = self._current()
        if segment is None or segment.is_full:
            return 0
        return segment.warm_ahead(self._ahead_bytes, for_syncs=self._for_syncs)

    def _run(self) -> None:
        end, at = self._end(), time.monotonic()
        wait_s = self._busy_s
        while not self._stop.wait(wait_s):
            self.touch_once()
            end_before, at_before = end, at
            end, at = self._end(), time.monotonic()
            wait_s = self.next_look_s(end - end_before, at - at_before)

    def _end(self) -> int:
        segment = self._current()
        return 0 if segment is None else segment.base + segment.wrote_position

    def next_look_s(self, moved_bytes: int, elapsed_s: float) -> float:
        """When to check again, after the writer has moved this far in this time."""
        if moved_bytes <= 0:
            return self._idle_s
        part_s = elapsed_s * self._ahead_bytes / _LOOKS_PER_DISTANCE / moved_bytes
        return min(max(part_s, self._busy_s), self._idle_s)
