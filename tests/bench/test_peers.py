"""The peers keep what they are given: a benchmark of a peer that loses messages would mean nothing."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from flintlog.bench.peers import SqliteEngine, lmdb_peer, rocksdict_peer, sqlite_peer
from flintlog.bench.raw_file import FileByHand
from flintlog.bench.tasks import BATCH_COUNT, TASKS, Task, Window
from flintlog.errors import MissingExtra
from flintlog.kernel import scan

SHORT = Window(seconds=0.05, warm_up_seconds=0.0, rounds=1, get_count=64)


def _task(kind: str) -> Task:
    return next(task for task in TASKS if task.kind == kind)


@pytest.mark.parametrize("synced", [False, True])
def test_sqlite_gives_back_what_it_took(tmp_path: Path, synced: bool) -> None:
    engine = SqliteEngine(tmp_path / "db", synced)
    engine.put([(0, "a")], b"one")
    engine.put([(1, "b"), (2, "c")], b"two")
    assert list(engine.bodies()) == [b"one", b"two", b"two"]
    engine.close()


@pytest.mark.parametrize("kind", ["put", "batch", "synced", "get"])
def test_a_peer_is_measured_at_what_it_can_do(tmp_path: Path, kind: str) -> None:
    peer = sqlite_peer()
    peer.prepare(_task(kind), SHORT, tmp_path / "db")
    measured = peer.measure(_task(kind), SHORT, tmp_path / "db")
    assert measured is not None
    assert measured.count > 0
    assert measured.seconds >= SHORT.seconds


def test_a_peer_has_no_queues_to_rebuild(tmp_path: Path) -> None:
    assert sqlite_peer().measure(_task("rebuild"), SHORT, tmp_path / "db") is None


def test_a_file_by_hand_holds_every_record_that_was_acknowledged(tmp_path: Path) -> None:
    measured = FileByHand().measure(_task("synced-async"), SHORT, tmp_path)
    assert measured is not None
    record_bytes = 20 + _task("synced-async").body_bytes
    assert (tmp_path / "log").stat().st_size == measured.count * record_bytes


def test_a_file_by_hand_gets_the_records_of_batches_and_nothing_else(tmp_path: Path) -> None:
    ready = Task(name="", kind="batch", body_bytes=64, ready=True)
    measured = FileByHand().measure(ready, SHORT, tmp_path)
    assert measured is not None and measured.count >= BATCH_COUNT
    with (tmp_path / "0").open("rb") as file:
        head = file.read(1 << 16)
    found = scan(head, 0, len(head), 0, max_count=BATCH_COUNT)
    assert found.count == BATCH_COUNT
    assert {found.row(number).queue_offset for number in range(found.count)} == set(range(BATCH_COUNT))
    assert FileByHand().measure(_task("put"), SHORT, tmp_path) is None


@pytest.mark.parametrize(("package", "make"), [("rocksdict", rocksdict_peer), ("lmdb", lmdb_peer)])
def test_a_peer_that_is_not_installed_is_reported(package: str, make: object) -> None:
    assert callable(make)
    if find_spec(package) is not None:
        assert make().name == package
        return
    with pytest.raises(MissingExtra, match=f"pip install {package}"):
        make()
