"""Measures very many queues and very many waiting timers, for `flintlog bench services`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

from flintlog.bench.queues import QUEUES_A_TOPIC, TOPICS, make_many_queues, measure_queues
from flintlog.bench.timers import TimersTask, measure_timers

SCALE_COLUMNS = ("figure", "value", "unit")
QUICK_TOPICS = 20
QUICK_TIMERS = 5_000


class Figure(msgspec.Struct, frozen=True):
    """One thing that was measured."""

    figure: str
    value: float
    unit: str


def measure_scale(room: Path, *, quick: bool, progress: Callable[[str], None]) -> list[Figure]:
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
