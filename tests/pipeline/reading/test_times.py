"""Times of messages as timestamps or as numbers, read and written; numbers that are no time do not fail a query."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException
from tests.pipeline.conftest import small_config
from tests.pipeline.reading.test_source import own_rows, read
from tests.pipeline.sink.test_sink_rows import CONFIG

from flintlog import Message, open_store
from flintlog.pipeline.replay import ReplayOptions, replay
from flintlog.testing import FakeClock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MOMENT_MS = 1_794_700_000_123
ODD_MS = (MOMENT_MS, -1, 0, -(1 << 63), (1 << 63) - 1, 253_402_214_400_001, -62_135_510_400_000)
SHOWN = (
    datetime.fromtimestamp(MOMENT_MS / 1000, UTC),
    datetime(1969, 12, 31, 23, 59, 59, 999_000, UTC),
    datetime(1970, 1, 1, tzinfo=UTC),
    *(None, None, None),
    datetime(1, 1, 2, tzinfo=UTC),
)


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store whose messages have odd times of birth."""
    path = tmp_path_factory.mktemp("times") / "store"
    with open_store(path, small_config(), clock=FakeClock(MOMENT_MS)) as store:
        for number, born_ms in enumerate(ODD_MS):
            store.put(Message("orders", b"x", born_timestamp=born_ms, keys=[str(number)]))
    return path


@pytest.fixture
def conf(tmp_path: Path) -> str:
    (tmp_path / "broker.conf").write_text(CONFIG)
    return str(tmp_path / "broker.conf")


def test_times_are_timestamps_to_the_millisecond(spark: SparkSession, store: Path) -> None:
    frame = (
        read(spark, store)
        .orderBy("physical_offset")
        .selectExpr(
            "unix_millis(store_timestamp)",
            "unix_millis(born_timestamp)",
            "typeof(store_timestamp)",
            "typeof(born_timestamp)",
        )
    )
    assert [tuple(row) for row in frame.collect()] == [
        (row["store_timestamp"], row["born_timestamp"], "timestamp", "timestamp") for row in own_rows(store)
    ]


def test_what_is_no_time_is_null_and_fails_nothing(spark: SparkSession, odd: Path) -> None:
    frame = read(spark, odd).orderBy("physical_offset")
    shown = [None if row[0] is None else row[0].astimezone(UTC) for row in frame.select("born_timestamp").collect()]
    assert shown == list(SHOWN)
    numbers = (
        read(spark, odd, timestamps="MILLIS").orderBy("physical_offset").select("born_timestamp", "store_timestamp")
    )
    assert [tuple(row) for row in numbers.collect()] == [(born_ms, MOMENT_MS) for born_ms in ODD_MS]


def test_a_watermark_works(spark: SparkSession, store: Path, tmp_path: Path) -> None:
    stream = spark.readStream.format("flintlog").option("startingOffsets", "earliest").load(str(store))
    counts = stream.withWatermark("store_timestamp", "1 minute").groupBy("topic").count()
    writer = counts.writeStream.format("memory").queryName("by_topic").outputMode("complete")
    query = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    query.awaitTermination()
    assert {row.topic: row["count"] for row in spark.table("by_topic").collect()} == {"orders": 200, "payments": 100}
    assert query.lastProgress is not None
    assert query.lastProgress.eventTime, "Spark has seen event times"
    spark.catalog.dropTempView("by_topic")


def test_a_wrong_way_to_show_times_is_one_error(spark: SparkSession, store: Path) -> None:
    with pytest.raises(PySparkException) as raised:
        read(spark, store, timestamps="nanos")
    assert "option timestamps = 'nanos' (timestamp, or millis" in str(raised.value)


def test_the_sink_takes_timestamps_and_numbers(spark: SparkSession, odd: Path, tmp_path: Path, conf: str) -> None:
    for name in ("timestamp", "millis"):
        frame = read(spark, odd, timestamps=name).where("born_timestamp is not null and keys[0] != '6'")
        frame.coalesce(1).write.format("flintlog").mode("append").option("config", conf).save(str(tmp_path / name))
    born = {name: [row["born_timestamp"] for row in own_rows(tmp_path / name)] for name in ("timestamp", "millis")}
    assert [each for each in born["timestamp"] if each in ODD_MS] == [MOMENT_MS, -1, 0]
    assert [each for each in born["millis"] if each in ODD_MS] == list(ODD_MS[:-1])


def test_a_table_with_timestamps_is_replayed_by_time_and_shifted(
    spark: SparkSession, tmp_path: Path, conf: str
) -> None:
    times = [MOMENT_MS, MOMENT_MS + 1000, MOMENT_MS + 2000]
    rows = spark.createDataFrame([("orders", "x", ms) for ms in times], "topic string, body string, ms bigint")
    moment = "timestamp_millis(ms)"
    rows.selectExpr("topic", "body", f"{moment} as store_timestamp", f"{moment} as born_timestamp").write.parquet(
        str(tmp_path / "table")
    )
    options = ReplayOptions(since_ms=times[1], until_ms=times[2], shift_ms=500)
    assert replay(spark, tmp_path / "table", tmp_path / "target", options=options, config=conf).rows == 1
    (row,) = [row for row in own_rows(tmp_path / "target") if row["topic"] == "orders"]
    assert row["born_timestamp"] == times[1] + 500
