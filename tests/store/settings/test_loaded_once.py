"""The config folder's files are read once an opening, before anything is recovered."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from tests.store.small_store import SMALL

from flintlog import Message, open_store
from flintlog.disk.media.local import LocalMedium
from flintlog.disk.media.medium import MAX_SMALL_FILE_BYTES
from flintlog.store.queues.logical_queue import QueueType

FILES = ("topics.json", "subscriptionGroup.json", "consumerOffset.json", "consumerFilter.json")


class ReadingMedium(LocalMedium):
    """Counts how often each file was read."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: Counter[str] = Counter()

    def read(self, path: Path, limit: int = MAX_SMALL_FILE_BYTES) -> bytes:
        self.reads[path.name] += 1
        return super().read(path, limit)


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """A store with something in each file."""
    root = tmp_path / "store"
    with open_store(root, SMALL) as store:
        store.topics.create("batches", attributes={"queue.type": "BatchCQ"})
        store.groups.create("billing")
        store.put(Message("orders", b"1"))
        store.consumer_offsets.commit("billing", "orders", 0, 1)
        store.subscriptions.register("billing", "orders", "a = 1")
    assert all((root / "config" / name).exists() for name in FILES)
    return root


@pytest.mark.parametrize("stop", ["clean", "unclean"])
@pytest.mark.parametrize("read_only", [False, True])
def test_each_file_is_read_once(made: Path, read_only: bool, stop: str) -> None:
    if stop == "unclean":
        (made / "abort").touch()
    medium = ReadingMedium()
    with open_store(made, SMALL, medium=medium, read_only=read_only) as store:
        assert {name: medium.reads[name] for name in FILES} == dict.fromkeys(FILES, 1)
        assert store._engine.parts.queues.type_of("batches") is QueueType.BATCH
        assert "billing" in store.groups
        assert store.consumer_offsets.get("billing", "orders", 0) == 1
        assert store.subscriptions.get("billing", "orders") is not None


def test_a_directory_without_a_lock_file_is_tried_first_and_then_read_under_the_lock(made: Path) -> None:
    (made / "lock").unlink()
    medium = ReadingMedium()
    with open_store(made, SMALL, medium=medium):
        assert {name: medium.reads[name] for name in FILES} == dict.fromkeys(FILES, 2)


def test_a_slave_that_reads_its_settings_again_builds_queues_of_the_kind_that_they_name(tmp_path: Path) -> None:
    config = SMALL.with_changes(broker_role="SLAVE")
    with open_store(tmp_path / "master", SMALL) as master:
        master.topics.create("batches", attributes={"queue.type": "BatchCQ"})
        content = (tmp_path / "master" / "config" / "topics.json").read_bytes()
    with open_store(tmp_path / "slave", config) as slave:
        folder = tmp_path / "slave" / "config"
        folder.mkdir(exist_ok=True)
        (folder / "topics.json").write_bytes(content)
        slave.replication.reload_settings()
        assert slave._engine.parts.queues.type_of("batches") is QueueType.BATCH
