"""What a put waits for after it was appended, and the base of its three kinds.

    GroupCommit   one sync covers all records that were appended while the last one ran
    ReplicaWait   enough replicas hold the record
    LedgerWait    a ledger's group has committed it

A store that promises none of them has no `PutWait`: a put is done when its record is in the log.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Final

from flintlog.disk.bell import Latch
from flintlog.store.flush.waiters import (
    LoopHere,
    Outcome,
    PutCounts,
    Task,
    Waiting,
    WaitingFuture,
    WaitingThread,
    finish_all,
    wake_loops,
)
from flintlog.store.model.message import Message, PutStatus

if TYPE_CHECKING:
    import asyncio

WATCHES_PER_TIMEOUT: Final = 10


class _Uncounted:
    def took(self, group: Sequence[Waiting], tasks: Sequence[Task]) -> None:
        """Do not count."""

    def failed(self, count: int) -> None:
        """Do not count."""


class PutWait(ABC):
    """Where a put waits after it was appended: for a sync, for replicas, for a ledger's group. Any thread may call.

    A kind owns its threads. It says in `waits_always` whether a message's own WAIT property counts for it.
    """

    waits_always = False

    def __init__(self, counted: PutCounts | None, threads: Mapping[str, Callable[[], None]]) -> None:
        """`counted` counts the puts; `threads` are the names of its threads and what they run."""
        self._counted = _Uncounted() if counted is None else counted
        self._threads = [threading.Thread(target=run, name=name, daemon=True) for name, run in threads.items()]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    @abstractmethod
    def stop(self) -> None:
        """Complete the puts that wait, and end the threads."""

    @property
    def is_in_own_thread(self) -> bool:
        """Whether a future's callback calls, from one of the threads that `stop` would wait for."""
        return threading.current_thread() in self._threads

    def wait(self, receipt: Outcome, message: Message) -> Outcome:
        """Block until the put is done. Returns its outcome."""
        waiting = WaitingThread(receipt, message, time.monotonic())
        self._submit(waiting)
        return waiting.wait()

    def future(self, receipt: Outcome, message: Message, check: bool) -> Future[Outcome]:
        """The same, as a future; with `check` it carries the error of a put that failed."""
        waiting = WaitingFuture(receipt, message, time.monotonic(), check)
        self._submit(waiting)
        return waiting.future

    @abstractmethod
    def task(self, receipt: Outcome, message: Message) -> asyncio.Future[Outcome]:
        """The same, from asyncio."""

    @abstractmethod
    def nudge(self) -> None:
        """A record was put without waiting."""

    @abstractmethod
    def _submit(self, waiting: Waiting) -> None:
        """Complete this one in time."""

    def _finish_all(self, group: list[Waiting], tasks: list[Task], status: PutStatus | None) -> None:
        """Complete these, or what is left of them; `status` replaces the one of their receipts."""
        if tasks:
            wake_loops(tasks, status)
        # Outside of every lock: the callback of a future is the user's code, and may put.
        if group:
            finish_all(group, status)

    def _count(self, group: list[Waiting], tasks: list[Task], status: PutStatus | None) -> None:
        """Count puts before they are completed: the caller may read the figures at once."""
        if status is not None:
            self._counted.failed(len(group) + len(tasks))
        self._counted.took(group, tasks)


class TimedWait(PutWait):
    """A kind that gives up on puts that waited too long: a thread of its own, the watcher, looks for them."""

    def __init__(
        self, counted: PutCounts | None, threads: Mapping[str, Callable[[], None]], *, watcher: str, timeout_ms: int
    ) -> None:
        super().__init__(counted, {**threads, watcher: self._watch})
        self._timeout_s = timeout_ms / 1000
        self._gate = threading.Lock()
        self._stopped = Latch()
        self._loop_here = LoopHere()

    @abstractmethod
    def _look_for_late(self) -> None:
        """Give up on puts that waited longer than the time-out."""

    def _watch(self) -> None:
        while not self._stopped.wait(self._timeout_s / WATCHES_PER_TIMEOUT):
            self._look_for_late()
