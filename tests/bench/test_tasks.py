"""The arithmetic of a measurement: medians, percentiles and ratios."""

from __future__ import annotations

import pytest

from flintlog.bench.report import PipelineFigure, Target, beside, cells, figures, judged, ratio
from flintlog.bench.run import Outcome
from flintlog.bench.tasks import TASKS, Measurement, median, percentiles_us

RATE = next(task for task in TASKS if task.kind == "put")
LATENCY = next(task for task in TASKS if task.kind == "visible")


def test_a_rate_is_the_count_divided_by_the_time_of_the_puts() -> None:
    measured = Measurement(count=1000, seconds=0.5, visible_seconds=1.0, cpu_seconds=0.002)
    assert (measured.per_second, measured.visible_per_second, measured.cpu_us) == (2000, 1000, 2)


def test_nothing_measured_is_no_division_by_zero() -> None:
    nothing = Measurement(count=0, seconds=0.0, visible_seconds=0.0, cpu_seconds=0.1)
    assert (nothing.per_second, nothing.visible_per_second, nothing.cpu_us) == (0, 0, 0)


def test_percentiles_are_of_the_sorted_waits_in_microseconds() -> None:
    assert percentiles_us(range(1000_000, 0, -1000)) == (501.0, 991.0, 1000.0)
    assert percentiles_us([5000]) == (5.0, 5.0, 5.0)
    assert percentiles_us([]) == (None, None, None)


def test_one_slow_round_does_not_count() -> None:
    rounds = [Measurement(100, seconds, seconds, 0.1, p50_us=seconds) for seconds in (1.0, 50.0, 2.0)]
    assert median(rounds) == Measurement(100, 2.0, 2.0, 0.1, p50_us=2.0)


@pytest.mark.parametrize(
    ("task", "better", "worse"),
    [
        (RATE, Measurement(200, 1.0, 1.0, 0.1), Measurement(100, 1.0, 1.0, 0.1)),
        (LATENCY, Measurement(1, 1.0, 1.0, 0.1, p50_us=10.0), Measurement(1, 1.0, 1.0, 0.1, p50_us=20.0)),
    ],
    ids=["rate", "latency"],
)
def test_a_ratio_above_one_means_ours_is_better(task: object, better: Measurement, worse: Measurement) -> None:
    known = next(each for each in TASKS if each is task)
    assert ratio(known, better, worse) == 2
    assert ratio(known, worse, better) == 0.5


def test_a_ratio_with_nothing_is_none() -> None:
    assert ratio(RATE, Measurement(0, 1.0, 1.0, 0.1), Measurement(100, 1.0, 1.0, 0.1)) is None


def test_the_table_has_a_row_a_task_and_a_dash_where_someone_has_no_figure() -> None:
    ours, theirs = Measurement(300, 1.0, 1.0, 0.0003), Measurement(100, 1.0, 1.0, 0.001)
    outcomes = [Outcome(RATE, "flintlog", [ours], ours), Outcome(RATE, "java", [theirs], theirs)]
    assert cells(outcomes, ["flintlog", "java", "lmdb"]) == [
        {"task": RATE.name, "flintlog": "300/s (1.00)", "java": "100/s (10.00) ×3.00", "lmdb": "-"}
    ]
    assert [(row["contender"], row["ratio"]) for row in figures(outcomes)] == [("flintlog", 1.0), ("java", 3.0)]


def test_a_store_that_takes_messages_faster_than_they_become_visible_shows_both_rates() -> None:
    ours, theirs = Measurement(300, 1.0, 1.0, 0.0003), Measurement(200, 1.0, 4.0, 0.001)
    outcomes = [Outcome(RATE, "flintlog", [ours], ours), Outcome(RATE, "java", [theirs], theirs)]
    [row] = cells(outcomes, ["flintlog", "java"])
    assert row["flintlog"] == "300/s (1.00)"
    assert row["java"] == "200/s (5.00) ×1.50; visible 50/s ×6.00"


def test_the_cost_of_spark_is_no_part_of_the_sources_own() -> None:
    alone, ready, there = (PipelineFigure("", 1.0, cpu, 1.0, 1.0) for cpu in (2.0, 5.0, 8.0))
    found = beside(there, alone, ready)
    assert (found.times_the_cpu, found.own_times_the_cpu) == (4.0, 1.5)
    assert beside(there, alone).own_times_the_cpu is None


@pytest.mark.parametrize(("most", "is_met"), [(2.0, True), (1.9, False)])
def test_a_target_is_shown_beside_the_figure_and_judged_by_its_unit(most: float, is_met: bool) -> None:
    figure = PipelineFigure("", seconds=2.0, cpu_seconds=9.0, mib_a_cpu_second=1.0, memory_mib=1.0)
    timed = judged(figure, Target(most, "s"))
    assert (timed.target, timed.is_met) == (f"at most {most:g} s", is_met)
    other = PipelineFigure("", seconds=9.0, cpu_seconds=4.5, mib_a_cpu_second=1.0, memory_mib=1.0)
    assert judged(beside(figure, other), Target(most, "times the CPU")).is_met is is_met
    assert judged(figure, None).target is None
