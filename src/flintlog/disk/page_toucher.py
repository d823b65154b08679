"""Faults pages in just ahead of the writer, so that a put never waits for one.

The first write to a page of a new file traps into the kernel; with messages of 1 KiB that alone costs
more than everything else a put does. One thread looks at the writer's position a few times a second, more often
while it moves, and has the kernel prepare the next pages without the GIL. Their content does not change.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from flintlog.disk.segment import DEFAULT_TOUCH_AHEAD_BYTES, Segment
from flintlog.errors import FlintlogError


class PageToucher:
    """Follows the last segment of one queue. `current` is asked for it at each look."""

    def __init__(
        self,
        current: Callable[[], Segment | None],
        *,
        ahead_bytes: int = DEFAULT_TOUCH_AHEAD_BYTES,
        for_syncs: bool = False,
        busy_interval_ms: float = 2,
        idle_interval_ms: float = 100,
    ) -> None:
        self._current = current
        self._ahead_bytes = ahead_bytes
        self._for_syncs = for_syncs
        self._busy_s = busy_interval_ms / 1000
        self._idle_s = idle_interval_ms / 1000
        self._stop = threading.Event()
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
        """Touch what lies ahead of the writer now; returns how many bytes."""
        segment = self._current()
        if segment is None or segment.is_full:
            return 0
        try:
            return segment.warm_ahead(self._ahead_bytes, for_syncs=self._for_syncs)
        except FlintlogError:
            return 0  # only a help: the writer itself meets the error, and reports it

    def _run(self) -> None:
        last_end = -1
        while True:
            self.touch_once()
            segment = self._current()
            end = -1 if segment is None else segment.base + segment.wrote_position
            is_moving, last_end = end != last_end, end
            if self._stop.wait(self._busy_s if is_moving else self._idle_s):
                return
