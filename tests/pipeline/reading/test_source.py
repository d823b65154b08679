"""The source: rows are what the store itself reads, whatever way they are split, and bad input is one sentence."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql.types import ArrayType, MapType, StringType
from tests.pipeline.conftest import COUNT, SEGMENT_BYTES, fill, small_config

from flintlog import Message, StoreConfig, open_store
from flintlog.format.record import SCHEDULE_TOPIC
from flintlog.maintenance.inspect.store_files import look_at
from flintlog.pipeline.reading.logs import find_end, find_logs
from flintlog.pipeline.reading.options import parse_source_options
from flintlog.pipeline.reading.partitions import plan
from flintlog.pipeline.reading.reading import Reading
from flintlog.pipeline.reading.rows import RowShape
from flintlog.pipeline.source import BatchReader
from flintlog.testing import FakeClock

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession


def read(spark: SparkSession, path: Path | str, **options: object) -> DataFrame:
    reader = spark.read.format("flintlog")
    for name, value in options.items():
        reader = reader.option(name, str(value))
    return reader.load(str(path))


def plain(row: Row) -> dict[str, object]:
    found = row.asDict()
    if found.get("body") is not None:
        found["body"] = bytes(found["body"])
    return found


def own_rows(path: Path) -> list[dict[str, object]]:
    with open_store(path, small_config(), read_only=True) as store:
        rows = pa.Table.from_batches(store.scan()).to_pylist()
    return [{**row, "properties": dict(row["properties"])} for row in rows]


def test_every_field_of_every_record_is_a_row_whatever_the_splits(spark: SparkSession, store: Path) -> None:
    frame = read(spark, store, splitBytes="1m", minPartitions=7, timestamps="millis").orderBy("physical_offset")
    assert [plain(row) for row in frame.collect()] == own_rows(store)
    assert read(spark, store).columns == list(own_rows(store)[0])


def test_columns_that_are_never_null_are_declared_to_spark(spark: SparkSession, store: Path) -> None:
    frame = read(spark, store)
    times = {"born_timestamp", "store_timestamp"}
    assert {field.name for field in frame.schema if field.nullable} == {"tags", "uniq_key", "body"} | times
    numbers = read(spark, store, timestamps="millis").schema
    assert {field.name for field in numbers if field.nullable} == {"tags", "uniq_key", "body"}
    assert frame.schema["keys"].dataType == ArrayType(StringType(), containsNull=False)
    assert frame.schema["properties"].dataType == MapType(StringType(), StringType(), valueContainsNull=False)
    kafka = read(spark, store, schema="kafka").schema
    assert {field.name for field in kafka if field.nullable} == {"key", "value", "timestamp"}
    rows = own_rows(store)
    assert any(row["tags"] is None for row in rows) and any(row["uniq_key"] is None for row in rows)


def test_ranges_of_offsets_meet_without_gap_or_overlap(spark: SparkSession, store: Path) -> None:
    cut = SEGMENT_BYTES + 12_345
    first = read(spark, store, endingOffsets=cut, includeBody="false").select("physical_offset").collect()
    second = read(spark, store, startingOffsets=json.dumps({"store": cut}), includeBody="false")
    found = sorted(row[0] for row in [*first, *second.select("physical_offset").collect()])
    assert found == [row["physical_offset"] for row in own_rows(store)]
    assert "body" not in second.columns


def test_only_the_columns_asked_for_leave_the_file(spark: SparkSession, store: Path) -> None:
    frame = read(spark, store, columns="size, topic")
    assert frame.columns == ["topic", "size"]
    assert sorted(tuple(row) for row in frame.collect()) == sorted(
        (row["topic"], row["size"]) for row in own_rows(store)
    )
    assert read(spark, store, columns="key,value", schema="kafka").dtypes == [("key", "binary"), ("value", "binary")]


def test_topics_and_time_choose_rows(spark: SparkSession, store: Path) -> None:
    rows = own_rows(store)
    middle = sorted(int(str(row["store_timestamp"])) for row in rows)[len(rows) // 2]
    frame = read(spark, store, topics="payments", startingTimestamp=middle)
    expected = [row for row in rows if row["topic"] == "payments" and int(str(row["store_timestamp"])) >= middle]
    assert frame.count() == len(expected)
    before = read(spark, store, topicPattern="pay.*", endingTimestamp=middle, columns="store_timestamp")
    earlier = [row for row in rows if row["topic"] == "payments" and int(str(row["store_timestamp"])) < middle]
    assert before.count() == len(earlier)
    keyed = read(spark, store, keys="k57,k58,k-none", columns="keys").collect()
    assert sorted(row["keys"] for row in keyed) == [["k57", "all"], ["k58", "all"]]


def test_a_schema_chooses_columns_and_their_order(spark: SparkSession, store: Path) -> None:
    frame = spark.read.format("flintlog").schema("body binary, topic string, keys array<string>").load(str(store))
    assert frame.columns == ["body", "topic", "keys"]
    expected = [(row["body"], row["topic"], row["keys"]) for row in own_rows(store)]
    assert [(bytes(row.body), row.topic, row["keys"]) for row in frame.collect()] == expected
    kafka = spark.read.format("flintlog").option("schema", "kafka").schema("offset bigint, key binary").load(str(store))
    assert {row.offset for row in kafka.collect()} == {row["queue_offset"] for row in own_rows(store)}


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ("topic string, tipoc string", "the schema names 'tipoc', which is no column (there are: topic, queue_id"),
        ("topic binary", "the schema says that topic is binary (it is string)"),
    ],
)
def test_a_schema_with_other_columns_is_refused(spark: SparkSession, store: Path, schema: str, expected: str) -> None:
    with pytest.raises(PySparkException) as caught:
        spark.read.format("flintlog").schema(schema).load(str(store)).collect()
    assert expected in str(caught.value)


def left_to_spark(frame: DataFrame) -> set[str]:
    """The columns of the conditions that Spark applies itself."""
    plan = frame._jdf.queryExecution().optimizedPlan().toString()
    return set(re.findall(r"(\w+)#\d+L? [=<>]", plan))


FILTERS = (
    "topic = 'payments'",
    "topic in ('payments', 'nothing') and queue_id = 1 and queue_offset between 5 and 20",
    "topic like 'ord%' and body is not null",
    "uniq_key = 'none' or topic = 'orders'",
    "physical_offset > 60000 and store_timestamp > timestamp_millis(1)",
    "store_timestamp >= timestamp_millis({middle}) and topic = 'orders'",
)


def test_filters_choose_the_same_rows_with_push_down_on_and_off(spark: SparkSession, store: Path) -> None:
    setting = "spark.sql.python.filterPushdown.enabled"
    middle = sorted(int(str(row["store_timestamp"])) for row in own_rows(store))[COUNT // 2]
    assert spark.conf.get(setting) == "true"
    try:
        for condition in FILTERS:
            found = []
            for is_on in ("true", "false"):
                spark.conf.set(setting, is_on)
                frame = (
                    read(spark, store).where(condition.format(middle=middle)).select("physical_offset", "topic", "body")
                )
                found.append([tuple(row) for row in frame.orderBy("physical_offset").collect()])
            assert found[0] == found[1] and found[0], condition
        spark.conf.set(setting, "true")
        assert left_to_spark(read(spark, store).where("topic = 'payments' and tags = 'paid'")) == {"tags"}
        assert left_to_spark(read(spark, store, pushdown="false").where("topic = 'payments'")) == {"topic"}
    finally:
        spark.conf.set(setting, "true")


def test_bodies_are_unpacked_when_asked(spark: SparkSession, store: Path) -> None:
    query = "select body from {frame} where properties['number'] = '57'"
    (stored,) = spark.sql(query, frame=read(spark, store)).collect()
    (plain_body,) = spark.sql(query, frame=read(spark, store, decompress="true")).collect()
    assert bytes(plain_body[0]) == b"body 57 " * 57
    assert bytes(stored[0]) != bytes(plain_body[0])


def test_the_kafka_schema_has_kafkas_names_and_types(spark: SparkSession, store: Path) -> None:
    frame = read(spark, store, schema="kafka", verifyCrc="true")
    assert frame.dtypes == [
        ("key", "binary"),
        ("value", "binary"),
        ("topic", "string"),
        ("partition", "int"),
        ("offset", "bigint"),
        ("timestamp", "timestamp"),
        ("timestampType", "int"),
        ("headers", "array<struct<key:string,value:binary>>"),
    ]
    rows = {(row.topic, row.partition, row.offset): row for row in frame.collect()}
    assert len(rows) == COUNT
    for expected in own_rows(store):
        row = rows[expected["topic"], expected["queue_id"], expected["queue_offset"]]
        keys = expected["keys"]
        assert isinstance(keys, list)
        assert (None if row.key is None else row.key.decode()) == (keys[0] if keys else None)
        assert bytes(row.value) == expected["body"]
        assert round(row.timestamp.timestamp() * 1000) == expected["store_timestamp"]
        assert row.timestampType == 1
        assert {header.key: header.value.decode() for header in row.headers} == expected["properties"]


def test_a_glob_reads_all_stores_and_names_their_brokers(spark: SparkSession, tmp_path: Path) -> None:
    for broker, count in (("a", 5), ("b", 7)):
        fill(tmp_path / f"broker-{broker}" / "store", count)
    (tmp_path / "broker-c").mkdir()
    frame = read(spark, tmp_path / "broker-*" / "store")
    assert frame.columns[0] == "broker"
    counts = {row.broker: row["count"] for row in frame.groupBy("broker").count().collect()}
    assert counts == {"broker-a": 5, "broker-b": 7}
    paths = [str(tmp_path / f"broker-{name}" / "store") for name in "ab"]
    assert spark.read.format("flintlog").load(paths).count() == 12


def test_a_store_that_runs_is_read_beside_its_writer(spark: SparkSession, tmp_path: Path) -> None:
    fill(tmp_path / "store", 10)
    with open_store(tmp_path / "store", small_config()) as running:
        running.put_batch([Message("orders", b"x" * number) for number in range(20)])
        assert read(spark, tmp_path / "store").count() == 30


def complaint(spark: SparkSession, path: Path, **options: object) -> str:
    with pytest.raises(PySparkException) as caught:
        read(spark, path, **options).collect()
    return str(caught.value)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"startingOfsets": "earliest"}, "there is no option startingofsets (did you mean startingOffsets?)"),
        ({"includeBody": "maybe"}, "option includeBody = 'maybe' (true or false)"),
        ({"splitBytes": "12 parsecs"}, "option splitBytes = '12 parsecs' (a number of bytes"),
        ({"startingOffsets": "{"}, "option startingOffsets = '{' (earliest, latest, a physical offset"),
        ({"startingOffsets": '{"x": 1}'}, "option startingOffsets names 'x', which is none of the stores"),
        ({"columns": "topic,tipoc"}, "option columns names 'tipoc', which is no column"),
        ({"topics": "orders", "topicPattern": "o.*"}, "options topics and topicPattern exclude each other"),
        ({"topicPattern": "("}, "option topicPattern = '(' (no regular expression"),
        ({"minBytesPerTrigger": "1m"}, "option minBytesPerTrigger is for streams"),
        ({"schema": "avro"}, "option schema = 'avro' (record or kafka)"),
        ({"minPartitions": "0"}, "option minPartitions = '0' (a whole number above 0)"),
        (
            {"startingOffsets": "300", "endingOffsets": "100"},
            "option startingOffsets = 300 is after endingOffsets = 100",
        ),
    ],
)
def test_a_wrong_option_is_one_sentence_that_names_it(
    spark: SparkSession, store: Path, options: dict[str, str], expected: str
) -> None:
    with pytest.raises(PySparkException) as caught:
        read(spark, store, **options).collect()
    assert expected in str(caught.value)
    assert "Traceback" not in str(caught.value) and "\tat " not in str(caught.value)


def test_a_missing_path_is_named(spark: SparkSession, tmp_path: Path) -> None:
    assert f"there is no store here [{tmp_path / 'nowhere'}]" in complaint(spark, tmp_path / "nowhere")
    assert "there is no store here" in complaint(spark, tmp_path / "*" / "store")


def test_a_topic_that_is_not_there_is_named_and_a_filter_finds_nothing(spark: SparkSession, store: Path) -> None:
    said = complaint(spark, store, topics="orders,oders")
    assert "there are no messages of topic oders" in said
    assert "did you mean orders?" in said
    assert read(spark, store, topics="oders", failOnDataLoss="false").count() == 0
    assert read(spark, store).where("topic = 'oders'").count() == 0


def test_a_truncated_segment_is_named_and_what_is_there_is_read_when_asked(
    spark: SparkSession, store: Path, tmp_path: Path
) -> None:
    copy = shutil.copytree(store, tmp_path / "copy")
    second = sorted((copy / "commitlog").iterdir())[1]
    with second.open("r+b") as file:
        file.truncate(SEGMENT_BYTES // 2)
    assert f"{SEGMENT_BYTES // 2} bytes, the others have {SEGMENT_BYTES} [{second}]" in complaint(spark, copy)
    left = read(spark, copy, failOnDataLoss="false").count()
    assert 0 < left < COUNT


def test_damage_is_an_error_with_its_place_or_stepped_over(spark: SparkSession, store: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(store, tmp_path / "copy")
    victim = own_rows(store)[40]
    place = int(str(victim["physical_offset"]))
    first = min((copy / "commitlog").iterdir())
    with first.open("r+b") as file:
        file.seek(place)
        file.write(bytes(8))
    assert f"[{first}] at {place}" in complaint(spark, copy)
    assert read(spark, copy, failOnDataLoss="false").count() == COUNT - 1
    with first.open("r+b") as file:  # its header is right again, its body is not
        file.seek(place)
        file.write(
            int(str(victim["size"])).to_bytes(4, "big") + int(str(victim["magic"])).to_bytes(4, "big", signed=True)
        )
        file.seek(place + 90)
        file.write(b"?")
    assert read(spark, copy).count() == COUNT
    assert "a body does not match its CRC" in complaint(spark, copy, verifyCrc="true")
    assert read(spark, copy, verifyCrc="true", failOnDataLoss="false").count() == COUNT - 1


def test_a_log_whose_beginning_was_deleted_is_no_surprise(spark: SparkSession, store: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(store, tmp_path / "copy")
    min((copy / "commitlog").iterdir()).unlink()
    rows = [row for row in own_rows(store) if int(str(row["physical_offset"])) >= SEGMENT_BYTES]
    assert read(spark, copy).count() == len(rows)
    assert "failOnDataLoss=false" in complaint(spark, copy, startingOffsets=0)
    assert read(spark, copy, startingOffsets=0, failOnDataLoss="false").count() == len(rows)


@pytest.mark.parametrize("scheme", ["file", "local", "fsspec+local"])
def test_a_store_is_read_by_a_uri(spark: SparkSession, store: Path, scheme: str) -> None:
    """Mapped, by pyarrow's own file system, and by fsspec's: ranges are fetched where nothing can be mapped."""
    uri = f"{scheme}://{store}"
    frame = read(spark, uri, minPartitions=3, verifyCrc="true", timestamps="millis").orderBy("physical_offset")
    assert [plain(row) for row in frame.collect()] == own_rows(store)
    glob = read(spark, f"{scheme}://{store.parent}/st*re", includeBody="false", timestamps="millis")
    assert {row.broker for row in glob.select("broker").distinct().collect()} == {"store"}
    with pytest.raises(PySparkException, match="there is no store here"):
        read(spark, f"{uri}-nowhere", timestamps="millis").collect()


def test_a_store_in_memory_is_read_in_ranges(store: Path) -> None:
    memory = pytest.importorskip("fsspec").filesystem("memory")
    memory.put(str(store), "/bucket/broker-a", recursive=True)
    asked = parse_source_options({"path": "memory://bucket/broker-*", "splitBytes": "20k"})
    batches = BatchReader(asked, RowShape(with_broker=True))
    rows = [row for each in batches.partitions() for batch in batches.read(each) for row in batch.to_pylist()]
    assert {row["broker"] for row in rows} == {"broker-a"}
    assert [row["physical_offset"] for row in rows] == [row["physical_offset"] for row in own_rows(store)]
    memory.rm("/bucket", recursive=True)


@pytest.mark.parametrize("case", ["broker", "mixed"])
def test_a_ledgers_data_files_are_read_like_a_plain_log(
    spark: SparkSession, golden: Callable[[str], Path], case: str
) -> None:
    root = golden("ledger") / case / "store"
    with open_store(root, read_only=True, config=found_config(root)) as store:
        rows = pa.Table.from_batches(store.scan()).to_pylist()
    frame = read(spark, root, minPartitions=5, timestamps="millis").orderBy("physical_offset")
    assert [plain(row) for row in frame.collect()] == [{**row, "properties": dict(row["properties"])} for row in rows]
    assert len(rows) > 400


def found_config(root: Path) -> StoreConfig:
    """What the files of a store tell about their sizes."""
    return look_at(root).config


LEVELS = small_config(message_delay_level="7s 2h 3d", services={"schedule"})


def put_delayed(root: Path, config: StoreConfig, level: int, count: int = 3) -> None:
    with open_store(root, config, clock=FakeClock()) as opened:
        for _ in range(count):
            opened.put(Message("orders", b"x", delay_level=level)).check()


def delays(root: Path) -> list[int]:
    """How long the waiting messages wait, by the rows of the source; -1 for a tags code of 0."""
    (log,) = find_logs((str(root),))
    planned = plan([(log, log.first, find_end(log))], split_bytes=1 << 20, least_count=1)
    rows = [row for each in planned for batch in Reading(RowShape()).read(each) for row in batch.to_pylist()]
    waiting = [row for row in rows if row["topic"] == SCHEDULE_TOPIC]
    return [row["tags_code"] - row["store_timestamp"] if row["tags_code"] else -1 for row in waiting]


@pytest.mark.parametrize("has_note", [True, False])
def test_delivery_times_are_those_of_the_stores_own_levels(tmp_path: Path, has_note: bool) -> None:
    put_delayed(tmp_path, LEVELS, 1)
    put_delayed(tmp_path, LEVELS, 3)
    if not has_note:
        (tmp_path / "flintlog" / "options.json").unlink()
    assert delays(tmp_path) == [7_000] * 3 + [3 * 86_400_000] * 3


def test_a_level_that_was_changed_or_never_noted_has_no_delivery_time(tmp_path: Path) -> None:
    put_delayed(tmp_path, LEVELS, 1)
    put_delayed(tmp_path, LEVELS.with_changes(message_delay_level="9s 9s 9s"), 1)
    put_delayed(tmp_path, LEVELS, 2)
    assert delays(tmp_path) == [-1] * 6 + [7_200_000] * 3
    (tmp_path / "flintlog" / "options.json").unlink()
    shutil.rmtree(tmp_path / "consumequeue")
    assert delays(tmp_path) == [-1] * 9


def test_a_delivery_time_of_ones_own_levels_is_read_by_spark(spark: SparkSession, tmp_path: Path) -> None:
    put_delayed(tmp_path, LEVELS, 2)
    rows = read(spark, tmp_path, timestamps="millis").select("tags_code", "store_timestamp").collect()
    assert [row.tags_code - row.store_timestamp for row in rows] == [7_200_000] * 3
