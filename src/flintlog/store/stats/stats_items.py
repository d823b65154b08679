"""One figure of RocketMQ's statistics: a growing sum, and what it was over the last minute, hour and day.

    window    a sample every   kept   rate over
    minute    10 s             7      60 s
    hour      10 min           7      1 h
    day       1 h              25     1 d

A rate is the difference of the newest and the oldest sample. The first sample of a new item gets one of zero before
it, one interval back, as in RocketMQ. An item whose samples are all alike rests: it costs nothing until it is
added to again, and then continues as if it had been sampled all the while.

A moment item has no history: it holds the last value that it was told.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from flintlog.store.stats.store_stats import two_decimals


class Period(Enum):
    """The three windows: the word of RocketMQ's log lines, the time between two samples, how many are kept."""

    MINUTE = ("Minute", 10_000, 7)
    HOUR = ("Hour", 600_000, 7)
    DAY = ("Day", 3_600_000, 25)

    def __init__(self, word: str, interval_ms: int, kept: int) -> None:
        self.word = word
        self.interval_ms = interval_ms
        self.kept = kept


PERIODS: Final = tuple(Period)


@dataclass(frozen=True, slots=True)
class StatsSnapshot:
    """What one window says; under RocketMQ's names. `avgpt` is the sum per time that something was added."""

    sum: int = 0
    tps: float = 0.0
    times: int = 0
    avgpt: float = 0.0


class _Sample(NamedTuple):
    timestamp_ms: int
    times: int
    value: int


class _Window:
    __slots__ = ("_resting_at", "_samples", "is_resting", "period")

    def __init__(self, period: Period) -> None:
        self.period = period
        self.is_resting = True
        self._samples: deque[_Sample] = deque(maxlen=period.kept)
        self._resting_at: tuple[int, int] | None = None

    def sample(self, now_ms: int, times: int, value: int) -> None:
        samples, interval_ms = self._samples, self.period.interval_ms
        if not samples:
            before = (0, 0) if self._resting_at is None else self._resting_at
            missed = 1 if self._resting_at is None else self.period.kept - 1
            samples.extend(_Sample(now_ms - interval_ms * back, *before) for back in range(missed, 0, -1))
        samples.append(_Sample(now_ms, times, value))
        if len(samples) == self.period.kept and samples[0][1:] == samples[-1][1:]:
            self._resting_at = (times, value)
            self.is_resting = True
            samples.clear()

    def snapshot(self) -> StatsSnapshot:
        if not self._samples:
            return StatsSnapshot()
        first, last = self._samples[0], self._samples[-1]
        counted, times = last.value - first.value, last.times - first.times
        elapsed_ms = last.timestamp_ms - first.timestamp_ms
        tps = counted * 1000.0 / elapsed_ms if elapsed_ms > 0 else 0.0
        return StatsSnapshot(counted, tps, times, counted / times if times > 0 else 0.0)


class StatsItem:
    """One figure under one key. Whoever holds it adds under the lock of its `BrokerStats`, which samples it."""

    __slots__ = ("_windows", "is_latency", "key", "name", "times", "updated_at_ms", "value")

    def __init__(self, name: str, key: str, *, is_latency: bool = False) -> None:
        self.name = name
        self.key = key
        self.is_latency = is_latency
        self.value = 0
        self.times = 0
        self.updated_at_ms = 0
        self._windows = {period: _Window(period) for period in PERIODS}

    def __repr__(self) -> str:
        return f"StatsItem({self.name} {self.key}: {self.value})"

    def add(self, value: int, times: int, now_ms: int) -> None:
        self.value += value
        self.times += times
        self.updated_at_ms = now_ms

    def wake(self, period: Period) -> bool:
        """Say that it changed; whether it rested, and so has to be sampled again from now on."""
        window = self._windows[period]
        did_rest, window.is_resting = window.is_resting, False
        return did_rest

    def sample(self, period: Period, now_ms: int) -> bool:
        """Take a sample; False when it rests from now on."""
        window = self._windows[period]
        window.sample(now_ms, self.times, self.value)
        return not window.is_resting

    def snapshot(self, period: Period) -> StatsSnapshot:
        """What it was over the last minute, hour or day, by its samples."""
        return self._windows[period].snapshot()

    @property
    def in_minute(self) -> StatsSnapshot:
        return self.snapshot(Period.MINUTE)

    @property
    def in_hour(self) -> StatsSnapshot:
        return self.snapshot(Period.HOUR)

    @property
    def in_day(self) -> StatsSnapshot:
        return self.snapshot(Period.DAY)

    def line(self, period: Period) -> str:
        """The line that RocketMQ logs."""
        found = self.snapshot(period)
        if self.is_latency:
            detail = f"TIMES: {found.times} AVGRT: {two_decimals(found.avgpt)}"
        else:
            detail = f"SUM: {found.sum} TPS: {two_decimals(found.tps)} AVGPT: {two_decimals(found.avgpt)}"
        return f"[{self.name}] [{self.key}] Stats In One {period.word}, {detail}"


@dataclass(slots=True)
class MomentItem:
    """The last value that somebody told."""

    name: str
    key: str
    value: int = 0
    updated_at_ms: int = 0

    def line(self) -> str:
        """The line that RocketMQ logs."""
        return f"[{self.name}] [{self.key}] Stats Every 5 Minutes, Value: {self.value}"


class Pace:
    """Says when something is due that happens once an interval; what was missed is not made up for."""

    __slots__ = ("_next_ms", "_of")

    def __init__(self, of: Callable[[int], int], now_ms: int, *, at_once: bool = False) -> None:
        """`of` gives the next time after a time."""
        self._of = of
        self._next_ms = now_ms if at_once else of(now_ms)

    def is_due(self, now_ms: int) -> bool:
        """Whether it is time; then the next time is set. A clock that was turned far back starts anew."""
        following = self._of(now_ms)
        if now_ms < self._next_ms <= following:
            return False
        is_due = now_ms >= self._next_ms
        self._next_ms = following
        return is_due


def after_each(interval_ms: int) -> Callable[[int], int]:
    """The time this long after a time."""
    return lambda now_ms: now_ms + interval_ms


def next_whole(interval_ms: int) -> Callable[[int], int]:
    """The next whole minute, hour, or whatever it is."""
    return lambda now_ms: now_ms - now_ms % interval_ms + interval_ms


def next_morning_ms(now_ms: int) -> int:
    """The next midnight of the local time zone; days may have 23 or 25 hours."""
    today = time.localtime(now_ms / 1000)
    return int(time.mktime((today.tm_year, today.tm_mon, today.tm_mday + 1, 0, 0, 0, 0, 0, -1)) * 1000)
