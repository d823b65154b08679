"""Drivers killed around their commits, by SIGKILL: the sink's closing markers, and the tables that an export writes.

What is killed here is the code of the driver and its tasks without Spark around it, so that it can be killed often;
`test_kill_spark.py` and `test_cluster_kill.py` kill the whole of it.
"""

from __future__ import annotations

import random
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable
from pyiceberg.table import StaticTable
from tests.pipeline.conftest import fill, small_config
from tests.pipeline.kill_processes import BATCH_ROWS, Server, batches_done, running_server
from tests.pipeline.sink.test_sink_rows import CONFIG

from flintlog import Message, Store, StoredMessage, open_store

FORMS = ("parquet", "delta", "iceberg")
KILLED = -signal.SIGKILL
ENDLESS = 1_000_000
MOMENTS = [
    ("parquet", "commit", "before", 2),
    ("parquet", "_finish", "before", 2),
    ("delta", "commit", "before", 1),
    ("delta", "_write", "after", 1),
    ("delta", "_write", "after", 2),
    ("iceberg", "commit", "before", 1),
    ("iceberg", "_create", "after", 1),
    ("iceberg", "_write", "after", 2),
    ("iceberg", "_point_at", "before", 2),
]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running_server() as running:
        yield running


def exported(table: Path, form: str) -> list[int]:
    """Where the messages of a table lie in the log."""
    if form == "parquet":
        found = ds.dataset(table, format="parquet", partitioning="hive").to_table(columns=["physical_offset"])
    elif form == "delta":
        found = DeltaTable(str(table)).to_pyarrow_table(columns=["physical_offset"])
    else:
        found = StaticTable.from_metadata(str(table)).scan().to_arrow()
    return sorted(found["physical_offset"].to_pylist())


def places(store: Path) -> list[int]:
    with open_store(store, small_config(), read_only=True) as opened:
        return [place for batch in opened.scan(include_body=False) for place in batch["physical_offset"].to_pylist()]


@pytest.mark.parametrize(("form", "method", "moment", "call"), MOMENTS)
def test_killed_at_this_step_of_a_commit_and_run_again_every_message_is_there_once(
    server: Server, store: Path, tmp_path: Path, form: str, method: str, moment: str, call: int
) -> None:
    where = {"store": str(store), "table": str(tmp_path / "table"), "form": form}
    assert server.run("export", **where, die=(method, moment, call)) == KILLED
    assert server.run("export", **where) == 0
    assert exported(tmp_path / "table", form) == places(store)


def kill_followers(server: Server, tmp_path: Path, form: str, kills: int) -> None:
    """A table that is kept fresh while its store is written, by followers that are killed; then one ends the work."""
    store, table, chance = fill(tmp_path / "store", 60), tmp_path / "table", random.Random()
    where = {"store": str(store), "table": str(table), "form": form}
    with written_to(store):
        for _ in range(kills):
            follower = server.start("export", **where, follow=True)
            time.sleep(chance.random() * 0.6)
            assert follower.kill() == KILLED
    assert server.run("export", **where) == 0
    assert exported(table, form) == places(store)


@contextmanager
def written_to(store: Path, pause_s: float = 0.005) -> Iterator[None]:
    """Messages come into a store meanwhile."""
    stop = threading.Event()

    def put() -> None:
        with open_store(store, small_config()) as running:
            while not stop.wait(pause_s):
                for number in range(3):
                    running.put(Message("orders" if number else "payments", bytes(300)))

    writer = threading.Thread(target=put, name="writer")
    writer.start()
    try:
        yield
    finally:
        stop.set()
        writer.join()


@pytest.mark.parametrize("form", FORMS)
def test_followers_killed_at_any_moment_leave_every_message_once(server: Server, tmp_path: Path, form: str) -> None:
    kill_followers(server, tmp_path, form, 3)


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_many_followers_killed(server: Server, tmp_path: Path, form: str) -> None:
    kill_followers(server, tmp_path, form, 60)


def kill_sinks(server: Server, tmp_path: Path, kills: int) -> None:
    """Drivers of a sink killed again and again; then one ends the work."""
    store, chance = tmp_path / "store", random.Random()
    (tmp_path / "broker.conf").write_text(CONFIG)
    where = {"store": str(store), "conf": str(tmp_path / "broker.conf")}
    for _ in range(kills):
        driver = server.start("sink", **where, batches=ENDLESS)
        time.sleep(chance.random() * 0.7)
        assert driver.kill() == KILLED
    batches = batches_done(store) + 3
    assert server.run("sink", **where, batches=batches) == 0
    with open_store(store, small_config()) as opened:
        assert not opened.recovery.findings
        for queue in (0, 1):
            found = [each.body.split()[0] for each in messages(opened, "orders", queue)]
            assert found == [str(number).encode() for number in range(queue, batches * BATCH_ROWS, 2)]
    assert not list((store / "flintlog" / "staged").glob("*"))


def messages(store: Store, topic: str, queue: int) -> Iterator[StoredMessage]:
    offset = 0
    while found := store.get(topic, queue, offset, 1000).messages:
        yield from found
        offset += len(found)


def test_drivers_of_a_sink_killed_at_any_moment_write_every_batch_once_and_in_order(
    server: Server, tmp_path: Path
) -> None:
    kill_sinks(server, tmp_path, 8)


@pytest.mark.slow
def test_many_drivers_of_a_sink_killed(server: Server, tmp_path: Path) -> None:
    kill_sinks(server, tmp_path, 150)
