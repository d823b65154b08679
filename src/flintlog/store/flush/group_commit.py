"""Group commit: one sync for all records that were appended while the last one ran.

    putters    A ── append ─ take the turn ── sync ── dispatch ── finish A, B ── wake C ── return
               B ── append ─ sleep ───────────────────────────────────┘
               C ───────────── append ─ sleep ─────────────────────────────────────┘ sync ── …

A put that finds nobody syncing leads: it syncs in its own thread, dispatches, and finishes every put that its sync
covered. One of those that came meanwhile leads next. The thread `flintlog-group-commit` leads for futures and asyncio,
when a leader was interrupted, and while syncs are slow: a thread that is in a sync cannot give up when its time is
over. A second thread, the watcher, gives up on puts that waited longer than the time-out while a sync hangs. An event
loop wakes the first thread after all of its tasks that were ready have put. Woken by the first task, the thread would
wait for the GIL until the last one has put.

Invariant: a put is completed as synced only when `flushed_where` has passed the end of its record. Once a sync
has failed nothing is ever completed as synced again: the operating system may have dropped the dirty pages and
will report success the next time.

A signal handler may raise in a leader at any point. So a put stays in its queue until it was finished, and each step is
repeated by the next leader without harm: a sync, a dispatch, an outcome (decided once), a wake-up.

A further stage may follow (`then`): synced puts are handed to it and completed there, so that a put that waits for
both is woken once.

Reasons and costs: docs/decisions/0016.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from _thread import start_new_thread
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from threading import get_ident
from typing import TYPE_CHECKING, Final, Protocol

from flintlog.disk.bell import Bell
from flintlog.errors import FlintlogError, SyncFailed
from flintlog.store.flush.periodic_flush import Flushable, join
from flintlog.store.flush.put_wait import TimedWait
from flintlog.store.flush.waiters import (
    Outcome,
    PutCounts,
    Task,
    Waiting,
    WaitingFuture,
    WaitingThread,
    done_future,
)
from flintlog.store.model.message import Message, PutStatus
from flintlog.store.runtime.turn import Turn

if TYPE_CHECKING:
    import asyncio

log = logging.getLogger(__name__)

SLOW_SYNC_S: Final = 0.02
"""After a sync that took longer, the store's own thread syncs, until one is quick again: a wake-up costs little beside
such a sync, and every put can give up in time."""


class Stage(Protocol):
    """What synced puts still wait for."""

    def take(self, group: list[Waiting], tasks: list[Task]) -> None:
        """Complete these in time; those that it has taken before only once."""

    def wait(self, receipt: Outcome, message: Message) -> Outcome:
        """Block until the record is through."""


class GroupCommit(TimedWait):
    """Sync flush: one sync for all records that were appended while the last one ran.

    The owner of `_turn` leads: it alone syncs, decides what was synced, and takes puts out of the three queues. `_gate`
    decides between a leader and the watcher.
    """

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
        self._turn = Turn()
        self._putters: deque[WaitingThread] = deque()
        self._futures: deque[WaitingFuture] = deque()
        self._tasks: deque[Task] = deque()
        # Decided, and finished by the store's own thread: their callbacks are the user's code.
        self._decided: deque[WaitingFuture] = deque()
        # Futures of tasks that timed out before they were synced; changed inside the gate.
        self._given_up: set[asyncio.Future[Outcome]] = set()
        self._bell = threading.Lock()
        self._bell.acquire()
        self._sleeping = False
        self._ringer: asyncio.AbstractEventLoop | None = None  # a loop that will ring in its next round
        self._nudged = False
        self._is_slow = False
        self._failed = False
        self._last_size = 0
        self._last_sync_s = 0.0
        self._awaited = 0
        self._all_here = Bell()

    def stop(self) -> None:
        """Sync what is waiting, then end both threads. A later put leads itself."""
        self._stopped.set()
        self._ring()
        for thread in self._threads:
            join(thread)

    @property
    def is_in_own_thread(self) -> bool:
        return super().is_in_own_thread or self._turn.owner == get_ident()

    # ------------------------------------------------------------------ waiting

    def wait(self, receipt: Outcome, message: Message) -> Outcome:
        """Block until the record is synced, or give FLUSH_DISK_TIMEOUT."""
        if get_ident() in (self._turn.owner, self._threads[0].ident):
            return self._flush_here(receipt, message)
        waiting = WaitingThread(receipt, message, time.monotonic())
        try:
            self._putters.append(waiting)
            if 0 < self._awaited <= len(self._putters):
                self._all_here.ring()
            if self._is_slow:
                self._ring()  # also if it does not sleep: it may have looked for others' puts just before
            while waiting.outcome is None:
                if not waiting.is_synced and (not self._is_slow or self._stopped.is_set()) and self._turn.take():
                    try:
                        self._gather()
                        self._lead()
                    finally:
                        self._turn.owner = None
                        self._turn.ring()
                    self._call_next()
                else:
                    waiting.sleep()
        except BaseException:
            self._call_all()  # this thread may have been the one that had to lead
            raise
        return waiting.outcome

    def future(self, receipt: Outcome, message: Message, check: bool) -> Future[Outcome]:
        if get_ident() in (self._turn.owner, self._threads[0].ident):
            return done_future(self._flush_here(receipt, message), check)
        return super().future(receipt, message, check)

    def _flush_here(self, receipt: Outcome, message: Message) -> Outcome:
        """A listener or a callback puts from within the leading thread: no other thread would sync for it."""
        synced = self._flush_to(receipt.end_offset)
        self._after_flush()
        if not synced:
            return receipt.with_status(PutStatus.FLUSH_DISK_TIMEOUT)
        return receipt if self._then is None else self._then.wait(receipt, message)

    def _submit(self, waiting: Waiting) -> None:
        assert isinstance(waiting, WaitingFuture)
        self._futures.append(waiting)
        self._wake()

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

    def nudge(self) -> None:
        """Ask for a sync without waiting for it."""
        self._nudged = True  # a sync that runs now may have begun before the record was there
        if self._sleeping:
            self._ring()

    # ------------------------------------------------------------------ waking

    def _ring_for_loop(self) -> None:
        self._ringer = None
        self._wake()

    def _wake(self) -> None:
        if self._sleeping:
            self._ring()
        if self._stopped.is_set():
            self._finish_rest()

    def _ring(self) -> None:
        """Wake the store's own thread. The bell is the only flag: another one could be set without a ring."""
        if self._bell.locked():
            with contextlib.suppress(RuntimeError):  # two producers may both have seen the thread asleep
                self._bell.release()

    def _call_next(self) -> None:
        """Let the first of the threads that came meanwhile lead, without the turn: it may be another's by now."""
        if not self._putters:
            return
        if self._is_slow and not self._stopped.is_set():
            self._ring()
            return
        for waiting in tuple(self._putters):
            if waiting.outcome is None:  # the watcher has given up on the others, which are gone
                waiting.ring()
                return

    def _call_all(self) -> None:
        """Let any thread lead: the one whose turn it was may be gone. Without a thread of the store, make one."""
        self._nudged = True
        self._ring()
        for waiting in tuple(self._putters):
            waiting.ring()
        if self._stopped.is_set():
            start_new_thread(self._finish_rest, ())

    # ------------------------------------------------------------------ leading

    def _gather(self) -> None:
        """Let as many come as the last sync covered, for half of its time: they were woken just now, and may put again.

        Otherwise the first of them would sync alone and the others after it, twice for each round. If they do not come,
        the next group is expected to be as small as this one.
        """
        if self._last_size > 1:
            self._awaited = self._last_size
            if len(self._putters) < self._last_size:
                self._all_here.listen(self._last_sync_s / 2)
            self._awaited = 0

    def _lead(self) -> None:
        """Sync, dispatch and finish all that wait now. Runs in the turn, in any thread, and may be interrupted."""
        # Whole copies, each made in one call. The puts leave the queues when they are finished, not before.
        threads, futures, tasks = list(self._putters), list(self._futures), list(self._tasks)
        ends = [waiting.target for waiting in threads]
        if futures or tasks:
            ends += [waiting.target for waiting in futures]
            ends += [task[1].end_offset for task in tasks]
        began, start = time.monotonic(), self._segments.flushed_where
        synced = self._flush_to(max(ends, default=0))
        if self._segments.flushed_where != start:  # with nothing to sync nothing was learnt
            self._last_sync_s = time.monotonic() - began
            self._is_slow = self._last_sync_s > SLOW_SYNC_S
            self._last_size = len(threads)
        self._after_flush()
        self._end_group(threads, futures, tasks, synced)

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

    def _end_group(
        self, threads: list[WaitingThread], futures: list[WaitingFuture], tasks: list[Task], synced: bool
    ) -> None:
        """Finish the first ones of the queues, or hand them to the next stage. The watcher has decided some of them."""
        status = None if synced else PutStatus.FLUSH_DISK_TIMEOUT
        with self._gate:
            fresh = [waiting for waiting in (*threads, *futures) if waiting.outcome is None]
            for waiting in fresh:
                waiting.is_synced = True  # from here on the watcher leaves it alone
                if self._then is None or not synced:
                    waiting.decide(status)
            open_tasks = [task for task in tasks if task[0] not in self._given_up] if self._given_up else tasks
        if self._then is not None and synced:
            self._then.take(fresh, open_tasks)
        else:
            self._count(fresh, open_tasks, status)
            if open_tasks:
                self._finish_all([], open_tasks, status)
            if threads:
                WaitingThread.finish_row(threads)
            if futures:
                self._decided.extend(futures)
                self._ring()
        self._leave(threads, futures, tasks)

    def _leave(self, threads: list[WaitingThread], futures: list[WaitingFuture], tasks: list[Task]) -> None:
        """Take finished puts out of the queues. They are the first ones there, for new ones come last."""
        with self._gate:
            for _ in tasks:
                self._given_up.discard(self._tasks.popleft()[0])
            for _ in futures:
                self._futures.popleft()
            for _ in threads:
                self._putters.popleft()

    # ------------------------------------------------------------------ the store's own thread

    def _run(self) -> None:
        while not self._stopped.is_set():
            self._sleeping = True
            if not self._leads_itself and not self._decided:
                self._bell.acquire()
            self._sleeping = False
            try:
                if self._leads_itself or self._is_slow:
                    self._nudged = False
                    self._serve()
                self._finish_decided()
            except Exception:
                # The thread must survive any failure after the sync: without it no future is completed any more.
                log.exception("the work after a flush failed")
        self._finish_rest()

    @property
    def _leads_itself(self) -> bool:
        return bool(self._futures or self._tasks or self._nudged)

    def _serve(self) -> None:
        """Lead once. If that fails, nobody is left waiting."""
        try:
            self._turn.run(self._lead_to_the_end)
        finally:
            self._call_next()

    def _lead_to_the_end(self) -> None:
        try:
            self._lead()
        except BaseException:
            self._end_group(list(self._putters), list(self._futures), list(self._tasks), synced=False)
            raise

    def _finish_decided(self) -> None:
        finished: list[WaitingFuture] = []
        try:
            while self._decided:
                finished.append(self._decided.popleft())
        except IndexError:
            pass  # after `stop` another thread may have taken the last one
        finally:
            if finished:
                WaitingFuture.finish_each(finished)

    def _finish_rest(self) -> None:
        while self._putters or self._futures or self._tasks or self._decided:
            try:
                self._serve()
            finally:
                self._finish_decided()

    def _look_for_late(self) -> None:
        if self._tasks or self._futures or self._putters or self._nudged:
            self._call_all()  # the one that had to ring may have been stopped or interrupted
        late_since = time.monotonic() - self._timeout_s
        with self._gate:
            late: list[Waiting] = [
                waiting
                for waiting in (*self._putters, *self._futures)
                if waiting.began < late_since and waiting.outcome is None and not waiting.is_synced
            ]
            for waiting in late:
                waiting.decide(PutStatus.FLUSH_DISK_TIMEOUT)
            late_tasks = [task for task in tuple(self._tasks) if task[2] < late_since and task[0] not in self._given_up]
            self._given_up.update(task[0] for task in late_tasks)
        if late or late_tasks:
            # In another thread: a future's callback is the user's code, and may put and then wait for this thread.
            threading.Thread(
                target=self._give_up, args=(late, late_tasks), name="flintlog-late-puts", daemon=True
            ).start()

    def _give_up(self, group: list[Waiting], tasks: list[Task]) -> None:
        self._count(group, tasks, PutStatus.FLUSH_DISK_TIMEOUT)
        self._finish_all(group, tasks, PutStatus.FLUSH_DISK_TIMEOUT)
