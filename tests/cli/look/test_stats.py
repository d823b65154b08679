"""`flintlog stats`: what a directory tells, in the form of every command."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from tests.pages import Golden
from tests.store.small_store import SMALL, bytes_of

from flintlog import Message, open_store
from flintlog.cli import main
from flintlog.cli.exit_codes import ExitCode
from flintlog.errors import DamagedStore
from flintlog.testing import FakeClock

CONFIG = {
    "mappedFileSizeCommitLog": SMALL.mapped_file_size_commit_log,
    "mappedFileSizeConsumeQueue": SMALL.mapped_file_size_consume_queue,
    "maxHashSlotNum": SMALL.max_hash_slot_num,
    "maxIndexNum": SMALL.max_index_num,
}


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({name: str(value) for name, value in CONFIG.items()}))
    return path


@pytest.fixture
def store(tmp_path: Path) -> Path:
    clock = FakeClock()
    with open_store(tmp_path / "store", SMALL, clock=clock) as store:
        for number in range(11):
            store.put(Message("orders", b"x", queue_id=number % 2)).check()
            clock.advance(1000)
        store.put(Message("other", b"y" * 10)).check()
    return tmp_path / "store"


def _run(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main.run(["stats", *arguments]) == ExitCode.FINE
    return capsys.readouterr().out


def test_the_store_as_a_whole(store: Path, config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = bytes_of(store)
    found = json.loads(_run(capsys, str(store), "--config", str(config), "-o", "json"))
    assert (found["topics"], found["queues"], found["messages"], found["findings"]) == (2, 3, 12, 0)
    assert found["bytes"] == found["commitLogMaxOffset"] - found["commitLogMinOffset"] > 0
    assert 0 < found["commitLogDiskRatio"] <= 1
    assert bytes_of(store) == before


def test_sizes_are_read_from_the_files(store: Path, config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    named = _run(capsys, str(store), "--config", str(config), "--by", "queue", "-o", "csv")
    assert _run(capsys, str(store), "--by", "queue", "-o", "csv") == named
    assert len(named.splitlines()) == 4


def test_by_topic(store: Path, config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = json.loads(_run(capsys, str(store), "--by", "topic", "--config", str(config), "-o", "json"))
    assert [(row["topic"], row["messages"]) for row in rows] == [("orders", 11), ("other", 1)]
    assert rows[0]["tps"] == 1.0 and rows[1]["tps"] is None
    assert rows[0]["average_size"] == rows[0]["bytes"] / 11


def test_by_queue(store: Path, config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = _run(capsys, str(store), "--by", "queue", "--config", str(config), "-o", "csv")
    rows = list(csv.DictReader(io.StringIO(text)))
    counts = [(row["topic"], row["queue_id"], row["messages"]) for row in rows]
    assert counts == [("orders", "0", "6"), ("orders", "1", "5"), ("other", "0", "1")]


def test_by_group(store: Path, config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with open_store(store, SMALL) as opened:
        with opened.consumer("billing", "orders", retries=False) as consumer:
            for _ in range(4):
                message = consumer.poll()
                assert message is not None
                consumer.acknowledge(message)
        with opened.consumer("audit", "other", retries=False) as consumer:
            consumer.acknowledge(next(iter(consumer)))
        unread = opened.get("orders", 0, 2).messages[0]
        behind_bytes = opened.max_physical_offset - unread.physical_offset
    assert json.loads(_run(capsys, str(store), "--by", "group", "-o", "json")) == [
        {
            "group": "audit",
            "topic": "other",
            "queues": 1,
            "waiting": 0,
            "behind_bytes": 0,
            "oldest_waiting_timestamp": None,
        },
        {
            "group": "billing",
            "topic": "orders",
            "queues": 2,
            "waiting": 7,
            "behind_bytes": behind_bytes,
            "oldest_waiting_timestamp": unread.store_timestamp,
        },
    ]
    found = json.loads(_run(capsys, str(store), "-o", "json"))
    assert found["groups"] == 2


def test_an_empty_store(tmp_path: Path, config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    open_store(tmp_path / "store", SMALL).shutdown()
    arguments = (str(tmp_path / "store"), "--config", str(config), "-o", "json")
    assert json.loads(_run(capsys, *arguments))["messages"] == 0
    assert json.loads(_run(capsys, *arguments, "--by", "topic")) == []


def test_a_directory_that_is_not_there(tmp_path: Path) -> None:
    assert main.run(["stats", str(tmp_path / "nothing")]) == ExitCode.USAGE


def test_offsets_that_cannot_be_read_are_not_taken_for_nothing_that_waits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with open_store(tmp_path) as store:
        store.put(Message("orders", b"x"))
        store.consumer_offsets.commit("billing", "orders", 0, 0)
    (tmp_path / "config" / "consumerOffset.json").write_bytes(b"{")
    (tmp_path / "config" / "consumerOffset.json.bak").unlink(missing_ok=True)
    assert main.run(["stats", str(tmp_path), "--by", "group"]) == 5
    assert "consumerOffset.json cannot be read" in capsys.readouterr().err


@pytest.mark.parametrize("by", [(), ("--by", "topic"), ("--by", "queue"), ("--by", "group")])
def test_a_store_that_cannot_be_opened_has_the_figures_of_its_files(
    golden: Golden, by: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    store = str(golden("torn") / "shortfile" / "before" / "store")
    assert main.run(["info", store]) == ExitCode.FINE
    capsys.readouterr()
    assert main.run(["stats", store, *by, "-o", "json"]) == ExitCode.PARTIAL
    captured = capsys.readouterr()
    assert "cannot be opened, and this is what its files say" in captured.err
    found = json.loads(captured.out)
    if not by:
        assert (found["topics"], found["queues"]) == (5, 21)
    elif by[1] != "group":
        assert sum(row["messages"] for row in found) > 1000


def test_figures_of_the_files_are_those_of_the_open_store(
    golden: Golden, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = str(golden("delay") / "store")

    def refuse(*_: object, **__: object) -> None:
        raise DamagedStore("as if it were damaged", path=store)

    for by in ((), ("--by", "topic"), ("--by", "queue")):
        opened = json.loads(_run(capsys, store, *by, "-o", "json"))
        with monkeypatch.context() as patched:
            patched.setattr("flintlog.store.open_store.open_store", refuse)
            assert main.run(["stats", store, *by, "-o", "json"]) == ExitCode.PARTIAL
        read = json.loads(capsys.readouterr().out)
        if not by:
            opened = {name: value for name, value in opened.items() if not name.endswith("DiskRatio")}
        assert read == opened


def test_a_directory_that_is_no_store_gets_a_sentence_on_what_one_is(
    golden: Golden, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(["stats", str(tmp_path)]) == ExitCode.CANNOT_READ
    assert "the directory that holds commitlog/, and beside it consumequeue/" in capsys.readouterr().err
    store = golden("delay") / "store"
    assert main.run(["info", str(store.parent)]) == ExitCode.CANNOT_READ
    assert f"there is one in {store}" in capsys.readouterr().err
    assert main.run(["verify", str(store / "consumequeue")]) == ExitCode.CANNOT_READ
    assert f"there is one in {store}" in capsys.readouterr().err
