"""Whose turn it is: a lock for work that a put does in its caller's thread.

A signal's handler may raise in that thread, after any call. Between a built-in lock's `acquire`, if it must not wait,
and the `try` that gives the lock back, an exception would leave it taken for ever. (`with lock:` has no such gap, but
waits.) A turn is taken by a look and an assignment, and given back by an assignment:

    if turn.take():
        try: ...
        finally:
            turn.owner = None
            turn.ring()

CPython switches threads and runs handlers at calls, at the entry of functions and at jumps backward, so nothing comes
between the look and the assignment, nor between the assignment and the `try`. `tests/signals` holds both.

Work that waits for its turn is given to `run` as a function. A context manager would not do: the entry of `__exit__` is
such a point, and one that is a generator keeps the turn for as long as somebody has the exception's traceback.

Reasons and costs: docs/decisions/0010.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from threading import get_ident
from types import TracebackType
from typing import Final, TypeVar

T = TypeVar("T")

LOOK_AGAIN_S: Final = 0.02
"""A waiter looks this often by itself: the owner that gave the turn back may have been interrupted before it rang."""


def to_the_end(work: Callable[[], object]) -> None:
    """Do this, and all of it once more if an exception comes in between: half of it must not stay. It is repeatable."""
    try:
        work()
    except BaseException:
        work()
        raise


class Turn:
    """Taken by one thread at a time; see the module. `owner` is that thread, None while it is free."""

    __slots__ = ("_bell", "_waiting", "owner")

    def __init__(self) -> None:
        self.owner: int | None = None
        self._bell = threading.Lock()
        self._bell.acquire()
        self._waiting = 0

    def take(self, patience_s: float | None = 0) -> bool:
        """Take it, waiting for so long at most, or without end; whether it was taken."""
        me = get_ident()
        deadline = None if patience_s is None else time.monotonic() + patience_s
        while True:
            if self.owner is None:
                self.owner = me
                return True
            left = LOOK_AGAIN_S if deadline is None else min(LOOK_AGAIN_S, deadline - time.monotonic())
            if left <= 0:
                return False
            self._waiting = 2  # for two rings: one may wake another than the one who set it
            self._bell.acquire(timeout=left)

    def ring(self) -> None:
        """It was given back: wake one who waits for it."""
        if self._waiting and self._bell.locked():
            self._waiting -= 1
            self._bell.release()

    def run(self, work: Callable[[], T]) -> T:
        """Wait for the turn and do this in it."""
        self.take(None)
        try:
            return work()
        finally:
            self.owner = None
            self.ring()

    def __enter__(self) -> None:
        """For threads of the store's own, in which no handler runs."""
        self.take(None)

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.owner = None
        self.ring()
