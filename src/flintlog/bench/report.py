"""The results as a table for people and as JSON.

A ratio says how many times better ours is: for a rate ours divided by theirs, for a latency theirs divided by ours. A
store that takes messages faster than it makes them visible shows both rates: only the second is sustainable.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import msgspec

from flintlog import kernel
from flintlog.bench.run import Outcome
from flintlog.bench.tasks import Measurement, Task, Window

OURS = "flintlog"

# Below this share of the rate of puts, the rate at which they became visible is shown too.
LAGGING = 0.9


class Machine(msgspec.Struct, frozen=True):
    """Where the figures were taken."""

    system: str
    processor: str
    cores: int
    memory_gib: float
    file_system: str
    python: str
    kernel: str


class Report(msgspec.Struct, frozen=True):
    """One run of the benchmark, complete."""

    taken_at: str
    machine: Machine
    load_average_before: tuple[float, float, float]
    load_average_after: tuple[float, float, float]
    versions: Mapping[str, str]
    window: Window
    left_out: list[str]
    outcomes: list[Outcome]
    figures: list[dict[str, object]]


def make_report(
    outcomes: list[Outcome],
    *,
    load_before: tuple[float, float, float],
    versions: Mapping[str, str],
    window: Window,
    left_out: list[str],
    directory: Path,
) -> Report:
    """The outcomes with the machine, the load and the versions that they depend on."""
    taken_at = datetime.now(UTC).isoformat(timespec="seconds")
    machine = describe_machine(directory)
    return Report(
        taken_at, machine, load_before, os.getloadavg(), versions, window, left_out, outcomes, figures(outcomes)
    )


def describe_machine(directory: Path) -> Machine:
    """This machine, and the file system under the benchmark's directory."""
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return Machine(
        system=f"{platform.system()} {platform.release()}",
        processor=_processor(),
        cores=os.cpu_count() or 1,
        memory_gib=round(memory_bytes / 1024**3, 1),
        file_system=_file_system(directory),
        python=f"{platform.python_implementation()} {sys.version.split()[0]}",
        kernel=kernel.name,
    )


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _file_system(directory: Path) -> str:
    """The type of the mount with the longest name above the directory."""
    place = str(directory.resolve())
    try:
        mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    except OSError:
        return "unknown"
    above = [
        (mount[1], mount[2]) for mount in mounts if place == mount[1] or place.startswith(mount[1].rstrip("/") + "/")
    ]
    return max(above, key=lambda mount: len(mount[0]))[1] if above else "unknown"


def figure(task: Task, measured: Measurement) -> float:
    """The one number that a task is about: messages a second, or microseconds."""
    return (measured.p50_us or 0.0) if task.by_latency else measured.per_second


def ratio(task: Task, ours: Measurement, theirs: Measurement) -> float | None:
    """How many times better ours is."""
    mine, other = figure(task, ours), figure(task, theirs)
    if mine <= 0 or other <= 0:
        return None
    return other / mine if task.by_latency else mine / other


def cells(outcomes: Sequence[Outcome], contenders: Sequence[str]) -> list[dict[str, str]]:
    """For people: one row a task, one column a contender, theirs with the ratio."""
    by_task: dict[str, dict[str, Outcome]] = {}
    for outcome in outcomes:
        by_task.setdefault(outcome.task.name, {})[outcome.contender] = outcome
    return [
        {"task": name, **{who: _cell(taken.get(OURS), taken.get(who)) for who in contenders}}
        for name, taken in by_task.items()
    ]


def _cell(ours: Outcome | None, outcome: Outcome | None) -> str:
    if outcome is None:
        return "-"
    task, measured = outcome.task, outcome.median
    text = _latency(measured) if task.by_latency else f"{measured.per_second:,.0f}/s"
    text += f" ({measured.cpu_us:.2f})"
    times = None if ours is None or outcome is ours else ratio(task, ours.median, measured)
    if times is not None:
        text += f" ×{times:.2f}"
    return text + _visible(None if ours is None else ours.median, measured) if _lags(measured) else text


