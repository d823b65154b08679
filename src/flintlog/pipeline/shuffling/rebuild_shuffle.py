"""The shuffling way of a rebuild: no file has two writers, and nothing is shared but the result.

    tasks    read a split: packed entries and keys as rows, kept by Spark                   shuffle_rows.py
    driver   do the splits meet? which queues are built as a whole? which key begins which index file?
    Spark    rows to the tasks of their files, sorted
    tasks    write one whole file after another, and commit each by a rename or a put       shuffle_write.py

It needs neither shared maps nor a shared scratch folder, so it works on any cluster, from and into an object store and
on network file systems. The driver sees summaries only. The bytes are those of the placing way.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from flintlog.derive.index_plan import index_file_names, plan_index_files
from flintlog.errors import DamagedStore
from flintlog.format.queue_entry import ENTRY_SIZE
from flintlog.kernel import KEY
from flintlog.pipeline.building.rebuild_build import BuiltQueue
from flintlog.pipeline.building.rebuild_index import thread_count
from flintlog.pipeline.building.rebuild_order import Built, Order
from flintlog.pipeline.building.rebuild_readings import Readings
from flintlog.pipeline.building.rebuild_scan import BuildPlan, SplitResult
from flintlog.pipeline.reading.partitions import LogSplit
from flintlog.pipeline.shuffling.shuffle_rows import RESULT_SCHEMA, SCHEMA, WHOLE, Kind, MapBatches, pack_splits
from flintlog.pipeline.shuffling.shuffle_write import (
    IndexFile,
    QueueFile,
    WriteJob,
    WrittenIndex,
    write_index,
    write_queues,
)
from flintlog.pipeline.spark.failures import plain_errors
from flintlog.pipeline.spark.tasks import Refusal, watched

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

_BATCH_ROWS: Final = "spark.sql.execution.arrow.maxRecordsPerBatch"
_ROWS_A_BATCH: Final = "512"
"""Rows have 128 KiB at most, so a task is given 64 MiB at a time; Spark's own setting would be 1.2 GiB."""

FILES_A_TASK: Final = 64


def shuffle_files(order: Order, staged: str) -> Built:
    """Build everything below `staged`, a path or URI, durably."""
    shuffle = _Shuffle(order, staged)
    with _small_batches(order.spark), plain_errors("the rebuild"):
        try:
            return shuffle.run()
        finally:
            shuffle.forget()


@contextmanager
def _small_batches(spark: SparkSession) -> Iterator[None]:
    before = spark.conf.get(_BATCH_ROWS)
    spark.conf.set(_BATCH_ROWS, _ROWS_A_BATCH)
    try:
        yield
    finally:
        spark.conf.set(_BATCH_ROWS, str(before))


