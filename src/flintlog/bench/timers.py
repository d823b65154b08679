"""Measures the delivery of a few due messages while a million timed messages wait.

The store's clock is advanced by hand, so only work is measured, no waiting. Messages wait for times spread over the
next two days. Then some seconds pass, each with a few messages due. The same is done in a store where nothing else
waits. If the cost depends only on the due messages, both results agree.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from flintlog.store.model.message import Message
from flintlog.store.options.store_config import StoreConfig
from flintlog.store.store import Store, open_store
from flintlog.testing.clock import FakeClock

TOPIC: Final = "BenchTimers"
BODY: Final = b"x" * 100
SPREAD_SECONDS: Final = 47 * 3600
FIRST_DUE_SECONDS: Final = 3600
DUE_A_TICK: Final = 10


class TimersTask(msgspec.Struct, frozen=True, kw_only=True):
    """How many messages wait, and how many seconds pass."""

    waiting_count: int = 1_000_000
    ticks: int = 100
    name: str = "timers"
    about: str = "messages that wait for their time: a tick by what is due, not by what waits"


class TimersMeasurement(msgspec.Struct, frozen=True, rename="camel"):
    """What a run gave. A tick is one second of the store's clock with some messages due."""

    waiting_count: int
    put_per_second: float
    enter_per_second: float
    tick_us: float
    """Median of a tick with all of them waiting."""
    tick_alone_us: float
    """The same where nothing else waits."""
    open_seconds: float
    """Opening the store again, with all of them waiting."""
    idle_tick_us: float
    """Median of a tick in which nothing is due."""


def measure_timers(directory: Path, task: TimersTask | None = None) -> TimersMeasurement:
    """Run the task in an empty directory."""
    task = TimersTask() if task is None else task
    _, _, alone = _lived(directory / "alone", 0, task.ticks)
    put_s, enter_s, ticks = _lived(directory / "many", task.waiting_count, task.ticks)
    open_s, idle = _opened(directory / "many", task.ticks)
    return TimersMeasurement(
        waiting_count=task.waiting_count,
        put_per_second=task.waiting_count / put_s,
        enter_per_second=task.waiting_count / enter_s,
        tick_us=_median_us(ticks),
        tick_alone_us=_median_us(alone),
        open_seconds=open_s,
        idle_tick_us=_median_us(idle),
    )


def _lived(directory: Path, waiting_count: int, ticks: int) -> tuple[float, float, list[float]]:
    """Fill a store and let seconds pass: the seconds of putting and entering, and those of each tick."""
    clock = FakeClock()
    with open_store(directory, _config(), clock=clock) as store:
        put_s = _timed(lambda: _fill(store, clock.now_ms(), waiting_count))
        enter_s = _timed(lambda: clock.advance(1000))
        start_ms = clock.now_ms()
        for tick in range(ticks):
            for _ in range(DUE_A_TICK):
                store.put(_message(start_ms + 5000 + tick * 1000))
        clock.advance(5000)
        return put_s, enter_s, [_timed(lambda: clock.advance(1000)) for _ in range(ticks - 1)]


def _opened(directory: Path, ticks: int) -> tuple[float, list[float]]:
    clock = FakeClock(FakeClock().now_ms() + 600_000)
    began = time.perf_counter()
    with open_store(directory, _config(), clock=clock) as store:
        store.run_due()
        opened = time.perf_counter() - began
        return opened, [_timed(lambda: clock.advance(1000)) for _ in range(ticks)]


def _fill(store: Store, now_ms: int, count: int) -> None:
    for number in range(count):
        seconds = FIRST_DUE_SECONDS + number * SPREAD_SECONDS // max(1, count)
        store.put(_message(now_ms + seconds * 1000))
    store.wait_dispatched()


def _message(deliver_at_ms: int) -> Message:
    return Message(TOPIC, BODY, tags="TagA", deliver_at_ms=deliver_at_ms)


def _config() -> StoreConfig:
    return StoreConfig(flush="async", services=frozenset({"timer"}), mapped_file_size_commit_log=256 * 1024 * 1024)


def _timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _median_us(seconds: Sequence[float]) -> float:
    return statistics.median(seconds) * 1e6
