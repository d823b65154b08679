"""A URI where only a path works: every function refuses it by name and creates nothing, before Spark is asked."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

from flintlog import InvalidConfig, StoreConfig, open_store
from flintlog.maintenance.backup.backup import backup, verify_backup
from flintlog.maintenance.backup.restore import restore
from flintlog.maintenance.inspect.store_files import look_at
from flintlog.maintenance.repair.repair import plan_repair, repair
from flintlog.maintenance.verify.verify import verify
from flintlog.pipeline.compact import compact
from flintlog.pipeline.dispatch import dispatch
from flintlog.pipeline.export import export, follow
from flintlog.pipeline.rebuild import rebuild
from flintlog.pipeline.replay import replay
from flintlog.pipeline.sink.sink_options import parse_sink_options
from flintlog.pipeline.sql import write_answer
from flintlog.replication.ha.node import HaNode
from flintlog.replication.ledger.store_node import LedgerStoreNode

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NO_SPARK = cast("SparkSession", None)
MEMBER = StoreConfig(dledger_group="g", dledger_self_id="n0", dledger_peers="n0-127.0.0.1:1")
Call = Callable[[Path, str | Path], object]
"""Called with a store that exists, and with a URI."""

REFUSING: Mapping[str, Call] = {
    "open_store": lambda _, uri: open_store(uri),
    "open_store read-only": lambda _, uri: open_store(uri, read_only=True),
    "the log's directory": lambda store, uri: open_store(store.parent, StoreConfig(store_path_commit_log=str(uri))),
    "a config": lambda _, uri: StoreConfig.load(uri),
    "a node": lambda _, uri: HaNode(uri, StoreConfig()),
    "a member": lambda _, uri: LedgerStoreNode(uri, MEMBER),
    "look_at": lambda _, uri: look_at(Path(uri)),
    "verify": lambda _, uri: verify(uri),
    "plan_repair": lambda _, uri: plan_repair(Path(uri)),
    "repair": lambda _, uri: repair(Path(uri)),
    "backup from": lambda store, uri: backup(Path(uri), store.with_name("copy")),
    "backup to": lambda store, uri: backup(store, Path(uri)),
    "verify_backup": lambda _, uri: verify_backup(Path(uri)),
    "restore from": lambda store, uri: restore(Path(uri), store.with_name("new")),
    "restore to": lambda store, uri: restore(store, Path(uri)),
    "export": lambda store, uri: export(NO_SPARK, store, uri),
    "export, delta": lambda store, uri: export(NO_SPARK, store, uri, form="delta"),
    "export, iceberg": lambda store, uri: export(NO_SPARK, store, uri, form="iceberg"),
    "follow": lambda store, uri: next(follow(NO_SPARK, store, uri, stop=threading.Event())),
    "compact": lambda store, uri: compact(NO_SPARK, store, uri),
    "compact, parquet": lambda store, uri: compact(NO_SPARK, store, uri, form="parquet"),
    "replay to": lambda store, uri: replay(NO_SPARK, store, uri),
    "replay from a table": lambda store, uri: replay(NO_SPARK, uri, store, form="parquet"),
    "rebuild": lambda _, uri: rebuild(NO_SPARK, uri),
    "rebuild with a config": lambda _, uri: rebuild(NO_SPARK, uri, config=StoreConfig()),
    "dispatch": lambda _, uri: dispatch(NO_SPARK, uri),
    "the sink": lambda _, uri: parse_sink_options({"path": str(uri)}, is_streaming=False),
    "an answer": lambda _, uri: write_answer(cast("DataFrame", None), uri, "csv"),
}


@pytest.mark.parametrize("place", ["s3://bucket/store", "hdfs:/data/store"])
@pytest.mark.parametrize("name", REFUSING)
def test_a_function_refuses_a_uri_by_name(
    name: str, place: str, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = tmp_path / "room"
    room.mkdir()
    monkeypatch.chdir(room)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(InvalidConfig, match=place[:4]) as refused:
        REFUSING[name](store, place)
    assert "only a path on this machine" in str(refused.value)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("name", REFUSING)
def test_a_function_refuses_a_uri_that_has_become_a_path(
    name: str, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidConfig, match="only a path on this machine"):
        REFUSING[name](store, Path("s3://bucket/store"))
    assert not (tmp_path / "s3:").exists()


def test_open_store_takes_the_uri_of_a_path(tmp_path: Path) -> None:
    with open_store(f"file://{tmp_path}/store"):
        assert (tmp_path / "store" / "lock").exists()
