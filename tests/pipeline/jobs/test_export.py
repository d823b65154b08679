"""Exported tables: every message once, whatever is killed, however often it is run."""

from __future__ import annotations

import json
import threading
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from tests.pipeline.conftest import COUNT, fill, small_config
from tests.pipeline.reading.test_source import own_rows
from tests.pipeline.sink.test_sink_rows import CONFIG

from flintlog import Message, open_store
from flintlog.cli.main import run
from flintlog.disk.media.local import LocalMedium
from flintlog.errors import DamagedStore, InvalidConfig, StoreInUse
from flintlog.pipeline.compact import compact
from flintlog.pipeline.export import ExportOptions, _Export, export, follow
from flintlog.pipeline.reading.logs import find_end, find_logs
from flintlog.pipeline.reading.partitions import plan
from flintlog.pipeline.replay import replay
from flintlog.pipeline.tables import table as tables_module
from flintlog.pipeline.tables.parquet_table import ParquetTable, TableSpec
from flintlog.pipeline.tables.table_write import ExportTask, by_topic_and_day

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SMALL = ExportOptions(batch_bytes=20_000)


def rows_of(table: Path) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = ds.dataset(table, format="parquet", partitioning="hive").to_table().to_pylist()
    return sorted(rows, key=lambda row: int(str(row["physical_offset"])))


def offsets(table: Path) -> list[object]:
    return [row["physical_offset"] for row in rows_of(table)]


def expected_offsets(store: Path) -> list[object]:
    return [row["physical_offset"] for row in own_rows(store)]


def test_every_message_is_a_row_by_topic_and_day(spark: SparkSession, store: Path, tmp_path: Path) -> None:
    report = export(spark, store, tmp_path / "table")
    assert report.rows == COUNT
    found = rows_of(tmp_path / "table")
    for row, own in zip(found, own_rows(store), strict=True):
        assert row["topic"] == own["topic"]
        day = datetime.fromtimestamp(int(str(own["store_timestamp"])) / 1000, UTC).date()
        assert str(row["day"]) == day.isoformat()
        assert dict(row["properties"]) == own["properties"]  # type: ignore[call-overload]
        assert row["keys"] == own["keys"]
    (packed,) = (row for row in found if dict(row["properties"])["number"] == "57")  # type: ignore[call-overload]
    assert packed["body"] == b"body 57 " * 57
    frame = spark.read.parquet(str(tmp_path / "table"))
    assert frame.where("topic = 'orders'").count() == 200


def test_what_came_since_is_added_and_nothing_twice(spark: SparkSession, tmp_path: Path) -> None:
    store, table = fill(tmp_path / "store", 30), tmp_path / "table"
    assert export(spark, store, table, options=SMALL).rows == 30
    assert export(spark, store, table, options=SMALL).batches == 0
    with open_store(store, small_config()) as running:
        running.put_batch([Message("%RETRY%late", b"x") for _ in range(20)])
        assert export(spark, store, table, options=SMALL).rows == 20
    assert offsets(table) == expected_offsets(store)
    assert {row["topic"] for row in rows_of(table)} == {"orders", "payments", "%RETRY%late"}


