"""A reference count: an object is cleaned up when its last holder has released it.

    1 ──hold──▶ 2 … n ──release──▶ 1 ──shut_down──▶ 0: cleaned up
                                        │
                                        └─ still held: refused, until the time is over; then by force

A holder may use the object; a caller whose `hold` was refused may not. Cleaning up happens once, under the lock.
"""

from __future__ import annotations

import threading
from typing import Final

# The base of the count after a forced end: no release can raise it to where a hold would be granted.
FORCED: Final = -1000


class Counted:
    """The reference count of a file; its owner holds the first reference."""

    __slots__ = ("_available", "_first_shutdown_ms", "_lock", "_references")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._references = 1
        self._available = True
        self._first_shutdown_ms: int | None = None

    @property
    def available(self) -> bool:
        return self._available

    @property
    def references(self) -> int:
        return self._references

    def hold(self) -> bool:
        """Prevent it from being destroyed; False when it is already shut down."""
        with self._lock:
            if not self._available or self._references <= 0:
                return False
            self._references += 1
            return True

    def release(self) -> None:
        """Undo one `hold`."""
        with self._lock:
            self._references -= 1
            if self._references <= 0:
                self._clean_up()

    def end_serving(self, force_after_ms: int, now_ms: int) -> bool:
        """Grant no more holds; True when there is no holder left, or by force after `force_after_ms`."""
        with self._lock:
            if self._available:
                self._available = False
                self._first_shutdown_ms = now_ms
                self._references -= 1
            held_ms = now_ms - (now_ms if self._first_shutdown_ms is None else self._first_shutdown_ms)
            if self._references > 0 and held_ms >= force_after_ms:
                self._references = FORCED - self._references
            if self._references > 0:
                return False
            self._clean_up()
        return True

    def _clean_up(self) -> None:
        """Free the resources; the lock is held. A second call does nothing."""
        raise AssertionError("a subclass must free its resources")
