"""Exported Iceberg tables: partitions, positions, catalogs, and what a killed commit leaves."""

from __future__ import annotations

import json
import threading
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    RESTError,
    ServerError,
    TableAlreadyExistsError,
    UnauthorizedError,
)
from pyiceberg.table import StaticTable
from tests.pipeline.conftest import COUNT, fill, small_config
from tests.pipeline.jobs.test_export import SMALL, expected_offsets
from tests.pipeline.jobs.test_replay import SAME, chosen, rows, unpacked
from tests.pipeline.sink.test_sink_rows import CONFIG

from flintlog import Message, open_store
from flintlog.cli.main import run
from flintlog.disk.media.local import LocalMedium
from flintlog.errors import InvalidConfig, JobFailed, StoreInUse
from flintlog.pipeline.compact import compact
from flintlog.pipeline.export import ExportOptions, export, follow
from flintlog.pipeline.replay import replay
from flintlog.pipeline.tables.iceberg_table import IcebergName, IcebergTable
from flintlog.pipeline.tables.parquet_table import TableSpec
from flintlog.pipeline.tables.table_write import WrittenFile

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LONG = "%RETRY%a-topic-that-is-longer-than-what-statistics-keep-of-it"


def read(table: Path, where: str | None = None) -> pa.Table:
    """Read without our catalog, as somebody else would."""
    scan = StaticTable.from_metadata(str(table)).scan()
    return (scan if where is None else scan.filter(where)).to_arrow()


def offsets(table: Path) -> list[object]:
    return sorted(read(table)["physical_offset"].to_pylist())


def test_every_message_is_a_row_by_topic_and_day_and_what_came_since_is_added(
    spark: SparkSession, tmp_path: Path
) -> None:
    store, table = fill(tmp_path / "store", 60), tmp_path / "a table"
    report = export(spark, store, table, form="iceberg", options=SMALL)
    assert (report.rows, report.batches > 1) == (60, True)
    assert export(spark, store, table, form="iceberg").batches == 0
    with open_store(store, small_config()) as running:
        for number in range(2):
            running.put(Message(f"{LONG}-{number}", b"x"))
    assert export(spark, store, table, form="iceberg").rows == 2
    assert offsets(table) == expected_offsets(store)
    today = {datetime.fromtimestamp(row / 1000, UTC).date() for row in read(table)["store_timestamp"].to_pylist()}
    assert set(read(table)["day"].to_pylist()) == today
    assert read(table, f"topic == '{LONG}-1'").num_rows == 1
    files = StaticTable.from_metadata(str(table)).inspect.files()
    assert {(each["topic"], each["day"]) for each in files["partition"].to_pylist()} == {
        (topic, day) for topic in ("orders", "payments", f"{LONG}-0", f"{LONG}-1") for day in today
    }


class Killed(BaseException):
    """As SIGKILL: nobody catches it."""


class DyingDisk(LocalMedium):
    """A disk whose process dies before it puts the n-th file into place."""

    left = 1_000_000

    def replace(self, path: Path, data: bytes) -> None:
        DyingDisk.left -= 1
        if DyingDisk.left < 0:
            raise Killed
        super().replace(path, data)


def test_a_commit_that_dies_at_any_file_leaves_every_message_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, table, deaths = tmp_path / "store", tmp_path / "table", 0
    for after in range(12):
        fill(store, 60)
        with monkeypatch.context() as patched:
            patched.setattr("flintlog.pipeline.tables.iceberg_io.LocalMedium", DyingDisk)
            patched.setattr("flintlog.pipeline.tables.iceberg_table.LocalMedium", DyingDisk)
            DyingDisk.left = after
            try:
                export(spark, store, table, form="iceberg", options=ExportOptions(batch_bytes=4_000))
            except Killed:
                deaths += 1
            if (table / "metadata" / "version-hint.text").exists():
                assert max(Counter(offsets(table)).values(), default=1) == 1
    assert deaths == 12
    export(spark, store, table, form="iceberg")
    assert offsets(table) == expected_offsets(store)


