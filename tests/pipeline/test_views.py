"""Views of the source: derived files as rows, so that verification is a join."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

from flintlog import Message, open_store
from flintlog.errors import InvalidConfig
from flintlog.format.index_file import IndexLayout
from flintlog.format.names import CONSUME_QUEUE
from flintlog.pipeline.reading.options import VIEWS, check_kind, parse_source_options
from flintlog.pipeline.verify import findings_frame, verify
from flintlog.pipeline.views import view_rows
from flintlog.pipeline.views.view_rows import plan_shares, read_share, schema_of
from tests.pipeline.conftest import fill, small_config
from tests.pipeline.reading.test_source import own_rows, read

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ENTRY_BYTES = 20


def rows_of(view: str, store: Path) -> list[dict[str, object]]:
    """The rows of a view, without Spark."""
    schema = schema_of(view, with_broker=False, are_times_numbers=True)
    shares = plan_shares(view, "store", str(store))
    return [row for share in shares for batch in read_share(view, share, schema) for row in batch.to_pylist()]


def test_every_entry_of_every_queue_is_a_row(store: Path) -> None:
    found = {
        (row["topic"], row["queue_id"], row["queue_offset"], row["physical_offset"], row["size"], row["tags_code"])
        for row in rows_of("queue_entries", store)
    }
    assert found == {
        (row["topic"], row["queue_id"], row["queue_offset"], row["physical_offset"], row["size"], row["tags_code"])
        for row in own_rows(store)
    }
    names = {str(row["file"]) for row in rows_of("queue_entries", store)}
    assert names == {str(path.relative_to(store)) for path in (store / CONSUME_QUEUE).rglob("0*") if path.is_file()}


def test_queue_files_are_shared_among_tasks(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = rows_of("queue_entries", store)
    assert len(plan_shares("queue_entries", "store", str(store))) == 1
    monkeypatch.setattr(view_rows, "TASK_BYTES", 2000)
    assert len(plan_shares("queue_entries", "store", str(store))) > 2
    assert rows_of("queue_entries", store) == whole
    monkeypatch.setattr(view_rows, "TASK_FILES", 1)
    assert rows_of("queue_entries", store) == whole


def test_places_that_only_fill_a_queue_are_no_rows(tmp_path: Path) -> None:
    """Retention has deleted the first files; the queue built again from the log begins in the middle of one."""
    fill(tmp_path / "store")
    first = min((tmp_path / "store" / "commitlog").iterdir())
    first.unlink()
    for name in ("consumequeue", "index", "checkpoint"):
        path = tmp_path / "store" / name
        for each in sorted(path.rglob("*"), reverse=True) if path.is_dir() else [path]:
            each.unlink() if each.is_file() else each.rmdir()
    with open_store(tmp_path / "store", small_config()):
        pass
    kept = {row["physical_offset"] for row in own_rows(tmp_path / "store")}
    assert {row["physical_offset"] for row in rows_of("queue_entries", tmp_path / "store")} == kept


def test_a_batch_is_one_entry_of_a_batch_queue(tmp_path: Path) -> None:
    config = small_config(topic_queue_types={"batches": "BatchCQ"})
    with open_store(tmp_path, config) as store:
        store.put(Message("batches", b"many", sys_flag=0x80, properties={"INNER_NUM": "3"}))
    (row,) = rows_of("queue_entries", tmp_path)
    assert (row["topic"], row["queue_offset"], row["batch_size"]) == ("batches", 0, 3)


def test_every_key_is_a_row_of_the_index(store: Path) -> None:
    config = small_config()
    layout = IndexLayout(config.max_hash_slot_num, config.max_index_num)
    rows = rows_of("index", store)
    stored = {int(str(row["physical_offset"])): int(str(row["store_timestamp"])) for row in own_rows(store)}
    keys = Counter[object]()
    for message in own_rows(store):  # tags are indexed too
        assert isinstance(message["keys"], list)
        keys[message["physical_offset"]] += len(message["keys"]) + (message["tags"] is not None)
    assert Counter(row["physical_offset"] for row in rows) == +keys
    for row in rows:
        assert row["slot"] == layout.slot_of(int(str(row["key_hash"])))
        assert abs(int(str(row["time"])) - stored[int(str(row["physical_offset"]))]) < 1000, "seconds are kept"
    assert {Path(str(row["file"])).parent.name for row in rows} == {"index"}
    assert min(int(str(row["entry"])) for row in rows) == 1


def test_groups_and_their_lag(tmp_path: Path) -> None:
    fill(tmp_path / "store")
    with open_store(tmp_path / "store", small_config()) as store:
        store.consumer_offsets.commit("group-a", "orders", 1, 40)
    (row,) = rows_of("groups", tmp_path / "store")
    assert (row["group"], row["topic"], row["queue_id"], row["offset"], row["lag"]) == ("group-a", "orders", 1, 40, 60)


def test_files_of_the_directory(store: Path) -> None:
    found = {str(row["name"]): row for row in rows_of("files", store)}
    assert set(found) == {str(path.relative_to(store)) for path in store.rglob("*") if path.is_file()}
    log = found["commitlog/00000000000000065536"]
    assert (log["kind"], log["base"], log["size"]) == ("log", 65536, 65536)
    moment = datetime.fromtimestamp(int(str(log["modified"])) / 1000, UTC)
    assert abs((datetime.now(UTC) - moment).total_seconds()) < 86_400
    assert found["checkpoint"]["base"] is None


def test_verification_is_a_join_and_findings_are_those_of_verify(spark: SparkSession, tmp_path: Path) -> None:
    store = fill(tmp_path / "store")
    queue = next(path for path in sorted((store / CONSUME_QUEUE / "orders" / "0").iterdir()))
    with queue.open("r+b") as file:  # an entry that points elsewhere
        file.seek(3 * ENTRY_BYTES)
        file.write((12345).to_bytes(8, "big"))
    messages, entries = read(spark, store), read(spark, store, view="queue_entries")
    place = ["topic", "queue_id", "queue_offset", "physical_offset", "size", "tags_code"]
    lost = messages.join(entries, place, "left_anti").select("topic", "queue_id", "queue_offset").collect()
    astray = entries.join(messages, place, "left_anti").select("physical_offset", "file").collect()
    assert [tuple(row) for row in lost] == [("orders", 0, 3)]
    assert [tuple(row) for row in astray] == [(12345, str(queue.relative_to(store)))]
    findings = read(spark, store, view="findings")
    expected = findings_frame(spark, verify(spark, store).findings)
    assert findings.columns == expected.columns
    assert sorted(map(tuple, findings.collect()), key=str) == sorted(map(tuple, expected.collect()), key=str)
    assert findings.count() > 0


def test_views_of_several_stores_name_the_broker_and_times_are_timestamps(spark: SparkSession, tmp_path: Path) -> None:
    for name in ("a", "b"):
        fill(tmp_path / name / "store", 20)
    frame = read(spark, tmp_path / "*" / "store", view="index")
    assert dict(frame.dtypes)["time"] == "timestamp"
    assert dict(read(spark, tmp_path / "a" / "store", view="index", timestamps="millis").dtypes)["time"] == "bigint"
    assert {row.broker for row in frame.select("broker").distinct().collect()} == {"a", "b"}


def test_a_stream_of_a_view_is_one_error(spark: SparkSession, store: Path, tmp_path: Path) -> None:
    for view in VIEWS[1:]:
        with pytest.raises(InvalidConfig, match=f"the view {view} is not for streams"):
            check_kind(parse_source_options({"path": "/data/store", "view": view}), is_streaming=True)
    stream = spark.readStream.format("flintlog").option("view", "files").load(str(store))
    writer = stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path))
    with pytest.raises(PySparkException, match="the view files is not for streams"):
        writer.trigger(availableNow=True).start().awaitTermination()


def test_a_schema_of_one_s_own_is_refused(spark: SparkSession, store: Path) -> None:
    reader = spark.read.format("flintlog").option("view", "files").schema("name string")
    with pytest.raises(PySparkException, match="a schema does not choose columns of the view files"):
        reader.load(str(store)).collect()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"view": "queues"}, "option view = 'queues' (one of messages, queue_entries, index, groups, files, findings)"),
        ({"view": "files", "topics": "orders"}, "option topics has no effect on the view files"),
    ],
)
def test_a_wrong_view_is_one_error(options: dict[str, str], expected: str) -> None:
    with pytest.raises(InvalidConfig) as raised:
        parse_source_options({"path": "/data/store", **options})
    assert expected in str(raised.value)
    assert parse_source_options({"path": "/data/store", "view": "FILES"}).view == "files"
