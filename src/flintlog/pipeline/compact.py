"""The job `compact`: the latest message of every key of each topic, as a new store or as a table.

    read     topic, key and place of every message; keep the latest place of each key      Spark's own aggregation
    group    the places by range of the log                                                8 bytes a key, no bodies
    tasks    read their range again, keep the rows at those places, write or stage them    table_write.py, sink.py
    driver   commit the files as one, or append the staged messages as one closed batch

Bodies never pass through a shuffle. The result appears as a whole or not at all: files of a killed run are not part of
it, and the next run into the same directory removes them.

A message's key is its KEYS as a whole, as in RocketMQ's own compaction. Of several stores the later store time wins.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from flintlog.derive.splits import SPLIT_BYTES
from flintlog.disk.places import local_path
from flintlog.errors import InvalidConfig
from flintlog.pipeline.jobs.compact_target import Part, StoreTarget, TableTarget, Target, Written
from flintlog.pipeline.jobs.selection import keys_by, of_topics, seen_by_consumers
from flintlog.pipeline.reading.known_topics import no_messages_of, topics_of
from flintlog.pipeline.reading.logs import Log, as_paths, find_end, find_logs, is_glob
from flintlog.pipeline.reading.partitions import LogSplit, plan
from flintlog.pipeline.reading.rows import BODY
from flintlog.pipeline.spark.failures import plain_errors
from flintlog.pipeline.spark.tasks import count_of, parallelism, run_on_rows
from flintlog.pipeline.sql import load_messages
from flintlog.pipeline.tables.parquet_table import version_for
from flintlog.store.runtime.jobs import Progress

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

LEAST_RANGE_BYTES: Final = 1024 * 1024
STORE: Final = "store"
_PLACE: Final = ("topic", "keys", "sys_flag", "physical_offset", "store_timestamp")

RangeKey = tuple[str, int]
"""A broker, and the number of a range of its log."""


@dataclass(frozen=True, slots=True)
class CompactOptions:
    """Which messages are kept. `key` is an SQL expression over the source's columns; without it, KEYS is the key."""

    topics: tuple[str, ...] | None = None
    key: str | None = None
    drop_tombstones: bool = False
    """Leave out keys whose latest message has an empty body."""

    keep_keyless: bool = False
    """Keep every message that has no key; otherwise all of them are left out."""

    fail_on_data_loss: bool = True
    config: str | None = None
    """A file with the new store's options."""

    split_bytes: int = SPLIT_BYTES


@dataclass(slots=True)
class CompactReport:
    """How many messages were read, and how many were kept."""

    into: str
    form: str
    messages: int = 0
    keyless: int = 0
    tombstones: int = 0
    """Keys that were left out because their latest message is empty."""

    rows: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class KeptRange:
    """The result of one range of a log."""

    key: RangeKey
    written: Written
    seen: int
    keyless: int
    tombstones: int


def compact(
    spark: SparkSession,
    store: str | Path | Sequence[str],
    into: str | Path,
    *,
    form: str = STORE,
    options: CompactOptions | None = None,
    progress: Progress | None = None,
) -> CompactReport:
    """Write the latest message of every key into a new store, or a new table of a form."""
    began = time.perf_counter()
    options = options or CompactOptions()
    root = local_path(into).absolute()
    paths = as_paths(store)
    logs = find_logs(paths, strict=options.fail_on_data_loss)
    target = _make_target(form, root, options, logs, with_broker=is_glob(paths))
    ends = {log.broker: find_end(log) for log in logs}
    total = sum(ends[log.broker] - log.first for log in logs)
    range_bytes = _range_bytes(total, options.split_bytes, parallelism(spark))
    splits = _plan_ranges(logs, ends, range_bytes)
    with plain_errors("the compaction"):
        places = _latest_places(spark, paths, ends, options)
        broker = None if is_glob(paths) else logs[0].broker
        ranges = _by_range(places, range_bytes, options.keep_keyless, broker).repartition(len(splits))
        with target.opened():
            task = RangeTask(target.part, splits, options.drop_tombstones)
            doing = f"compact: keep the latest of each key in {count_of(len(splits), 'range')} of {', '.join(paths)}"
            found = sorted(run_on_rows(ranges, task.keep, progress, doing=doing), key=lambda each: each.key)
            _check_any(found, options.topics, paths)
            rows = target.commit([each.written for each in found], ends)
    return CompactReport(
        str(into),
        form,
        messages=sum(each.seen for each in found),
        keyless=sum(each.keyless for each in found),
        tombstones=sum(each.tombstones for each in found),
        rows=rows,
        seconds=time.perf_counter() - began,
    )


def _check_any(found: Sequence[KeptRange], topics: tuple[str, ...] | None, paths: Sequence[str]) -> None:
    if topics is not None and not found:
        raise no_messages_of(topics, paths)


