"""Plain functions as Spark's tasks: one for each item, in order, with progress and plain errors."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark import TaskContext
from pyspark.errors import PySparkException
from tests.pipeline.spark.test_session_state import jobs_of, last_job, list_jobs

from flintlog.errors import DiskFull, FlintlogError
from flintlog.pipeline.spark.tasks import run_on_rows, run_tasks

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession


def make_own_task() -> Callable[[int], tuple[int, int]]:
    """Inside another function, so that workers, which lack the tests, get its code."""

    def own_task(item: int) -> tuple[int, int]:
        context = TaskContext.get()
        assert context is not None
        return item, context.partitionId()

    return own_task


def make_fill_the_disk() -> Callable[[int], int]:
    def fill_the_disk(item: int) -> int:
        if item >= 2:
            raise DiskFull(f"no room for {item}", path=Path("/data"), offset=item, advice="make some")
        return item

    return fill_the_disk


def test_each_item_is_a_task_of_its_own_and_results_are_in_order(spark: SparkSession) -> None:
    items = [7, 3, 5, 1, 9, 8, 2, 6, 4, 0, 11]
    found = run_tasks(spark, make_own_task(), items, doing="count")
    assert [item for item, _ in found] == items
    assert len({partition for _, partition in found}) == len(items)


def test_the_first_error_of_ours_is_raised_once_with_all_it_says(spark: SparkSession) -> None:
    with pytest.raises(DiskFull) as raised:
        run_tasks(spark, make_fill_the_disk(), [0, 1, 2, 3], doing="write")
    error: FlintlogError = raised.value
    assert (error.what, str(error.path), error.offset, error.advice) == ("no room for 2", "/data", 2, "make some")


def test_another_error_fails_in_spark_s_own_way(spark: SparkSession) -> None:
    with pytest.raises(PySparkException, match="division by zero"):
        run_tasks(spark, (1).__truediv__, [1, 0], doing="divide")


def test_progress_counts_items(spark: SparkSession) -> None:
    seen: list[tuple[int, int]] = []
    run_tasks(spark, time.sleep, [0.5] * 5, lambda *counts: seen.append(counts), doing="wait")
    assert {total for _, total in seen} == {5}
    done = [done for done, _ in seen]
    assert done == sorted(done), "it never goes back"
    assert done[-1] == 5
    assert {*done} & {1, 2, 3, 4}


def test_rows_are_passed_where_they_are(spark: SparkSession) -> None:
    frame = spark.range(4).selectExpr("id", "array(id, id + 1) as places", "cast(null as string) as nothing")

    def total(row: Row) -> int:
        assert row.nothing is None
        return int(row.id * 100 + sum(row.places))

    assert sorted(run_on_rows(frame, total, doing="add")) == [1, 103, 205, 307]


def test_tasks_of_a_classic_session_are_one_stage_without_a_plan(spark: SparkSession) -> None:
    before = last_job(spark.sparkContext)
    run_tasks(spark, abs, range(5), doing="count")
    [job] = [job for job in list_jobs(spark.sparkContext) if job.jobId() > before]
    assert (job.stageIds().size(), job.numTasks()) == (1, 5)


def test_the_ui_shows_what_tasks_do(spark: SparkSession) -> None:
    run_tasks(spark, abs, [1], doing="count the beans")
    assert ("flintlog count the beans", None) in jobs_of(spark.sparkContext)
