"""Puts that wait for something: a sync, replicas. Who completes one calls `finish` once, from any thread.

A waiting thread has a lock of its own, a future its callbacks; asyncio producers are plain tuples, because many of them
are made for each sync, and one call into their loop completes them all.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Protocol, TypeAlias

from flintlog.store.message import Message, PutStatus, Receipt, Receipts

log = logging.getLogger(__name__)

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

    def finish(self, outcome: Outcome) -> None:
        raise AssertionError("a waiting put knows how it is told")


class WaitingThread(Waiting):
    """A thread; it acquires `gate` and then reads `outcome`."""

    __slots__ = ("gate", "outcome")

    def __init__(self, receipt: Outcome, message: Message, began: float) -> None:
        super().__init__(receipt, message, began)
        self.outcome = receipt
        self.gate = threading.Lock()
        self.gate.acquire()

    def finish(self, outcome: Outcome) -> None:
        self.outcome = outcome
        self.gate.release()


class WaitingFuture(Waiting):
    """Whoever holds the future."""

    __slots__ = ("future",)

    def __init__(self, receipt: Outcome, message: Message, began: float) -> None:
        super().__init__(receipt, message, began)
        self.future: Future[Outcome] = Future()

    def finish(self, outcome: Outcome) -> None:
        if self.future.set_running_or_notify_cancel():
            self.future.set_result(outcome)


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
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _set_results(tasks: list[Task], status: PutStatus | None) -> None:
    """Runs in the loop, which alone may touch its futures; those that were given up on are done already."""
    for future, receipt, _began, _message in tasks:
        if not future.done():
            future.set_result(receipt if status is None else receipt.with_status(status))
