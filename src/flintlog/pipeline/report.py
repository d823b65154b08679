"""The job `report`: figures of stores as DataFrames: volume over time, sizes, delays, skew, keys, lag.

    over_time    messages and bytes by step of time               queues     share of each queue of its topic
    topics       counts, sizes, delays of each topic              keys       the most frequent keys
    sizes        how many messages of which size                  groups     the lag of consumer groups

Bodies are not read. Spark caches the rows while the report is made. A delay is the time from a message's birth at its
producer to its storing; if clocks differ it may be negative, and is counted as such.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from flintlog.errors import DamagedStore
from flintlog.maintenance.inspect.overview import groups as group_offsets
from flintlog.maintenance.inspect.store_files import look_at_queues
from flintlog.pipeline.reading.known_topics import no_messages_of
from flintlog.pipeline.reading.logs import Log, as_paths, find_damage, find_logs, store_of
from flintlog.pipeline.spark.failures import plain_errors
from flintlog.pipeline.spark.tasks import watched
from flintlog.pipeline.sql import load_messages

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from flintlog.store.options.store_config import StoreConfig

STEPS_MS: Final = (100, 1000, 10_000, 60_000, 600_000, 3_600_000, 21_600_000, 86_400_000, 604_800_000, 2_592_000_000)
MOST_STEPS: Final = 120
_FIGURES: Final = ("totals", "over_time", "topics", "sizes", "queues", "keys", "groups")
PERCENTILES: Final = (0.5, 0.9, 0.95, 0.99)
_ACCURACY: Final = 10_000
_GROUPS: Final = "`group` string, topic string, queue_id int, offset bigint, max_offset bigint, lag bigint"
GROUP_FIELDS: Final = ("group", "topic", "queue_id", "offset", "max_offset", "lag")
COLUMNS: Final = ("topic", "queue_id", "size", "store_timestamp", "born_timestamp", "keys")


@dataclass(frozen=True, slots=True)
class Frames:
    """The report as DataFrames; call `release` when they are not needed any more."""

    totals: DataFrame
    over_time: DataFrame
    topics: DataFrame
    sizes: DataFrame
    queues: DataFrame
    keys: DataFrame
    groups: DataFrame
    step_ms: int
    messages: DataFrame

    def release(self) -> None:
        self.messages.unpersist()


@dataclass(frozen=True, slots=True)
class Report:
    """The same as plain rows, for tables and pages."""

    store: str
    step_ms: int
    totals: dict[str, object]
    over_time: list[dict[str, object]]
    topics: list[dict[str, object]]
    sizes: list[dict[str, object]]
    queues: list[dict[str, object]]
    keys: list[dict[str, object]]
    groups: list[dict[str, object]]
    damage: str | None = None
    """Why some messages could not be read: a file of the log is missing or has a wrong size; else None."""


@dataclass(frozen=True, slots=True)
class Stores:
    """The stores of a report, listed once: on remote storage a listing is expensive."""

    paths: tuple[str, ...]
    logs: tuple[Log, ...]


def find_stores(store: str | Path | Sequence[str]) -> Stores:
    """The stores of a path, a glob, or several; `DamagedStore` when there is none."""
    paths = as_paths(store)
    return Stores(paths, tuple(find_logs(paths, strict=False)))


def report_frames(
    spark: SparkSession,
    store: str | Path | Sequence[str],
    *,
    config: StoreConfig | None = None,
    topics: Sequence[str] = (),
    top: int = 20,
) -> Frames:
    """The figures of stores, with the `top` most frequent keys."""
    return _frames(spark, find_stores(store), config, topics, top)


def _frames(spark: SparkSession, stores: Stores, config: StoreConfig | None, topics: Sequence[str], top: int) -> Frames:
    from pyspark.sql import functions as f

    options = {"columns": ",".join(COLUMNS), "failOnDataLoss": "false", "timestamps": "millis"}
    if topics:
        options["topics"] = ",".join(topics)
    messages = load_messages(spark, stores.paths, options).persist()
    with plain_errors("the report"):
        totals = messages.agg(f.min("store_timestamp").alias("first_ms"), f.max("store_timestamp").alias("last_ms"),
                              f.countDistinct("topic").alias("topics"),
                              f.countDistinct("topic", "queue_id").alias("queues"), *_figures())  # fmt: skip
        with watched(spark, doing=f"report: read {', '.join(stores.paths)}"):
            first = totals.select("first_ms", "last_ms").first()
    is_empty = first is None or first[0] is None
    if is_empty and topics:
        messages.unpersist()
        raise no_messages_of(topics, stores.paths)
    step_ms = choose_step(0 if first is None or is_empty else first[1] - first[0])
    return Frames(
        totals,
        _over_time(messages, step_ms),
        messages.groupBy("topic").agg(*_figures()).orderBy(f.desc("messages"), "topic"),
        _sizes(messages),
        _queues(messages),
        _keys(messages, top),
        spark.createDataFrame(group_rows(stores.logs, config), _GROUPS),
        step_ms,
        messages,
    )


def report(
    spark: SparkSession,
    store: str | Path | Sequence[str],
    *,
    config: StoreConfig | None = None,
    topics: Sequence[str] = (),
    top: int = 20,
) -> Report:
    """The figures of stores as plain rows."""
    return report_on(spark, find_stores(store), config=config, topics=topics, top=top)


def report_on(
    spark: SparkSession, stores: Stores, *, config: StoreConfig | None, topics: Sequence[str], top: int
) -> Report:
    """The same for stores that were found before."""
    frames = _frames(spark, stores, config, topics, top)
    try:
        found = {name: _rows(spark, stores, frames, name) for name in _FIGURES}
    finally:
        frames.release()
    (totals,) = found.pop("totals")
    damage = find_damage(stores.logs)
    reason = None if damage is None else str(damage)
    return Report(", ".join(stores.paths), frames.step_ms, totals, **found, damage=reason)


def _rows(spark: SparkSession, stores: Stores, frames: Frames, name: str) -> list[dict[str, object]]:
    doing = f"report: {name.replace('_', ' ')} of {', '.join(stores.paths)}"
    with plain_errors("the report"), watched(spark, doing=doing):
        return [row.asDict() for row in getattr(frames, name).collect()]


def choose_step(span_ms: int) -> int:
    """A step of time that gives a readable number of steps; a second if the whole span is shorter.

    >>> choose_step(0), choose_step(3_000), choose_step(3_600_000)
    (1000, 100, 60000)
    """
    if span_ms < 1000:
        return 1000
    return next((step for step in STEPS_MS if span_ms // step < MOST_STEPS), STEPS_MS[-1])


def _figures() -> list[Column]:
    """Count, bytes, percentiles of size and of delay."""
    from pyspark.sql import functions as f

    delay = f.col("store_timestamp") - f.col("born_timestamp")
    figures = [f.count("*").alias("messages"), f.sum("size").alias("bytes"), f.avg("size").alias("mean_size")]
    for name, column in (("size", f.col("size")), ("delay_ms", delay)):
        figures += [
            f.percentile_approx(column, share, _ACCURACY).alias(f"{name}_p{round(share * 100)}")
            for share in PERCENTILES
        ]
        figures.append(f.max(column).alias(f"{name}_max"))
    return figures


def _over_time(messages: DataFrame, step_ms: int) -> DataFrame:
    from pyspark.sql import functions as f

    begin = (f.floor(f.col("store_timestamp") / step_ms) * step_ms).cast("bigint")
    rates = messages.groupBy(begin.alias("from_ms")).agg(f.count("*").alias("messages"), f.sum("size").alias("bytes"))
    return rates.withColumn("per_second", f.col("messages") * 1000 / step_ms).orderBy("from_ms")


def _sizes(messages: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    power = f.ceil(f.log2(f.greatest(f.col("size"), f.lit(1))))
    bound = f.pow(f.lit(2.0), power).cast("bigint").alias("up_to_bytes")
    return messages.groupBy(bound).agg(f.count("*").alias("messages")).orderBy("up_to_bytes")


def _queues(messages: DataFrame) -> DataFrame:
    """`skew` is how many times its fair share a queue has; 1 is even."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    counts = messages.groupBy("topic", "queue_id").agg(f.count("*").alias("messages"), f.sum("size").alias("bytes"))
    mean = f.avg("messages").over(Window.partitionBy("topic"))
    return counts.withColumn("skew", f.col("messages") / mean).orderBy(f.desc("skew"), "topic", "queue_id")


def _keys(messages: DataFrame, top: int) -> DataFrame:
    """`share` is of all messages of the topic."""
    from pyspark.sql import functions as f

    counts = messages.select("topic", f.explode("keys").alias("key")).groupBy("topic", "key").count()
    totals = messages.groupBy("topic").agg(f.count("*").alias("of"))
    shared = counts.join(totals, "topic").withColumn("share", f.col("count") / f.col("of"))
    found = shared.select("topic", "key", f.col("count").alias("messages"), "share")
    return found.orderBy(f.desc("messages"), "topic", "key").limit(top)


def group_rows(logs: Sequence[Log], config: StoreConfig | None) -> list[tuple[object, ...]]:
    """Offsets of consumer groups."""
    rows: list[tuple[object, ...]] = []
    for log in logs:
        paths, medium = store_of(log)
        try:
            files = look_at_queues(paths.root, config, medium)
        except DamagedStore:
            continue  # a log alone has no groups
        rows += [
            (each.group, each.topic, each.queue_id, each.offset, each.max_offset, each.lag)
            for each in group_offsets(files)
        ]
    return sorted(rows, key=lambda row: (-int(str(row[5])), *map(str, row[:3])))
