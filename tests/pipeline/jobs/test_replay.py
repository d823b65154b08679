"""Replays: what a table or a store holds is put into a store again, whole, in order, and once."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.pipeline.conftest import COUNT, fill, small_config
from tests.pipeline.reading.test_source import own_rows
from tests.pipeline.sink.test_sink_rows import CONFIG

from flintlog import Message, open_store
from flintlog.cli.main import run
from flintlog.errors import DamagedStore, InvalidConfig, InvalidMessage, StoreInUse
from flintlog.pipeline.export import ExportOptions, export
from flintlog.pipeline.jobs.replay_source import guess_form
from flintlog.pipeline.replay import ReplayOptions, ReplayReport, replay
from flintlog.store.model.compression import decompress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Row = dict[str, object]
SAME = ("topic", "queue_id", "queue_offset", "tags", "keys", "properties", "born_timestamp", "born_host", "flag")


@pytest.fixture
def conf(tmp_path: Path) -> str:
    (tmp_path / "broker.conf").write_text(CONFIG)
    return str(tmp_path / "broker.conf")


def rows(path: Path) -> list[Row]:
    """The messages of a store, by queue; bodies as they are stored."""
    found = [row for row in own_rows(path) if not str(row["topic"]).startswith("rmq_sys_")]
    return sorted(found, key=lambda row: (str(row["topic"]), int(str(row["queue_id"])), int(str(row["queue_offset"]))))


def chosen(found: list[Row], *names: str) -> list[Row]:
    return [{name: row[name] for name in names} for row in found]


def unpacked(path: Path) -> list[bytes]:
    return [decompress(cast("bytes", row["body"]), cast("int", row["sys_flag"])) for row in rows(path)]


def test_a_store_is_put_into_another_as_it_was_and_once(
    spark: SparkSession, store: Path, tmp_path: Path, conf: str
) -> None:
    target = tmp_path / "target"
    report = replay(spark, store, target, config=conf)
    assert (report.form, report.rows, report.is_there_already) == ("store", COUNT, False)
    assert chosen(rows(target), *SAME, "body", "sys_flag") == chosen(rows(store), *SAME, "body", "sys_flag")
    again = replay(spark, store, target, config=conf)
    assert (again.rows, again.is_there_already, again.name) == (0, True, report.name)
    assert len(rows(target)) == COUNT
    assert replay(spark, store, target, config=conf, again=True).rows == COUNT
    assert len(rows(target)) == 2 * COUNT


@pytest.mark.parametrize("form", ["parquet", "delta"])
def test_an_exported_table_gives_back_the_messages_in_their_order(
    spark: SparkSession, store: Path, tmp_path: Path, conf: str, form: str
) -> None:
    table, target = tmp_path / "table", tmp_path / "target"
    export(spark, store, table, form=form, options=ExportOptions(batch_bytes=20_000))
    report = replay(spark, table, target, config=conf)
    assert (report.form, report.rows) == (form, COUNT)
    assert chosen(rows(target), *SAME) == chosen(rows(store), *SAME)
    assert unpacked(target) == unpacked(store)
    assert {int(str(row["sys_flag"])) & 0x701 for row in rows(target)} == {0}  # the table has plain bodies


def test_a_table_with_compressed_bodies_keeps_their_flags(
    spark: SparkSession, store: Path, tmp_path: Path, conf: str
) -> None:
    export(spark, store, tmp_path / "table", options=ExportOptions(decompress=False))
    replay(spark, tmp_path / "table", tmp_path / "target", config=conf)
    assert chosen(rows(tmp_path / "target"), "sys_flag", "body") == chosen(rows(store), "sys_flag", "body")


def test_messages_are_chosen_renamed_rekeyed_spread_and_shifted(
    spark: SparkSession, store: Path, tmp_path: Path, conf: str
) -> None:
    options = ReplayOptions(
        topics=("orders",),
        where="tags = 'paid'",
        rename={"orders": "again", "payments": "never"},
        key="if(properties['number'] % 2 = 0, concat('n', properties['number'] % 10), null)",
        queues=4,
        shift_ms=-86_400_000,
    )
    before = [row for row in own_rows(store) if row["topic"] == "orders" and row["tags"] == "paid"]
    report = replay(spark, store, tmp_path / "target", options=options, config=conf)
    found = rows(tmp_path / "target")
    assert report.rows == len(found) == len(before)
    assert {row["topic"] for row in found} == {"again"}
    by_number = {dict(row["properties"])["number"]: row for row in found}  # type: ignore[call-overload]
    queues: dict[str, set[object]] = {}
    for row in before:
        number = dict(row["properties"])["number"]  # type: ignore[call-overload]
        now = by_number[number]
        keys = [f"n{int(number) % 10}"] if int(number) % 2 == 0 else []
        assert now["keys"] == keys
        assert ("KEYS" in dict(now["properties"])) == bool(keys)  # type: ignore[call-overload]
        assert now["born_timestamp"] == int(str(row["born_timestamp"])) - 86_400_000
        queues.setdefault(" ".join(keys), set()).add(now["queue_id"])
    assert queues.pop("") == {1}  # odd numbers were in queue 1, and stay there
    assert all(len(each) == 1 for each in queues.values())
    for queue_id in range(4):
        numbers = [int(dict(r["properties"])["number"]) for r in found if r["queue_id"] == queue_id]  # type: ignore[call-overload]
        assert numbers == sorted(numbers)


def test_a_table_that_is_not_ours_becomes_messages(spark: SparkSession, tmp_path: Path, conf: str) -> None:
    (tmp_path / "theirs").mkdir()
    columns = {"topic": ["007", "007"], "value": [{"id": 2}, {"id": 1}], "who": ["x", "y"]}
    pq.write_table(pa.table(columns), tmp_path / "theirs" / "part.parquet")
    options = ReplayOptions(body="to_json(value)", key="who", order_by="value.id")
    replay(spark, tmp_path / "theirs", tmp_path / "target", options=options, config=conf)
    found = chosen(rows(tmp_path / "target"), "topic", "body", "keys")
    assert found == [
        {"topic": "007", "body": b'{"id":1}', "keys": ["y"]},
        {"topic": "007", "body": b'{"id":2}', "keys": ["x"]},
    ]
    with pytest.raises(InvalidConfig, match="the rows have no bodies"):
        replay(spark, tmp_path / "theirs", tmp_path / "other", config=conf)
    assert not (tmp_path / "other").exists()


def test_a_clock_that_was_turned_back_does_not_reorder_a_table(spark: SparkSession, tmp_path: Path, conf: str) -> None:
    (tmp_path / "table").mkdir()
    columns = {
        "topic": ["orders"] * 3,
        "body": [b"3", b"1", b"2"],
        "physical_offset": [300, 100, 200],
        "store_timestamp": [2000, 3000, 1000],
    }
    pq.write_table(pa.table(columns), tmp_path / "table" / "part.parquet")
    replay(spark, tmp_path / "table", tmp_path / "target", config=conf)
    assert [row["body"] for row in rows(tmp_path / "target")] == [b"1", b"2", b"3"]


def test_a_time_span_of_a_store(spark: SparkSession, store: Path, tmp_path: Path, conf: str) -> None:
    times = sorted(int(str(row["store_timestamp"])) for row in own_rows(store))
    since, until = times[len(times) // 3], times[-1]
    expected = sum(since <= each < until for each in times)
    if expected:
        options = ReplayOptions(since_ms=since, until_ms=until)
        assert replay(spark, store, tmp_path / "target", options=options, config=conf).rows == expected


def test_a_driver_that_died_after_the_marker_is_not_repeated(spark: SparkSession, tmp_path: Path, conf: str) -> None:
    """The batch is in the log, the note of it is still open: as a crash between the two leaves it."""
    source, target, crashed = fill(tmp_path / "source", 40), tmp_path / "target", tmp_path / "crashed"
    report = replay(spark, source, target, config=conf)
    notes = target / "flintlog" / "batches.json"
    counts = ("batch_id", "start", "logics_physical_offset", "logics_msg_timestamp", "index_msg_timestamp")
    opened = {"writer_id": report.name, "process_id": 1, **dict.fromkeys(counts, 0)}
    notes.write_text(json.dumps({"opened": opened, "closed": {}}))
    shutil.copytree(target, crashed)
    (crashed / "abort").write_text("1")
    assert replay(spark, source, crashed, config=conf).is_there_already
    assert len(rows(crashed)) == 40


def test_what_is_not_for_consumers_is_left_out_unless_named(spark: SparkSession, tmp_path: Path, conf: str) -> None:
    with open_store(tmp_path / "source", small_config()) as running:
        running.put(Message("orders", b"seen"))
        running.put(Message("SCHEDULE_TOPIC_XXXX", b"waits"))
        running.put(Message("orders", b"prepared", sys_flag=4))
    replay(spark, tmp_path / "source", tmp_path / "target", config=conf)
    assert [row["body"] for row in rows(tmp_path / "target")] == [b"seen"]
    options = ReplayOptions(topics=("SCHEDULE_TOPIC_XXXX",))
    assert replay(spark, tmp_path / "source", tmp_path / "target", options=options, config=conf).rows == 1


def test_what_cannot_be_is_one_sentence_and_leaves_nothing(
    spark: SparkSession, store: Path, tmp_path: Path, conf: str
) -> None:
    target = tmp_path / "target"

    def ask(source: Path = store, form: str | None = None, **options: object) -> ReplayReport:
        return replay(spark, source, target, form=form, config=conf, options=ReplayOptions(**options))  # type: ignore[arg-type]

    with pytest.raises(DamagedStore, match="no store here"):
        ask(tmp_path / "nowhere")
    with pytest.raises(DamagedStore, match="no table here"):
        ask(tmp_path / "nowhere", "parquet")
    with pytest.raises(InvalidConfig, match="nothing is replayed from orc"):
        ask(form="orc")
    with pytest.raises(InvalidConfig, match="no Delta table"):
        ask(form="delta")
    with pytest.raises(InvalidConfig, match="no messages of topic oders to replay"):
        ask(topics=("oders",))
    with pytest.raises(InvalidConfig, match="tagz"):
        ask(where="tagz = 'paid'")
    with pytest.raises(InvalidConfig, match="not true or false"):
        ask(where="tags")
    with pytest.raises(InvalidConfig, match=r"nosuch"):
        ask(key="nosuch(tags)")
    with pytest.raises(InvalidMessage, match="no body"):
        ask(body="cast(null as string)")
    with pytest.raises(InvalidMessage, match="topic"):
        ask(rename={"orders": "no/topic"})
    assert not target.exists()
    with open_store(target, small_config()), pytest.raises(StoreInUse):
        ask()


def test_the_command_replays_and_says_so(
    spark: SparkSession, store: Path, tmp_path: Path, conf: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["pipeline", "replay", str(store), str(tmp_path / "target"), "--topic", "payments", "--config", conf]
    arguments += ["--rename", "payments=paid-again", "--shift", "-2h", "-o", "json"]
    assert run(arguments) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == 100
    assert {row["topic"] for row in rows(tmp_path / "target")} == {"paid-again"}
    assert run(arguments) == 0
    assert "was done before" in capsys.readouterr().err
    assert run([*arguments, "--shift", "soon"]) == 2
    assert run(["pipeline", "replay", str(tmp_path / "nowhere"), str(tmp_path / "target")]) == 3


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("_delta_log/0.json", "delta"),
        ("metadata/version-hint.text", "iceberg"),
        ("_flintlog/catalog.db", "iceberg"),  # its first batch was not committed yet
        ("_flintlog/table.json", "parquet"),
        ("topic=orders/day=2026-11-16/a.parquet", "parquet"),
        ("a.parquet", "parquet"),
        ("commitlog/00000000000000000000", "store"),
    ],
)
def test_the_form_of_a_source_is_found_from_its_files(tmp_path: Path, name: str, form: str) -> None:
    file = tmp_path / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch()
    assert guess_form(str(tmp_path)) == form