def _make_target(form: str, into: Path, options: CompactOptions, logs: Sequence[Log], *, with_broker: bool) -> Target:
    if form == STORE:
        return StoreTarget(into, options.config, options.fail_on_data_loss)
    if options.config is not None:
        raise InvalidConfig("a table takes no store's options", advice="leave the config out")
    version = version_for(form, topics_of(logs, options.topics))
    return TableTarget(form, into, version, options.topics, options.fail_on_data_loss, with_broker=with_broker)


# ---------------------------------------------------------------------- which messages stay


def _latest_places(
    spark: SparkSession, paths: tuple[str, ...], ends: Mapping[str, int], options: CompactOptions
) -> DataFrame:
    """A row for each key: where its latest message is, and how many there were.

    Messages without a key are one row, or a row each if they are kept.
    """
    from pyspark.sql import functions as f

    frame = _load(spark, paths, ends, options)
    order = ("store_timestamp", "physical_offset", "broker") if is_glob(paths) else ("physical_offset",)
    key = f.concat_ws(" ", keys_by(frame, options.key))
    rows = seen_by_consumers(of_topics(frame, options.topics)).withColumn("key", f.when(key != "", key))
    is_alone = f.col("key").isNull() & f.lit(options.keep_keyless)
    alone = f.when(is_alone, f.struct(*order)).alias("alone")
    latest, seen = f.max(f.struct(*order)).alias("latest"), f.count(f.lit(1)).alias("seen")
    return rows.groupBy("topic", "key", alone).agg(latest, seen).select("latest.*", "key", "seen")


def _load(spark: SparkSession, paths: tuple[str, ...], ends: Mapping[str, int], options: CompactOptions) -> DataFrame:
    asked = {
        "endingOffsets": json.dumps(dict(ends)),
        "failOnDataLoss": str(options.fail_on_data_loss).lower(),
        "decompress": str(options.key is not None).lower(),
        "timestamps": "millis",  # as in our tables; and each number has its place in the order
    }
    if options.topics is not None:
        asked["topics"] = json.dumps(list(options.topics))
    if options.key is None:
        asked["columns"] = ",".join([*_PLACE, "broker"] if is_glob(paths) else _PLACE)
    return load_messages(spark, paths, asked)


def _by_range(places: DataFrame, range_bytes: int, keep_keyless: bool, broker: str | None) -> DataFrame:
    """A row for each range of a log: the kept places in it, sorted, and the counts."""
    from pyspark.sql import functions as f

    whose = f.col("broker") if broker is None else f.lit(broker)
    number = f.floor(f.col("physical_offset") / range_bytes).cast("bigint")
    has_key = f.col("key").isNotNull()
    stays = f.when(has_key | f.lit(keep_keyless), f.col("physical_offset"))
    return places.groupBy(whose.alias("broker"), number.alias("number")).agg(
        f.sort_array(f.collect_list(stays)).alias("places"),
        f.sum("seen").alias("seen"),
        f.sum(f.when(has_key, 0).otherwise(f.col("seen"))).alias("keyless"),
    )


def _range_bytes(total: int, most: int, parallelism: int) -> int:
    """How much of a log one task reads: enough tasks for every core, but none too small.

    >>> _range_bytes(8 << 30, 256 << 20, 4) >> 20, _range_bytes(1000, 256 << 20, 4)
    (256, 1048576)
    """
    return max(LEAST_RANGE_BYTES, min(most, -(-total // (2 * parallelism))))


def _plan_ranges(logs: Sequence[Log], ends: Mapping[str, int], range_bytes: int) -> dict[RangeKey, list[LogSplit]]:
    """The splits of each range: a range may span files, a split may not."""
    return {
        (log.broker, number): plan(
            [(log, max(log.first, number * range_bytes), min(ends[log.broker], (number + 1) * range_bytes))],
            split_bytes=range_bytes,
            least_count=1,
        )
        for log in logs
        for number in range(log.first // range_bytes, ends[log.broker] // range_bytes + 1)
    }


# ---------------------------------------------------------------------- what tasks do


@dataclass(frozen=True, slots=True)
class RangeTask:
    """Reads a range again and passes the kept rows to the target."""

    part: Part
    splits: Mapping[RangeKey, Sequence[LogSplit]]
    drop_tombstones: bool

    def keep(self, row: Row) -> KeptRange:
        key, dropped = (row.broker, row.number), _Count()
        written = self.part.write_rows(self._rows(key, pa.array(row.places, pa.int64()), dropped))
        return KeptRange(key, written, row.seen, row.keyless, dropped.value)

    def _rows(self, key: RangeKey, places: pa.Array, dropped: _Count) -> Iterator[pa.RecordBatch]:
        if not len(places):
            return
        reading = self.part.reading()
        for planned in self.splits[key]:
            for batch in reading.read(planned):
                kept = batch.filter(pc.is_in(batch.column("physical_offset"), value_set=places))
                if self.drop_tombstones:
                    whole = kept.filter(pc.not_equal(pc.binary_length(kept.column(BODY)), 0))
                    dropped.value += kept.num_rows - whole.num_rows
                    kept = whole
                if kept.num_rows:
                    yield kept


@dataclass(slots=True)
class _Count:
    value: int = 0
