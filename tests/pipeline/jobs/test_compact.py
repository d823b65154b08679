"""Compaction: the latest message of every key and topic, whole or not at all."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pyarrow as pa
import pytest
from tests.pipeline.conftest import small_config
from tests.pipeline.jobs.test_export import rows_of
from tests.pipeline.sink.test_sink_rows import CONFIG

from flintlog import Message, open_store
from flintlog.cli.main import run
from flintlog.errors import DamagedStore, InvalidConfig
from flintlog.pipeline.compact import CompactOptions, compact
from flintlog.pipeline.export import export
from flintlog.pipeline.sink import sink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEYS = 7
OF_ORDERS = CompactOptions(topics=("orders",))


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two topics of the same keys, some messages without one, a key of two words, a deleted key, what waits."""
    path = tmp_path_factory.mktemp("compact") / "store"
    with open_store(path, small_config()) as store:
        for number in range(400):
            topic = "orders" if number % 2 else "payments"
            keys = [f"k{number % KEYS}"] if number % 10 else []
            packed = "zlib" if number % 9 == 0 else None
            body = f"{topic} {number} ".encode() * (number % 40)
            store.put(Message(topic, body or b"-", keys=keys, queue_id=number % 3, tags="t", compress=packed))
        store.put(Message("orders", b"two words", keys=["k1", "k2"]))
        store.put(Message("orders", b"", keys=["k3"]))
        store.put(Message("SCHEDULE_TOPIC_XXXX", b"waits", keys=["k1"]))
        store.put_closed([Message("payments", b"of a batch", keys=["k5"])])
    return path


@pytest.fixture
def options(tmp_path: Path) -> CompactOptions:
    (tmp_path / "broker.conf").write_text(CONFIG)
    return CompactOptions(config=str(tmp_path / "broker.conf"))


def messages(path: Path) -> list[dict[str, object]]:
    with open_store(path, small_config(), read_only=True) as store:
        return [
            row for row in pa.Table.from_batches(store.scan()).to_pylist() if row["topic"] in ("orders", "payments")
        ]


def contents(path: Path) -> dict[tuple[object, str], tuple[object, ...]]:
    """What a dictionary makes of a store: the last one wins."""
    kept = ("body", "queue_id", "tags", "sys_flag", "born_timestamp")
    rows = ((row, " ".join(cast("list[str]", row["keys"]))) for row in messages(path))
    return {(row["topic"], key): tuple(row[name] for name in kept) for row, key in rows if key}


def test_a_new_store_has_the_last_message_of_every_key_as_it_was(
    spark: SparkSession, history: Path, tmp_path: Path, options: CompactOptions
) -> None:
    before = files_of(history)
    report = compact(spark, history, tmp_path / "new", options=options)
    assert (report.messages, report.keyless, report.rows) == (403, 40, 2 * KEYS + 1)
    assert contents(tmp_path / "new") == contents(history)
    assert len(messages(tmp_path / "new")) == report.rows
    with open_store(tmp_path / "new", small_config()) as store:
        assert [message.body for message in store.query("orders", "k2")][-1] == b"two words"
        assert store.recovery.clean
    assert files_of(history) == before
    with pytest.raises(InvalidConfig, match="this store holds messages"):
        compact(spark, history, tmp_path / "new", options=options)


def files_of(path: Path) -> dict[str, int]:
    return {str(file): file.stat().st_mtime_ns for file in path.rglob("*") if file.is_file()}


def test_a_table_has_bodies_decompressed_and_is_made_once(spark: SparkSession, history: Path, tmp_path: Path) -> None:
    report = compact(spark, history, tmp_path / "table", form="parquet", options=CompactOptions(drop_tombstones=True))
    assert report.tombstones == 1
    rows = {(row["topic"], " ".join(cast("list[str]", row["keys"]))): row for row in rows_of(tmp_path / "table")}
    assert len(rows) == report.rows == 2 * KEYS
    assert ("orders", "k3") not in rows
    expected = {key: values for key, values in contents(history).items() if key != ("orders", "k3")}
    assert {key: row["queue_id"] for key, row in rows.items()} == {key: values[1] for key, values in expected.items()}
    assert all(
        bytes(cast("bytes", row["body"])).startswith((b"orders", b"pay", b"two", b"of", b"-")) for row in rows.values()
    )
    with pytest.raises(InvalidConfig, match="this table is complete"):
        compact(spark, history, tmp_path / "table", form="parquet")
    with pytest.raises(InvalidConfig, match="is compacted"):
        export(spark, history, tmp_path / "table")


