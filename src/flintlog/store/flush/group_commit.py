"""Group commit: one sync for all records that were appended while the last one ran.

Threads: one syncs the log and then wakes every put whose record it covered; a second one, the watcher, gives up on puts
that waited longer than the time-out while a sync hangs. An event loop wakes the flush thread after all of its tasks
that were ready have put. Woken by the first task, the thread would wait for the GIL until the last one has put.

Invariant: a put is completed as synced only when `flushed_where` has passed the end of its record. Once a sync
has failed nothing is ever completed as synced again: the operating system may have dropped the dirty pages and
will report success the next time.

A further stage may follow (`then`): synced puts are handed to it and completed there, so that a put that waits for
both is woken once.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Protocol, TypeVar

from flintlog.errors import FlintlogError, SyncFailed
from flintlog.store.flush.periodic_flush import Flushable, join
from flintlog.store.flush.put_wait import TimedWait
from flintlog.store.flush.waiters import (
    Outcome,
    PutCounts,
    Task,
    Waiting,
    done_future,
)
from flintlog.store.model.message import Message, PutStatus

if TYPE_CHECKING:
    import asyncio

log = logging.getLogger(__name__)

_T = TypeVar("_T")


def _take_all(waiting: deque[_T]) -> list[_T]:
    """All that wait now. After `stop` a late producer may take from the same list."""
    take = waiting.popleft
    taken: list[_T] = []
    try:
        for _ in range(len(waiting)):
            taken.append(take())  # noqa: PERF401 (if another thread takes the last one, those taken before must be kept)
    except IndexError:
        pass
    return taken


class Stage(Protocol):
    """What synced puts still wait for."""

    def take(self, group: list[Waiting], tasks: list[Task]) -> None:
        """Complete these in time."""

    def wait(self, receipt: Outcome, message: Message) -> Outcome:
        """Block until the record is through."""


class GroupCommit(TimedWait):
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
        then: Stage | None = None,
    ) -> None:
        """`before_flush` moves records to where they can be flushed; `counted` counts the puts."""
        super().__init__(
            counted, {"flintlog-group-commit": self._run}, watcher="flintlog-flush-watcher", timeout_ms=timeout_ms
        )
        self._then = then
        self._segments = segments
        self._before_flush = before_flush
        self._after_flush = after_flush
        self._on_failure = on_failure
        self._requests: deque[Waiting] = deque()
        self._tasks: deque[Task] = deque()
        self._in_flight: list[Waiting] = []
        self._tasks_in_flight: list[Task] = []
        # Futures that timed out before their group was synced; like `done`, changed inside the gate.
        self._given_up: set[asyncio.Future[Outcome]] = set()
        self._bell = threading.Lock()
        self._bell.acquire()
        self._sleeping = False
        self._ringer: asyncio.AbstractEventLoop | None = None  # a loop that will ring in its next round
        self._nudged = False
        self._failed = False

    def stop(self) -> None:
        """Sync what is waiting, then end both threads."""
        self._stopped.set()
        self._ring()
        for thread in self._threads:
            join(thread)

    def wait(self, receipt: Outcome, message: Message) -> Outcome:
        """Block until the record is synced, or give FLUSH_DISK_TIMEOUT."""
        if threading.current_thread() is self._threads[0]:  # the ids of ended threads are reused
            return self._flush_here(receipt, message)
        return super().wait(receipt, message)

    def future(self, receipt: Outcome, message: Message, check: bool) -> Future[Outcome]:
        if threading.current_thread() is self._threads[0]:
            return done_future(self._flush_here(receipt, message), check)
        return super().future(receipt, message, check)

    def _flush_here(self, receipt: Outcome, message: Message) -> Outcome:
        """A listener puts from within the flush thread: no other thread would sync for it."""
        synced = self._flush_to(receipt.end_offset)
        self._after_flush()
        if not synced:
            return receipt.with_status(PutStatus.FLUSH_DISK_TIMEOUT)
        return receipt if self._then is None else self._then.wait(receipt, message)

    def task(self, receipt: Outcome, message: Message) -> asyncio.Future[Outcome]:
        loop = self._loop_here.get()
        future: asyncio.Future[Outcome] = loop.create_future()
        self._tasks.append((future, receipt, time.monotonic(), message))
        if self._sleeping and self._ringer is not loop:
            loop.call_soon(self._ring_for_loop)
            self._ringer = loop  # last: a loop that is noted here will ring
        elif self._stopped.is_set():
            self._finish_rest()
        return future

    def _ring_for_loop(self) -> None:
        self._ringer = None
        self._wake()

    def nudge(self) -> None:
        """Ask for a sync without waiting for it."""
        self._nudged = True  # a sync that runs now may have begun before the record was there
        if self._sleeping:
            self._ring()

    def _ring(self) -> None:
        """Wake the flush thread. The bell is the only flag: another one could be set without a ring."""
        if self._bell.locked():
            with contextlib.suppress(RuntimeError):  # two producers may both have seen the thread asleep
                self._bell.release()

    def _submit(self, waiting: Waiting) -> None:
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
                # The thread must survive any failure after the sync: without it nothing is acknowledged any more.
                log.exception("the work after a flush failed")
        self._finish_rest()

    def _flush_group(self) -> None:
        self._in_flight = group = _take_all(self._requests)
        self._tasks_in_flight = tasks = _take_all(self._tasks)
        ends = [waiting.target for waiting in group] + [task[1].end_offset for task in tasks]
        target = max(ends, default=0)
        synced = False
        try:
            synced = self._flush_to(target)
            self._after_flush()
        finally:
            with self._gate:
                self._in_flight, self._tasks_in_flight = [], []
                still_waiting = [waiting for waiting in group if not waiting.done]
                still_open = tasks
                if self._given_up:
                    still_open = [task for task in tasks if task[0] not in self._given_up]
                    self._given_up.difference_update([task[0] for task in tasks])
            self._end(still_waiting, still_open, synced)

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

    def _end(self, group: list[Waiting], tasks: list[Task], synced: bool) -> None:
        """Finish puts that are not finished yet, or hand them to the next stage; once for each."""
        if self._then is not None and synced:
            self._then.take(group, tasks)
            return
        status = None if synced else PutStatus.FLUSH_DISK_TIMEOUT
        self._count(group, tasks, status)
        self._finish_all(group, tasks, status)

    def _finish_rest(self) -> None:
        while self._requests or self._tasks:
            self._flush_group()

    def _look_for_late(self) -> None:
        if self._tasks or self._requests or self._nudged:
            self._wake()  # the one that had to ring may have been stopped or interrupted
        late_since = time.monotonic() - self._timeout_s
        with self._gate:
            late = [w for w in (*self._in_flight, *tuple(self._requests)) if w.began < late_since and not w.done]
            for waiting in late:
                waiting.done = True
            asleep = (*self._tasks_in_flight, *tuple(self._tasks))
            late_tasks = [task for task in asleep if task[2] < late_since and task[0] not in self._given_up]
            self._given_up.update(task[0] for task in late_tasks)
        if late or late_tasks:
            # In another thread: a future's callback is the user's code, and may put and then wait for this thread.
            threading.Thread(
                target=self._end, args=(late, late_tasks, False), name="flintlog-late-puts", daemon=True
            ).start()
