"""Wakes threads, safely for signal handlers. A ring lasts until a thread has heard it.

A bell is a single built-in lock. Python code acquires and releases the lock inside an `Event` or a `Condition`. If a
signal handler raises between the two, that lock stays held, and the next caller of set or wait hangs forever.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

_LOOK_AGAIN_S: Final = 1.0
"""A waiter checks this often by itself, because the setter may be interrupted before it rings."""


class Bell:
    """Any thread may ring; one thread listens. A ringing thread may be interrupted before it has rung."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def ring(self) -> None:
        """Wake the listener, or the next one."""
        if self._lock.locked():
            try:  # noqa: SIM105 (a context manager is Python code)
                self._lock.release()
            except RuntimeError:
                pass  # another thread has rung

    def listen(self, timeout_s: float = -1) -> bool:
        """Sleep until it rings or the time is over; returns whether it rang. This ends the ring."""
        return self._lock.acquire(timeout=timeout_s)


class Bells:
    """A `Condition` that cannot hang: see the module. Any thread may wait until something is true, and any may ring."""

    __slots__ = ("_sleepers",)

    def __init__(self) -> None:
        self._sleepers: list[Bell] = []

    def ring(self) -> None:
        """Let all waiters check their condition again."""
        for bell in tuple(self._sleepers):
            bell.ring()

    def wait_for(self, is_true: Callable[[], bool], timeout_s: float | None = None) -> bool:
        """Sleep until this is true or the time is over; returns whether it is true."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        bell = Bell()
        self._sleepers.append(bell)  # before the first check, so that no ring is missed
        try:
            while not is_true():
                left = _LOOK_AGAIN_S if deadline is None else min(_LOOK_AGAIN_S, deadline - time.monotonic())
                if left <= 0:
                    return False
                bell.listen(left)
            return True
        finally:
            self._sleepers.remove(bell)


class Latch:
    """An `Event` that cannot hang: see the module. Any thread may set, clear or wait."""

    __slots__ = ("_bells", "_is_set", "_set_count")

    def __init__(self) -> None:
        self._is_set = False
        self._set_count = 0
        self._bells = Bells()

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        """Wake all waiters, present and future, until `clear`."""
        self._is_set = True
        self._set_count += 1
        self._bells.ring()

    def clear(self) -> None:
        self._is_set = False

    def wait(self, timeout_s: float | None = None) -> bool:
        """Sleep until it is set or the time is over; returns whether it was set, even if it was cleared since."""
        count = self._set_count
        return self._is_set or self._bells.wait_for(lambda: self._is_set or self._set_count != count, timeout_s)