class _Shuffle:
    """One run."""

    def __init__(self, order: Order, staged: str) -> None:
        self._order = order
        self._staged = staged
        self._plan: BuildPlan = order.plan(staged)
        self._rows: DataFrame | None = None

    def forget(self) -> None:
        """Let Spark drop the rows."""
        if self._rows is not None:
            self._rows.unpersist()

    def run(self) -> Built:
        planned, readings = self._order.read(self._read)
        spans, serial = readings.queues()
        found = [*self._write_index(readings), *self._write_queues(readings)]
        files = [each for each in found if isinstance(each, QueueFile)]
        placed_count = sum(span.next - span.first for span in spans.values())
        if sum(file.next - file.first for file in files) != placed_count:
            raise DamagedStore("entries of the rebuilt queues are missing", path=self._staged, advice="run it again")
        queues = [each for each in found if isinstance(each, BuiltQueue)]
        index_file_count = sum(isinstance(each, WrittenIndex) for each in found)
        return Built(readings, len(planned), placed_count, frozenset(spans), queues, serial, index_file_count)

    # ------------------------------------------------------------------ reading

    def _read(self, planned: list[LogSplit]) -> list[SplitResult]:
        """Read the splits, each by a task. Spark keeps the rows; those of a lost executor are read again."""
        self.forget()
        order, count = self._order, len(planned)
        if not planned:
            return []
        numbers = order.spark.range(0, count, 1, count)
        self._rows = numbers.mapInArrow(pack_splits(self._plan, planned, sync_log=order.in_place), SCHEMA).persist()
        summaries = self._rows.where(f"kind = {int(Kind.SUMMARY)}").select("split", "data")
        with watched(order.spark, order.progress, doing=order.doing("read", count, "split")):
            found = sorted(summaries.collect(), key=lambda row: row["split"])
        results = [_load(row["data"]) for row in found]
        return [each for each in results if isinstance(each, SplitResult)]

    # ------------------------------------------------------------------ queues

    def _write_queues(self, readings: Readings) -> list[object]:
        from pyspark.sql import functions as sql

        if self._rows is None:
            return []
        spans, serial = readings.queues()
        size = self._plan.consume_queue_bytes // ENTRY_SIZE
        files = sum(-(-span.next // size) - span.first // size for span in spans.values()) + len(serial)
        files += len({key for result in readings.results for key in result.dense})
        entries = self._rows.where(sql.col("kind").isin(int(Kind.ENTRIES), int(Kind.DAMAGED), int(Kind.DENSE)))
        if serial:
            names = [f"{topic}/{queue_id}" for topic, queue_id in serial]
            is_serial = sql.concat(sql.col("topic"), sql.lit("/"), sql.col("queue_id").cast("string")).isin(names)
            entries = entries.withColumn("file", sql.when(is_serial, sql.lit(WHOLE)).otherwise(sql.col("file")))
        tasks = max(1, min(files, 2 * self._order.cores + files // FILES_A_TASK))
        ranged = entries.repartitionByRange(tasks, "topic", "queue_id", "file")
        ordered = ranged.sortWithinPartitions("topic", "queue_id", "file", "split", "number")
        return self._write(ordered, write_queues(self._job(readings)), files, "queue file")

    def _job(self, readings: Readings, file_count: int = 1) -> WriteJob:
        order = self._order
        notes = {(note.topic, note.queue_id): order.notes_of((note.topic, note.queue_id)) for note in order.deleted}
        threads = thread_count(order.cores, file_count)
        return WriteJob(
            self._plan, self._staged, order.root, order.facts(readings), notes, order.doubtful_levels, threads
        )

    def _write(self, rows: DataFrame, function: MapBatches, count: int, noun: str) -> list[object]:
        order = self._order
        written = rows.mapInArrow(function, RESULT_SCHEMA)
        with watched(order.spark, doing=order.doing("write", count, noun)):
            return [_load(row["result"]) for row in written.collect()]

    # ------------------------------------------------------------------ index

    def _write_index(self, readings: Readings) -> list[object]:
        from pyspark.sql import functions as sql

        counts = [result.key_count for result in readings.results]
        if self._rows is None or self._plan.index is None or not sum(counts):
            return []
        files = self._index_files(counts)
        starts = (0, *accumulate(counts))
        capacity = self._plan.index.index_count - 1
        before = sql.element_at(sql.lit(list(starts)), sql.col("split") + 1) + sql.col("first")
        last = before + sql.length("data") / KEY.size - 1
        numbers = sql.sequence(sql.floor(before / capacity), sql.floor(last / capacity))
        keys = self._rows.where(f"kind = {int(Kind.KEYS)}").withColumn("file", sql.explode(numbers))
        ranged = keys.repartitionByRange(len(files), "file").sortWithinPartitions("file", "split", "number")
        job = self._job(readings, len(files))
        return self._write(ranged, write_index(job, dict(enumerate(files)), starts), len(files), "index file")

    def _index_files(self, counts: Sequence[int]) -> list[IndexFile]:
        assert self._plan.index is not None
        planned = plan_index_files(counts, self._plan.index)
        capacity, total = self._plan.index.index_count - 1, sum(counts)
        firsts = [each.ranges[0][:2] for each in planned]
        lasts = [each.previous[:2] for each in planned if each.previous is not None]
        keys = self._keys({*firsts, *lasts})
        names = index_file_names([keys[first][0] for first in firsts])
        return [
            IndexFile(
                name,
                number * capacity,
                min(total, (number + 1) * capacity),
                None if each.previous is None else keys[each.previous[:2]],
            )
            for number, (name, each) in enumerate(zip(names, planned, strict=True))
        ]

    def _keys(self, places: set[tuple[int, int]]) -> dict[tuple[int, int], tuple[int, int]]:
        """Store time and physical offset of single keys, by split and number."""
        from pyspark.sql import functions as sql

        assert self._rows is not None
        rows = self._rows.where(f"kind = {int(Kind.KEYS)}").select("split", "first", "data")
        wanted = self._order.spark.createDataFrame(sorted(places), "at int, key long")
        is_here = (sql.col("split") == sql.col("at")) & (sql.col("key") >= sql.col("first"))
        is_here &= sql.col("key") < sql.col("first") + sql.length("data") / KEY.size
        found = rows.join(sql.broadcast(wanted), is_here).select(
            "at", "key", sql.expr(f"substring(data, int((key - first) * {KEY.size} + 1), {KEY.size})").alias("bytes")
        )
        with watched(self._order.spark, doing=self._order.doing("look for", len(places), "key")):
            return {(row["at"], row["key"]): _time_and_place(row) for row in found.collect()}


def _time_and_place(row: Row) -> tuple[int, int]:
    physical_offset, store_timestamp, _ = KEY.unpack_from(row["bytes"])
    return store_timestamp, physical_offset


def _load(data: bytes) -> object:
    """The result of a task; the error that it met is raised."""
    found = pickle.loads(data)
    if isinstance(found, Refusal):
        raise found.error()
    return found
