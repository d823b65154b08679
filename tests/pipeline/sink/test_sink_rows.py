"""What becomes of rows before Spark comes in: columns, options, staging, retries."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from errno import ENOTEMPTY
from pathlib import Path

import pyarrow as pa
import pytest
from tests.pipeline.conftest import small_config

from flintlog import Message, open_store
from flintlog.errors import DamagedStore, InvalidConfig, InvalidMessage, StoreInUse
from flintlog.pipeline.reading.logs import find_end, find_logs
from flintlog.pipeline.sink.sink import StagedRows, StagingArea
from flintlog.pipeline.sink.sink_options import SinkOptions, parse_sink_options
from flintlog.pipeline.sink.sink_rows import RowMessages, check_columns
from flintlog.pipeline.sink.sink_staging import STALE_MS, clear_stale
from flintlog.store.options.store_config import StoreConfig

CONFIG = """
mappedFileSizeCommitLog = 65536
mappedFileSizeConsumeQueue = 1000
maxHashSlotNum = 100
maxIndexNum = 200
"""


@pytest.fixture
def area(tmp_path: Path) -> StagingArea:
    (tmp_path / "broker.conf").write_text(CONFIG)
    return StagingArea(SinkOptions(str(tmp_path / "store"), config=str(tmp_path / "broker.conf")), "w")


def rows(first: int, count: int) -> pa.RecordBatch:
    numbers = range(first, first + count)
    return pa.record_batch(
        {"topic": ["orders"] * count, "body": [f"b{n}" for n in numbers], "queue_id": [n % 2 for n in numbers]}
    )


def bodies(path: Path) -> dict[int, list[bytes]]:
    with open_store(path, small_config(), read_only=True) as store:
        return {number: [m.body for m in store.get("orders", number, 0, 1000).messages] for number in (0, 1)}


def staged_files(area: StagingArea) -> list[Path]:
    return [path for path in area.folder.parent.rglob("*") if path.is_file()]


# ---------------------------------------------------------------------- batches


def test_partitions_come_in_their_order_and_so_do_the_rows_of_each_queue(area: StagingArea) -> None:
    later, earlier = area.write(iter([rows(10, 10)])), area.write(iter([rows(0, 4), rows(4, 6)]))
    written = area.append([earlier, later], None, 0)
    assert written is not None
    assert written.message_count == 20
    assert bodies(area.root) == {q: [f"b{n}".encode() for n in range(20) if n % 2 == q] for q in (0, 1)}
    assert not staged_files(area)


def test_a_task_that_is_tried_again_or_run_twice_writes_once(area: StagingArea) -> None:
    def dies_in_the_middle() -> Iterator[pa.RecordBatch]:
        yield rows(0, 5)
        raise OSError("the executor is gone")

    with pytest.raises(OSError, match="gone"):
        area.write(dies_in_the_middle())
    speculative = area.write(iter([rows(0, 5)]))
    taken = area.write(iter([rows(0, 5)]))
    assert speculative.names != taken.names
    area.append([taken, None], "query", 0)
    assert sum(map(len, bodies(area.root).values())) == 5
    assert not staged_files(area)


def test_a_batch_id_that_comes_again_is_skipped(area: StagingArea) -> None:
    assert area.append([area.write(iter([rows(0, 5)]))], "query", 4) is not None
    assert area.append([area.write(iter([rows(0, 5)]))], "query", 4) is None
    assert area.append([area.write(iter([rows(5, 5)]))], "query", 5) is not None
    assert sum(map(len, bodies(area.root).values())) == 10


def test_a_batch_without_rows_does_not_even_make_a_store(area: StagingArea) -> None:
    assert area.append([area.write(iter([]))], "query", 0) is None
    assert not (area.root / "commitlog").exists()


def test_a_batch_that_fails_in_the_driver_leaves_nothing(area: StagingArea) -> None:
    area.append([area.write(iter([rows(0, 5)]))], "query", 0)
    good = area.write(iter([rows(5, 5)]))
    with pytest.raises(Exception, match="missing-000000"):
        area.append([good, StagedRows(("missing-000000",), 1)], "query", 1)
    with open_store(area.root, small_config()) as store:
        assert store.recovery.clean
    assert sum(map(len, bodies(area.root).values())) == 5
    assert area.append([area.write(iter([rows(5, 5)]))], "query", 1) is not None


def test_the_source_stops_before_a_batch_that_is_being_written(area: StagingArea) -> None:
    ends = []

    def while_they_come() -> Iterator[Message]:
        for number in range(50):
            yield Message("orders", b"x" * number)
            ends.append(find_end(find_logs((str(area.root),))[0]))

    with open_store(area.root, small_config()) as store:
        store.put(Message("orders", b"before")).check()
        end = store.max_physical_offset
        store.put_closed(while_they_come())
        assert set(ends) == {end}
        assert find_end(find_logs((str(area.root),))[0]) == store.max_physical_offset


def test_a_running_store_is_not_written_beside(area: StagingArea) -> None:
    part = area.write(iter([rows(0, 1)]))
    with open_store(area.root, small_config()), pytest.raises(StoreInUse):
        area.append([part], None, 0)


def test_sizes_are_read_off_the_files_that_are_there(tmp_path: Path) -> None:
    config = small_config(max_hash_slot_num=StoreConfig().max_hash_slot_num, max_index_num=StoreConfig().max_index_num)
    with open_store(tmp_path, config) as store:
        store.put(Message("orders", b"first")).check()
    area = StagingArea(SinkOptions(str(tmp_path), topic="orders"), "w")
    area.append([area.write(iter([pa.record_batch({"body": [b"second"]})]))], None, 0)
    with open_store(tmp_path, config) as store:
        assert [m.body for m in store.get("orders", 0, 0).messages] == [b"first", b"second"]


# ---------------------------------------------------------------------- rows


def test_every_column_finds_its_place() -> None:
    batch = pa.RecordBatch.from_pylist(
        [
            {
                "topic": "orders",
                "body": b"42",
                "tags": "paid",
                "keys": ["a", "b"],
                "queue_id": 3,
                "properties": [("k", "v"), ("TAGS", "old"), ("KEYS", "old")],
                "flag": 5,
                "sys_flag": 0x30 | 0x301,
                "reconsume_times": 2,
                "born_timestamp": 1234,
                "born_host": "10.0.0.1:5",
                "physical_offset": 99,
            }
        ],
        schema=pa.schema(
            [
                *(
                    ("topic", pa.string()),
                    ("body", pa.binary()),
                    ("tags", pa.string()),
                    ("keys", pa.list_(pa.string())),
                ),
                *(("queue_id", pa.int32()), ("properties", pa.map_(pa.string(), pa.string())), ("flag", pa.int32())),
                *(("sys_flag", pa.int32()), ("reconsume_times", pa.int32()), ("born_timestamp", pa.int64())),
                *(("born_host", pa.string()), ("physical_offset", pa.int64())),
            ]
        ),
    )
    (staged,) = RowMessages(None, 1 << 20).of(batch)
    assert staged.message() == Message(
        "orders",
        b"42",
        tags="paid",
        keys=["a", "b"],
        queue_id=3,
        properties={"k": "v"},
        flag=5,
        sys_flag=0x301,
        reconsume_times=2,
        born_timestamp=1234,
        born_host="10.0.0.1:5",
    )


def test_kafkas_names_do() -> None:
    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    batch = pa.record_batch(
        {
            "key": pa.array([b"k", None], pa.binary()),
            "value": pa.array([b"one", b"two"]),
            "partition": pa.array([1, None], pa.int32()),
            "headers": pa.array([[{"key": "h", "value": b"x"}], None], pa.list_(header)),
        }
    )
    first, second = RowMessages("orders", 1 << 20).of(batch)
    assert (first.topic, first.body, first.keys, first.queue_id) == ("orders", b"one", ["k"], 1)
    assert first.properties == {"h": "x"}
    assert (second.keys, second.queue_id, second.properties) == ([], 0, None)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"topic": "orders", "body": None}, "no body"),
        ({"topic": None, "body": b"x"}, "topic"),
        ({"topic": "no/topic", "body": b"x"}, "topic"),
        ({"topic": "orders", "body": b"x" * 2000}, "at most"),
        ({"topic": "orders", "body": b"x", "queue_id": -1}, "queue"),
        ({"topic": "orders", "body": b"x", "tags": "a\x01b"}, "0x01"),
    ],
    ids=["no body", "no topic", "a bad topic", "too long", "a bad queue", "bad tags"],
)
def test_what_no_store_takes_fails_in_the_task(row: dict[str, object], said: str) -> None:
    batch = pa.RecordBatch.from_pylist([row])
    with pytest.raises(InvalidMessage, match=said):
        list(RowMessages(None, 1000).of(batch))


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"topic": "string", "boddy": "binary"}, "boddy.*body"),
        ({"topic": "string"}, "no column body"),
        ({"body": "binary"}, "no column topic.*option topic"),
        ({"topic": "string", "body": "double"}, "column body is double"),
        ({"topic": "string", "body": "binary", "value": "binary"}, "value and body"),
        ({"topic": "string", "body": "binary", "queue_id": "string"}, "queue_id is string"),
    ],
    ids=str,
)
def test_columns_that_cannot_be_messages_are_named(columns: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidConfig, match=said):
        check_columns(columns, has_topic=False)


def test_what_spark_itself_adds_to_the_options_is_passed_over() -> None:
    given = {"path": "/x", "queryName": "mine", "checkpointLocation": "/c", "outputMode": "append"}
    assert parse_sink_options(given, is_streaming=True).checkpoint == "/c"


@pytest.mark.parametrize(
    ("options", "is_streaming", "said"),
    [
        ({}, False, "path"),
        ({"path": "s3://bucket/store"}, False, "s3://bucket/store is a URI"),
        ({"path": "/x", "writter": "a"}, False, "writter.*writerId"),
        ({"path": "/x", "writerId": "a"}, False, "writerId and batchId"),
        ({"path": "/x", "writerId": "a", "batchId": "-1"}, False, "batchId"),
        ({"path": "/x", "topic": "no/topic"}, False, "option topic"),
        ({"path": "/x", "config": "/no/such.conf"}, False, "option config"),
        ({"path": "/x"}, True, "checkpointLocation"),
        ({"path": "/x", "writerId": "a", "batchId": "1"}, True, "batchId"),
    ],
    ids=str,
)
def test_options_that_cannot_be_are_named(options: dict[str, str], is_streaming: bool, said: str) -> None:
    with pytest.raises(InvalidConfig, match=said):
        parse_sink_options(options, is_streaming=is_streaming)


# ---------------------------------------------------------------------- what stays behind


def write_late(monkeypatch: pytest.MonkeyPatch, times: int) -> list[Path]:
    """An attempt that lost writes a file into each directory while it is being removed, so many times."""
    seen: list[Path] = []
    remove = shutil.rmtree

    def beside_a_writer(path: Path) -> None:
        remove(path)
        if len(seen) < times:
            seen.append(path)
            path.mkdir(parents=True)
            (path / "late").write_bytes(b"late")
            raise OSError(ENOTEMPTY, "Directory not empty", str(path))

    monkeypatch.setattr(shutil, "rmtree", beside_a_writer)
    return seen


@pytest.mark.parametrize("times", [1, 100])
def test_an_attempt_that_still_writes_does_not_fail_a_batch_that_is_in_the_store(
    area: StagingArea, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    part = area.write(iter([rows(0, 4)]))
    seen = write_late(monkeypatch, times)
    written = area.append([part], "w", 0)
    assert seen
    assert written is not None
    assert written.message_count == 4
    assert bool(staged_files(area)) == (times > 1)
    monkeypatch.undo()
    again = area.append([area.write(iter([rows(4, 2)]))], "w", 1)
    assert again is not None
    assert not staged_files(area)


def test_a_flipped_bit_in_what_was_staged_stores_nothing(area: StagingArea) -> None:
    written = area.write(iter([rows(0, 4)]))
    (file,) = staged_files(area)
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    with pytest.raises(DamagedStore, match="staged"):
        area.append([written], None, 0)
    with open_store(area.root, area._config()) as store:
        assert store.max_physical_offset == 0


def test_staged_files_of_a_killed_driver_are_deleted_after_a_day(area: StagingArea) -> None:
    left = StagingArea(area.asked, "killed")
    left.write(iter([rows(0, 4)]))
    area.append([area.write(iter([rows(0, 4)]))], None, 0)
    assert staged_files(left)  # it may still be at work
    now_ms = time.time_ns() // 1_000_000
    clear_stale(left.folder.parent, now_ms + STALE_MS - 60_000)
    assert staged_files(left)
    clear_stale(left.folder.parent, now_ms + STALE_MS + 60_000)
    assert not left.folder.exists()


def test_a_batch_takes_away_what_has_been_staged_for_more_than_a_day(area: StagingArea) -> None:
    left = StagingArea(area.asked, "killed")
    left.write(iter([rows(0, 4)]))
    long_ago = time.time() - 2 * STALE_MS / 1000
    for path in (*left.folder.iterdir(), left.folder):
        os.utime(path, (long_ago, long_ago))
    area.append([area.write(iter([rows(0, 4)]))], None, 0)
    assert not left.folder.exists()
