"""Closed batches on a slave: a part is never shown or kept, and a promoted slave knows which batches it has."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.faults.stopping import PowerLost, StoppingMedium
from tests.replication.ha_pair import SLAVE, running_master, running_slave, wait_until
from tests.store.small_store import ASYNC, SMALL

from flintlog import Message, Store, StoreConfig, open_store
from flintlog.disk.faulty.faulty_disk import FaultyMedium
from flintlog.format.record import SIZE_AND_MAGIC
from flintlog.maintenance.verify.verify import verify
from flintlog.testing import FakeClock

ROOT = Path("/store")
COUNT = 6


def batch(name: str = "b", count: int = COUNT) -> list[Message]:
    return [Message("orders", f"{name}{number}".encode() * 9, queue_id=number % 2) for number in range(count)]


def bodies(store: Store) -> list[bytes]:
    store.wait_dispatched()
    return sorted(
        message.body for info in store.queues() for message in store.get(info.topic, info.queue_id, 0).messages
    )


def body_list(*batches: list[Message]) -> list[bytes]:
    return sorted(bytes(message.body) for each in batches for message in each)


def record_ends(store: Store) -> list[int]:
    """Where each record of a log within one file ends."""
    data, ends, place = store.replication.raw_log.read(0, 1 << 20), [], 0
    while place < len(data):
        place += SIZE_AND_MAGIC.unpack_from(data, place)[0]
        ends.append(place)
    return ends


@pytest.fixture
def master(tmp_path: Path) -> Iterator[Store]:
    """Two messages, then two closed batches, then another message."""
    with open_store(tmp_path / "master", SMALL) as store:
        for message in batch("before", 2):
            store.put(message)
        store.put_closed(batch("first"), writer_id="etl", batch_id=3)
        store.put_closed(batch(), writer_id="etl", batch_id=4)
        store.put(Message("orders", b"after"))
        yield store


def copy_some(master: Store, slave: Store, ends: list[int]) -> None:
    """Give the slave the master's records, in pieces that end at these places."""
    start = slave.replication.raw_log.end
    for end in ends:
        slave.replication.raw_log.append(start, master.replication.raw_log.read(start, end - start))
        start = end


def is_whole(found: list[bytes], each: list[Message]) -> bool:
    """Whether a batch is there whole, and not only in part."""
    there = set(body_list(each)) & set(found)
    assert len(there) in (0, len(each)), "a part of a batch is there"
    return bool(there)


STOPS = ["stop", "kill", "power cut"]


@pytest.mark.parametrize("stop", STOPS)
@pytest.mark.parametrize("config", [SMALL, ASYNC], ids=["sync", "async"])
def test_a_promoted_slave_has_each_batch_whole_or_not_at_all(master: Store, config: StoreConfig, stop: str) -> None:
    ends = record_ends(master)
    for count in range(1, len(ends) + 1):
        medium = FaultyMedium()
        slave = open_store(ROOT, config.with_changes(broker_role="SLAVE"), medium=medium, clock=FakeClock())
        copy_some(master, slave, ends[:count])
        assert slave.replication.raw_log.end == ends[count - 1]
        seen = bodies(slave)
        is_whole(seen, batch("first"))
        is_whole(seen, batch())
        if stop == "stop":
            slave.shutdown()
        left = medium.crash(seed=count) if stop == "power cut" else medium.kill()
        if stop != "stop":
            slave.shutdown()
        with open_store(ROOT, config.with_changes(broker_role="ASYNC_MASTER"), medium=left, clock=FakeClock()) as store:
            found = bodies(store)
            if stop == "stop":
                assert found == seen
            for number, each in ((3, batch("first")), (4, batch())):
                was_there = is_whole(found, each)
                written = store.put_closed(each, writer_id="etl", batch_id=number)
                assert (written is None) == was_there
            missing = [batch("first"), batch()]
            assert [body for body in bodies(store) if body in body_list(*missing)] == body_list(*missing)
            assert store.put(Message("orders", b"next"))
        with open_store(ROOT, config, medium=left, clock=FakeClock()) as store:
            assert not list(store.recovery)


def test_all_of_a_masters_log_in_one_piece_is_shown(master: Store, tmp_path: Path) -> None:
    with open_store(tmp_path / "slave", SLAVE) as slave:
        copy_some(master, slave, [master.replication.raw_log.end])
        assert bodies(slave) == bodies(master)
    with open_store(tmp_path / "slave", SMALL) as store:
        assert not list(store.recovery)
        assert store.put_closed(batch(), writer_id="etl", batch_id=4) is None
        assert store.put_closed(batch("last"), writer_id="etl", batch_id=5) is not None
    assert not verify(tmp_path / "slave", SMALL).findings


def test_a_slave_that_was_stopped_inside_a_batch_gets_it_again(master: Store, tmp_path: Path) -> None:
    ends = record_ends(master)
    inside = len(ends) - 4
    with open_store(tmp_path / "slave", SLAVE) as slave:
        copy_some(master, slave, ends[:inside])
    master.shutdown()
    with (
        running_master(master.path, SMALL.with_changes(broker_role="ASYNC_MASTER")) as (again, _, port),
        running_slave(tmp_path / "slave", port) as (slave, _),
    ):
        assert [found.id for found in slave.recovery] == ["unclosed-batch"]
        wait_until(lambda: slave.replication.raw_log.end == again.replication.raw_log.end)
        assert bodies(slave) == bodies(again)


