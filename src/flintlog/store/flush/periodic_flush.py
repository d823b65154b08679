"""Async flush: appended bytes become durable a while later, in threads of their own.

`AsyncFlush` syncs every half second, when enough pages are dirty. `Commit` moves the bytes of pool buffers to their
files, before they can be synced. At a longer interval both take everything, however little it is. (Sync flush is
`group_commit.py`.)
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Protocol

from flintlog.disk.bell import Latch
from flintlog.errors import SyncFailed

log = logging.getLogger(__name__)


class Flushable(Protocol):
    """The part of a segment queue that flushing needs."""

    flushed_where: int

    def flush(self, least_pages: int) -> bool: ...


def join(thread: threading.Thread) -> None:
    """Wait for the end of a thread; an opening that failed may not have started it."""
    if thread.ident is not None:
        thread.join()


class Tide:
    """A thread that does something every interval, or when nudged, and thoroughly now and then."""

    def __init__(
        self,
        name: str,
        work: Callable[[int], object],
        *,
        interval_ms: int,
        least_pages: int,
        thorough_interval_ms: int,
        is_timed: bool = False,
    ) -> None:
        """`work` gets how many pages are worth it: 0 when it is to be thorough. If timed, no nudge ends a pause."""
        self._work = work
        self._interval_s = interval_ms / 1000
        self._least_pages = least_pages
        self._thorough_interval_s = thorough_interval_ms / 1000
        self._stopped = Latch()
        self._wake = Latch()
        self._pause_end = self._stopped if is_timed else self._wake
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the thread, then do everything that is left."""
        self._stopped.set()
        self._wake.set()
        join(self._thread)
        self._work(0)

    def nudge(self) -> None:
        """Now, instead of at the next interval, unless it is timed."""
        self._wake.set()

    def _run(self) -> None:
        last_thorough = time.monotonic()
        while not self._stopped.is_set():
            self._pause_end.wait(self._interval_s)
            self._wake.clear()
            thorough = time.monotonic() - last_thorough >= self._thorough_interval_s
            if thorough:
                last_thorough = time.monotonic()
            try:
                self._work(0 if thorough else self._least_pages)
            except Exception:
                # Without this thread nothing would be written down any more; the next round tries again.
                log.exception("%s failed", self._thread.name)


class AsyncFlush(Tide):
    """Async flush: every interval the dirty pages, if there are enough of them; all of them now and then."""

    def __init__(
        self,
        segments: Flushable,
        *,
        interval_ms: int,
        least_pages: int,
        thorough_interval_ms: int,
        is_timed: bool,
        after_flush: Callable[[], None],
        on_failure: Callable[[SyncFailed], None],
    ) -> None:
        super().__init__(
            "flintlog-async-flush",
            self._flush,
            interval_ms=interval_ms,
            least_pages=least_pages,
            thorough_interval_ms=thorough_interval_ms,
            is_timed=is_timed,
        )
        self._segments = segments
        self._after_flush = after_flush
        self._on_failure = on_failure

    def _flush(self, least_pages: int) -> None:
        """Flush file by file until nothing moves."""
        try:
            while not self._segments.flush(least_pages):
                pass
        except SyncFailed as failure:
            self._on_failure(failure)
            return
        self._after_flush()


class Commit(Tide):
    """Moves the bytes of pool buffers to their files, then lets them be flushed."""

    def __init__(
        self,
        commit: Callable[[int], bool],
        *,
        interval_ms: int,
        least_pages: int,
        thorough_interval_ms: int,
        after_commit: Callable[[], None],
    ) -> None:
        super().__init__(
            "flintlog-commit",
            self._commit_all,
            interval_ms=interval_ms,
            least_pages=least_pages,
            thorough_interval_ms=thorough_interval_ms,
        )
        self._commit = commit
        self._after_commit = after_commit
        self.committing = threading.Lock()
        """Held while bytes are moved: two at once, or one beside a cut, could set the committed end back or beyond."""

    def commit_now(self) -> None:
        """Commit everything, in the caller's thread."""
        self._commit_all(0)

    def _commit_all(self, least_pages: int) -> None:
        moved = False
        with self.committing:
            while not self._commit(least_pages):
                moved = True
        if moved:
            self._after_commit()
