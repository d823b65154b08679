"""The log as bytes: what a slave's store takes is what the master's has."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.store.small_store import SMALL

from flintlog import Message, PutStatus, Store, open_store
from flintlog.disk.faulty.faulty_disk import FaultyMedium
from flintlog.errors import InvalidOffset, StoreClosed, SyncFailed
from flintlog.testing import temporary_store

SLAVE = SMALL.with_changes(broker_role="SLAVE")


def copy(master: Store, slave: Store, most_bytes: int = 1 << 20) -> None:
    """Everything that the slave lacks; `most_bytes` must hold a whole segment, because records are not cut here."""
    source, target = master.replication.raw_log, slave.replication.raw_log
    place = source.start if target.is_empty else target.end
    while data := source.read(place, most_bytes):
        place = target.append(place, data)


def fill(store: Store, count: int, first: int = 0) -> None:
    for number in range(first, first + count):
        store.put(Message("orders", bytes(number % 700), tags="t", keys=[f"k{number}"], queue_id=number % 3)).check()


def files(path: Path, folder: str) -> dict[str, bytes]:
    root = path / folder
    return {str(file.relative_to(root)): file.read_bytes() for file in sorted(root.rglob("*")) if file.is_file()}


@pytest.mark.parametrize("flush", ["sync", "async"])
def test_a_copied_log_has_the_same_files_and_queues(tmp_path: Path, flush: str) -> None:
    with (
        open_store(tmp_path / "master", SMALL.with_changes(flush=flush)) as master,
        open_store(tmp_path / "slave", SLAVE.with_changes(flush=flush)) as slave,
    ):
        fill(master, 300)
        copy(master, slave)
        fill(master, 300, 300)
        copy(master, slave)
        assert slave.replication.raw_log.end == master.replication.raw_log.end
        assert slave.queues() == master.queues()
        assert [each.body for each in slave.query("orders", "k599")] == [bytes(599)]
        assert slave.flushed_offset == slave.replication.raw_log.end or flush == "async"
        assert slave.replication.raw_log.digest(0, slave.replication.raw_log.end) == master.replication.raw_log.digest(
            0, master.replication.raw_log.end
        )
    assert files(tmp_path / "master", "commitlog") == files(tmp_path / "slave", "commitlog")
    assert files(tmp_path / "master", "consumequeue") == files(tmp_path / "slave", "consumequeue")


def test_a_slave_takes_no_puts_and_continues_as_a_master(tmp_path: Path) -> None:
    with open_store(tmp_path / "master", SMALL) as master, open_store(tmp_path / "slave", SLAVE) as slave:
        fill(master, 10)
        copy(master, slave)
        message = Message("orders", b"mine")
        assert slave.put(message, check=False).status is PutStatus.SERVICE_NOT_AVAILABLE
        assert slave.put_batch([message], check=False).status is PutStatus.SERVICE_NOT_AVAILABLE
        assert slave.put_async(message, check=False).result(1).status is PutStatus.SERVICE_NOT_AVAILABLE
        assert slave.replication.raw_log.end == master.replication.raw_log.end
    with open_store(tmp_path / "slave", SMALL) as promoted:
        assert promoted.put(Message("orders", b"mine", queue_id=1)).check().queue_offset == 3


def test_bytes_that_do_not_follow_are_refused(tmp_path: Path) -> None:
    with open_store(tmp_path / "master", SMALL) as master, open_store(tmp_path / "slave", SLAVE) as slave:
        fill(master, 10)
        data = master.replication.raw_log.read(0, 1 << 20)
        with pytest.raises(InvalidOffset):
            slave.replication.raw_log.append(8, data)
        slave.replication.raw_log.append(0, data)
        for offset in (0, len(data) + 1):
            with pytest.raises(InvalidOffset):
                slave.replication.raw_log.append(offset, data)
        with pytest.raises(StoreClosed):
            master.replication.raw_log.append(len(data), data)
        assert slave.replication.raw_log.end == len(data)


def test_under_sync_flush_only_what_is_on_disk_is_handed_out(tmp_path: Path) -> None:
    with open_store(tmp_path / "store", SMALL) as store:
        store.put(Message("orders", b"synced")).check()
        end = store.replication.raw_log.end
        assert end == store.flushed_offset == store.max_physical_offset
        assert store.replication.raw_log.read(end, 100) == b""
        with pytest.raises(InvalidOffset):
            store.replication.raw_log.digest(0, end + 1)


def test_nothing_is_taken_after_a_failed_sync() -> None:
    medium = FaultyMedium()
    config = SLAVE.with_changes(flush_interval_consume_queue=3_600_000)
    with open_store("/slave", config, medium=medium) as slave, temporary_store(SMALL) as master:
        for number in range(3):
            fill(master, 1, number)
            end = slave.replication.raw_log.end
            data = master.replication.raw_log.read(end, 1 << 20)
            if number == 0:
                slave.replication.raw_log.append(end, data)
                medium.fail_next_syncs(1)
            else:
                with pytest.raises(SyncFailed if number == 1 else StoreClosed):
                    slave.replication.raw_log.append(end, data)
        assert slave.replication.raw_log.end == end
