"""Puts that wait for a sync or for replicas. A group of them is completed by one call of `finish_all`, in any thread.

A waiting thread has a lock of its own, a future its callbacks; asyncio producers are plain tuples, because many of them
are made for each sync, and one call into their loop completes them all.

Threads of a group wake each other in a row: only one at a time can have the GIL, and a thread that is woken earlier
would sleep and be woken a second time.
"""

from __future__ import annotations

import itertools
import logging
import threading
from _thread import start_new_thread
from collections.abc import Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from flintlog.store.model.message import Message, PutStatus, Receipt, Receipts

if TYPE_CHECKING:
    import asyncio  # imported only where a loop runs: commands start sooner without it

log = logging.getLogger(__name__)

_PATIENCE_S: Final = 0.05

Outcome: TypeAlias = "Receipt | Receipts"

Task: TypeAlias = "tuple[asyncio.Future[Outcome], Outcome, float, Message]"
"""An asyncio producer that waits: its future, its receipt, since when, and its message, or the first of its batch."""


class PutCounts(Protocol):
    """The part of the statistics that waiting puts are for."""

    def took(self, group: Sequence[Waiting], tasks: Sequence[Task]) -> None:
        """These were completed just now."""

    def failed(self, count: int) -> None:
        """So many were not acknowledged."""


class Waiting:
    """A put that waits until something has passed the end of its record; `message` is the first of a batch."""

    __slots__ = ("began", "done", "message", "receipt", "target")

    def __init__(self, receipt: Outcome, message: Message, began: float) -> None:
        self.receipt = receipt
        self.message = message
        self.target = receipt.end_offset
        self.began = began
        self.done = False


class WaitingThread(Waiting):
    """A thread, in `wait`."""

    __slots__ = ("_following", "_gate", "_has_left", "_outcome")

    def __init__(self, receipt: Outcome, message: Message, began: float) -> None:
        super().__init__(receipt, message, began)
        self._outcome = receipt
        self._following: WaitingThread | None = None
        self._has_left = True  # until it waits: an exception may keep it from doing so
        self._gate = threading.Lock()
        self._gate.acquire()

    def wait(self) -> Outcome:
        """Sleep until the put is finished; its outcome."""
        try:
            self._has_left = False
            self._gate.acquire()
        finally:
            # Before anything else, also after Ctrl-C: the others' wake-up depends on it. The lock is released here and
            # not in `_wake`, where an exception could be raised on entry.
            self._has_left = True
            following = self._following
            if following is not None:
                try:  # noqa: SIM105
                    following._gate.release()
                except RuntimeError:
                    pass  # it was woken already
        return self._outcome

    def _wake(self) -> None:
        try:  # noqa: SIM105 (a context manager would cost as much as the wake-up)
            self._gate.release()
        except RuntimeError:
            pass  # the one before left while the row was made, and it was woken already

    @staticmethod
    def finish_row(row: Sequence[WaitingThread], status: PutStatus | None) -> None:
        """Finish them all: wake the first, which wakes the second."""
        for waiting, following in itertools.zip_longest(row, row[1:]):
            waiting._outcome = _outcome(waiting.receipt, status)
            waiting._following = following
        # A thread that leaves after this check wakes its successor by itself.
        for waiting in row if any(waiting._has_left for waiting in row) else row[:1]:
            waiting._wake()


class WaitingFuture(Waiting):
    """A future; with `check` it carries the error of a put that was not acknowledged."""

    __slots__ = ("check", "future")

    def __init__(self, receipt: Outcome, message: Message, began: float, check: bool) -> None:
        super().__init__(receipt, message, began)
        self.check = check
        self.future: Future[Outcome] = Future()

    @staticmethod
    def finish_each(finished: Sequence[tuple[WaitingFuture, Outcome]]) -> None:
        """Give each future its result.

        Not in the main thread, where a signal's handler may raise: a future that is interrupted after its result was
        set and before its waiters were woken would never wake them.
        """
        if threading.current_thread() is threading.main_thread():
            start_new_thread(_finish_each, (finished,))  # `Thread.start` waits for an event, in Python code
        else:
            _finish_each(finished)

    def finish(self, outcome: Outcome) -> None:
        """Give the future its result, unless it was cancelled or has one."""
        lock = self.future._condition
        if not lock.acquire(timeout=_PATIENCE_S):
            # The thread that waited for the future was interrupted while it held the lock. Only that one may hang.
            threading.Thread(target=self._finish, args=(outcome,), name="flintlog-late-puts", daemon=True).start()
            return
        lock.release()
        self._finish(outcome)

    def _finish(self, outcome: Outcome) -> None:
        with suppress(InvalidStateError):  # another thread has finished it
            if not self.future.done() and (self.future.running() or self.future.set_running_or_notify_cancel()):
                _settle(self.future, outcome, self.check)


def done_future(outcome: Outcome, check: bool) -> Future[Outcome]:
    """A future of a put that nothing waits for any more."""
    future: Future[Outcome] = Future()
    _settle(future, outcome, check)
    return future


def _settle(future: Future[Outcome], outcome: Outcome, check: bool) -> None:
    if check and outcome.status is not PutStatus.PUT_OK:
        future.set_exception(outcome.failure())
    else:
        future.set_result(outcome)


def _finish_each(finished: Sequence[tuple[WaitingFuture, Outcome]]) -> None:
    for waiting, outcome in finished:
        waiting.finish(outcome)


class LoopHere:
    """The event loop that runs in the calling thread: a faster `asyncio.get_running_loop`.

    Before Python 3.12 that function asks the system for the process id each time, which costs more than the future that
    is made then. A loop that does not know its thread is looked up in the usual way. Loops that run one in another in
    the same thread, which asyncio forbids, are confused.
    """

    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last: asyncio.AbstractEventLoop | None = None

    def get(self) -> asyncio.AbstractEventLoop:
        """The loop; raises RuntimeError when none runs here."""
        last = self._last
        if last is None or getattr(last, "_thread_id", None) != threading.get_ident():
            import asyncio

            last = self._last = asyncio.get_running_loop()
        return last


def finish_all(group: Sequence[Waiting], status: PutStatus | None) -> None:
    """Complete these; `status` replaces the one of their receipts. A second call completes what is left."""
    threads = [waiting for waiting in group if isinstance(waiting, WaitingThread)]
    if threads:
        WaitingThread.finish_row(threads, status)
    futures = [(each, _outcome(each.receipt, status)) for each in group if isinstance(each, WaitingFuture)]
    if futures:
        WaitingFuture.finish_each(futures)


def _outcome(receipt: Outcome, status: PutStatus | None) -> Outcome:
    return receipt if status is None else receipt.with_status(status)


def wake_loops(tasks: list[Task], status: PutStatus | None) -> None:
    """One call into each loop, however many of its tasks wait; `status` replaces the one of their receipts."""
    loops = {task[0].get_loop() for task in tasks}
    here = _running_loop()
    for loop in loops:
        waiting = tasks if len(loops) == 1 else [task for task in tasks if task[0].get_loop() is loop]
        if loop is here:
            _set_results(waiting, status)
            continue
        try:
            loop.call_soon_threadsafe(_set_results, waiting, status)
        except RuntimeError:
            log.debug("the event loop of %d waiting puts was closed", len(waiting))


def _running_loop() -> asyncio.AbstractEventLoop | None:
    import asyncio

    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _set_results(tasks: list[Task], status: PutStatus | None) -> None:
    """Runs in the loop, which alone may touch its futures; those that were given up on are done already."""
    for future, receipt, _began, _message in tasks:
        if not future.done():
            future.set_result(_outcome(receipt, status))
