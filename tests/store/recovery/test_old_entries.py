"""The entries that an opening remembers before it cuts them: not more than it keeps."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.store.small_store import SMALL

from flintlog import Message, StoreConfig, open_store
from flintlog.disk.faulty.faulty_disk import FaultyMedium
from flintlog.store.queues.deleted_queues import FOR_EVER, DeletedQueue
from flintlog.store.recovery import old_entries
from flintlog.store.recovery.old_entries import OldEntries

COUNT = 50


@pytest.mark.parametrize("limit", [COUNT - 1, COUNT])
def test_of_too_many_entries_none_is_kept_and_few_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    read: list[object] = []

    def place(*values: object) -> object:
        read.append(values)
        return values

    monkeypatch.setattr(old_entries, "Place", place)
    monkeypatch.setattr(old_entries, "MAX_ENTRIES", limit)
    with open_store(tmp_path, StoreConfig(flush="async")) as store:
        for queue_id in (0, 1, 2):
            for _ in range(COUNT):
                store.put(Message("orders", b"x", queue_id=queue_id))
        store.wait_dispatched()
        kept = OldEntries()
        for queue in store._engine.parts.queues.all():
            kept.keep(queue, 0)
        assert not kept._places
        assert len(read) <= 2 * (limit + 2)


def test_a_filler_of_one_queue_does_not_take_the_first_record_of_the_log_from_another() -> None:
    """A file that begins in the middle is filled with entries that name the record at 0."""
    root, medium = Path("/store"), FaultyMedium()
    config = SMALL.with_changes(message_index_enable=False)
    store = open_store(root, config, medium=medium)
    for body in (b"first", b"second"):
        store.put(Message("events", body))
    queues = store._engine.parts.queues
    queues.deleted.add([DeletedQueue("orders", 0, 1, FOR_EVER)])  # the log lost its only record
    queues.offsets.set("orders", 0, 1)
    assert store._engine.flushing.queue_flush is not None
    store._engine.flushing.queue_flush.flush_all()
    assert store.put(Message("orders", b"new")).queue_offset == 1
    left = medium.kill()
    store.shutdown()
    left.remove_tree(root / "consumequeue" / "events")
    with open_store(root, config, medium=left) as store:
        assert [message.body for message in store.get("events", 0, 0).messages] == [b"first", b"second"]
        assert [message.body for message in store.get("orders", 0, 1).messages] == [b"new"]
