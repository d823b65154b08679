"""Jobs in a session that belongs to somebody else: it is left as it was, and its UI says what they do."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.pipeline.conftest import small_config
from tests.store.dispatch.test_external_dispatch import EXTERNAL, put

from flintlog import open_store
from flintlog.pipeline.compact import compact
from flintlog.pipeline.dispatch import dispatch
from flintlog.pipeline.export import export
from flintlog.pipeline.rebuild import rebuild
from flintlog.pipeline.replay import replay
from flintlog.pipeline.report import report
from flintlog.pipeline.spark.tasks import run_tasks, watched
from flintlog.pipeline.sql import query, write_answer
from flintlog.pipeline.verify import verify

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

PROPERTIES = ("spark.jobGroup.id", "spark.job.description", "spark.job.tags", "spark.scheduler.pool", "mine")


def no_progress(_done: int, _total: int) -> None:
    """A caller that wants to hear of it."""


def local_properties(context: SparkContext) -> dict[str, str | None]:
    return {name: context.getLocalProperty(name) for name in (*PROPERTIES, "spark.job.interruptOnCancel")}


@pytest.fixture
def mine(spark: SparkSession) -> Iterator[dict[str, str | None]]:
    """The local properties of a user who has set them."""
    context = spark.sparkContext
    context.setJobGroup("my-etl", "my own work", interruptOnCancel=True)
    context.addJobTag("my-tag")
    context.setLocalProperty("mine", "7")
    yield local_properties(context)
    context.clearJobTags()
    for name in (*PROPERTIES, "spark.job.interruptOnCancel"):
        context.setLocalProperty(name, None)  # type: ignore[arg-type]  # None removes it


def jobs_of(context: SparkContext, after: int = -1) -> list[tuple[str | None, str | None]]:
    """Description and group of every job that the UI would show, of those that began after one.

    The UI forgets old jobs, so jobs are known by their numbers, not counted.
    """
    return [
        (
            job.description().get() if job.description().isDefined() else None,
            job.jobGroup().get() if job.jobGroup().isDefined() else None,
        )
        for job in list_jobs(context)
        if job.jobId() > after
    ]


def last_job(context: SparkContext) -> int:
    return max((job.jobId() for job in list_jobs(context)), default=-1)


def list_jobs(context: SparkContext) -> list[Any]:
    found = context._jsc.sc().statusStore().jobsList(None)
    return [found.apply(number) for number in range(found.size())]


def run_all(spark: SparkSession, store: Path, room: Path) -> None:
    rebuild(spark, store, config=small_config(), into=room / "rebuilt", progress=no_progress)
    verify(spark, store, config=small_config(), progress=no_progress)
    export(spark, store, room / "table", progress=no_progress)
    compact(spark, store, room / "compacted", progress=no_progress)
    replay(spark, room / "table", room / "replayed", progress=no_progress)
    report(spark, store)
    write_answer(query(spark, str(store), "select topic from messages"), room / "answer", "csv")


def test_jobs_leave_the_session_as_it_was_and_say_what_they_do(
    spark: SparkSession, store: Path, tmp_path: Path, mine: dict[str, str | None]
) -> None:
    context = spark.sparkContext
    conf = dict(spark.conf.getAll)
    before = last_job(context)
    run_all(spark, store, tmp_path)
    assert local_properties(context) == mine
    assert dict(spark.conf.getAll) == conf
    seen = jobs_of(context, before)
    assert {group for _, group in seen} == {"my-etl"}, "our jobs must end when their group is cancelled"
    descriptions = {str(description) for description, _ in seen}
    for expected in (
        f"flintlog rebuild: read 2 splits of {store}",
        "flintlog rebuild: build ",
        "flintlog verify: check ",
        "flintlog export: write ",
        "flintlog compact: keep the latest of each key in ",
        f"flintlog replay: put {tmp_path}/table into {tmp_path}/replayed",
        f"flintlog report: topics of {store}",
        f"flintlog sql: write the answer to {tmp_path}/answer",
    ):
        assert any(each.startswith(expected) for each in descriptions), (expected, descriptions)


def test_a_session_without_properties_has_none_afterwards(spark: SparkSession) -> None:
    none = local_properties(spark.sparkContext)
    assert set(none.values()) <= {None}
    assert run_tasks(spark, abs, [-1, -2], no_progress, doing="count") == [1, 2]
    assert local_properties(spark.sparkContext) == none


def test_a_job_that_is_interrupted_leaves_the_session_as_it_was(
    spark: SparkSession, mine: dict[str, str | None]
) -> None:
    calls: list[int] = []

    def interrupt(done: int, _total: int) -> None:
        calls.append(done)
        if len(calls) == 1:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        run_tasks(spark, time.sleep, [20], interrupt, doing="wait")
    assert local_properties(spark.sparkContext) == mine


def test_a_job_that_fails_leaves_the_session_as_it_was(spark: SparkSession, mine: dict[str, str | None]) -> None:
    with pytest.raises(ZeroDivisionError), watched(spark, no_progress, doing="divide"):
        raise ZeroDivisionError
    assert local_properties(spark.sparkContext) == mine


def test_a_question_leaves_no_view_and_keeps_the_session_s_own(spark: SparkSession, store: Path) -> None:
    query(spark, str(store), "select count(*) from messages").collect()
    assert not spark.catalog.tableExists("messages")
    spark.range(3).createOrReplaceTempView("messages")
    try:
        (row,) = query(spark, str(store), "select count(*) as n from messages").collect()
        assert row.n > 3
        assert spark.table("messages").count() == 3
    finally:
        spark.catalog.dropTempView("messages")


def test_the_ui_shows_what_a_source_was_asked_for_and_how_much_came_from_python(
    spark: SparkSession, store: Path
) -> None:
    orders = spark.read.format("flintlog").load(str(store)).where("topic = 'orders'")
    assert len(orders.select("topic").collect()) == 200
    shown = spark._jsparkSession.sharedState().statusStore().executionsList().last()
    plan = shown.physicalPlanDescription()
    assert "PushedFilters: [EqualTo(topic,orders)]" in plan.replace("'", "")
    assert str(store) not in plan, "Spark has no place for it, and docs/pipeline.md says so"
    metrics = shown.metrics()
    names = {metrics.apply(number).name() for number in range(metrics.size())}
    assert names >= {"number of output rows", "data returned from Python workers"}


def test_the_query_of_dispatch_has_a_name(spark: SparkSession, tmp_path: Path) -> None:
    names: set[str | None] = set()
    with open_store(tmp_path / "given", EXTERNAL) as store:
        put(store, 20)
        dispatch(
            spark,
            tmp_path / "given",
            config=EXTERNAL,
            once=True,
            progress=lambda *_: names.update(each.name for each in spark.streams.active),
        )
    (name,) = names
    assert str(name).startswith("flintlog dispatch given ")


def test_the_jobs_of_dispatch_say_what_they_do_and_with_how_much(spark: SparkSession, tmp_path: Path) -> None:
    with open_store(tmp_path / "store", EXTERNAL) as store:
        put(store, 40)
        before = last_job(spark.sparkContext)
        report = dispatch(spark, store.path, config=EXTERNAL, once=True)
        seen = {str(description) for description, _ in jobs_of(spark.sparkContext, before)}
        size = store.max_physical_offset
    assert f"flintlog dispatch: add 100 index keys of 40 records in {size:,} bytes" in seen
    assert "flintlog dispatch: set queues and index back to the journal" in seen
    assert (report.record_count, report.key_count, report.byte_count, report.damaged_count) == (40, 100, size, 0)
