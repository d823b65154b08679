"""The files of transactions beside the log, and failing writes to them."""

from __future__ import annotations

import contextlib
import json
import threading
from pathlib import Path

import pytest
from tests.services.transaction_store import CONFIG, HALF, OP, bodies, opened, order, read

from flintlog import Message, PutFailed, PutStatus
from flintlog.disk.faulty.faulty_disk import FaultyMedium
from flintlog.errors import TransactionDecided
from flintlog.format.config_json import parse_config_object
from flintlog.services.transaction.transaction_loading import load_table
from flintlog.services.transaction.transaction_service import Decision
from flintlog.testing import FakeClock

ROOT = Path("/store")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def test_progress_is_kept_as_rocketmqs_consumer_offsets(tmp_path: Path, clock: FakeClock) -> None:
    with opened(tmp_path, clock) as (_, service):
        for number in range(4):
            service.begin(order(number))
        service.commit("t0").check()
        service.rollback("t1").check()
        service.rollback("t3").check()
    table = parse_config_object((tmp_path / "config" / "consumerOffset.json").read_bytes())["offsetTable"]
    # t2 is undecided, so notes about later transactions must be read again.
    assert table == {f"{HALF}@CID_RMQ_SYS_TRANS": {0: 2}, f"{OP}@CID_RMQ_SYS_TRANS": {0: 1}}
    with opened(tmp_path, clock) as (_, service):
        service.commit("t2").check()
    table = parse_config_object((tmp_path / "config" / "consumerOffset.json").read_bytes())["offsetTable"]
    assert table == {f"{HALF}@CID_RMQ_SYS_TRANS": {0: 4}, f"{OP}@CID_RMQ_SYS_TRANS": {0: 4}}


def test_undecided_transactions_are_counted_by_topic(tmp_path: Path, clock: FakeClock) -> None:
    file = tmp_path / "config" / "transactionMetrics"
    with opened(tmp_path, clock) as (_, service):
        service.begin(order(1))
        service.begin(Message("bills", b""))
        service.begin(Message("bills", b""))
        service.begin(order(2)).commit().check()
        clock.advance(CONFIG.transaction_metric_flush_interval)
        reported = json.loads(file.read_bytes())
        assert {topic: metric["count"] for topic, metric in reported["transactionCount"].items()} == {
            "bills": 2,
            "orders": 1,
        }
        service.rollback("t1").check()
    reported = json.loads(file.read_bytes())
    assert file.read_bytes() == json.dumps(reported, separators=(",", ":")).encode()
    assert reported["transactionCount"]["orders"] == {"count": 0, "timeStamp": clock.now_ms()}
    file.write_text(
        '{"dataVersion":{"counter":9,"stateVersion":0,"timestamp":5},"transactionCount":{"bills":{"count":-7,"timeStamp":1}}}'
    )
    with opened(tmp_path, clock):
        pass
    reported = json.loads(file.read_bytes())
    assert reported["transactionCount"]["bills"]["count"] == 2 and reported["dataVersion"]["counter"] > 9


def test_broken_counts_are_not_overwritten(tmp_path: Path, clock: FakeClock) -> None:
    with opened(tmp_path, clock) as (_, service):
        service.begin(order(1))
    file = tmp_path / "config" / "transactionMetrics"
    backup = file.with_name("transactionMetrics.bak")
    backup.write_bytes(file.read_bytes())
    file.write_bytes(b"{broken")
    with opened(tmp_path, clock) as (_, service):
        assert len(service.undecided()) == 1
    file.write_bytes(b"{broken")
    backup.write_bytes(b"{also")
    with opened(tmp_path, clock) as (store, service):
        assert [finding.id for finding in store.recovery] == ["damaged-config"]
        assert len(service.undecided()) == 1
    assert (file.read_bytes(), backup.read_bytes()) == (b"{broken", b"{also")


