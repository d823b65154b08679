"""A ring of numbered slots: results arrive in any order and leave in the order of their numbers.

    taken ──▶ [ 8 ][ 9 ][ . ][ 11 ][ . ] ...      next = 10: 11 waits for 10
                          ^

A producer whose number lies a whole ring ahead waits until its slot is free, so the results that wait for a slow one
never exceed the ring. Any number of producers, one consumer.
"""

from __future__ import annotations

import threading
from typing import Generic, TypeVar

T = TypeVar("T")


class OrderedRing(Generic[T]):
    """Thread-safe; see the module."""

    def __init__(self, slots: int = 16) -> None:
        if slots < 1:
            raise ValueError("a ring has at least one slot")
        self._slots: list[tuple[T] | None] = [None] * slots
        self._next = 0
        self._closed = False
        self._changed = threading.Condition()

    def put(self, number: int, item: T) -> bool:
        """Place the result with this number; False when the ring was closed meanwhile."""
        with self._changed:
            while number >= self._next + len(self._slots) and not self._closed:
                self._changed.wait()
            if self._closed:
                return False
            self._slots[number % len(self._slots)] = (item,)
            self._changed.notify_all()
            return True

    def take(self) -> T | None:
        """The result with the next number, waiting for it; None when the ring was closed."""
        with self._changed:
            place = self._next % len(self._slots)
            while self._slots[place] is None and not self._closed:
                self._changed.wait()
            held = self._slots[place]
            if held is None:
                return None
            self._slots[place] = None
            self._next += 1
            self._changed.notify_all()
            return held[0]

    def close(self) -> None:
        """Wake all waiting threads. Results that were not taken yet may be dropped."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
