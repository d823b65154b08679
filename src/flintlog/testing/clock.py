"""A clock that stands still until it is set or advanced."""

from __future__ import annotations

from collections.abc import Callable

from flintlog.errors import InvalidConfig

DEFAULT_START_MS = 1_700_000_000_000


class FakeClock:
    """Pass it to `open_store(..., clock=...)`: store timestamps, expiry and delays use it.

    Setting or advancing it runs the store's due services before it returns.

    >>> clock = FakeClock(1000)
    >>> clock.advance(250)
    1250
    >>> clock.now_ms()
    1250
    """

    def __init__(self, now_ms: int = DEFAULT_START_MS) -> None:
        self._now_ms = now_ms
        self._callbacks: list[Callable[[], None]] = []

    def now_ms(self) -> int:
        """Milliseconds since 1970."""
        return self._now_ms

    def advance(self, by_ms: int) -> int:
        """Let time pass; returns the new time. It refuses to go back: use `set` for that."""
        if by_ms < 0:
            raise InvalidConfig(f"a clock that is advanced by {by_ms} ms", advice="use set to turn it back")
        self.set(self._now_ms + by_ms)
        return self._now_ms

    def set(self, now_ms: int) -> None:
        """Jump to a time, back or forth, as a corrected system clock does."""
        self._now_ms = now_ms
        for callback in list(self._callbacks):
            callback()

    def on_turn(self, callback: Callable[[], None]) -> None:
        """Call back after each change of the time."""
        self._callbacks.append(callback)

    def off_turn(self, callback: Callable[[], None]) -> None:
        """Stop calling back."""
        self._callbacks.remove(callback)

    def __repr__(self) -> str:
        return f"FakeClock({self._now_ms})"
