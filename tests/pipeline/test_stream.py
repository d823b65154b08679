"""The source as a stream: every message once, across batches, restarts, a running writer and retention."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import StreamingQueryException

from flintlog import Message, open_store
from flintlog.pipeline.options import parse_source_options
from flintlog.pipeline.rows import RowShape
from flintlog.pipeline.stream import LogStreamReader

from .conftest import SEGMENT_BYTES, fill, small_config

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

DEADLINE_S = 120


class Stream:
    """A query that counts the messages it got, by where they lie."""

    def __init__(self, spark: SparkSession, store: Path, checkpoint: Path) -> None:
        self.seen: Counter[int] = Counter()
        self._spark = spark
        self._store = store
        self._checkpoint = checkpoint

    def start(self, *, available_now: bool = False, **options: object) -> StreamingQuery:
        reader = self._spark.readStream.format("flintlog").option("includeBody", "false")
        for name, value in options.items():
            reader = reader.option(name, str(value))
        frame = reader.load(str(self._store)).select("physical_offset")
        writer = frame.writeStream.foreachBatch(self._take).option("checkpointLocation", str(self._checkpoint))
        return (writer.trigger(availableNow=True) if available_now else writer).start()

    def run(self, **options: object) -> StreamingQuery:
        """Read all there is now."""
        query = self.start(available_now=True, **options)
        assert query.awaitTermination(DEADLINE_S)
        return query

    def _take(self, batch: DataFrame, _number: int) -> None:
        self.seen.update(row[0] for row in batch.collect())


def test_what_is_there_is_read_in_batches_of_bounded_bytes_and_goes_on_after_a_restart(
    spark: SparkSession, tmp_path: Path
) -> None:
    store = fill(tmp_path / "store", 100)
    stream = Stream(spark, store, tmp_path / "checkpoint")
    query = stream.run(startingOffsets="earliest", maxBytesPerTrigger=15_000)
    assert len(stream.seen) == 100
    assert sum(progress.numInputRows > 0 for progress in query.recentProgress) > 1
    fill(store, 50)
    stream.run(startingOffsets="earliest")
    assert len(stream.seen) == 150
    assert set(stream.seen.values()) == {1}


def test_a_store_being_written_is_followed(spark: SparkSession, tmp_path: Path) -> None:
    store = fill(tmp_path / "store", 20)
    stream = Stream(spark, store, tmp_path / "checkpoint")
    with open_store(store, small_config()) as running:
        query = stream.start()  # from the latest on
        wait_until(lambda: bool(query.recentProgress), query)
        expected = {running.put(Message("orders", b"x" * 500)).physical_offset for _ in range(400)}
        wait_until(lambda: len(stream.seen) >= len(expected), query)
        query.stop()
    assert dict(stream.seen) == dict.fromkeys(expected, 1)


def wait_until(is_so, query) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
    deadline = time.monotonic() + DEADLINE_S
    while not is_so():
        assert time.monotonic() < deadline, query.lastProgress
        assert query.exception() is None, query.exception()
        time.sleep(0.05)


def test_files_that_were_deleted_underneath_are_an_error_or_left_out(spark: SparkSession, tmp_path: Path) -> None:
    store = fill(tmp_path / "store", 30)
    stream = Stream(spark, store, tmp_path / "checkpoint")
    stream.run(startingOffsets="earliest")
    fill(store, 300)
    min((store / "commitlog").iterdir()).unlink()
    with pytest.raises(StreamingQueryException, match="failOnDataLoss=false"):
        stream.run(startingOffsets="earliest")
    stream.run(startingOffsets="earliest", failOnDataLoss="false")
    assert min(offset for offset in stream.seen if offset > 30_000) >= SEGMENT_BYTES
    assert set(stream.seen.values()) == {1}


def reader(store: Path, **options: object) -> LogStreamReader:
    given = {"path": str(store), **{name: str(value) for name, value in options.items()}}
    return LogStreamReader(parse_source_options(given), RowShape())


def test_offsets_as_spark_4_1_asks_for_them(tmp_path: Path) -> None:
    store = fill(tmp_path / "store", 100)
    asked = reader(store, startingOffsets="earliest", maxBytesPerTrigger=10_000)
    start = asked.initialOffset()
    assert start == {"store": 0}
    rows = 0
    while (end := asked.latestOffset()) != start:
        assert end["store"] - start["store"] <= 10_000
        for partition in asked.partitions(start, end):
            rows += sum(batch.num_rows for batch in asked.read(partition))
        start = end
    assert rows == 100


def test_a_log_that_was_cut_below_what_was_read_is_an_error(tmp_path: Path) -> None:
    store = fill(tmp_path / "store", 10)
    asked = reader(store, startingOffsets="earliest")
    with pytest.raises(Exception, match="was read up to 10000000"):
        asked.partitions({"store": 0}, {"store": 10_000_000})


def test_a_stream_passes_damage_once_it_was_searched_for(tmp_path: Path) -> None:
    store = fill(tmp_path / "store", 50)
    whole = reader(store, startingOffsets="latest").initialOffset()["store"]
    log = min((store / "commitlog").iterdir())
    first = int.from_bytes(log.read_bytes()[:4], "big")
    with log.open("r+b") as file:
        file.seek(first)
        file.write(bytes(8))
    asked = reader(store, startingOffsets="earliest", failOnDataLoss="false")
    assert asked.initialOffset() == {"store": 0}
    assert asked.reportLatestOffset() == {"store": first}
    assert asked.latestOffset() == {"store": whole}
    found = sum(
        batch.num_rows for each in asked.partitions({"store": 0}, {"store": whole}) for batch in asked.read(each)
    )
    assert found == 49
