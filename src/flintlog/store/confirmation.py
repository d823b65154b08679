"""The last stage of a put on a SYNC_MASTER: enough replicas have said that they hold the record.

    append ─▶ sync (under sync flush) ─▶ here ─▶ PUT_OK, or FLUSH_SLAVE_TIMEOUT after `slave_timeout`

Whoever sends the log to replicas calls `confirm` with the offset that enough of them have passed; everyone below it is
completed by that one call. A thread of its own, the watcher, gives up on those who waited too long, so a put ends
also when nothing sends the log at all.

Invariant: a put is completed as confirmed only when `confirmed_where` has passed the end of its record.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final

from flintlog.store.flush import join
from flintlog.store.group_commit import PutCounts
from flintlog.store.message import PutStatus
from flintlog.store.waiting import Outcome, Task, Waiting, WaitingFuture, WaitingThread, wake_loops

_WATCHES_PER_TIMEOUT: Final = 10


class Confirmation:
    """Puts that wait for replicas. Any thread may call; `_gate` guards the lists for moments."""

    def __init__(self, *, timeout_ms: int, before_wait: Callable[[], None], counted: PutCounts) -> None:
        """`before_wait` lets those see a record who send it, when no sync came before."""
        self.confirmed_where = 0
        self.on_waiting: Callable[[], None] | None = None
        """Called when somebody begins to wait: the log has grown and should be sent now."""
        self._timeout_s = timeout_ms / 1000
        self._before_wait = before_wait
        self._counted = counted
        self._waiting: list[Waiting] = []
        self._tasks: list[Task] = []
        self._gate = threading.Lock()
        self._stopped = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="flintlog-confirm-watcher", daemon=True)

    def start(self) -> None:
        self._watcher.start()

    def stop(self) -> None:
        """Nobody will confirm any more: give up on all who wait, and at once on those who still come."""
        self._stopped.set()
        join(self._watcher)
        self._give_up(float("inf"))

    # ------------------------------------------------------------------ waiting

    def wait(self, receipt: Outcome) -> Outcome:
        """Block until the record is confirmed, or give FLUSH_SLAVE_TIMEOUT."""
        waiting = WaitingThread(receipt, 0.0)
        self._before_wait()
        self.take([waiting], [])
        waiting.gate.acquire()
        return waiting.outcome

    def future(self, receipt: Outcome) -> Future[Outcome]:
        waiting = WaitingFuture(receipt, 0.0)
        self._before_wait()
        self.take([waiting], [])
        return waiting.future

    def task(self, receipt: Outcome) -> asyncio.Future[Outcome]:
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._before_wait()
        self.take([], [(future, receipt, 0.0)])
        return future

    def nudge(self) -> None:
        """Something was put that nobody waits for."""
        self._before_wait()

    def take(self, group: list[Waiting], tasks: list[Task]) -> None:
        """Wait for a whole group; its time begins now."""
        deadline = time.monotonic() + self._timeout_s
        for waiting in group:
            waiting.deadline = deadline
        with self._gate:
            self._waiting += group
            self._tasks += [(future, receipt, deadline) for future, receipt, _ in tasks]
        if self._stopped.is_set():
            self._give_up(float("inf"))
            return
        if self.on_waiting is not None:
            self.on_waiting()
        self.confirm(self.confirmed_where)

    # ------------------------------------------------------------------ completing

    def confirm(self, offset: int) -> None:
        """Enough replicas hold everything below `offset`."""
        with self._gate:
            reached = self.confirmed_where = max(self.confirmed_where, offset)
            if not self._waiting and not self._tasks:
                return
            through = [waiting for waiting in self._waiting if waiting.target <= reached]
            self._waiting = [waiting for waiting in self._waiting if waiting.target > reached]
            tasks = [task for task in self._tasks if task[1].end_offset <= reached]
            self._tasks = [task for task in self._tasks if task[1].end_offset > reached]
        # Outside of the gate: the callback of a future is the user's code, and may put.
        if tasks:
            wake_loops(tasks, None)
        for waiting in through:
            waiting.finish(waiting.receipt)

    def _give_up(self, now: float) -> None:
        with self._gate:
            late = [waiting for waiting in self._waiting if waiting.deadline < now]
            self._waiting = [waiting for waiting in self._waiting if waiting.deadline >= now]
            tasks = [task for task in self._tasks if task[2] < now]
            self._tasks = [task for task in self._tasks if task[2] >= now]
        if tasks:
            wake_loops(tasks, PutStatus.FLUSH_SLAVE_TIMEOUT)
        for waiting in late:
            waiting.finish(waiting.receipt.with_status(PutStatus.FLUSH_SLAVE_TIMEOUT))
        if late or tasks:
            self._counted.put_failed(len(late) + len(tasks))

    def _watch(self) -> None:
        while not self._stopped.wait(self._timeout_s / _WATCHES_PER_TIMEOUT):
            self._give_up(time.monotonic())
