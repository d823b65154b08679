"""The sink on Spark: batches, streams, a batch that comes again after a restart."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException
from tests.pipeline.conftest import fill, small_config
from tests.pipeline.sink.test_sink_rows import CONFIG

from flintlog import open_store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DEADLINE_S = 120
COMPARED = ("topic", "queue_id", "queue_offset", "body", "tags", "keys", "properties", "sys_flag", "born_timestamp")


@pytest.fixture
def conf(tmp_path: Path) -> str:
    (tmp_path / "broker.conf").write_text(CONFIG)
    return str(tmp_path / "broker.conf")


def read(spark: SparkSession, path: Path) -> DataFrame:
    return spark.read.format("flintlog").load(str(path)).select(*COMPARED).orderBy("topic", "queue_id", "queue_offset")


def test_what_was_read_can_be_written_and_is_the_same(
    spark: SparkSession, store: Path, tmp_path: Path, conf: str
) -> None:
    rows = spark.read.format("flintlog").load(str(store)).orderBy("physical_offset")
    writer = rows.write.format("flintlog").mode("append").option("config", conf)
    writer.option("writerId", "copy").option("batchId", "1").save(str(tmp_path / "copy"))
    writer.option("writerId", "copy").option("batchId", "1").save(str(tmp_path / "copy"))
    assert read(spark, tmp_path / "copy").collect() == read(spark, store).collect()
    with open_store(tmp_path / "copy", small_config()) as copy:
        assert copy.recovery.clean
        assert not list(copy.recovery)


def test_a_stream_copies_a_store_and_a_repeated_batch_is_skipped(
    spark: SparkSession, tmp_path: Path, conf: str
) -> None:
    source, target, checkpoint = fill(tmp_path / "source", 60), tmp_path / "target", tmp_path / "checkpoint"

    def run() -> None:
        rows = spark.readStream.format("flintlog").option("startingOffsets", "earliest").load(str(source))
        writer = rows.writeStream.format("flintlog").option("config", conf).option("path", str(target))
        named = writer.option("checkpointLocation", str(checkpoint)).queryName("copy")
        query = named.trigger(availableNow=True).start()
        assert query.awaitTermination(DEADLINE_S)

    run()
    last = max((checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    last.unlink()  # as if the driver had died between the sink's commit and Spark's own note of it
    (last.parent / f".{last.name}.crc").unlink(missing_ok=True)
    run()
    assert last.exists()
    assert read(spark, target).collect() == read(spark, source).collect()


def test_what_cannot_be_written_is_said_in_a_sentence_and_nothing_is_left(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.range(3).selectExpr("'orders' AS topic", "cast(id AS string) AS boddy")
    with pytest.raises(PySparkException, match="a message has no column boddy"):
        rows.write.format("flintlog").mode("append").save(str(tmp_path / "store"))
    rows = rows.withColumnRenamed("boddy", "body")
    with pytest.raises(PySparkException, match="there is no option writter"):
        rows.write.format("flintlog").mode("append").option("writter", "x").save(str(tmp_path / "store"))
    with pytest.raises(PySparkException, match="a store is not overwritten"):
        rows.write.format("flintlog").mode("overwrite").save(str(tmp_path / "store"))
    assert not (tmp_path / "store").exists()
