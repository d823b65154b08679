"""A queue whose next offset lies far after its last entry: what is put there is read there, whatever happens next."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.store.small_store import ASYNC

from flintlog import Message, Store, open_store
from flintlog.derive import offset_order
from flintlog.maintenance.repair.repair import repair
from flintlog.maintenance.verify.verify import verify
from flintlog.store.dispatch import gap_filling

CONFIG = ASYNC.with_changes(mapped_file_size_consume_queue=20 * 10_000)
GAPS = pytest.mark.parametrize("gap", [100_000, 5_000_000, 1 << 40])
BEFORE = 30
AFTER_GAP = pytest.mark.parametrize("count", [1, 3])


def put(store: Store) -> int:
    receipt = store.put(Message("orders", b"x")).check()
    check(store, receipt.queue_offset)
    return receipt.queue_offset


def check(store: Store, offset: int) -> None:
    store.wait_dispatched()
    assert [message.queue_offset for message in store.get("orders", 0, offset, 1).messages] == [offset]


def with_gap(store: Store, gap: int, count: int) -> list[int]:
    """Messages before and after a gap; their offsets."""
    offsets = [put(store) for _ in range(BEFORE)]
    store._engine.parts.queues.offsets.set("orders", 0, BEFORE + gap)
    return offsets + [put(store) for _ in range(count)]


def check_goes_on(root: Path, offsets: list[int]) -> list[str]:
    """All are there, the next message gets the next offset, and so again; what the opening found."""
    for round_number in range(2):
        with open_store(root, CONFIG) as store:
            findings = [finding.id for finding in store.recovery]
            for offset in offsets:
                check(store, offset)
            assert put(store) == offsets[-1] + 1 + round_number
            assert store.min_offset("orders", 0) == 0
        if not round_number:
            found = findings
    return found


@GAPS
@AFTER_GAP
def test_a_message_after_a_wide_gap_is_there_after_a_clean_stop(tmp_path: Path, gap: int, count: int) -> None:
    with open_store(tmp_path, CONFIG) as store:
        offsets = with_gap(store, gap, count)
        assert offsets[BEFORE] == BEFORE + gap
    assert check_goes_on(tmp_path, offsets) == []


@GAPS
@AFTER_GAP
@pytest.mark.parametrize("is_covered", [True, False], ids=["covered", "not covered"])
def test_a_message_after_a_wide_gap_is_there_after_a_kill(
    tmp_path: Path, gap: int, count: int, is_covered: bool
) -> None:
    with open_store(tmp_path / "store", CONFIG) as store:
        offsets = with_gap(store, gap, count)
        if is_covered:
            assert store._engine.flushing.queue_flush is not None
            store._engine.flushing.queue_flush.flush_all()
        shutil.copytree(tmp_path / "store", tmp_path / "killed")
    assert check_goes_on(tmp_path / "killed", offsets) == []


@GAPS
@AFTER_GAP
def test_a_message_after_a_wide_gap_is_there_when_its_queue_is_built_again(
    tmp_path: Path, gap: int, count: int
) -> None:
    with open_store(tmp_path, CONFIG) as store:
        offsets = with_gap(store, gap, count)
    shutil.rmtree(tmp_path / "consumequeue" / "orders")
    assert check_goes_on(tmp_path, offsets) == ["missing-queues"]


@GAPS
def test_a_message_after_a_wide_gap_is_there_after_a_repair(tmp_path: Path, gap: int) -> None:
    with open_store(tmp_path / "store", CONFIG) as store:
        offsets = with_gap(store, gap, 1)
    shutil.rmtree(tmp_path / "store" / "consumequeue" / "orders")
    repair(tmp_path / "store", CONFIG)
    assert [finding.id for finding in verify(tmp_path / "store", CONFIG).findings] == ["queue-gap"]
    check_goes_on(tmp_path / "store", offsets)


@pytest.mark.parametrize("has_room", [True, False], ids=["room", "no room"])
def test_a_slave_believes_a_gap_for_which_the_damage_of_its_master_has_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_room: bool
) -> None:
    """A slave has no note of its master's, and one wrong bit in a record must not end its queue."""
    for module in (offset_order, gap_filling):
        monkeypatch.setattr(module, "MAX_UNSEEN_GAP", 5)
    with (
        open_store(tmp_path / "master", CONFIG) as master,
        open_store(tmp_path / "slave", CONFIG.with_changes(broker_role="SLAVE")) as slave,
    ):
        before = [put(master) for _ in range(BEFORE)]
        start = master.max_physical_offset
        for _ in range(40):
            master.put(Message("lost", bytes(500))).check()
        damage = [(start, master.max_physical_offset)] if has_room else []
        slave.replication.raw_log.append(0, master.replication.raw_log.read(0, 1 << 20), damage=damage)
        master._engine.parts.queues.offsets.set("orders", 0, BEFORE + 20)
        after = put(master)
        slave.replication.raw_log.append(
            slave.replication.raw_log.end, master.replication.raw_log.read(slave.replication.raw_log.end, 1 << 20)
        )
        slave.wait_dispatched()
        assert slave.max_offset("orders", 0) == (after + 1 if has_room else BEFORE)
        for offset in [*before, *([after] if has_room else [])]:
            check(slave, offset)
