"""Running plain functions on Spark: items in, results out, in order, with progress.

Jobs are functions of picklable values, so each can be called without Spark too. An error of flintlog's (a full disk,
damage) would not vanish with a retry: it is returned as a value and raised once in the driver, instead of being retried
and wrapped in Java's frames. All other errors are left to Spark's retries.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar, cast

from flintlog.errors import FlintlogError, InvalidConfig
from flintlog.store.runtime.jobs import Progress

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import DataFrame, Row, SparkSession

Item = TypeVar("Item")
Result = TypeVar("Result")
_LOOK_INTERVAL_S = 0.2


class Refusal(NamedTuple):
    """An error of ours as values: exceptions with keyword arguments cannot be pickled."""

    kind: type[FlintlogError]
    what: str
    path: str | None
    offset: int | None
    advice: str | None

    def error(self) -> FlintlogError:
        return self.kind(self.what, path=self.path, offset=self.offset, advice=self.advice)


class _Task(Generic[Item, Result]):
    """Applies a function to a worker's items."""

    def __init__(self, function: Callable[[Item], Result]) -> None:
        self._function = function

    def __call__(self, items: Iterable[Item]) -> Iterator[Result | Refusal]:
        for item in items:
            try:
                yield self._function(item)
            except FlintlogError as error:
                yield Refusal(type(error), error.what, error.path, error.offset, error.advice)


def run_tasks(
    spark: SparkSession,
    function: Callable[[Item], Result],
    items: Sequence[Item],
    progress: Progress | None = None,
    *,
    doing: str,
) -> list[Result]:
    """`function` of each item, each a task of its own; the first error of ours is raised. The UI shows `doing`."""
    if not items:
        return []
    context = _context(spark)
    with _reported(context, doing, len(items), progress):
        found = context.parallelize(items, len(items)).mapPartitions(_Task(function)).collect()
    return _accepted(found)


def run_on_rows(
    frame: DataFrame, function: Callable[[Row], Result], progress: Progress | None = None, *, doing: str
) -> list[Result]:
    """`function` of each row of a frame, where the row is; the first error of ours is raised."""
    with watched(frame.sparkSession, progress, doing=doing):
        return _accepted(frame.rdd.mapPartitions(_Task(function)).collect())


@contextmanager
def watched(spark: SparkSession, progress: Progress | None = None, *, doing: str) -> Iterator[None]:
    """Report how many of the tasks known so far are done, while Spark evaluates a frame.

    A session of Spark Connect has neither descriptions nor tasks to count; there nothing is reported.
    """
    if getattr(spark, "_jsparkSession", None) is None:
        yield
        return
    with _reported(_context(spark), doing, None, progress):
        yield


def count_of(number: int, noun: str) -> str:
    """
    >>> count_of(1, "split"), count_of(1200, "index file")
    ('1 split', '1,200 index files')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _accepted(found: Sequence[Result | Refusal]) -> list[Result]:
    for each in found:
        if isinstance(each, Refusal):
            raise each.error()
    return cast("list[Result]", found)


def _context(spark: SparkSession) -> SparkContext:
    try:
        return spark.sparkContext
    except Exception as error:  # a Connect session says so by an error of its own
        raise InvalidConfig("jobs need a classic Spark session", advice="not one of Spark Connect") from error


@contextmanager
def _reported(context: SparkContext, doing: str, total: int | None, progress: Progress | None) -> Iterator[None]:
    """Describe the jobs of a block, and report their progress from a thread of its own while this one waits."""
    tag = f"flintlog-{uuid.uuid4()}"
    with _described(context, f"flintlog {doing}", tag):
        if progress is None:
            yield
            return
        with _watcher(context, tag, total, progress):
            yield
    total = 1 if total is None else total
    progress(total, total)


@contextmanager
def _described(context: SparkContext, description: str, tag: str) -> Iterator[None]:
    """Describe and tag the jobs of this thread; afterwards its local properties are what they were.

    All of them are set again: after an interrupt another thread of Java's, without any, serves this one.
    Jobs are known by a tag and not by a job group: they stay in the caller's group, and end when it is cancelled.
    """
    before = _local_properties(context)
    try:
        context.setJobDescription(description)
        context.addJobTag(tag)
        yield
    finally:
        for name in {**before, **_local_properties(context)}:
            context.setLocalProperty(name, before.get(name))  # type: ignore[arg-type]  # None removes it


def _local_properties(context: SparkContext) -> dict[str, str]:
    found = context._jsc.sc().getLocalProperties()
    return {name: found.getProperty(name) for name in found.stringPropertyNames()}


@contextmanager
def _watcher(context: SparkContext, tag: str, total: int | None, progress: Progress) -> Iterator[None]:
    is_over = threading.Event()

    def look() -> None:
        while not is_over.wait(_LOOK_INTERVAL_S):
            done, known = _task_counts(context, tag)
            progress(done, known if total is None else total)

    watcher = threading.Thread(target=look, name="flintlog-progress", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        is_over.set()
        watcher.join()


def _task_counts(context: SparkContext, tag: str) -> tuple[int, int]:
    """How many tasks are done, and how many there are in the stages that began."""
    tracker = context.statusTracker()
    done = known = 0
    for job in context._jsc.sc().statusTracker().getJobIdsForTag(tag):  # Python's tracker knows groups alone
        info = tracker.getJobInfo(job)
        for stage in [] if info is None else info.stageIds:
            seen = tracker.getStageInfo(stage)
            done += 0 if seen is None else seen.numCompletedTasks
            known += 0 if seen is None else seen.numTasks
    return done, known


def attempt_name() -> str:
    """A name that no other attempt at the same task has."""
    return uuid.uuid4().hex