def test_a_catalog_of_the_users_own_knows_the_table(
    spark: SparkSession, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = f"sqlite:///{tmp_path}/theirs.db"
    monkeypatch.setenv("PYICEBERG_CATALOG__PROD__URI", database)
    monkeypatch.setenv("PYICEBERG_CATALOG__PROD__TYPE", "sql")
    monkeypatch.setenv("PYICEBERG_CATALOG__PROD__WAREHOUSE", f"file://{tmp_path}/warehouse")
    from pyiceberg import catalog as catalogs
    from pyiceberg.utils.config import Config

    monkeypatch.setattr(catalogs, "_ENV_CONFIG", Config())
    name = IcebergName("prod", "lake.messages")
    assert export(spark, store, tmp_path / "table", form="iceberg", name=name).rows == COUNT
    assert export(spark, store, tmp_path / "table", form="iceberg", name=name).batches == 0
    theirs = SqlCatalog("prod", uri=database, warehouse=f"file://{tmp_path}/warehouse")
    assert theirs.load_table("lake.messages").scan().to_arrow().num_rows == COUNT
    theirs.close()
    with pytest.raises(InvalidConfig, match="is somewhere else"):
        export(spark, store, tmp_path / "other", form="iceberg", name=name)
    with pytest.raises(JobFailed, match="opening the catalog failed"):
        export(spark, store, tmp_path / "other", form="iceberg", name=IcebergName("nowhere"))
    with pytest.raises(InvalidConfig, match="is no name of an Iceberg table"):
        IcebergName("prod", "messages")


def named_catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SqlCatalog:
    """A catalog of the user's own, `prod`."""
    from pyiceberg import catalog as catalogs
    from pyiceberg.utils.config import Config

    database, warehouse = f"sqlite:///{tmp_path}/theirs.db", f"file://{tmp_path}/warehouse"
    for key, value in {"URI": database, "TYPE": "sql", "WAREHOUSE": warehouse}.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__PROD__{key}", value)
    monkeypatch.setattr(catalogs, "_ENV_CONFIG", Config())
    return SqlCatalog("prod", uri=database, warehouse=warehouse)


@pytest.mark.parametrize(
    "failure", [CommitFailedException, RESTError, UnauthorizedError, TableAlreadyExistsError, ServerError]
)
def test_a_first_commit_that_fails_is_one_error_and_leaves_no_name_in_the_catalog(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: type[Exception]
) -> None:
    theirs = named_catalog(tmp_path, monkeypatch)
    table = IcebergTable(tmp_path / "table", IcebergName("prod", "lake.messages"))
    path = table.staged / "topic=a" / "day=2026-11-16" / "x.parquet"
    path.parent.mkdir(parents=True)
    pq.write_table(pa.table({"topic": ["a"], "day": ["2026-11-16"]}), path)
    file = WrittenFile(str(path), "a", "2026-11-16", 1, path.stat().st_size)

    def fail(*given: object) -> None:
        raise failure("not today")

    with table.opened(TableSpec()), monkeypatch.context() as broken:
        broken.setattr(IcebergTable, "_write", fail)
        with pytest.raises(JobFailed, match="the commit failed: not today"):
            table.commit([file], {"": 1})
        assert not theirs.table_exists("lake.messages")
        broken.undo()
        table.commit([file], {"": 1})
    assert theirs.load_table("lake.messages").scan().to_arrow().num_rows == 1
    theirs.close()


def test_a_table_stays_fresh_beside_a_writer(spark: SparkSession, tmp_path: Path) -> None:
    store, stop = fill(tmp_path / "store", 10), threading.Event()
    rounds = follow(spark, store, tmp_path / "table", form="iceberg", stop=stop, interval_s=0.05)
    assert next(rounds).rows == 10
    with open_store(store, small_config()) as running:
        running.put_batch([Message("orders", b"x") for _ in range(5)])
        assert next(rounds).rows == 15
        with pytest.raises(StoreInUse), IcebergTable(tmp_path / "table").opened(TableSpec()):
            pass
    stop.set()
    assert list(rounds) == []
    assert offsets(tmp_path / "table") == expected_offsets(store)


def test_a_table_is_replayed_and_compacted_like_any_other(spark: SparkSession, store: Path, tmp_path: Path) -> None:
    (tmp_path / "broker.conf").write_text(CONFIG)
    table, target = tmp_path / "table", tmp_path / "target"
    export(spark, store, table, form="iceberg", options=SMALL)
    report = replay(spark, table, target, config=str(tmp_path / "broker.conf"))
    assert (report.form, report.rows) == ("iceberg", COUNT)
    assert chosen(rows(target), *SAME) == chosen(rows(store), *SAME)
    assert unpacked(target) == unpacked(store)
    compacted = compact(spark, store, tmp_path / "compacted", form="iceberg")
    assert read(tmp_path / "compacted").num_rows == compacted.rows > 0
    with pytest.raises(InvalidConfig, match="this table is complete"):
        compact(spark, store, tmp_path / "compacted", form="iceberg")


def test_what_is_no_table_of_ours_is_left_alone(
    spark: SparkSession, store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    with pytest.raises(InvalidConfig, match="not an Iceberg table of ours"):
        export(spark, store, tmp_path / "mine", form="iceberg")
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["letter.txt"]
    with pytest.raises(InvalidConfig, match="a table of delta is in no catalog"):
        export(spark, store, tmp_path / "table", form="delta", name=IcebergName("prod"))
    arguments = ["pipeline", "export", str(store), str(tmp_path / "table"), "--format", "iceberg", "-o", "json"]
    assert run([*arguments, "--topic", "orders"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == 200
    assert run(arguments) == 2
    assert "the table was made with topics" in capsys.readouterr().err
