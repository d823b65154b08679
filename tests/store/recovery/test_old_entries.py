"""The entries that an opening remembers before it cuts them: not more than it keeps."""

from __future__ import annotations

from pathlib import Path

import pytest

from flintlog import Message, StoreConfig, open_store
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
