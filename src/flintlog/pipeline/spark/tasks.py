"""Running plain functions on Spark: items in, results out, in order, with progress.

    classic   items ─▶ an RDD, one item a partition ─▶ mapPartitions ─▶ results ─▶ driver
    Connect   items ─▶ a frame of (number, pickled item), one row a partition ─▶ mapInArrow ─▶ (number, pickled result)

A session of Spark Connect has no RDDs. A classic one has frames too, but a job over one costs three times the CPU time:
it is planned and compiled, and its rows are spread by an exchange before they are worked on.

Jobs are functions of picklable values, so each can be called without Spark too. An error of flintlog's (a full disk,
damage) would not vanish with a retry: it is returned as a value and raised once in the driver, instead of being retried
and wrapped in Java's frames. All other errors are left to Spark's retries.
"""

from __future__ import annotations

import pickle
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar, cast

import pyarrow as pa

from flintlog.errors import FlintlogError, MissingExtra
from flintlog.store.runtime.jobs import Progress

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import DataFrame, Row, SparkSession
    from pyspark.sql.connect.shell.progress import ProgressHandler, StageInfo

Item = TypeVar("Item")
Result = TypeVar("Result")
_LOOK_INTERVAL_S: Final = 0.2
_RESULTS: Final = "number int, result binary"
_MOST_CORES: Final = 1_000_000


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

    def of_items(self, items: Iterable[Item]) -> Iterator[Result | Refusal]:
        return map(self.answer, items)

    def of_pickled(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Pickled items, each with its number."""
        for batch in batches:
            for number, item in zip(*batch.to_pydict().values(), strict=True):
                yield self._result(number, pickle.loads(item))

    def of_rows(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Rows of any columns; their results have no order."""
        from pyspark.sql import Row

        for batch in batches:
            for values in batch.to_pylist():
                yield self._result(0, cast("Item", Row(**values)))

    def answer(self, item: Item) -> Result | Refusal:
        try:
            return self._function(item)
        except FlintlogError as error:
            return Refusal(type(error), error.what, error.path, error.offset, error.advice)

    def _result(self, number: int, item: Item) -> pa.RecordBatch:
        pickled = pickle.dumps(self.answer(item))
        columns = [pa.array([number], pa.int32()), pa.array([pickled], pa.binary())]
        return pa.record_batch(columns, names=["number", "result"])


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
    task = _Task(function)
    with _reported(spark, doing, len(items), progress):
        if is_connect(spark):
            return _collect(_frame_of(spark, items), task.of_pickled)
        return _accepted(spark.sparkContext.parallelize(items, len(items)).mapPartitions(task.of_items).collect())


def run_on_rows(
    frame: DataFrame, function: Callable[[Row], Result], progress: Progress | None = None, *, doing: str
) -> list[Result]:
    """`function` of each row of a frame, where the row is; the first error of ours is raised."""
    with watched(frame.sparkSession, progress, doing=doing):
        return _collect(frame, _Task(function).of_rows)


@contextmanager
def watched(spark: SparkSession, progress: Progress | None = None, *, doing: str) -> Iterator[None]:
    """Report how many of the tasks known so far are done, while Spark evaluates a frame."""
    with _reported(spark, doing, None, progress):
        yield


def is_connect(spark: SparkSession) -> bool:
    """Whether this is a session of Spark Connect: without a context, RDDs and Java in this process."""
    return getattr(spark, "_jsparkSession", None) is None


def parallelism(spark: SparkSession) -> int:
    """How many tasks Spark runs at a time: the number of its cores, unless somebody has set another."""
    if not is_connect(spark):
        return spark.sparkContext.defaultParallelism
    from pyspark.sql import functions as f

    # The server does not tell it, but makes so many partitions of a range.
    numbers = spark.range(_MOST_CORES).select(f.spark_partition_id().alias("partition"))
    return int(numbers.agg(f.max("partition")).collect()[0][0]) + 1


def count_of(number: int, noun: str) -> str:
    """
    >>> count_of(1, "split"), count_of(1200, "index file")
    ('1 split', '1,200 index files')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _frame_of(spark: SparkSession, items: Sequence[object]) -> DataFrame:
    """A row for each item, in a partition of its own."""
    from pyspark.sql import functions as f

    numbers = pa.array(range(len(items)), pa.int32())
    pickled = pa.array([pickle.dumps(item) for item in items], pa.binary())
    frame = spark.createDataFrame(pa.table({"number": numbers, "item": pickled}))
    return frame.repartitionById(len(items), f.col("number"))


def _collect(frame: DataFrame, task: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]) -> list[Result]:
    from pyspark.errors import PySparkImportError

    try:
        rows = frame.mapInArrow(task, _RESULTS).collect()
    except PySparkImportError as error:
        raise MissingExtra(str(error), advice="pip install 'flintlog[spark]'") from error
    return _accepted([pickle.loads(row.result) for row in sorted(rows, key=lambda row: row.number)])


def _accepted(found: Sequence[Result | Refusal]) -> list[Result]:
    for each in found:
        if isinstance(each, Refusal):
            raise each.error()
    return cast("list[Result]", found)


# ---------------------------------------------------------------------- descriptions and progress


class _Stage(NamedTuple):
    """A stage of Spark's jobs: its id, and how many of its tasks are done."""

    id: int
    done: int
    known: int


def _count(stages: Iterable[_Stage], total: int | None) -> tuple[int, int]:
    """How many tasks are done, of how many: of the items, or of the tasks known so far.

    >>> first, second = _Stage(0, 2, 2), _Stage(1, 3, 8)
    >>> _count([second], 9), _count([second, first], None)
    ((3, 9), (5, 10))
    """
    found = list(stages)
    done = sum(stage.done for stage in found)
    return (done, sum(stage.known for stage in found)) if total is None else (min(total, done), total)


def _without_spreading(stages: Iterable[_Stage]) -> list[_Stage]:
    """The stages without the first one: in a Connect session it only spreads the items.

    >>> _without_spreading([_Stage(8, 3, 8), _Stage(7, 2, 2)])
    [_Stage(id=8, done=3, known=8)]
    """
    return sorted(stages)[1:]


@contextmanager
def _reported(spark: SparkSession, doing: str, total: int | None, progress: Progress | None) -> Iterator[None]:
    """Describe the jobs of a block, and report their progress."""
    tag = f"flintlog-{uuid.uuid4()}"
    described = _tagged if is_connect(spark) else _described
    with described(spark, f"flintlog {doing}", tag):
        if progress is None:
            yield
            return
        watcher = _handler if is_connect(spark) else _watcher
        with watcher(spark, tag, total, progress):
            yield
    total = 1 if total is None else total
    progress(total, total)


@contextmanager
def _described(spark: SparkSession, description: str, tag: str) -> Iterator[None]:
    """Describe and tag the jobs of this thread; afterwards its local properties are what they were.

    All of them are set again: after an interrupt another thread of Java's, without any, serves this one.
    Jobs are known by a tag and not by a job group: they stay in the caller's group, and end when it is cancelled.
    """
    context = spark.sparkContext
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
def _watcher(spark: SparkSession, tag: str, total: int | None, progress: Progress) -> Iterator[None]:
    """Report from a thread of its own while this one waits."""
    is_over = threading.Event()
    context = spark.sparkContext

    def look() -> None:
        while not is_over.wait(_LOOK_INTERVAL_S):
            progress(*_count(_stages(context, tag), total))

    watcher = threading.Thread(target=look, name="flintlog-progress", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        is_over.set()
        watcher.join()


def _stages(context: SparkContext, tag: str) -> Iterator[_Stage]:
    tracker = context.statusTracker()
    for job in context._jsc.sc().statusTracker().getJobIdsForTag(tag):  # Python's tracker knows groups alone
        info = tracker.getJobInfo(job)
        for stage in [] if info is None else info.stageIds:
            seen = tracker.getStageInfo(stage)
            yield _Stage(stage, 0, 0) if seen is None else _Stage(stage, seen.numCompletedTasks, seen.numTasks)


@contextmanager
def _tagged(spark: SparkSession, description: str, tag: str) -> Iterator[None]:
    """Tag the jobs of this thread in a Connect session, where the server describes them itself.

    A tag may hold anything but a comma.
    """
    tags = (tag, description.replace(",", ";"))
    for each in tags:
        spark.addTag(each)
    try:
        yield
    finally:
        for each in tags:
            spark.removeTag(each)


@contextmanager
def _handler(spark: SparkSession, _tag: str, total: int | None, progress: Progress) -> Iterator[None]:
    """Report what a Connect server says of the queries of this thread."""
    own = threading.get_ident()

    def take(stages: Iterable[StageInfo] | None, **_others: object) -> None:
        if threading.get_ident() == own:  # the session's other queries call their handlers in their own threads
            found = [_Stage(each.stage_id, each.num_completed_tasks, each.num_tasks) for each in stages or ()]
            progress(*_count(found if total is None else _without_spreading(found), total))

    handler = cast("ProgressHandler", take)
    spark.registerProgressHandler(handler)
    try:
        yield
    finally:
        spark.removeProgressHandler(handler)


def attempt_name() -> str:
    """A name that no other attempt at the same task has."""
    return uuid.uuid4().hex
