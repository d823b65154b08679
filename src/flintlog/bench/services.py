"""Measures very many queues and very many waiting timers, for `flintlog bench services`.

Timers: a few messages are due while a million wait. The store's clock is advanced by hand, so only work is measured, no
waiting. The messages wait for times spread over the next two days; then some seconds pass, each with a few messages
due. The same is done in a store where nothing else waits. If the cost depends only on the due messages, both results
agree.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from flintlog.bench.queues import QUEUES_A_TOPIC, TOPICS, make_many_queues, measure_queues
from flintlog.store.model.message import Message
from flintlog.store.open_store import open_store
from flintlog.store.options.store_config import StoreConfig
from flintlog.store.store import Store
from flintlog.testing.clock import FakeClock

QUICK_TOPICS: Final = 20
QUICK_TIMERS: Final = 5_000
TOPIC: Final = "BenchTimers"
BODY: Final = b"x" * 100
SPREAD_SECONDS: Final = 47 * 3600
FIRST_DUE_SECONDS: Final = 3600
DUE_A_TICK: Final = 10


class Figure(msgspec.Struct, frozen=True):
    """One measured value."""

    figure: str
    value: float
    unit: str


def measure_services(room: Path, *, quick: bool, progress: Callable[[str], None]) -> list[Figure]:
    """Measure both in a directory of their own; `progress` is called with the name of each step."""
    topics = QUICK_TOPICS if quick else TOPICS
    progress(f"queues: making {topics * QUEUES_A_TOPIC:,}")
    make_many_queues(room / "queues", topics)
    progress("queues: opening, idling, stopping")
    cost = measure_queues(room / "queues")
    task = TimersTask(waiting_count=QUICK_TIMERS) if quick else TimersTask()
    progress(f"timers: {task.waiting_count:,} wait")
    timers = measure_timers(room / "timers", task)
    queues, waiting = f"{cost.queue_count:,} queues", f"{timers.waiting_count:,} timers wait"
    return [
        Figure(f"{queues}: opening", round(cost.open_seconds, 3), "s"),
        Figure(f"{queues}: CPU of opening", round(cost.open_cpu_seconds, 3), "s"),
        Figure(f"{queues}: maps of the process", cost.map_count, ""),
        Figure(f"{queues}: open files", cost.file_count, ""),
        Figure(f"{queues}: CPU while idle", round(100 * cost.idle_cpu_share, 2), "% of a core"),
        Figure(f"{queues}: clean stop", round(cost.close_seconds, 3), "s"),
        Figure(f"{waiting}: put", round(timers.put_per_second), "a second"),
        Figure(f"{waiting}: entered", round(timers.enter_per_second), "a second"),
        Figure(f"{waiting}: a tick with 10 due", round(timers.tick_us), "µs"),
        Figure("nothing else waits: a tick with 10 due", round(timers.tick_alone_us), "µs"),
        Figure(f"{waiting}: a tick with none due", round(timers.idle_tick_us), "µs"),
        Figure(f"{waiting}: opening again", round(timers.open_seconds, 3), "s"),
    ]


# ---------------------------------------------------------------------- timers


class TimersTask(msgspec.Struct, frozen=True, kw_only=True):
    """How many messages wait, and how many seconds pass."""

    waiting_count: int = 1_000_000
    ticks: int = 100


class TimersMeasurement(msgspec.Struct, frozen=True):
    """The result of a run. A tick is one second of the store's clock with some messages due."""

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
