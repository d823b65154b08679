"""The job `replay`: puts the messages of a table or of a store into a store again, unchanged or changed.

    rows ─▶ chosen (topics, times, SQL) ─▶ in order ─▶ renamed, re-keyed, spread, shifted ─▶ the sink, one closed batch

A replay is put as a whole or not at all, and only once. It has a name, which is derived from its options unless one is
given, and the store keeps the names of the batches that it has closed. So a replay that was killed, or whose result was
lost, can be run again.

The store assigns new offsets and store times; `shift_ms` moves the time of birth.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from flintlog.disk.media.local import LocalMedium
from flintlog.disk.places import absolute, local_path
from flintlog.errors import InvalidConfig
from flintlog.format.properties import KEYS
from flintlog.format.sys_flag import COMPRESSED, COMPRESSION_MASK
from flintlog.pipeline.jobs.replay_source import Replayed, check_source, load_replayed
from flintlog.pipeline.jobs.selection import keys_by, milliseconds, of_topics, seen_by_consumers, stored_between, typed
from flintlog.pipeline.sink.sink import StagingArea, check_place
from flintlog.pipeline.sink.sink_options import parse_sink_options
from flintlog.pipeline.sink.sink_rows import KAFKA, TYPES
from flintlog.pipeline.spark.failures import plain_errors
from flintlog.pipeline.spark.new_directory import new_directory
from flintlog.pipeline.spark.tasks import watched
from flintlog.store.paths import StorePaths
from flintlog.store.recovery.batch_notes import parse_closed, parse_opened_start
from flintlog.store.runtime.jobs import Progress

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """Which messages are put, and what is changed. `where`, `key`, `body` and `order_by` are SQL over the rows."""

    topics: tuple[str, ...] | None = None
    where: str | None = None
    since_ms: int | None = None
    until_ms: int | None = None
    """Stored at or after, and before."""

    rename: Mapping[str, str] = field(default_factory=dict)
    """Topics that get another name."""

    key: str | None = None
    """The new key: a value, or an array of texts; without it a message keeps its keys."""

    body: str | None = None
    queues: int | None = None
    """Spread over so many queues by the first key."""

    shift_ms: int = 0
    order_by: str | None = None
    fail_on_data_loss: bool = True


@dataclass(slots=True)
class ReplayReport:
    """The figures of a replay."""

    source: str
    form: str
    store: str
    name: str
    rows: int = 0
    is_there_already: bool = False
    """Whether this replay was done before, and nothing was put now."""

    seconds: float = 0.0


def replay(
    spark: SparkSession,
    source: str | Path,
    store: str | Path,
    *,
    form: str | None = None,
    options: ReplayOptions | None = None,
    name: str | None = None,
    again: bool = False,
    config: str | None = None,
    progress: Progress | None = None,
) -> ReplayReport:
    """Put the messages of a table or store into a store, once; `again` repeats a replay that was done before."""
    began = time.perf_counter()
    options = options or ReplayOptions()
    origin, root = absolute(source), local_path(store).absolute()
    form = check_source(origin, form)
    report = ReplayReport(str(source), form, str(store), name or _name(origin, form, options))
    given = {"path": str(root), **({} if config is None else {"config": absolute(config)})}
    area = StagingArea(parse_sink_options(given, is_streaming=False), report.name)
    check_place(root)
    last = _last_batch(area)
    if last is not None and not again:
        report.is_there_already = True
        return report
    frame = messages_of(load_replayed(spark, origin, form, fail_on_data_loss=options.fail_on_data_loss), options)
    given |= {"writerId": report.name, "batchId": str(0 if last is None else last + 1)}
    with new_directory(root):
        report.rows = _put(spark, frame, given, progress, f"replay: put {origin} into {root}")
        if not report.rows:
            whose = "" if options.topics is None else f" of topic {' or '.join(options.topics)}"
            raise InvalidConfig(f"there are no messages{whose} to replay", path=origin)
    report.seconds = time.perf_counter() - began
    return report


def _put(spark: SparkSession, frame: DataFrame, given: Mapping[str, str], progress: Progress | None, doing: str) -> int:
    from pyspark.sql import Observation
    from pyspark.sql import functions as f

    seen = Observation()
    with plain_errors("the replay"), watched(spark, progress, doing=doing):
        writer = frame.observe(seen, f.count(f.lit(1)).alias("rows")).write.format("flintlog").mode("append")
        writer.options(**given).save()
        return int(seen.get["rows"])


def _name(source: str, form: str, options: ReplayOptions) -> str:
    """A name that is the same for the same source and options."""
    asked = msgspec.json.encode([source, form, options], order="sorted")
    return f"replay-{hashlib.sha256(asked).hexdigest()[:32]}"


def _last_batch(area: StagingArea) -> int | None:
    """The last closed batch of this name; a batch that a crash left open is closed or cut first."""
    medium, notes = LocalMedium(), StorePaths.of(area.root, None).batches
    if not medium.exists(notes):
        return None
    if parse_opened_start(medium.read(notes)) is not None:
        area.settle()
    return parse_closed(medium.read(notes)).get(area.whose)


# ---------------------------------------------------------------------- rows


def messages_of(replayed: Replayed, options: ReplayOptions) -> DataFrame:
    """The rows that are put, in their order, with the columns of a message."""
    with plain_errors("the replay"):
        frame = _chosen(replayed.frame, options)
        frame = _in_order(frame, replayed.order, options.order_by)
        return _changed(frame, options, are_bodies_plain=replayed.are_bodies_plain)


def _chosen(frame: DataFrame, options: ReplayOptions) -> DataFrame:
    if "topic" not in frame.columns:
        raise InvalidConfig("the rows have no column topic", advice=f"they have: {', '.join(frame.columns)}")
    frame = stored_between(seen_by_consumers(of_topics(frame, options.topics)), options.since_ms, options.until_ms)
    if options.where is None:
        return frame
    if typed(frame, "condition", options.where) != "boolean":
        raise InvalidConfig(f"the condition {options.where!r} is not true or false")
    return frame.where(options.where)


def _in_order(frame: DataFrame, order: tuple[str, ...], asked: str | None) -> DataFrame:
    from pyspark.sql import functions as f

    if asked is not None:
        typed(frame, "order", asked)
        return frame.orderBy(f.expr(asked), *order)
    return frame.orderBy(*order) if order else frame


def _changed(frame: DataFrame, options: ReplayOptions, *, are_bodies_plain: bool) -> DataFrame:
    from pyspark.sql import functions as f

    changed = {}
    if options.key is not None:
        changed["keys"] = keys_by(frame, options.key)
        if "properties" in frame.columns:
            changed["properties"] = f.map_filter("properties", lambda name, _value: name != KEYS)
    if options.body is not None:
        typed(frame, "body", options.body)
        changed["body"] = f.expr(options.body)
    if options.rename:
        changed["topic"] = _renamed(options.rename)
    if options.shift_ms:
        if "born_timestamp" not in frame.columns:
            raise InvalidConfig("these rows have no born_timestamp to shift")
        changed["born_timestamp"] = milliseconds(frame, "born_timestamp") + options.shift_ms
    if are_bodies_plain and "sys_flag" in frame.columns:
        changed["sys_flag"] = f.col("sys_flag").bitwiseAND(f.lit(~(COMPRESSED | COMPRESSION_MASK)))
    frame = _only_messages(frame.withColumns(changed) if changed else frame)
    return frame if options.queues is None else _spread(frame, options.queues)


def _renamed(names: Mapping[str, str]) -> Column:
    from pyspark.sql import functions as f

    topic = f.col("topic")
    for before, after in names.items():
        topic = f.when(f.col("topic") == before, f.lit(after)).otherwise(topic)
    return topic


def _only_messages(frame: DataFrame) -> DataFrame:
    """The columns that are part of a message; `value` only if it can be a body."""
    kinds = dict(frame.dtypes)
    columns = [name for name in frame.columns if name in TYPES]
    for name in KAFKA:
        if name in columns and (kinds[name] not in TYPES[name] or KAFKA[name] in columns):
            columns.remove(name)
    if "body" not in columns and "value" not in columns:
        raise InvalidConfig("the rows have no bodies", advice="say what they are, such as to_json(value)")
    return frame.select(*columns)


def _spread(frame: DataFrame, queues: int) -> DataFrame:
    """Put messages of one key into one queue; those without a key keep their queue, modulo the number of queues."""
    from pyspark.sql import functions as f

    kinds = dict(frame.dtypes)
    name = next((name for name in ("keys", "key") if name in kinds), None)
    key = f.lit(None) if name is None else f.col(name)[0] if kinds[name].startswith("array") else f.col(name)
    own = f.expr(next((name for name in ("queue_id", "partition") if name in kinds), "0"))
    by_key = f.pmod(f.hash(key), f.lit(queues))
    spread = f.when(key.isNotNull(), by_key).otherwise(f.pmod(f.coalesce(own, f.lit(0)), f.lit(queues)))
    return frame.drop("partition").withColumn("queue_id", spread.cast("int"))
