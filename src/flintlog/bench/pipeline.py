"""Measures the jobs on Spark, beside the same work in one process and beside the Java store.

    full rows       the source, all columns  beside   the kernel decoding the same batches in this process
      ready         a source that returns one batch again and again: the cost of Spark for any source in Python
    metadata        the same without bodies  beside   the same
    topics          the column topic alone   beside   the same, and a source that is ready
    rare topic      a topic of 1 % by a filter, all columns       beside   full rows
    key             the messages of one key, all columns          beside   full rows
    export          Parquet, by topic, day   beside   pyarrow writing the same batches in this process
    streams         over a store that another process writes, and how late they are (`streaming.py`)
    rebuild         Spark's job              beside   opening the store without its queues; RocketMQ doing the same
      shuffled      without shared maps      beside   entries placed into shared files
      one core      the same on local[1]     beside   two cores
      larger log    the same on four times the log

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
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from flintlog.bench.ours import fill_log
from flintlog.bench.process_tree import PeakMemory, cpu_seconds
from flintlog.bench.ready_source import NAME as READY
from flintlog.bench.ready_source import ReadySource
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
RARE = "rare"
KEY = "key1000"
TOPIC = ("topic",)
METADATA = tuple(name for name, _ in RowShape(include_body=False).columns())
CONFIG = StoreConfig(flush="async")


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
    times_as_fast: float | None = None
    delay_ms: float | None = None
    """Of a stream: from a message's store time to its arrival, the median; then the 99th percentile."""
    delay_p99_ms: float | None = None
    behind_s: float | None = None
    """Of a stream: how long after the last put everything had arrived."""


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
class Logs:
    """The logs to measure on: one, a small one to warm up with, and one that is `GROWTH` times as long."""

    whole: Path
    small: Path
    large: Path
    mib: int

    def fill(self) -> None:
        for path, mib in ((self.whole, self.mib), (self.small, SMALL_MIB), (self.large, self.mib * GROWTH)):
            fill_log(path, mib, rare_topic=RARE)


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
        return [_beside(self._rebuild(f"{REBUILD}, one core", self._logs.whole, self._logs.mib), two)]

    # ------------------------------------------------------------------ rows

    def _rows(self) -> list[PipelineFigure]:
        found = []
        self._spark.dataSource.register(ReadySource)
        for name, columns in (("full rows", None), ("metadata", METADATA), ("topics", TOPIC)):
            alone, ready, there = self._by_turns(
                {
                    f"{name}, kernel alone": partial(decode_all, columns=columns),
                    f"{name}, ready in Spark": partial(self._read, READY, columns=columns),
                    f"{name}, Spark": partial(self._read, "flintlog", columns=columns),
                }
            )
            found += [alone, _beside(ready, alone), _beside(there, alone)]
        return [*found, *self._chosen_rows(found[2])]

    def _chosen_rows(self, full: PipelineFigure) -> list[PipelineFigure]:
        chosen = self._by_turns(
            {
                "rare topic, Spark": partial(self._read, "flintlog", condition=f"topic = '{RARE}'"),
                "key, Spark": partial(self._read, "flintlog", options={"keys": KEY}),
            }
        )
        return [_beside(each, full) for each in chosen]

    def _read(
        self,
        source: str,
        store: Path,
        *,
        columns: Sequence[str] | None = None,
        condition: str = "true",
        options: Mapping[str, str] | None = None,
    ) -> None:
        reader = self._spark.read.format(source)
        for name, value in {**({} if columns is None else {"columns": ",".join(columns)}), **(options or {})}.items():
            reader = reader.option(name, value)
        reader.load(str(store)).where(condition).write.format("noop").mode("overwrite").save()

    def _exports(self) -> list[PipelineFigure]:
        table = self._logs.whole.parent / "table"

        def with_spark(store: Path) -> None:
            shutil.rmtree(table, ignore_errors=True)
            export(self._spark, store, table)

        def with_pyarrow(store: Path) -> None:
            shutil.rmtree(table, ignore_errors=True)
            write_all(store, table)

        alone, there = self._by_turns({"export, pyarrow alone": with_pyarrow, "export, Spark": with_spark})
        shutil.rmtree(table)
        return [alone, _beside(there, alone)]

    def _streams(self) -> list[PipelineFigure]:
        self._progress("streams over a store being written")
        room = self._logs.whole.parent / "streams"
        seconds = min(SECONDS, max(LEAST_STREAM_S, self._logs.mib / MIB_A_STREAMED_SECOND))
        with PeakMemory() as peak:
            streamed = measure_streams(self._spark, room, seconds=seconds)
        shutil.rmtree(room)
        return [
            PipelineFigure(
                each.name,
                each.seconds,
                each.cpu_seconds,
                each.message_count / 1024 / each.cpu_seconds,
                peak.mib,
                delay_ms=each.delay_ms,
                delay_p99_ms=each.delay_p99_ms,
                behind_s=each.behind_s,
            )
            for each in streamed
        ]

    def _by_turns(self, works: Mapping[str, Callable[[Path], object]]) -> list[PipelineFigure]:
        """Measure works that do not change a store: warmed up first, then in turns; the median of each."""
        logs = self._logs
        for name, work in works.items():
            self._progress(name)
            for store in (*[logs.small] * SMALL_WARM_UPS, *[logs.whole] * WARM_UPS):
                work(store)
        rounds = [
            [self._measure(name, partial(work, logs.whole), logs.mib) for name, work in works.items()]
            for _ in range(ROUNDS)
        ]
        return [_median(figures) for figures in zip(*rounds, strict=True)]

    # ------------------------------------------------------------------ rebuilds

    def _rebuilds(self) -> list[PipelineFigure]:
        logs = self._logs
        embedded = self._embedded("rebuild, embedded")
        there = self._rebuild(REBUILD, logs.whole, logs.mib)
        shuffled = self._rebuild(f"{REBUILD}, shuffled", logs.whole, logs.mib, "shuffle")
        found = [embedded, _beside(there, embedded), _beside(shuffled, there)]
        if self._java is not None:
            theirs = self._measure_java(self._java)
            found += [theirs, _beside(msgspec.structs.replace(there, name=f"{REBUILD} (again)"), theirs)]
        larger = self._rebuild(f"{REBUILD}, {GROWTH} times the log", logs.large, logs.mib * GROWTH)
        return [*found, _beside(larger, there)]

    def _rebuild(self, name: str, store: Path, mib: int, mode: Mode = "place") -> PipelineFigure:
        work = partial(rebuild, self._spark, config=CONFIG, mode=mode)
        for _ in range(SMALL_WARM_UPS):
            strip(self._logs.small)
            work(self._logs.small, split_bytes=MIB)  # tasks enough to start every worker
        figures = []
        for _ in range(ROUNDS):
            strip(store)
            figures.append(self._measure(name, partial(work, store), mib))
        return _median(figures)

    def _embedded(self, name: str) -> PipelineFigure:
        figures = []
        for _ in range(ROUNDS):
            strip(self._logs.whole)
            figures.append(self._measure(name, lambda: _open(self._logs.whole), self._logs.mib))
        return _median(figures)

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
        with PeakMemory() as memory:
            cpu, begin = cpu_seconds(), time.perf_counter()
            work()
            seconds, spent = time.perf_counter() - begin, max(1e-9, cpu_seconds() - cpu)
        return PipelineFigure(name, seconds, spent, mib / spent, memory.mib)


def _open(store: Path) -> None:
    with open_store(store, CONFIG) as opened:
        opened.wait_dispatched()


def _median(figures: Sequence[PipelineFigure]) -> PipelineFigure:
    return sorted(figures, key=lambda figure: figure.cpu_seconds)[len(figures) // 2]


def _beside(figure: PipelineFigure, other: PipelineFigure) -> PipelineFigure:
    return msgspec.structs.replace(
        figure,
        beside=other.name,
        times_the_cpu=figure.cpu_seconds / other.cpu_seconds,
        times_as_fast=other.seconds / figure.seconds,
    )


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
