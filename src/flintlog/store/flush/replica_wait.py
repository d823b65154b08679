"""The last stage of a put on a SYNC_MASTER: enough replicas have confirmed the record.

    append ─▶ sync (under sync flush) ─▶ here ─▶ PUT_OK, or FLUSH_SLAVE_TIMEOUT after `slave_timeout`

The sender of the log calls `confirm` with the offset that enough replicas have passed; one call completes every put
below it. A thread of its own, the watcher, gives up on puts that waited too long, so a put ends also when nothing sends
the log at all.

Invariant: a put is completed as confirmed only when `confirmed_where` has passed the end of its record.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from flintlog.store.flush.periodic_flush import join
from flintlog.store.flush.put_wait import TimedWait
from flintlog.store.flush.waiters import (
    Outcome,
    PutCounts,
    Task,
    Waiting,
)
from flintlog.store.model.message import Message, PutStatus

if TYPE_CHECKING:
    import asyncio


class ReplicaWait(TimedWait):
    """Puts that wait for replicas. Any thread may call; `_gate` guards the lists for moments."""

    def __init__(self, *, timeout_ms: int, before_wait: Callable[[], None], counted: PutCounts) -> None:
        """`before_wait` makes a record visible to the sender, if no sync has done so."""
        super().__init__(counted, {}, watcher="flintlog-confirm-watcher", timeout_ms=timeout_ms)
        self.confirmed_where = 0
        self.on_waiting: Callable[[int], None] | None = None
        """Called when a put begins to wait: the log has grown to this offset and should be sent now."""
        self._before_wait = before_wait
        # Each with its deadline: its time-out begins here, not when its put began.
        self._waiting: list[tuple[float, Waiting]] = []
        self._tasks: list[tuple[float, Task]] = []

    def stop(self) -> None:
        """Nothing is confirmed any more: give up on all puts that wait, and at once on later ones."""
        self._stopped.set()
        for thread in self._threads:
            join(thread)
        self._give_up(float("inf"))

    # ------------------------------------------------------------------ waiting

    def _submit(self, waiting: Waiting) -> None:
        self._before_wait()
        with self._gate:
            self._waiting.append((waiting.began + self._timeout_s, waiting))
        self._begun(waiting.target)

    def task(self, receipt: Outcome, message: Message) -> asyncio.Future[Outcome]:
        future: asyncio.Future[Outcome] = self._loop_here.get().create_future()
        began = time.monotonic()
        self._before_wait()
        with self._gate:
            self._tasks.append((began + self._timeout_s, (future, receipt, began, message)))
        self._begun(receipt.end_offset)
        return future

    def nudge(self) -> None:
        """A record was put without waiting."""
        self._before_wait()

    def take(self, group: list[Waiting], tasks: list[Task]) -> None:
        """Wait for a whole group; its time begins now."""
        deadline = time.monotonic() + self._timeout_s
        with self._gate:
            self._waiting += [(deadline, waiting) for waiting in group]
            self._tasks += [(deadline, task) for task in tasks]
        ends = [waiting.target for waiting in group] + [task[1].end_offset for task in tasks]
        if ends:
            self._begun(max(ends), min(ends))

    def _begun(self, end: int, least: int | None = None) -> None:
        """Puts wait from now on, for all up to `end`; `least` is the first end among them."""
        if self._stopped.is_set():
            self._give_up(float("inf"))
            return
        if self.on_waiting is not None:
            self.on_waiting(end)
        # A `confirm` before we were in the list has not seen us.
        if self.confirmed_where >= (end if least is None else least):
            self.confirm(self.confirmed_where)

    # ------------------------------------------------------------------ completing

    def confirm(self, offset: int) -> None:
        """Enough replicas hold everything below `offset`."""
        with self._gate:
            reached = self.confirmed_where = max(self.confirmed_where, offset)
            if not self._waiting and not self._tasks:
                return
        self._finish(lambda _deadline, end: end <= reached, None)

    def _give_up(self, now: float) -> None:
        self._finish(lambda deadline, _end: deadline < now, PutStatus.FLUSH_SLAVE_TIMEOUT)

    def _finish(self, is_over: Callable[[float, int], bool], status: PutStatus | None) -> None:
        """Complete those whose deadline and end are over; `status` replaces the one of their receipts."""
        group: list[Waiting] = []
        tasks: list[Task] = []
        try:
            with self._gate:
                over = [waiting for deadline, waiting in self._waiting if is_over(deadline, waiting.target)]
                left = [each for each in self._waiting if not is_over(each[0], each[1].target)]
                tasks_over = [task for deadline, task in self._tasks if is_over(deadline, task[1].end_offset)]
                tasks_left = [each for each in self._tasks if not is_over(each[0], each[1][1].end_offset)]
                # No call from here on: a waiter that leaves the lists is answered, even if an exception is raised here.
                group, self._waiting, tasks, self._tasks = over, left, tasks_over, tasks_left
            if not group and not tasks:
                return
            self._count(group, tasks, status)
            self._finish_all(group, tasks, status)
        except BaseException:
            self._finish_all(group, tasks, status)  # callers wait for it; a put that is completed stays as it is
            raise

    def _look_for_late(self) -> None:
        self._give_up(time.monotonic())