def test_a_part_that_the_master_has_left_is_shown_once_another_batch_follows(master: Store, tmp_path: Path) -> None:
    """RocketMQ ran the master's directory after a crash inside a batch, and its messages lie after the part."""
    ends = record_ends(master)
    note = tmp_path / "slave" / "flintlog" / "batches.json"
    with open_store(tmp_path / "slave", SLAVE) as slave:
        copy_some(master, slave, ends[:-4])
    opened = note.read_bytes()
    note.unlink()  # RocketMQ does not look at it
    with open_store(tmp_path / "slave", SMALL) as store:
        store.put(Message("orders", b"acknowledged"))
    note.write_bytes(opened)
    with open_store(tmp_path / "slave", SMALL) as left, open_store(tmp_path / "copy", SLAVE) as copy:
        assert [found.id for found in left.recovery] == ["unclosed-batch"]
        copy_some(left, copy, [left.replication.raw_log.end])
        assert b"acknowledged" in bodies(copy)
        assert bodies(copy) == bodies(left)
    with open_store(tmp_path / "copy", SMALL) as store:
        assert not list(store.recovery)


def half_a_batch_and_a_message_after_it(master: Store) -> FaultyMedium:
    """A directory that RocketMQ has run after a crash inside a batch."""
    medium = FaultyMedium()
    note = ROOT / "flintlog" / "batches.json"
    with open_store(ROOT, SLAVE, medium=medium) as slave:
        copy_some(master, slave, record_ends(master)[:-4])
    opened = medium.read(note)
    medium.remove(note)
    with open_store(ROOT, SMALL, medium=medium) as store:
        store.put(Message("orders", b"acknowledged"))
    medium.replace(note, opened)
    return medium


def check_a_slave_shows_it(medium: FaultyMedium, place: Path, why: str) -> None:
    with open_store(ROOT, SMALL, medium=medium) as store, open_store(place, SLAVE) as copy:
        store.put(Message("orders", b"next"))
        copy_some(store, copy, [store.replication.raw_log.end])
        assert {b"acknowledged", b"next"} <= set(bodies(copy)), why


def test_a_part_is_marked_whenever_the_opening_that_leaves_it_is_killed(master: Store, tmp_path: Path) -> None:
    found = half_a_batch_and_a_message_after_it(master)
    for step in range(200):
        dying, opened = StoppingMedium.over(found, step), None
        with suppress(PowerLost):
            opened = open_store(ROOT, SMALL, medium=dying)
        left, dying.left = dying.kill(), 1000
        if opened is not None:
            opened.shutdown()
        check_a_slave_shows_it(left, tmp_path / f"{step}", f"killed at step {step}")
        if opened is not None:
            break
    assert opened is not None, "an opening that does not end"
    assert step > 10


def test_a_part_that_a_slave_has_left_is_marked_when_it_is_promoted(master: Store, tmp_path: Path) -> None:
    medium = half_a_batch_and_a_message_after_it(master)
    with open_store(ROOT, SLAVE, medium=medium) as slave:
        assert [found.id for found in slave.recovery] == ["unclosed-batch"]
    check_a_slave_shows_it(medium, tmp_path / "copy", "it is held back")
    with open_store(ROOT, SMALL, medium=medium) as store:
        end = store.max_physical_offset
    with open_store(ROOT, SMALL, medium=medium) as store:
        assert store.max_physical_offset == end, "it is marked once"


def test_from_a_rocketmq_master_nothing_is_held_back(master: Store, tmp_path: Path) -> None:
    ends = record_ends(master)
    for number, follow_at in enumerate((1, len(ends) - 4)):
        with open_store(tmp_path / f"slave{number}", SLAVE) as slave:
            copy_some(master, slave, ends[:follow_at])
            slave.replication.raw_log.follow(has_batches=False)
            copy_some(master, slave, ends[follow_at:-3])
            assert bodies(slave) == body_list(batch("before", 2), batch("first"), batch("b", COUNT - 1))
        with (
            open_store(tmp_path / f"slave{number}", SMALL) as store,
            open_store(tmp_path / f"copy{number}", SLAVE) as copy,
        ):
            assert not list(store.recovery)
            copy_some(store, copy, [store.replication.raw_log.end])
            if number == 1:  # this slave had noted the batch before it learned that its master is RocketMQ
                assert bodies(copy) == bodies(store), "the promoted slave's own slave holds the part back"


@pytest.mark.parametrize("batch_id", [4, 3])
def test_a_batch_that_a_slave_cuts_for_its_master_may_be_written_again(
    master: Store, tmp_path: Path, batch_id: int
) -> None:
    ends = record_ends(master)
    with open_store(tmp_path / "slave", SLAVE) as slave:
        copy_some(master, slave, [master.replication.raw_log.end])
        before_batch = {3: 2, 4: 2 + COUNT + 2}
        slave.replication.raw_log.ask_for_cut(ends[before_batch[batch_id] - 1])
    with open_store(tmp_path / "slave", SMALL) as store:
        assert store.put_closed(batch("older"), writer_id="etl", batch_id=batch_id - 1) is None
        assert store.put_closed(batch("again"), writer_id="etl", batch_id=batch_id) is not None
