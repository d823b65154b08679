"""The driver that `test_kill_spark.py` and `test_cluster_kill.py` kill: streams out of a store, and rows into one.

    kill_driver.py MASTER WORK
    WORK/source ──stream──▶ WORK/copy, another store          WORK/copy.checkpoint
                └─stream──▶ WORK/rows, Parquet                WORK/rows.checkpoint
    rows of tasks that die or are slow ──▶ WORK/written, a third store

Whatever was done before is not done again.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from flintlog.pipeline.session import get_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

Row = tuple[str, bytearray, int]
STREAM_BYTES = 15_000
PARTITIONS = 4
ROWS = 36
"""Of each partition."""

BODY_BYTES = 256 * 1024
"""So that a partition is more than one staged file."""

DEADLINE_S = 120
SLOW_S = 20


def main(master: str, work: Path) -> None:
    spark = get_session(master)
    try:
        queries = [stream(spark, work, "copy"), stream(spark, work, "rows")]
        for query in queries:
            query.awaitTermination()
        write(spark, work, can_speculate=not master.startswith("local"))
    finally:
        spark.stop()


def stream(spark: SparkSession, work: Path, name: str) -> StreamingQuery:
    reader = spark.readStream.format("flintlog").option("startingOffsets", "earliest")
    frame = reader.option("maxBytesPerTrigger", STREAM_BYTES).option("splitBytes", "8k").load(str(work / "source"))
    if name == "copy":
        writer = frame.writeStream.format("flintlog").option("config", str(work / "broker.conf"))
    else:
        writer = frame.select("physical_offset").writeStream.format("parquet")
    placed = writer.option("path", str(work / name)).option("checkpointLocation", str(work / f"{name}.checkpoint"))
    return placed.trigger(availableNow=True).start()


def write(spark: SparkSession, work: Path, *, can_speculate: bool) -> None:
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "4")  # so that rows come to the sink one by one
    place = str(work)

    def troubled(numbers: Iterable[int]) -> Iterator[Row]:
        yield from with_troubles(numbers, Path(place), can_speculate=can_speculate)

    numbers = spark.sparkContext.parallelize(range(PARTITIONS * ROWS), PARTITIONS)
    columns = "topic string, body binary, queue_id int"
    rows = spark.createDataFrame(numbers.mapPartitions(troubled), columns, verifySchema=False)
    writer = rows.write.format("flintlog").mode("append").option("config", str(work / "broker.conf"))
    writer.option("writerId", "me").option("batchId", 1).save(str(work / "written"))


def with_troubles(numbers: Iterable[int], work: Path, *, can_speculate: bool) -> Iterator[Row]:
    """An attempt comes to grief once a part of its rows was staged, and leaves word; others give all of theirs.

    One for each partition: not the first, which may be killed from outside before it gets there.
    """
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    partition = context.partitionId()
    grief = work / f"grief-{partition}"
    before = staged_files(work)
    for number in numbers:
        yield "orders", bytearray(f"{number} ".encode().ljust(BODY_BYTES, b".")), partition
    if grief.exists():
        return
    deadline = time.monotonic() + DEADLINE_S
    while not staged_files(work) - before:
        if time.monotonic() > deadline:
            return
        time.sleep(0.01)
    grief.touch()
    if partition == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    if partition == 1:
        raise OSError("a task that failed behind what it had staged")
    if partition == 2 and can_speculate:
        time.sleep(SLOW_S)


def staged_files(work: Path) -> set[Path]:
    return {path for path in (work / "written" / "flintlog" / "staged").rglob("*") if path.is_file()}


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
