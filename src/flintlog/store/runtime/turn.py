"""A lock for work that a put does in its caller's thread.

A signal handler may raise in that thread, after any call. An exception between a non-blocking `acquire` of a built-in
lock and the `try` that releases it would leave the lock taken forever. (`with lock:` has no such gap, but waits.)
A turn is taken by a comparison and an assignment, and released by an assignment:

    if turn.take():
        try: ...
        finally:
            turn.owner = None
            turn.ring()

CPython switches threads and runs handlers at calls, at function entry and at backward jumps. So nothing can happen
between the comparison and the assignment, nor between the assignment and the `try`. `tests/signals` tests both.

Work that waits for the turn is passed to `run` as a function. A context manager would be unsafe there: a handler may
run at the entry of `__exit__`, and a generator keeps the turn as long as the exception's traceback is referenced.

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
"""How often a waiter looks by itself, because an owner may be interrupted between releasing the turn and `ring`."""


def to_the_end(work: Callable[[], object]) -> None:
    """Run repeatable work; if an exception interrupts it, run it again, so that it is never left half done."""
    try:
        work()
    except BaseException:
        work()
        raise


class Turn:
    """Taken by one thread at a time; see the module. `owner` is that thread, or None."""

    __slots__ = ("_bell", "_waiting", "owner")

    def __init__(self) -> None:
        self.owner: int | None = None
        self._bell = threading.Lock()
        self._bell.acquire()
        self._waiting = 0

    def take(self, patience_s: float | None = 0) -> bool:
        """Take the turn, waiting for so long at most (None: forever). Returns whether it was taken."""
        me = get_ident()
        deadline = None if patience_s is None else time.monotonic() + patience_s
        while True:
            if self.owner is None:
                self.owner = me
                return True
            left = LOOK_AGAIN_S if deadline is None else min(LOOK_AGAIN_S, deadline - time.monotonic())
            if left <= 0:
                return False
            self._waiting = 2  # two rings, because the first may wake another waiter
            self._bell.acquire(timeout=left)

    def ring(self) -> None:
        """Wake one waiter; called after releasing the turn."""
        if self._waiting and self._bell.locked():
            self._waiting -= 1
            self._bell.release()

    def run(self, work: Callable[[], T]) -> T:
        """Wait for the turn and run this in it."""
        self.take(None)
        try:
            return work()
        finally:
            self.owner = None
            self.ring()

    def __enter__(self) -> None:
        """Only for the store's own threads, in which no signal handler runs."""
        self.take(None)

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.owner = None
        self.ring()
