"""Group commit: one sync for all records that were appended while the last one ran.

Threads: one syncs the log and then wakes everyone whose record it covered; a second one, the watcher, gives up on those
who waited longer than the time-out while a sync hangs.

Invariant: a put is completed as synced only when `flushed_where` has passed the end of its record. Once a sync
has failed nothing is ever completed as synced again: the operating system may have dropped the dirty pages and
will report success the next time.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Protocol, TypeAlias, TypeVar

from flintlog.errors import FlintlogError, SyncFailed
from flintlog.store.flush import Flushable, join
from flintlog.store.message import PutStatus, Receipt, Receipts

log = logging.getLogger(__name__)

_T = TypeVar("_T")
Outcome: TypeAlias = "Receipt | Receipts"
WATCHES_PER_TIMEOUT = 10


class PutCounts(Protocol):
    """The part of the statistics that waiting puts are for."""

    def put_took(self, elapsed_ms: int, count: int = 1) -> None: ...

    def put_failed(self, count: int = 1) -> None: ...


class _Waiting:
    """A put that waits for a sync: `finish` is called once, by the flush thread or by the watcher."""

    __slots__ = ("deadline", "done", "receipt", "target")

    def __init__(self, receipt: Outcome, deadline: float) -> None:
        self.receipt = receipt
        self.target = receipt.end_offset
        self.deadline = deadline
        self.done = False

    def finish(self, outcome: Outcome) -> None:
        raise AssertionError("a waiting put knows how it is told")


class _WaitingThread(_Waiting):
    __slots__ = ("gate", "outcome")

    def __init__(self, receipt: Outcome, deadline: float) -> None:
        super().__init__(receipt, deadline)
        self.outcome = receipt
        self.gate = threading.Lock()
        self.gate.acquire()

    def finish(self, outcome: Outcome) -> None:
        self.outcome = outcome
        self.gate.release()


class _WaitingFuture(_Waiting):
    __slots__ = ("future",)

    def __init__(self, receipt: Outcome, deadline: float) -> None:
        super().__init__(receipt, deadline)
        self.future: Future[Outcome] = Future()

    def finish(self, outcome: Outcome) -> None:
        if self.future.set_running_or_notify_cancel():
            self.future.set_result(outcome)


_Task: TypeAlias = "tuple[asyncio.Future[Outcome], Outcome, float]"
"""An asyncio producer that waits: its future, its receipt, its deadline. A tuple: 64 of them are made for each sync."""


def _set_results(tasks: list[_Task], synced: bool) -> None:
    """Runs in the loop, which alone may touch its futures; those that were given up on are done already."""
    for future, receipt, _ in tasks:
        if not future.done():
            future.set_result(receipt if synced else receipt.with_status(PutStatus.FLUSH_DISK_TIMEOUT))


def _wake_loops(tasks: list[_Task], synced: bool) -> None:
    """One call into each loop, however many of its tasks wait."""
    loops: dict[asyncio.AbstractEventLoop, list[_Task]] = {}
    for task in tasks:
        loops.setdefault(task[0].get_loop(), []).append(task)
    for loop, waiting in loops.items():
        try:
            loop.call_soon_threadsafe(_set_results, waiting, synced)
        except RuntimeError:
            log.debug("the event loop of %d waiting puts was closed", len(waiting))


def _take_all(waiting: deque[_T]) -> list[_T]:
    """All that wait now; after `stop` a late producer may be at the same list."""
    taken: list[_T] = []
    with contextlib.suppress(IndexError):
        taken.extend(waiting.popleft() for _ in range(len(waiting)))
    return taken


class GroupCommit:
    """Sync flush: one sync for all records that were appended while the last one ran."""

    def __init__(
        self,
        segments: Flushable,
        *,
        timeout_ms: int,
        after_flush: Callable[[], None],
        on_failure: Callable[[SyncFailed], None],
        before_flush: Callable[[], None] | None = None,
        counted: PutCounts | None = None,
    ) -> None:
        """`before_flush` brings what was put to where it can be flushed; `counted` is told how it went."""
        self._segments = segments
        self._before_flush = before_flush
        self._counted = counted
        self._timeout_s = timeout_ms / 1000
        self._after_flush = after_flush
        self._on_failure = on_failure
        self._requests: deque[_Waiting] = deque()
        self._tasks: deque[_Task] = deque()
        self._in_flight: list[_Waiting] = []
        self._tasks_in_flight: list[_Task] = []
        self._bell = threading.Lock()
        self._bell.acquire()
        self._gate = threading.Lock()
        self._sleeping = False
        self._nudged = False
        self._failed = False
        self._stopped = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, name="flintlog-group-commit", daemon=True),
            threading.Thread(target=self._watch, name="flintlog-flush-watcher", daemon=True),
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Sync what is waiting, then end both threads."""
        self._stopped.set()
        self._ring()
        for thread in self._threads:
            join(thread)

    def wait(self, receipt: Outcome) -> Outcome:
        """Block until the record is synced, or give FLUSH_DISK_TIMEOUT."""
        if threading.get_ident() == self._threads[0].ident:
            return self._flush_here(receipt)
        waiting = _WaitingThread(receipt, time.monotonic() + self._timeout_s)
        self._submit(waiting)
        waiting.gate.acquire()
        return waiting.outcome

    def _flush_here(self, receipt: Outcome) -> Outcome:
        """A listener puts from within the flush thread: nobody else would sync for it."""
        synced = self._flush_to(receipt.end_offset)
        self._after_flush()
        return receipt if synced else receipt.with_status(PutStatus.FLUSH_DISK_TIMEOUT)

    def future(self, receipt: Outcome) -> Future[Outcome]:
        if threading.get_ident() == self._threads[0].ident:
            done: Future[Outcome] = Future()
            done.set_result(self._flush_here(receipt))
            return done
        waiting = _WaitingFuture(receipt, time.monotonic() + self._timeout_s)
        self._submit(waiting)
        return waiting.future

    def task(self, receipt: Outcome) -> asyncio.Future[Outcome]:
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._tasks.append((future, receipt, time.monotonic() + self._timeout_s))
        self._wake()
        return future

    def nudge(self) -> None:
        """Ask for a sync without waiting for it."""
        self._nudged = True  # a sync that runs now may have begun before the record was there
        if self._sleeping:
            self._ring()

    def _ring(self) -> None:
        self._sleeping = False
        # Two producers may both have seen the thread asleep: the second finds the bell ringing.
        with contextlib.suppress(RuntimeError):
            self._bell.release()

    def _submit(self, waiting: _Waiting) -> None:
        self._requests.append(waiting)
        self._wake()

    def _wake(self) -> None:
        if self._sleeping:
            self._ring()
        if self._stopped.is_set():
            self._finish_rest()

    def _run(self) -> None:
        while not self._stopped.is_set():
            self._sleeping = True
            if not self._requests and not self._tasks and not self._nudged:
                self._bell.acquire()
            self._sleeping = self._nudged = False
            try:
                self._flush_group()
            except Exception:
                # Whatever went wrong behind the sync: without this thread nothing would be acknowledged any more.
                log.exception("the work behind a flush failed")
        self._finish_rest()

    def _flush_group(self) -> None:
        self._in_flight = group = _take_all(self._requests)
        self._tasks_in_flight = tasks = _take_all(self._tasks)
        target = max(
            max((waiting.target for waiting in group), default=0),
            max((receipt.end_offset for _, receipt, _ in tasks), default=0),
        )
        synced = False
        try:
            synced = self._flush_to(target)
            self._after_flush()
        finally:
            self._complete(group, tasks, synced)
            self._in_flight = []
            self._tasks_in_flight = []

    def _flush_to(self, target: int) -> bool:
        if self._failed:
            return False
        segments = self._segments
        try:
            if self._before_flush is not None:
                self._before_flush()
            segments.flush(0)
            while segments.flushed_where < target:
                # A group may span a file's end: a flush covers one file.
                if segments.flush(0):
                    return segments.flushed_where >= target
        except SyncFailed as failure:
            self._failed = True
            self._on_failure(failure)
            return False
        except FlintlogError as failure:
            log.error("records could not be brought to their file: %s", failure)
            return False
        return True

    def _complete(self, group: list[_Waiting], tasks: list[_Task], synced: bool) -> None:
        tasks = [task for task in tasks if not task[0].done()]
        if tasks:
            _wake_loops(tasks, synced)
        with self._gate:
            group = [waiting for waiting in group if not waiting.done]
            for waiting in group:
                waiting.done = True
        # Outside of the gate: the callback of a future is the user's code, and may put.
        for waiting in group:
            receipt = waiting.receipt
            waiting.finish(receipt if synced else receipt.with_status(PutStatus.FLUSH_DISK_TIMEOUT))
        if self._counted is not None:
            deadlines = [waiting.deadline for waiting in group]
            deadlines += [deadline for _, _, deadline in tasks]
            self._count(deadlines, synced, self._counted)

    def _count(self, deadlines: list[float], synced: bool, counted: PutCounts) -> None:
        if not synced:
            counted.put_failed(len(deadlines))
        now = time.monotonic() + self._timeout_s
        for elapsed_ms, count in Counter([int((now - deadline) * 1000) for deadline in deadlines]).items():
            if elapsed_ms > 0:
                counted.put_took(elapsed_ms, count)

    def _finish_rest(self) -> None:
        while self._requests or self._tasks:
            self._flush_group()

    def _watch(self) -> None:
        while not self._stopped.wait(self._timeout_s / WATCHES_PER_TIMEOUT):
            now = time.monotonic()
            late = [w for w in (*self._in_flight, *tuple(self._requests)) if w.deadline < now]
            late_tasks = [task for task in (*self._tasks_in_flight, *tuple(self._tasks)) if task[2] < now]
            if late or late_tasks:
                self._complete(late, late_tasks, synced=False)
