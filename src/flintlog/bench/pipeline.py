"""How much the pipeline on Spark costs, beside the same work in one process and beside the Java store.

    rebuild         Spark's job              beside   opening the store without its queues; RocketMQ doing the same
    full rows       the source, all columns  beside   the kernel decoding the same in this process
    metadata        the same without bodies  beside   the same

Starting a session is not part of it: a first run on a small store comes before the clock. CPU time is that of all
processes: the driver, the JVM, the Python workers.
"""

from __future__ import annotations

import mmap
import os
import shutil
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from flintlog import kernel
from flintlog.bench.java import Java
from flintlog.bench.ours import fill_log
from flintlog.bench.process_tree import cpu_seconds
from flintlog.bench.run import strip
from flintlog.bench.tasks import MIB, TASKS, Window
from flintlog.derive.columns import to_record_batch
from flintlog.kernel import ScanStop
from flintlog.pipeline.rebuild import rebuild
from flintlog.pipeline.session import get_session
from flintlog.store.config import StoreConfig
from flintlog.store.store import open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SMALL_MIB = 16
WARM_UPS = 3
CONFIG = StoreConfig(flush="async")


class PipelineFigure(msgspec.Struct, frozen=True):
    """One thing that was measured; `beside` is what its ratios are to."""

    name: str
    seconds: float
    cpu_seconds: float
    mib_a_cpu_second: float
    beside: str | None = None
    times_the_cpu: float | None = None
    times_as_fast: float | None = None


def measure_pipeline(
    directory: Path, *, mib: int = 2048, cores: int = 2, with_java: bool = False
) -> list[PipelineFigure]:
    """All figures, on a log of so many MiB of 1 KiB messages with keys."""
    store, small = directory / "log", directory / "small"
    for path, size in ((store, mib), (small, SMALL_MIB)):
        shutil.rmtree(path, ignore_errors=True)
        fill_log(path, size)
    spark = get_session(f"local[{cores}]")
    try:
        return _Bench(spark, store, small, mib, with_java).run()
    finally:
        spark.stop()
        shutil.rmtree(store)
        shutil.rmtree(small)


class _Bench:
    """One run of all measurements."""

    def __init__(self, spark: SparkSession, store: Path, small: Path, mib: int, with_java: bool) -> None:
        self._spark = spark
        self._store = store
        self._small = small
        self._mib = mib
        self._with_java = with_java

    def run(self) -> list[PipelineFigure]:
        return [*self._rows(), *self._rebuilds()]

    def _rows(self) -> list[PipelineFigure]:
        found = []
        for name, include_body in (("full rows", True), ("metadata", False)):
            for _ in range(WARM_UPS):
                self._read(self._small, include_body)
            alone = self._measure(f"{name}, kernel alone", partial(decode_all, self._store, include_body))
            there = self._measure(f"{name}, Spark", partial(self._read, self._store, include_body))
            found += [alone, _beside(there, alone)]
        return found

    def _read(self, store: Path, include_body: bool) -> None:
        reader = self._spark.read.format("flintlog").option("includeBody", str(include_body).lower())
        reader = reader.option("minPartitions", str(2 * self._spark.sparkContext.defaultParallelism))
        reader.load(str(store)).write.format("noop").mode("overwrite").save()

    def _rebuilds(self) -> list[PipelineFigure]:
        strip(self._store)
        embedded = self._measure("rebuild, embedded", self._open)
        strip(self._store)
        strip(self._small)
        rebuild(self._spark, self._small, config=CONFIG, split_bytes=MIB)  # in tasks enough to start every worker
        there = self._measure("rebuild, Spark", lambda: rebuild(self._spark, self._store, config=CONFIG))
        found = [embedded, _beside(there, embedded)]
        if self._with_java:
            java = self._java()
            found += [java, _beside(msgspec.structs.replace(there, name="rebuild, Spark (again)"), java)]
        return found

    def _open(self) -> None:
        with open_store(self._store, CONFIG) as opened:
            opened.wait_dispatched()

    def _java(self) -> PipelineFigure:
        strip(self._store)
        task = next(task for task in TASKS if task.kind == "rebuild")
        java = Java()
        try:
            told = java.measure(task, Window(), self._store)
        finally:
            java.close()
        assert told is not None
        return PipelineFigure("rebuild, Java", told.seconds, told.cpu_seconds, self._mib / told.cpu_seconds)

    def _measure(self, name: str, work: Callable[[], object]) -> PipelineFigure:
        os.sync()
        cpu, begin = cpu_seconds(), time.perf_counter()
        work()
        seconds, spent = time.perf_counter() - begin, max(1e-9, cpu_seconds() - cpu)
        return PipelineFigure(name, seconds, spent, self._mib / spent)


def _beside(figure: PipelineFigure, other: PipelineFigure) -> PipelineFigure:
    return msgspec.structs.replace(
        figure,
        beside=other.name,
        times_the_cpu=figure.cpu_seconds / other.cpu_seconds,
        times_as_fast=other.seconds / figure.seconds,
    )


def decode_all(store: Path, include_body: bool) -> int:
    """Every record of a log as Arrow columns, in this process; how many."""
    count = 0
    for path in sorted((store / "commitlog").iterdir()):
        data = memoryview(_map(path))
        place, base = 0, int(path.name)
        while True:
            decoded = kernel.decode(data, place, len(data), base, include_body=include_body)
            count += to_record_batch(decoded).num_rows if decoded.count else 0
            place = decoded.end
            if decoded.reason is not ScanStop.LIMIT or place >= len(data):
                break
    return count


def _map(path: Path) -> mmap.mmap:
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
