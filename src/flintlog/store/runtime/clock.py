"""The store's time: milliseconds from a function that tests may replace.

It is used for store timestamps, expiry and delays. Waiting for a disk or another thread uses real time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol, TypeAlias, runtime_checkable

from flintlog.errors import InvalidConfig

Milliseconds: TypeAlias = Callable[[], int]


@runtime_checkable
class Clock(Protocol):
    """An object with the time in milliseconds since 1970."""

    def now_ms(self) -> int: ...


@runtime_checkable
class TurnedClock(Clock, Protocol):
    """A clock that a test moves by hand. It calls back after each move."""

    def on_turn(self, callback: Callable[[], None]) -> None: ...

    def off_turn(self, callback: Callable[[], None]) -> None: ...


def system_now_ms() -> int:
    return time.time_ns() // 1_000_000


def as_milliseconds(clock: Clock | Milliseconds | None) -> Milliseconds:
    """The time function of a `clock=` argument."""
    if clock is None:
        return system_now_ms
    if isinstance(clock, Clock):
        return clock.now_ms
    if not callable(clock):
        raise InvalidConfig(f"a clock returns milliseconds, which {type(clock).__name__} does not")
    return clock


def check_reading(now_ms: Milliseconds) -> None:
    """Raise when a clock does not return milliseconds. Called once, when a store is opened."""
    now = now_ms()
    if not isinstance(now, int) or not -(1 << 63) <= now < 1 << 63:
        raise InvalidConfig(f"a clock returns whole milliseconds that fit 64 bits, not {now!r:.80}")


def given_clock(now_ms: Milliseconds) -> Milliseconds | None:
    """The function; None for the system's clock, which the kernel reads itself."""
    return None if now_ms is system_now_ms else now_ms
