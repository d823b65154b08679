"""A user's own script: a session without a setting of ours, every way in and out, and jobs. Run by `test_versions.py`.

user_script.py STORE WORK        prints what came of it as JSON, in its last line
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def main(store: str, work: Path) -> dict[str, object]:
    spark = SparkSession.builder.appName("a user's own").getOrCreate()
    try:
        return {
            "version": spark.version,
            "batch": read_batch(spark, store),
            "stream": read_stream(spark, store, work),
            "written": write(spark, store, work),
            "streamed": write_stream(spark, store, work),
            **run_jobs(spark, store, work),
        }
    finally:
        spark.stop()


def read_batch(spark: SparkSession, store: str) -> dict[str, int]:
    frame = spark.read.format("flintlog").option("splitBytes", "1m").option("columns", "topic").load(store)
    return {row.topic: row["count"] for row in frame.groupBy("topic").count().collect()}


def messages(spark: SparkSession, store: str) -> DataFrame:
    reader = spark.readStream.format("flintlog").option("startingOffsets", "earliest")
    return reader.option("maxBytesPerTrigger", "20000").load(store)


def read_stream(spark: SparkSession, store: str, work: Path) -> int:
    """Follow the store in small batches, stop in the middle of nothing, go on from the checkpoint."""
    for _ in range(2):
        writer = messages(spark, store).writeStream.format("parquet").option("path", str(work / "rows"))
        query = writer.option("checkpointLocation", str(work / "rows.checkpoint")).start()
        query.processAllAvailable()
        query.stop()
    rows = spark.read.parquet(str(work / "rows"))
    assert rows.select("physical_offset").distinct().count() == rows.count()
    return rows.count()


def write(spark: SparkSession, store: str, work: Path) -> int:
    target, conf = str(work / "written"), str(work / "broker.conf")
    rows = spark.read.format("flintlog").load(store)
    for _ in range(2):  # the second time it is there already
        writer = rows.write.format("flintlog").mode("append").option("writerId", "me").option("batchId", "7")
        writer.option("config", conf).save(target)
    return spark.read.format("flintlog").load(target).count()


def write_stream(spark: SparkSession, store: str, work: Path) -> int:
    target, conf = str(work / "streamed"), str(work / "broker.conf")
    writer = messages(spark, store).writeStream.format("flintlog").option("checkpointLocation", str(work / "progress"))
    query = writer.option("path", target).option("config", conf).start()
    query.processAllAvailable()
    query.stop()
    return spark.read.format("flintlog").load(target).count()


def run_jobs(spark: SparkSession, store: str, work: Path) -> dict[str, object]:
    from flintlog.pipeline.compact import compact
    from flintlog.pipeline.export import export
    from flintlog.pipeline.rebuild import rebuild
    from flintlog.pipeline.replay import replay
    from flintlog.pipeline.verify import verify
    from flintlog.store.options.store_config import StoreConfig

    config = StoreConfig.load(work / "broker.conf")
    rebuild(spark, store, config=config, into=work / "rebuilt")
    return {
        "findings": len(verify(spark, store).findings),
        "exported": export(spark, store, work / "table").rows,
        "compacted": compact(spark, store, work / "compacted", form="parquet").rows,
        "replayed": replay(spark, work / "table", work / "replayed", config=str(work / "broker.conf")).rows,
        "refused": refused(spark, work),
    }


def refused(spark: SparkSession, work: Path) -> str:
    from flintlog.errors import FlintlogError
    from flintlog.pipeline.sql import query

    try:
        query(spark, str(work / "streamed"), "select tipic from messages").collect()
    except FlintlogError as error:
        return str(error)
    return ""


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], Path(sys.argv[2]))))  # noqa: T201
