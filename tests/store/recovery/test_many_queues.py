"""Opening after a kill with many queues: what it costs the disk."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from flintlog import Message, StoreConfig, open_store
from flintlog.disk.faulty.faulty_disk import FaultyMedium

ROOT = Path("/store")
CONFIG = StoreConfig(
    flush="async",
    mapped_file_size_commit_log=64 * 1024,
    mapped_file_size_consume_queue=20 * 40,
    max_hash_slot_num=20,
    max_index_num=60,
)
QUEUES = 100


def test_the_folder_of_a_queue_that_is_built_again_is_synced_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The queues were made after the checkpoint, so their entries are not believed."""
    medium = FaultyMedium()
    store = open_store(ROOT, CONFIG, medium=medium)
    for _ in range(2):  # a checkpoint at the log's first record covers nothing
        store.put(Message("first", b"x"))
    queue_flush = store._engine.flushing.queue_flush
    assert queue_flush is not None
    queue_flush.flush_all()
    for queue_id in range(QUEUES):
        store.put(Message("orders", b"x", queue_id=queue_id))
    left = medium.kill()
    store.shutdown()
    synced = Counter[Path]()
    sync_directory = left.sync_directory

    def counted(path: Path) -> None:
        synced[path] += 1
        sync_directory(path)

    monkeypatch.setattr(left, "sync_directory", counted)
    with open_store(ROOT, CONFIG, medium=left) as again:
        assert len(again.queues()) == QUEUES + 1
        folders = {ROOT / "consumequeue" / "orders" / str(queue_id): 1 for queue_id in range(QUEUES)}
        assert {path: count for path, count in synced.items() if path in folders} == folders
