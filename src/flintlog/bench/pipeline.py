"""Measures the jobs on Spark, beside the same work in one process and beside the Java store.

    full rows       the source, all columns  beside   the kernel decoding the same batches in this process
    metadata        the same without bodies  beside   the same
    topics          the column topic alone   beside   the same
    rare topic      a topic of 1 % by a filter, all columns       beside   full rows
    key             the messages of one key, all columns          beside   full rows
      ready         as many rows from a source that reads next to nothing: what Spark takes for any source in Python
    export          Parquet, by topic, day   beside   pyarrow writing the same batches in this process
    streams         over a store that another process writes, and how late they are (`streaming.py`)
    rebuild         Spark's job              beside   opening the store without its queues; RocketMQ doing the same
      shuffled      without shared maps      beside   entries placed into shared files
      one core      the same on local[1]     beside   two cores
    larger log      full rows, topics, rare topic, key and both rebuilds, on four times the log

Neither the start of a session nor the JVM's compiler is measured: each job and its peer run often before the clock
does, on a small store and, if they read rows, on the whole one. Jobs that only read take turns with their peer. A
figure is the median of its rounds by CPU time. CPU time and memory are those of all processes: the driver, the JVM, the
Python workers.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from flintlog.bench.ours import fill_log
from flintlog.bench.process_tree import ProcessWatch
from flintlog.bench.ready_source import NAME as READY
from flintlog.bench.ready_source import ReadySource
from flintlog.bench.report import PipelineFigure, Target, beside, judged, median_by_cpu
from flintlog.bench.run import Java, strip
from flintlog.bench.streaming import SECONDS, measure_streams
from flintlog.bench.tasks import MIB, TASKS, Window
from flintlog.derive.splits import SPLIT_BYTES
from flintlog.pipeline.export import export
from flintlog.pipeline.reading.logs import find_end, find_logs
from flintlog.pipeline.reading.partitions import plan
from flintlog.pipeline.reading.reading import Reading
from flintlog.pipeline.reading.rows import RowShape
from flintlog.pipeline.rebuild import Mode, rebuild
from flintlog.pipeline.session import get_session
from flintlog.pipeline.source import NAME
from flintlog.pipeline.tables.table_write import BUFFER_BYTES
from flintlog.store.open_store import open_store
from flintlog.store.options.store_config import StoreConfig

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SMALL_MIB = 16
SMALL_WARM_UPS = 20
"""After this many runs the JVM's compiler takes a tenth of its first time; Spark's own code for a job is large."""

WARM_UPS = 3
ROUNDS = 3
LEAST_STREAM_S = 3.0
MIB_A_STREAMED_SECOND = 100
"""Streams run longer when more is asked for."""

GROWTH = 4
REBUILD = "rebuild, Spark"
SHUFFLE = f"{REBUILD}, shuffled"
RARE = "rare"
KEY = "key1000"
METADATA = tuple(name for name, _ in RowShape(include_body=False).columns())
CONFIG = StoreConfig(flush="async")


@dataclass(frozen=True, slots=True)
class Query:
    """One way to read a log, and what it is meant to cost."""

    name: str
    columns: tuple[str, ...] | None = None
    condition: str = "true"
    options: Mapping[str, str] = field(default_factory=dict)
    target: Target | None = None

    def run(self, spark: SparkSession, source: str, store: Path) -> None:
        reader = spark.read.format(source).options(**self.options)
        if self.columns is not None:
            reader = reader.option("columns", ",".join(self.columns))
        reader.load(str(store)).where(self.condition).write.format("noop").mode("overwrite").save()


FULL = Query("full rows")
TOPICS = Query("topics", ("topic",), target=Target(2, "times the CPU"))
RARE_TOPIC = Query("rare topic", condition=f"topic = '{RARE}'", target=Target(0.05, "times the CPU"))
ONE_KEY = Query("key", options={"keys": KEY}, target=Target(1, "s"))
SHUFFLED = Target(4, "times the CPU")


def measure_pipeline(
    directory: Path, *, mib: int = 2048, java: Java | None = None, progress: Callable[[str], None] = lambda name: None
) -> list[PipelineFigure]:
    """All figures, on a log of so many MiB of 1 KiB messages with keys, in an empty directory."""
    logs = Logs(directory / "log", directory / "small", directory / "large", mib)
    progress("writing the logs")
    logs.fill()
    found: list[PipelineFigure] = []
    for cores, figures in ((2, _Bench.run), (1, _Bench.run_on_one_core)):
        spark = get_session(f"local[{cores}]")
        try:
            found += figures(_Bench(spark, logs, java, found, progress))
        finally:
            spark.stop()
    return found


@dataclass(frozen=True, slots=True)
class BenchLog:
    """A log to measure on; names of its figures end with the suffix."""

    path: Path
    mib: int
    suffix: str
    warm_ups: int


@dataclass(frozen=True, slots=True)
class Logs:
    """The logs to measure on: one, a small one to warm up with, and one that is `GROWTH` times as long."""

    whole: Path
    small: Path
    large: Path
    mib: int

    def fill(self) -> None:
        for path, mib in ((self.whole, self.mib), (self.small, SMALL_MIB), (self.large, self.mib * GROWTH)):
            fill_log(path, mib, rare_topic=RARE)

    def of_whole(self) -> BenchLog:
        return BenchLog(self.whole, self.mib, "", WARM_UPS)

    def of_large(self) -> BenchLog:
        return BenchLog(self.large, self.mib * GROWTH, f", {GROWTH} times the log", 1)


class _Bench:
    """The measurements of one session; `before` are those of earlier ones."""

    def __init__(
        self,
        spark: SparkSession,
        logs: Logs,
        java: Java | None,
        before: Sequence[PipelineFigure],
        progress: Callable[[str], None],
    ) -> None:
        self._spark = spark
        self._logs = logs
        self._java = java
        self._before = before
        self._progress = progress

    def run(self) -> list[PipelineFigure]:
        return [*self._rows(), *self._exports(), *self._streams(), *self._rebuilds()]

    def run_on_one_core(self) -> list[PipelineFigure]:
        two = next(figure for figure in self._before if figure.name == REBUILD)
        return [beside(self._rebuild(f"{REBUILD}, one core", self._logs.of_whole()), two)]

    # ------------------------------------------------------------------ rows

    def _rows(self) -> list[PipelineFigure]:
        self._spark.dataSource.register(ReadySource)
        whole, large = self._logs.of_whole(), self._logs.of_large()
        metadata = Query("metadata", METADATA)
        found = [figure for query in (FULL, metadata, TOPICS) for figure in self._all_rows(query, whole)]
        found += self._chosen_rows((RARE_TOPIC, ONE_KEY), found[2], whole)
        found += self._all_rows(TOPICS, large)
        [full] = self._by_turns({f"{FULL.name}, Spark": partial(FULL.run, self._spark, NAME)}, large)
        return [*found, full, *self._chosen_rows((RARE_TOPIC, replace(ONE_KEY, target=None)), full, large)]

    def _all_rows(self, query: Query, log: BenchLog) -> list[PipelineFigure]:
        """A query of every record: the kernel alone, Spark with rows that are ready, and the source."""
        alone, ready, there = self._by_turns(
            {f"{query.name}, kernel alone": partial(decode_all, columns=query.columns), **self._in_spark(query)}, log
        )
        return [alone, beside(ready, alone), judged(beside(there, alone, ready), query.target)]

    def _chosen_rows(self, queries: Sequence[Query], full: PipelineFigure, log: BenchLog) -> list[PipelineFigure]:
        """Queries of few records, beside all rows."""
        found = []
        for query in queries:
            ready, there = self._by_turns(self._in_spark(query), log)
            found += [beside(ready, full), judged(beside(there, full, ready), query.target)]
        return found

    def _in_spark(self, query: Query) -> dict[str, Callable[[Path], object]]:
        return {
            f"{query.name}, ready in Spark": partial(query.run, self._spark, READY),
            f"{query.name}, Spark": partial(query.run, self._spark, NAME),
        }

    def _exports(self) -> list[PipelineFigure]:
        table = self._logs.whole.parent / "table"

        def with_spark(store: Path) -> None:
            shutil.rmtree(table, ignore_errors=True)
            export(self._spark, store, table)

        def with_pyarrow(store: Path) -> None:
            shutil.rmtree(table, ignore_errors=True)
            write_all(store, table)

        alone, there = self._by_turns(
            {"export, pyarrow alone": with_pyarrow, "export, Spark": with_spark}, self._logs.of_whole()
        )
        shutil.rmtree(table)
        return [alone, beside(there, alone)]

    def _streams(self) -> list[PipelineFigure]:
        self._progress("streams over a store being written")
        room = self._logs.whole.parent / "streams"
        seconds = min(SECONDS, max(LEAST_STREAM_S, self._logs.mib / MIB_A_STREAMED_SECOND))
        streamed = measure_streams(self._spark, room, seconds=seconds)
        shutil.rmtree(room)
        return [
            PipelineFigure(
                each.name,
                each.seconds,
                each.cpu_seconds,
                each.message_count / 1024 / each.cpu_seconds,
                each.memory_mib,
                delay_ms=each.delay_ms,
                delay_p99_ms=each.delay_p99_ms,
                behind_s=each.behind_s,
            )
            for each in streamed
        ]

    def _by_turns(self, works: Mapping[str, Callable[[Path], object]], log: BenchLog) -> list[PipelineFigure]:
        """Measure works that do not change a store: warmed up first, then in turns; the median of each."""
        for name, work in works.items():
            self._progress(name + log.suffix)
            for store in (*[self._logs.small] * SMALL_WARM_UPS, *[log.path] * log.warm_ups):
                work(store)
        rounds = [
            [self._measure(name + log.suffix, partial(work, log.path), log.mib) for name, work in works.items()]
            for _ in range(ROUNDS)
        ]
        return [median_by_cpu(figures) for figures in zip(*rounds, strict=True)]

    # ------------------------------------------------------------------ rebuilds

    def _rebuilds(self) -> list[PipelineFigure]:
        whole, large = self._logs.of_whole(), self._logs.of_large()
        embedded = self._embedded("rebuild, embedded")
        there, shuffled = self._rebuild(REBUILD, whole), self._rebuild(SHUFFLE, whole, "shuffle")
        found = [embedded, beside(there, embedded), judged(beside(shuffled, there), SHUFFLED)]
        if self._java is not None:
            theirs = self._measure_java(self._java)
            found += [theirs, beside(msgspec.structs.replace(there, name=f"{REBUILD} (again)"), theirs)]
        larger, shuffled = self._rebuild(REBUILD, large), self._rebuild(SHUFFLE, large, "shuffle")
        return [*found, beside(larger, there), judged(beside(shuffled, larger), SHUFFLED)]

    def _rebuild(self, name: str, log: BenchLog, mode: Mode = "place") -> PipelineFigure:
        work = partial(rebuild, self._spark, config=CONFIG, mode=mode)
        for _ in range(SMALL_WARM_UPS):
            strip(self._logs.small)
            work(self._logs.small, split_bytes=MIB)  # tasks enough to start every worker
        figures = []
        for _ in range(ROUNDS):
            strip(log.path)
            figures.append(self._measure(name + log.suffix, partial(work, log.path), log.mib))
        return median_by_cpu(figures)

    def _embedded(self, name: str) -> PipelineFigure:
        figures = []
        for _ in range(ROUNDS):
            strip(self._logs.whole)
            figures.append(self._measure(name, lambda: _open(self._logs.whole), self._logs.mib))
        return median_by_cpu(figures)

    def _measure_java(self, java: Java) -> PipelineFigure:
        strip(self._logs.whole)
        task = next(task for task in TASKS if task.kind == "rebuild")
        contender = java.store()
        try:
            measured = contender.measure(task, Window(), self._logs.whole)
        finally:
            contender.close()
        assert measured is not None
        mib_a_cpu_second = self._logs.mib / measured.cpu_seconds
        return PipelineFigure("rebuild, Java", measured.seconds, measured.cpu_seconds, mib_a_cpu_second, memory_mib=0.0)

    def _measure(self, name: str, work: Callable[[], object], mib: int) -> PipelineFigure:
        self._progress(name)
        os.sync()
        with ProcessWatch() as seen:
            begin = time.perf_counter()
            work()
            seconds = time.perf_counter() - begin
        spent = max(1e-9, seen.cpu_seconds)
        return PipelineFigure(name, seconds, spent, mib / spent, seen.mib)


def _open(store: Path) -> None:
    with open_store(store, CONFIG) as opened:
        opened.wait_dispatched()


def write_all(store: Path, folder: Path) -> None:
    """Every record of a log into one Parquet file, with pyarrow alone; batches and row groups as in an export."""
    folder.mkdir(parents=True)
    writer: pq.ParquetWriter | None = None
    waiting: list[pa.RecordBatch] = []
    for batch in _batches(store, Reading(RowShape("record"), decompress=True)):
        writer = writer or pq.ParquetWriter(folder / "all.parquet", batch.schema, compression="snappy")
        waiting.append(batch)
        if sum(each.nbytes for each in waiting) >= BUFFER_BYTES:
            writer.write_table(pa.Table.from_batches(waiting))
            waiting.clear()
    assert writer is not None
    if waiting:
        writer.write_table(pa.Table.from_batches(waiting))
    writer.close()


def decode_all(store: Path, columns: tuple[str, ...] | None = None) -> int:
    """Every record of a log in the batches that the source hands to Spark, in this process; how many."""
    return sum(batch.num_rows for batch in _batches(store, Reading(RowShape("record", chosen=columns))))


def _batches(store: Path, reading: Reading) -> Iterator[pa.RecordBatch]:
    [log] = find_logs((str(store),))
    for split in plan([(log, log.first, find_end(log))], split_bytes=SPLIT_BYTES, least_count=1):
        yield from reading.read(split)
