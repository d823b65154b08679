"""A streaming table of all messages, and a view of their volume that follows from it."""

from __future__ import annotations

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

spark = SparkSession.active()


@dp.table
def messages() -> DataFrame:
    """Every message of the store, once: each run adds those that came since."""
    store = spark.conf.get("orders.store")
    stream = spark.readStream.format("flintlog").option("startingOffsets", "earliest").load(store)
    return stream.select("topic", "queue_id", "queue_offset", "store_timestamp", "keys", "size", "body")


@dp.materialized_view
def volume() -> DataFrame:
    """How many messages each topic has, how large they are, and when the last one was stored."""
    counts = [f.count("*").alias("messages"), f.sum("size").alias("bytes"), f.max("store_timestamp").alias("last")]
    return spark.read.table("messages").groupBy("topic").agg(*counts)