def test_what_has_no_key_is_kept_on_request_and_a_key_can_be_anything(
    spark: SparkSession, history: Path, tmp_path: Path
) -> None:
    options = CompactOptions(topics=("orders",), key="tags", keep_keyless=True)
    report = compact(spark, history, tmp_path / "one", form="parquet", options=options)
    assert (report.messages, report.rows, report.keyless) == (202, 3, 2)
    options = CompactOptions(topics=("payments",), keep_keyless=True)
    report = compact(spark, history, tmp_path / "two", form="parquet", options=options)
    assert (report.rows, report.keyless) == (40 + KEYS, 40)


def test_of_several_stores_the_later_store_time_wins(spark: SparkSession, tmp_path: Path) -> None:
    for name in ("b", "a"):
        with open_store(tmp_path / name / "store", small_config()) as store:
            if name == "b":
                store.put_batch([Message("other", b"x" * 900) for _ in range(20)])  # so it lies further back
            store.put(Message("orders", name.encode(), keys=["one"]))
        time.sleep(0.005)
    report = compact(spark, str(tmp_path / "*" / "store"), tmp_path / "table", form="parquet", options=OF_ORDERS)
    (row,) = rows_of(tmp_path / "table")
    assert (row["body"], row["broker"], report.messages) == (b"a", "a", 2)


def test_killed_before_the_end_it_leaves_nothing_that_the_next_run_minds(
    spark: SparkSession, history: Path, tmp_path: Path, options: CompactOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    new, crashed = tmp_path / "new", tmp_path / "crashed"
    new.mkdir()
    with monkeypatch.context() as patched:
        patched.setattr(sink.StagingArea, "append", die)
        with pytest.raises(KeyboardInterrupt):
            compact(spark, history, new, options=options)
    assert list((new / "flintlog" / "staged").rglob("*-*"))

    readings: list[object] = []

    def messages_of_a_dying_driver(staged: object) -> Iterator[Message]:
        readings.append(staged)
        for _number in range(5):
            yield Message("orders", b"of a batch that dies", keys=["k1"])
        if len(readings) == 2:  # the first reading checks them, the second appends them
            shutil.copytree(new, crashed)  # as the disk is now
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(sink._Staged, "__iter__", messages_of_a_dying_driver)
        with pytest.raises(KeyboardInterrupt):
            compact(spark, history, new, options=options)
    assert (crashed / "abort").exists()
    for left in (new, crashed):
        compact(spark, history, left, options=options)
        assert contents(left) == contents(history)
        assert not list((left / "flintlog" / "staged").rglob("*-*"))


def die(*_: object) -> None:
    raise KeyboardInterrupt


def test_what_cannot_be_is_one_sentence_and_leaves_nothing(spark: SparkSession, history: Path, tmp_path: Path) -> None:
    new = tmp_path / "new"
    with pytest.raises(DamagedStore, match="no store here"):
        compact(spark, tmp_path / "nowhere", new)
    with pytest.raises(InvalidConfig, match="no messages of topic oders"):
        compact(spark, history, new, options=CompactOptions(topics=("oders",)))
    with pytest.raises(InvalidConfig, match="tagz"):
        compact(spark, history, new, options=CompactOptions(key="tagz"))
    with pytest.raises(InvalidConfig, match="is map<string,string>"):
        compact(spark, history, new, options=CompactOptions(key="properties"))
    with pytest.raises(InvalidConfig, match="no table format orc"):
        compact(spark, history, new, form="orc")
    with pytest.raises(InvalidConfig, match="option config"):
        compact(spark, history, new, options=CompactOptions(config=str(tmp_path / "no.conf")))
    assert not new.exists()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    with pytest.raises(InvalidConfig, match="not a new store"):
        compact(spark, history, tmp_path / "mine")
    with pytest.raises(InvalidConfig, match="is a file"):
        compact(spark, history, tmp_path / "mine" / "letter.txt")
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["letter.txt"]


def test_the_command_says_what_stayed(
    spark: SparkSession, history: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    new = str(tmp_path / "new")
    arguments = ["pipeline", "compact", str(history), new, "--format", "parquet", "--topic", "orders", "-o", "json"]
    assert run(arguments) == 0
    shown = capsys.readouterr()
    assert json.loads(shown.out)["rows"] == KEYS + 1
    assert "have no key and were left out" not in shown.err
    assert run(arguments) == 2
    assert "this table is complete" in capsys.readouterr().err
    assert run(["pipeline", "compact", str(tmp_path / "nowhere"), new]) == 3