def test_a_full_disk_leaves_a_transaction_undecided(clock: FakeClock) -> None:
    medium = FaultyMedium(clock_ms=clock.now_ms)
    with opened(ROOT, clock, medium=medium) as (store, service):
        service.begin(order(100)).commit().check()
        store.flush()
        medium.capacity = medium._used() + 30_000  # room for small files, and none for a log file
        with contextlib.suppress(PutFailed):
            for number in range(100):
                service.begin(order(number, filler="x" * 20_000))
        waiting = service.undecided()
        receipts = [service.commit(each.id, check=False) for each in waiting]
        refused = [each.id for each, receipt in zip(waiting, receipts, strict=True) if not receipt]
        assert refused and all(
            receipt.status in (PutStatus.PUT_OK, PutStatus.CREATE_MAPPED_FILE_FAILED) for receipt in receipts
        )
        assert [each.id for each in service.undecided()] == refused
        medium.capacity = None
        assert all(service.commit(name) for name in refused)
        assert len(bodies(store)) == len(waiting) + 1


@pytest.mark.parametrize("decide", ["commit", "rollback"])
@pytest.mark.parametrize("seed", range(6))
def test_a_decision_whose_sync_fails_is_not_made_twice(decide: str, seed: int, clock: FakeClock) -> None:
    medium = FaultyMedium(clock_ms=clock.now_ms)
    with opened(ROOT, clock, medium=medium) as (_, service):
        service.begin(order(1))
        medium.fail_next_syncs(1)
        assert getattr(service, decide)("t1", check=False).status is PutStatus.FLUSH_DISK_TIMEOUT
        with pytest.raises(TransactionDecided):
            service.commit("t1")
        after = medium.crash(seed)
    with opened(ROOT, clock, medium=after) as (store, service):
        service.on_check(lambda _: Decision.COMMIT)
        was_decided = service.undecided() == []
        clock.advance(CONFIG.transaction_check_interval)
        clock.advance(CONFIG.transaction_check_interval)
        assert bodies(store) == ([] if was_decided and decide == "rollback" else [b"order 1"])


def test_a_failed_sync_of_a_check_leaves_the_transaction_whole(clock: FakeClock) -> None:
    medium = FaultyMedium(clock_ms=clock.now_ms)
    with opened(ROOT, clock, medium=medium) as (_, service):
        service.on_check(lambda _: Decision.COMMIT)
        service.begin(order(1))
        medium.fail_next_syncs(1)
        with pytest.raises(PutFailed):
            clock.advance(CONFIG.transaction_check_interval)
        after = medium.kill()
    with opened(ROOT, clock, medium=after) as (store, service):
        assert [each.id for each in service.undecided()] == ["t1"]
        service.commit("t1").check()
        service.on_check(lambda _: Decision.COMMIT)
        clock.advance(CONFIG.transaction_check_interval * 2)
        assert bodies(store) == [b"order 1"]


def wait_for(event: threading.Event) -> None:
    assert event.wait(10)


def test_a_copy_that_is_slow_to_reach_the_disk_is_decided_with_its_transaction(clock: FakeClock) -> None:
    medium = FaultyMedium(clock_ms=clock.now_ms)
    disk_is_free = threading.Event()
    with opened(ROOT, clock, CONFIG.with_changes(sync_flush_timeout=30), medium) as (store, service):
        service.on_check(lambda _: Decision.ROLLBACK)
        service.begin(order(1))
        medium.before_sync = lambda path: None if "commitlog" not in str(path) else wait_for(disk_is_free)
        with pytest.raises(PutFailed, match="FLUSH_DISK_TIMEOUT"):
            clock.advance(CONFIG.transaction_check_interval)
        threading.Timer(0.05, disk_is_free.set).start()
        service.commit("t1").check()
        assert bodies(store) == [b"order 1"] and read(store, HALF)[1].properties["TRANSACTION_CHECK_TIMES"] == "1"
        assert read(store)[0].prepared_transaction_offset == read(store, HALF)[1].physical_offset
        clock.advance(CONFIG.transaction_check_interval * 2)
        assert bodies(store) == [b"order 1"] and service.undecided() == []


def test_saved_offsets_beyond_the_queues_count_as_their_ends(tmp_path: Path, clock: FakeClock) -> None:
    with opened(tmp_path, clock) as (store, service):
        service.begin(order(1))
        store.wait_dispatched()
        table, decided = load_table(store._host, 99, 99)
        assert (table.first_half, table.first_op, table.undecided(), decided) == (1, 0, [], [])
        table, decided = load_table(store._host, -1, -1)
        assert (table.first_half, table.first_op, len(table), decided) == (0, 0, 1, [])