class Dying(LocalMedium):
    """A disk whose process dies before the n-th change of a name."""

    def __init__(self, after: int) -> None:
        super().__init__()
        self.left = after

    def _step(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise KeyboardInterrupt

    def rename(self, source: Path, target: Path) -> None:
        self._step()
        super().rename(source, target)

    def replace(self, path: Path, data: bytes) -> None:
        self._step()
        super().replace(path, data)

    def remove_tree(self, path: Path) -> None:
        self._step()
        super().remove_tree(path)


def test_a_table_that_dies_at_any_step_has_every_message_once(
    spark: SparkSession, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, options = tmp_path / "table", ExportOptions(batch_bytes=12_000)
    deaths = 0
    for after in (0, 1, 2, 3, 5, 4, 6, 2):
        dying = Dying(after)
        with monkeypatch.context() as patched:
            patched.setattr(tables_module, "ParquetTable", lambda root, medium=dying: ParquetTable(root, medium))
            try:
                export(spark, store, table, options=options)
            except KeyboardInterrupt:
                deaths += 1
        assert max(Counter(offsets(table)).values(), default=1) == 1
    assert deaths == 8
    export(spark, store, table, options=options)
    assert offsets(table) == expected_offsets(store)
    assert not (table / "_flintlog" / "staged").exists()


def test_a_glob_of_stores_names_their_brokers(spark: SparkSession, tmp_path: Path) -> None:
    for name, count in (("a", 5), ("b", 7)):
        fill(tmp_path / name / "store", count)
    report = export(spark, str(tmp_path / "*" / "store"), tmp_path / "table")
    assert report.positions.keys() == {"a", "b"}
    assert Counter(row["broker"] for row in rows_of(tmp_path / "table")) == {"a": 5, "b": 7}


def test_json_bodies_become_columns(spark: SparkSession, tmp_path: Path) -> None:
    bodies = [b'{"id": 1, "sum": 2.5}', b"not json", b'{"id": "many"}', b'{"id": 4, "more": true}', b"[1]"]
    with open_store(tmp_path / "store", small_config()) as running:
        running.put_batch([Message("orders", body) for body in bodies])
    options = ExportOptions(value_schema="id bigint, sum double", include_body=False)
    report = export(spark, tmp_path / "store", tmp_path / "table", options=options)
    found = rows_of(tmp_path / "table")
    assert [row["value"] for row in found] == [
        {"id": 1, "sum": 2.5}, None, None, {"id": 4, "sum": None}, None
    ]  # fmt: skip
    assert report.unparsed == 3
    assert "body" not in found[0]
    with pytest.raises(InvalidConfig):
        export(spark, tmp_path / "store", tmp_path / "other", options=ExportOptions(value_schema="id bigimt"))
    assert not (tmp_path / "other").exists()


def test_a_table_stays_fresh_beside_a_writer(spark: SparkSession, tmp_path: Path) -> None:
    store, stop = fill(tmp_path / "store", 10), threading.Event()
    rounds = follow(spark, store, tmp_path / "table", stop=stop, interval_s=0.05)
    assert next(rounds).rows == 10
    with open_store(store, small_config()) as running:
        running.put_batch([Message("orders", b"x") for _ in range(5)])
        assert next(rounds).rows == 15
    stop.set()
    assert list(rounds) == []
    assert offsets(tmp_path / "table") == expected_offsets(store)


def test_what_cannot_be_is_refused_and_nothing_is_written(spark: SparkSession, store: Path, tmp_path: Path) -> None:
    with pytest.raises(DamagedStore, match="no store here"):
        export(spark, tmp_path / "nowhere", tmp_path / "table")
    with pytest.raises(InvalidConfig, match="no table format orc"):
        export(spark, store, tmp_path / "table", form="orc")
    assert not (tmp_path / "table").exists()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    for form in ("parquet", "delta"):
        with pytest.raises(InvalidConfig, match="is not a"):
            export(spark, store, tmp_path / "mine", form=form)
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["letter.txt"]


@pytest.mark.parametrize("form", ["parquet", "delta", "iceberg"])
def test_a_table_stays_what_it_is(spark: SparkSession, tmp_path: Path, form: str) -> None:
    store, table = fill(tmp_path / "store", 10), tmp_path / "table"
    assert export(spark, store, table, form=form).rows == 10
    there = {path for path in table.rglob("*.parquet") if path.is_file()}
    report = export(spark, store, table)
    assert (report.form, report.rows) == (form, 0)
    for other in {"parquet", "delta", "iceberg"} - {form}:
        with pytest.raises(InvalidConfig, match=f"there is a table of {form} here, not of {other}"):
            export(spark, store, table, form=other)
    assert {path for path in table.rglob("*.parquet") if path.is_file()} == there


def test_files_of_a_first_batch_that_died_do_not_become_rows_of_parquet(
    spark: SparkSession, store: Path, tmp_path: Path
) -> None:
    (tmp_path / "table" / "_flintlog").mkdir(parents=True)
    (tmp_path / "table" / "topic=orders").mkdir()  # by a Delta table that has no transaction yet
    with pytest.raises(InvalidConfig, match="not a table of ours"):
        export(spark, store, tmp_path / "table")
    assert export(spark, store, tmp_path / "table", form="delta").rows == COUNT


def test_one_export_at_a_time_with_the_options_it_began_with(spark: SparkSession, tmp_path: Path) -> None:
    store, table = fill(tmp_path / "store", 10), tmp_path / "table"
    export(spark, store, table, options=ExportOptions(topics=("orders",)))
    assert {row["topic"] for row in rows_of(table)} == {"orders"}
    with pytest.raises(InvalidConfig, match=r"made with topics = \['orders'\], not None"):
        export(spark, store, table)
    with ParquetTable(table).opened(TableSpec(topics=["orders"])), pytest.raises(StoreInUse):
        export(spark, store, table, options=ExportOptions(topics=("orders",)))


def test_a_log_that_was_replaced_is_not_mixed_in(spark: SparkSession, tmp_path: Path) -> None:
    table = tmp_path / "table"
    export(spark, fill(tmp_path / "store", 200), table)
    with pytest.raises(DamagedStore, match="cut or replaced"):
        export(spark, fill(tmp_path / "short", 3), table)
    with open_store(tmp_path / "long", small_config()) as store:
        for _ in range(600):
            store.put(Message("orders", b"x" * 133))
    before = offsets(table)
    with pytest.raises(DamagedStore, match=r"no record begins there now.*cut or replaced"):
        export(spark, tmp_path / "long", table)
    assert offsets(table) == before


@pytest.mark.parametrize("fails", [True, False])
def test_where_an_export_continues_in_another_log(
    tmp_path: Path, fails: bool, caplog: pytest.LogCaptureFixture
) -> None:
    whole = find_end(find_logs((str(fill(tmp_path / "store", 200)),))[0])
    with open_store(tmp_path / "other", small_config()) as other:
        receipts = [other.put(Message("orders", b"x" * 133)) for _ in range(600)]

    def start(name: str) -> int:
        table = ParquetTable(tmp_path / f"{name}.table")
        job = _Export(None, tmp_path / name, table, ExportOptions(fail_on_data_loss=fails), None)  # type: ignore[arg-type]
        with job.opened():
            table.commit([], {"": whole})
            return job._start(find_logs((str(tmp_path / name),))[0])

    assert start("store") == whole
    assert not caplog.text
    if fails:
        with pytest.raises(DamagedStore, match="no record begins there now"):
            start("other")
    else:
        assert start("other") == min(each.physical_offset for each in receipts if each.physical_offset > whole)
        assert "no record begins" in caplog.text
    fill(tmp_path / "short", 3)
    with pytest.raises(DamagedStore, match="it now ends at"):
        start("short")


def test_a_delta_table_has_every_message_once_even_if_a_batch_dies(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from deltalake import DeltaTable as Reader

    from flintlog.pipeline.tables.delta_table import DeltaTable

    store, table = fill(tmp_path / "store", 60), tmp_path / "table"

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(DeltaTable, "_write", die)
        with pytest.raises(KeyboardInterrupt):
            export(spark, store, table, form="delta")
    with open_store(store, small_config()) as running:
        running.put(Message("%RETRY%g", b"x"))
    assert export(spark, store, table, form="delta", options=SMALL).rows == 61
    assert export(spark, store, table, form="delta").batches == 0
    found = pa.table(Reader(str(table)).to_pyarrow_table() if hasattr(Reader, "to_pyarrow_table") else None)
    assert sorted(found["physical_offset"].to_pylist()) == expected_offsets(store)
    assert set(found["topic"].to_pylist()) == {"orders", "payments", "%RETRY%g"}


def test_a_topic_of_255_characters_has_a_folder_that_can_be_made(tmp_path: Path) -> None:
    long = ["t" * 254 + "1", "t" * 254 + "2"]
    store = tmp_path / "store"
    with open_store(store, small_config()) as running:
        for topic in long:
            running.put(Message(topic, b"x")).check()
    (log,) = find_logs((str(store),))
    (planned,) = plan([(log, 0, find_end(log))], split_bytes=1 << 20, least_count=1)
    task = ExportTask(str(tmp_path / "table"), keep_partitions=True, by_partition=True)
    written = {file.topic: Path(file.staged) for file in task.write(planned).files}
    assert sorted(written) == long
    assert len({path.parents[1] for path in written.values()}) == 2
    for topic, path in written.items():
        assert pq.ParquetFile(path).read()["topic"].to_pylist() == [topic]
    with pytest.raises(InvalidConfig, match="too long for the name of a folder"):
        ExportTask(str(tmp_path / "parquet")).write(planned)


LONG = ["t" * 254 + "1", "t" * 254 + "2", "%RETRY%" + "g" * 248]


def fill_long(store: Path, body: bytes) -> None:
    with open_store(store, small_config()) as running:
        for topic in (*LONG, "orders"):
            running.put(Message(topic, body, keys=[topic[-9:]])).check()


def test_a_parquet_table_of_topics_of_255_characters_has_them_whole(spark: SparkSession, tmp_path: Path) -> None:
    """No folder can have such a name. The table has no folders, and topic and day are columns of its files."""
    store, table = tmp_path / "store", tmp_path / "table"
    for number, body in enumerate((b"first", b"second"), start=1):
        fill_long(store, body)
        assert export(spark, store, table).rows == len(LONG) + 1
        assert Counter(row["topic"] for row in rows_of(table)) == dict.fromkeys((*LONG, "orders"), number)
    found = spark.read.parquet(str(table))
    assert Counter(row.topic for row in found.collect()) == dict.fromkeys((*LONG, "orders"), 2)
    assert {str(row.day) for row in found.select("day").distinct().collect()} == {
        str(row["day"]) for row in rows_of(table)
    }
    assert [row.body for row in found.where(found.topic == LONG[1]).orderBy("physical_offset").collect()] == [
        b"first",
        b"second",
    ]
    (tmp_path / "broker.conf").write_text(CONFIG)
    report = replay(spark, table, tmp_path / "again", config=str(tmp_path / "broker.conf"))
    assert report.rows == 2 * (len(LONG) + 1)
    assert [row["body"] for row in own_rows(tmp_path / "again") if row["topic"] == LONG[0]] == [b"first", b"second"]
    assert compact(spark, store, tmp_path / "latest", form="parquet").rows == len(LONG) + 1
    assert {row["topic"]: row["body"] for row in rows_of(tmp_path / "latest")} == dict.fromkeys(
        (*LONG, "orders"), b"second"
    )


def test_a_table_with_folders_refuses_a_topic_that_is_too_long_for_one(spark: SparkSession, tmp_path: Path) -> None:
    store, table = tmp_path / "store", tmp_path / "table"
    with open_store(store, small_config()) as running:
        running.put(Message("orders", b"x")).check()
    export(spark, store, table)
    fill_long(store, b"x")
    with pytest.raises(InvalidConfig, match="too long for the name of a folder"):
        export(spark, store, table)
    assert [row["topic"] for row in rows_of(table)] == ["orders"]
    assert export(spark, store, table / ".." / "other", options=ExportOptions(topics=("orders",))).rows == 2
    assert (tmp_path / "other" / "topic=orders").is_dir()


def test_rows_are_parted_by_topic_and_day_in_their_order() -> None:
    day = 86_400_000
    batch = pa.record_batch(
        {"topic": ["b", "a", "b", "a", "b"], "store_timestamp": [day, day, 2 * day, day + 1, day + 5]}
    )
    parts = {key: rows.column("store_timestamp").to_pylist() for key, rows in by_topic_and_day(batch)}
    assert parts == {("a", 1): [day, day + 1], ("b", 1): [day, day + 5], ("b", 2): [2 * day]}


def test_the_command_exports_and_says_what_it_did(
    spark: SparkSession, store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = str(tmp_path / "table")
    assert run(["pipeline", "export", str(store), table, "--topic", "orders", "--no-body", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == 200
    assert run(["pipeline", "export", str(store), table, "--topic", "orders", "--no-body"]) == 0
    assert "nothing new of topic orders" in capsys.readouterr().err
    assert run(["pipeline", "export", str(tmp_path / "nowhere"), table]) == 3
    assert run(["pipeline", "export", str(store), table]) == 2
    assert "the table was made with topics" in capsys.readouterr().err


def test_damaged_places_that_are_passed_over_are_counted(tmp_path: Path) -> None:
    store = fill(tmp_path / "store", 60)
    (log,) = find_logs((str(store),))
    (planned,) = plan([(log, 0, find_end(log))], split_bytes=1 << 20, least_count=1)
    intact = ExportTask(str(tmp_path / "intact"), fail_on_data_loss=False).write(planned)
    file = store / "commitlog" / log.files[0].name
    log_bytes = file.read_bytes()
    with file.open("r+b") as opened:  # in place: a map of a file that is cut short would end the process
        for number in (10, 30):
            opened.seek(find_record(log_bytes, number) + 4)
            opened.write(b"none")  # instead of its magic
    written = ExportTask(str(tmp_path / "table"), fail_on_data_loss=False).write(planned)
    assert (intact.damaged_count, written.damaged_count) == (0, 2)
    assert sum(each.rows for each in written.files) == sum(each.rows for each in intact.files) - 2


def find_record(log: bytes, number: int) -> int:
    """Where the record of a number begins."""
    place = 0
    for _ in range(number):
        place += int.from_bytes(log[place : place + 4], "big")
    return place
