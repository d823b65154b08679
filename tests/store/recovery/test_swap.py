"""Swapping rebuilt directories in: stopped at any step, the next opening has everything."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from tests.pipeline.sink.test_sink_rows import write_late

from flintlog import Message, StoreConfig, open_store
from flintlog.disk.media.local import LocalMedium
from flintlog.format.checkpoint import parse_checkpoint
from flintlog.store.paths import StorePaths
from flintlog.store.recovery.swap import begin_swap, finish_swap, rebuild_room

CONFIG = StoreConfig(
    flush="async",
    mapped_file_size_commit_log=1 << 16,
    mapped_file_size_consume_queue=400,
    max_hash_slot_num=10,
    max_index_num=50,
)
NAMES = ("consumequeue_ext", "batchconsumequeue", "consumequeue", "index")
COUNT = 60


class Killed(Exception):
    """The process ended here."""


def put(store: Path, count: int) -> None:
    with open_store(store, CONFIG) as opened:
        for number in range(count):
            assert opened.put(Message("orders", b"x", keys=[f"k{number}"], queue_id=number % 2))


def files(root: Path) -> dict[str, bytes]:
    paths = [path for name in NAMES for path in (root / name).rglob("*") if path.is_file()]
    return {str(path.relative_to(root)): path.read_bytes() for path in paths}


@pytest.fixture
def prepared(tmp_path: Path) -> tuple[Path, dict[str, bytes]]:
    """A store whose derived files are wrong, with right ones staged; and the right ones."""
    store = tmp_path / "store"
    put(store, COUNT)
    right = files(store)
    staged = rebuild_room(StorePaths.of(store, CONFIG)) / "staged"
    for name in ("consumequeue", "index"):
        shutil.copytree(store / name, staged / name)
    shutil.rmtree(store / "index")
    (store / "consumequeue_ext" / "gone" / "0").mkdir(parents=True)
    for path in (store / "consumequeue").rglob("*"):
        if path.is_file():
            path.write_bytes(bytes(400))
    return store, right


def begin(store: Path) -> StorePaths:
    paths = StorePaths.of(store, CONFIG)
    end = json.loads((store / "flintlog" / "stop.json").read_text().split(" ")[0])["log_end"]
    begin_swap(paths, LocalMedium(), NAMES, end, parse_checkpoint((store / "checkpoint").read_bytes()))
    return paths


def steps(store: Path) -> list[str]:
    heard: list[str] = []
    assert finish_swap(begin(store), LocalMedium(), heard.append)
    return heard


ALL_STEPS = [
    "unclean",
    "old consumequeue_ext",
    "old consumequeue",
    "new consumequeue",
    "new index",
    "settle",
    "clean",
    "forget",
]


def test_the_steps_of_a_swap(prepared: tuple[Path, dict[str, bytes]]) -> None:
    store, right = prepared
    checkpoint = (store / "checkpoint").read_bytes()
    assert steps(store) == ALL_STEPS
    assert files(store) == right
    assert (store / "checkpoint").read_bytes() == checkpoint
    assert not (store / "abort").exists()
    assert not (store / "consumequeue_ext").exists()
    assert {path.name for path in (store / "flintlog").iterdir()} == {"options.json", "stop.json"}
    assert not finish_swap(StorePaths.of(store, CONFIG), LocalMedium())


@pytest.mark.parametrize("killed_at", ALL_STEPS)
def test_killed_before_a_step_the_next_opening_finishes(
    prepared: tuple[Path, dict[str, bytes]], killed_at: str
) -> None:
    store, right = prepared
    kill(store, killed_at)
    with open_store(store, CONFIG) as opened:
        assert opened.recovery.clean
        assert opened.recovery.dispatched_from >= opened.recovery.log_end - 400
        assert opened.get("orders", 0, 0).max_offset == COUNT // 2
        assert len(opened.query("orders", "k7")) == 1
    assert files(store) == right
    assert not rebuild_room(StorePaths.of(store, CONFIG)).exists()


def kill(store: Path, killed_at: str) -> None:
    def at(step: str) -> None:
        if step == killed_at:
            raise Killed

    paths = begin(store)
    with pytest.raises(Killed):
        finish_swap(paths, LocalMedium(), at)


@pytest.mark.parametrize("killed_at", ALL_STEPS)
def test_one_who_knows_no_journal_and_puts_messages_makes_the_staged_files_worthless(
    prepared: tuple[Path, dict[str, bytes]], killed_at: str
) -> None:
    store, _ = prepared
    kill(store, killed_at)
    journal = store / "flintlog" / "swap.json"
    journal.rename(store / "hidden")  # as for RocketMQ, which does not look at it
    was_marked = (store / "abort").exists()
    with open_store(store, CONFIG) as opened:
        receipt = opened.put(Message("orders", b"later", keys=["later"], queue_id=0))
        assert receipt.queue_offset == COUNT // 2 or not was_marked
    after = files(store)
    (store / "hidden").rename(journal)
    with open_store(store, CONFIG) as opened:
        assert len(opened.query("orders", "later")) == 1
        assert opened.recovery.clean
    assert files(store) == after
    assert not journal.exists()


@pytest.mark.parametrize("journal", ["{", '{"staged":["index"],"removed":[],"log_end":0,"tail":"","checkpoint":[]}'])
def test_without_a_checked_journal_everything_derived_is_built_from_the_log(
    prepared: tuple[Path, dict[str, bytes]], journal: str
) -> None:
    store, right = prepared
    (store / "flintlog" / "swap.json").write_text(journal)
    with open_store(store, CONFIG):
        assert not (store / "flintlog" / "swap.json").exists()
    built = files(store)
    assert {name: built[name] for name in right if name.startswith("consumequeue")} == {
        name: data for name, data in right.items() if name.startswith("consumequeue")
    }
    with open_store(store, CONFIG) as opened:
        assert all(len(opened.query("orders", f"k{number}")) == 1 for number in range(COUNT))


def test_an_attempt_that_still_writes_does_not_fail_a_swap_that_is_done(
    prepared: tuple[Path, dict[str, bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, right = prepared
    paths = begin(store)
    seen = write_late(monkeypatch, 100)
    assert finish_swap(paths, LocalMedium())
    assert seen
    assert files(store) == right
    assert not paths.swap.exists()
    assert not (store / "abort").exists()


def test_a_folder_that_is_no_queues_does_not_count_as_one(tmp_path: Path) -> None:
    put(tmp_path, COUNT)
    (tmp_path / "consumequeue" / "orders" / "00").mkdir()
    (tmp_path / "index" / "1").mkdir()
    end = json.loads((tmp_path / "flintlog" / "stop.json").read_text().split(" ")[0])["log_end"]
    paths, checkpoint = StorePaths.of(tmp_path, CONFIG), parse_checkpoint((tmp_path / "checkpoint").read_bytes())
    begin_swap(paths, LocalMedium(), ["batchconsumequeue"], end, checkpoint)
    assert finish_swap(paths, LocalMedium())
    with open_store(tmp_path, CONFIG) as store:
        assert store.recovery.findings == ()