def _lags(measured: Measurement) -> bool:
    return measured.visible_per_second < LAGGING * measured.per_second


def _visible(ours: Measurement | None, measured: Measurement) -> str:
    text = f"; visible {measured.visible_per_second:,.0f}/s"
    if ours is None or ours is measured:
        return text
    return f"{text} ×{ours.visible_per_second / measured.visible_per_second:.2f}"


def _latency(measured: Measurement) -> str:
    return f"{measured.p50_us or 0:,.0f} / {measured.p99_us or 0:,.0f} µs"


FIGURE_COLUMNS = ("task", "contender", "per_second", "visible_per_second", "cpu_us", "p50_us", "p99_us", "ratio")


def figures(outcomes: Sequence[Outcome]) -> list[dict[str, object]]:
    """For programs: one row a task and contender, the medians as numbers."""
    ours = {outcome.task.name: outcome.median for outcome in outcomes if outcome.contender == OURS}
    rows: list[dict[str, object]] = []
    for outcome in outcomes:
        known, measured = ours.get(outcome.task.name), outcome.median
        times = None if known is None else ratio(outcome.task, known, measured)
        rates = (measured.per_second, measured.visible_per_second, measured.cpu_us)
        row = (outcome.task.name, outcome.contender, *rates, measured.p50_us, measured.p99_us, times)
        rows.append(dict(zip(FIGURE_COLUMNS, row, strict=True)))
    return rows


# ---------------------------------------------------------------------- the pipeline


class PipelineFigure(msgspec.Struct, frozen=True):
    """One measurement; its ratios are to the figure that `beside` names."""

    name: str
    seconds: float
    cpu_seconds: float
    mib_a_cpu_second: float
    memory_mib: float
    """The peak of all processes' private memory; pages of mapped files are not counted."""
    beside: str | None = None
    times_the_cpu: float | None = None
    own_times_the_cpu: float | None = None
    """The same without the CPU time that Spark takes for as many rows from a source that is ready."""
    times_as_fast: float | None = None
    target: str | None = None
    is_met: bool | None = None
    delay_ms: float | None = None
    """Of a stream: from a message's store time to its arrival, the median; then the 99th percentile."""
    delay_p99_ms: float | None = None
    behind_s: float | None = None
    """Of a stream: how long after the last put everything had arrived."""


@dataclass(frozen=True, slots=True)
class Target:
    """The most that something is meant to cost: so many seconds, or times the CPU of what it is beside."""

    most: float
    unit: Literal["s", "times the CPU"]

    def is_met(self, figure: PipelineFigure) -> bool:
        """Whether a figure costs no more."""
        found = figure.seconds if self.unit == "s" else figure.times_the_cpu
        assert found is not None
        return found <= self.most


def median_by_cpu(figures: Sequence[PipelineFigure]) -> PipelineFigure:
    """The round that took neither the least nor the most CPU time."""
    return sorted(figures, key=lambda figure: figure.cpu_seconds)[len(figures) // 2]


def beside(figure: PipelineFigure, other: PipelineFigure, ready: PipelineFigure | None = None) -> PipelineFigure:
    """A figure with its ratios to another; `ready` has the same rows from a source that is ready."""
    own = None if ready is None else (figure.cpu_seconds - ready.cpu_seconds) / other.cpu_seconds
    return msgspec.structs.replace(
        figure,
        beside=other.name,
        times_the_cpu=figure.cpu_seconds / other.cpu_seconds,
        own_times_the_cpu=own,
        times_as_fast=other.seconds / figure.seconds,
    )


def judged(figure: PipelineFigure, target: Target | None) -> PipelineFigure:
    """A figure with what it is meant to cost, if anything."""
    if target is None:
        return figure
    return msgspec.structs.replace(
        figure, target=f"at most {target.most:g} {target.unit}", is_met=target.is_met(figure)
    )
