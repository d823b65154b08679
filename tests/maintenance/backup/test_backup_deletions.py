"""Backups and deleted topics: a restored store leaves them deleted, and reuses none of their offsets."""

from __future__ import annotations

from pathlib import Path

from tests.store.small_store import SMALL

from flintlog import Message, open_store
from flintlog.maintenance.backup.backup import backup
from flintlog.maintenance.backup.restore import restore
from flintlog.maintenance.verify.verify import verify


def backed_up(tmp_path: Path) -> tuple[Path, int]:
    """A backup of a store whose topic was deleted and made again; and where the log ended before the deletion."""
    with open_store(tmp_path / "store", SMALL) as store:
        for number in range(5):
            store.put(Message("orders", b"old %d" % number))
        end = store.max_physical_offset
        store.put(Message("others", b"kept"))
        store.topics.delete("orders")
        store.put(Message("orders", b"new"))
        backup(store.path, tmp_path / "backup")
    return tmp_path / "backup", end


def test_a_deleted_topic_stays_deleted(tmp_path: Path) -> None:
    target, _ = backed_up(tmp_path)
    restore(target, tmp_path / "new", config=SMALL)
    assert verify(tmp_path / "new", SMALL).findings == []
    with open_store(tmp_path / "new", SMALL) as store:
        assert [(each.queue_offset, each.body) for each in store.get("orders", 0, 5).messages] == [(5, b"new")]
        assert store.get("orders", 0, 0).messages == []
        assert store.put(Message("orders", b"next")).queue_offset == 6


def test_a_restore_to_a_place_before_the_deletion_has_the_topic_again(tmp_path: Path) -> None:
    target, end = backed_up(tmp_path)
    restore(target, tmp_path / "new", to_offset=end, config=SMALL)
    with open_store(tmp_path / "new", SMALL) as store:
        assert [each.body for each in store.get("orders", 0, 0).messages] == [b"old %d" % number for number in range(5)]
