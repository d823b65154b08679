"""Wakes a thread: a bell that rings until it was heard.

It is a built-in lock and nothing else. An `Event` or a `Condition` has a lock that Python code takes and gives back: if
a signal's handler raises between the two, it stays taken, and whoever sets or waits next hangs for ever.
"""

from __future__ import annotations

import threading
import time
from typing import Final

_LOOK_AGAIN_S: Final = 1.0
"""A waiter looks this often by itself: the setter of a latch may be interrupted before it rings."""


class Bell:
    """Any thread may ring; one listens. A ring may be lost when the ringing thread is interrupted before it."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def ring(self) -> None:
        """Wake whoever listens, or the next one who does."""
        if self._lock.locked():
            try:  # noqa: SIM105 (a context manager is Python code)
                self._lock.release()
            except RuntimeError:
                pass  # another thread has rung

    def listen(self, timeout_s: float = -1) -> bool:
        """Sleep until it rings, for so long at most; whether it rang. It is silent then."""
        return self._lock.acquire(timeout=timeout_s)


class Latch:
    """An `Event` that cannot hang: see the module. Any thread may set, clear or wait."""

    __slots__ = ("_is_set", "_sleepers")

    def __init__(self) -> None:
        self._is_set = False
        self._sleepers: list[Bell] = []

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        """Wake all who wait, and those who come, until `clear`."""
        self._is_set = True
        for bell in tuple(self._sleepers):
            bell.ring()

    def clear(self) -> None:
        self._is_set = False

    def wait(self, timeout_s: float | None = None) -> bool:
        """Sleep until it is set, for so long at most; whether it is."""
        if self.is_set():
            return True
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        bell = Bell()
        self._sleepers.append(bell)
        try:
            while not self.is_set():
                left = _LOOK_AGAIN_S if deadline is None else min(_LOOK_AGAIN_S, deadline - time.monotonic())
                if left <= 0:
                    return False
                if bell.listen(left):
                    return True  # it was set, and may have been cleared since
            return True
        finally:
            self._sleepers.remove(bell)
