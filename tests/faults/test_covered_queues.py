"""The count of what a checkpoint vouches for: it finds what queues lost, and nothing where nothing is wrong."""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread

import pytest

from flintlog import Arrival, DiskFull, FlintlogError, Message, PutStatus, open_store
from flintlog.disk.faulty.faulty_disk import FaultyMedium
from flintlog.format.checkpoint import parse_checkpoint
from flintlog.store.queues.covered_queues import CoveredNote, CoveredQueues, QueueClaim
from flintlog.store.queues.queue_table import QueueTable
from flintlog.store.retention.retention import Retention
from tests.faults.stopping import PowerLost, StoppingMedium
from tests.faults.world import ROOT, World, assert_there, small_config

NOTE = ROOT / "flintlog" / "queues.json"
OFFSET_BITS = 64


def put(world: World, topic: str, queue_id: int = 0, count: int = 1) -> None:
    for number in range(count):
        message = Message(topic, b"%d" % number, queue_id=queue_id, keys=[f"{topic}-{queue_id}-{number}"])
        world.note(message, world.store.put(message))


def covered_world() -> World:
    """Two queues, one of them with a single message, and a checkpoint that vouches for both."""
    world = World(small_config("async"))
    put(world, "single")
    put(world, "many", count=30)
    world.flush()
    world.tide()
    return world


def reopen(world: World, found: FaultyMedium) -> list[str]:
    """Go on after a crash; what was found about queues."""
    world.go_on_with(found)
    return [finding.id for finding in world.store.recovery if finding.id.endswith("-queues")]


def queue_file(topic: str) -> Path:
    return ROOT / "consumequeue" / topic / "0" / f"{0:020d}"


@pytest.mark.parametrize("topic", ["single", "many"])
@pytest.mark.parametrize("bit", range(OFFSET_BITS))
def test_a_last_entry_that_points_behind_the_checkpoint_is_not_a_lost_record(bit: int, topic: str) -> None:
    """Its record is there: cut like an entry whose record is not, its offset would be given to the next message."""
    world = covered_world()
    found = world.medium.kill()
    entry = next(sent.receipt for sent in reversed(world.kept.values()) if sent.message.topic == topic)
    found.flip_bit(queue_file(topic), entry.queue_offset * 20 + bit // 8, 7 - bit % 8)
    reopen(world, found)
    put(world, topic)
    assert list(world.loose.values())[-1].receipt.queue_offset == entry.queue_offset + 1
    world.abandon()


@pytest.mark.parametrize("bit", range(3, 40))
def test_an_entry_behind_all_files_is_damaged_also_where_nobody_counted(bit: int) -> None:
    world = covered_world()
    found = world.medium.kill()
    found.remove(NOTE)
    found.flip_bit(queue_file("single"), bit // 8, 7 - bit % 8)
    assert reopen(world, found) == ["damaged-queues"]
    world.check()
    world.abandon()


@pytest.mark.parametrize("power", [True, False], ids=["power", "process"])
def test_a_queue_that_is_gone_after_a_crash_is_built_again(power: bool) -> None:
    world = covered_world()
    found = world.medium.crash(7) if power else world.medium.kill()
    found.remove_tree(ROOT / "consumequeue" / "single")
    assert reopen(world, found) == ["missing-queues"]
    world.check()
    world.abandon()


@pytest.mark.parametrize("seed", range(20))
def test_a_crash_without_damage_is_no_doubt(seed: int) -> None:
    """Entries of records that the power took, behind the checkpoint, are just cut."""
    world = covered_world()
    put(world, "many", count=60)
    put(world, "new", count=3)
    world.medium.drift(seed)
    assert reopen(world, world.medium.crash(seed)) == []
    world.check()
    world.abandon()


@pytest.mark.parametrize("seed", [None, *range(12)])
def test_a_later_queue_that_lost_all_its_entries_is_no_doubt(seed: int | None) -> None:
    """It goes on where its deleted namesake ended: its first file is not that of the first offset."""
    world = covered_world()
    put(world, "many", count=20)
    world.store.topics.delete("many")
    world.kept = {offset: sent for offset, sent in world.kept.items() if sent.message.topic != "many"}
    world.loose.clear()
    put(world, "single")
    world.flush()
    world.tide()
    put(world, "many")
    assert reopen(world, world.medium.kill() if seed is None else world.medium.crash(seed)) == []
    world.abandon()


def test_a_queue_of_which_the_power_left_only_the_entry_is_not_missed_after_a_clean_stop() -> None:
    world = covered_world()
    put(world, "new")
    (lost,) = world.loose.values()
    world.loose.clear()
    found = world.medium.kill()
    log_file = found.open(ROOT / "commitlog" / f"{0:020d}", writable=True)
    log_file.clear(lost.receipt.physical_offset, lost.receipt.end_offset)
    assert reopen(world, found) == []
    world.store.close()
    assert reopen(world, world.medium.kill()) == []
    world.check()
    world.abandon()


def test_a_deleted_topic_is_not_missed_after_a_crash() -> None:
    world = covered_world()
    world.store.topics.delete("single")
    del world.kept[0]
    assert world.medium.exists(NOTE)
    assert reopen(world, world.medium.kill()) == []
    world.abandon()


def test_the_power_goes_at_each_step_of_a_thorough_pass() -> None:
    """Whichever checkpoint is found, its count is known and right."""
    for step in range(40):
        world = covered_world()
        vouched = world.store._engine.parts.checkpoint.values.logics_physical_offset
        medium = StoppingMedium.over(world.medium, 10_000)
        world.go_on_with(medium)
        put(world, "many", count=5)
        put(world, "single")
        medium.left = step
        with suppress(PowerLost, FlintlogError):
            world.tide()
        is_done = not medium.is_off
        medium.left = 10_000
        found = medium.crash(step)
        covered = parse_checkpoint(found.read(ROOT / "checkpoint")).logics_physical_offset
        note = noted(found).note
        assert note is not None and covered >= vouched, step
        assert note.covered == covered or not is_done, step
        assert reopen(world, found) == [], step
        world.forget_lost()
        world.check()
        world.abandon()
        if is_done:
            break
    assert is_done and step > 3


def test_a_record_that_is_half_done_is_not_counted() -> None:
    """It has its queue entry and no room for its key: a count with it would be wrong for the record before."""
    world = covered_world()
    put(world, "many")
    world.medium.capacity = world.medium._used() + 500  # for the count, not for an index file
    keys = [f"k{number}" for number in range(40)]
    receipts = [world.store.put(Message("many", b"", keys=keys)) for _ in range(3)]
    assert [receipt.status for receipt in receipts] == [PutStatus.PUT_OK] * 3
    assert world.store._engine.dispatcher.failure is not None
    world.tide()
    world.medium.capacity = None
    assert reopen(world, world.medium.kill()) == []
    world.abandon()


def test_without_room_for_the_count_the_checkpoint_goes_on() -> None:
    world = covered_world()
    put(world, "many", count=3)
    last = list(world.loose)[-1]
    world.medium.capacity = world.medium._used()
    world.tide()
    assert world.store._engine.parts.checkpoint.values.logics_physical_offset == last
    assert world.store._engine.parts.queues.covered.note is None
    world.medium.capacity = None
    assert reopen(world, world.medium.kill()) == []
    for sent in world.kept.values():
        assert_there(world.store, sent)
    world.abandon()


def test_what_is_counted_while_others_put_belongs_together(tmp_path: Path) -> None:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with open_store(tmp_path, small_config("async", mapped_file_size_consume_queue=20 * 30_000)) as store:
            store.put(Message("orders", b""))
            putting = Thread(target=lambda: [store.put(Message("orders", b"", tags="a")) for _ in range(20_000)])
            putting.start()
            while putting.is_alive():
                (covered, _), claims = store._engine.dispatcher.claim_queues()
                found = store.message_at(covered)
                assert found is not None
                if claims is not None:
                    end = found.queue_offset + 1
                    assert claims == [QueueClaim("orders", 0, end, end * 20, covered + found.size)]
            putting.join()
    finally:
        sys.setswitchinterval(interval)


def test_a_clean_opening_that_derives_something_leaves_the_note_true() -> None:
    world = covered_world()
    world.end()
    world.medium.remove_tree(ROOT / "index")
    world.store = world.reopened()
    put(world, "many", count=3)
    world.flush()
    assert reopen(world, world.medium.kill()) == []
    world.check()
    world.abandon()


def test_a_put_beside_one_who_counts_can_be_read_when_it_returns(monkeypatch: pytest.MonkeyPatch) -> None:
    world = covered_world()
    started = Event()

    def claim_slowly(_: object) -> list[QueueClaim]:
        started.set()
        time.sleep(0.02)
        return []

    monkeypatch.setattr(QueueTable, "claims", claim_slowly)
    counting = Thread(target=world.store._engine.dispatcher.claim_queues)
    counting.start()
    started.wait()
    receipt = world.store.put(Message("many", b"new"))
    assert world.store.get("many", 0, receipt.queue_offset, 1).messages
    counting.join()
    world.abandon()


@pytest.mark.parametrize("is_counted", [True, False])
@pytest.mark.parametrize("seed", range(6))
def test_a_queue_that_an_opening_built_again_is_durable_before_a_checkpoint_vouches_for_it(
    seed: int, is_counted: bool
) -> None:
    """Its files were dropped as a whole: what is written in their place has not been synced, though they had been."""
    world = World(small_config("sync", mapped_file_size_consume_queue=20 * 8, message_index_enable=False))
    put(world, "old")
    put(world, "other")
    world.tide()
    put(world, "new", count=8)
    assert reopen(world, world.medium.kill()) == []
    put(world, "old", count=150)
    world.tide()
    if not is_counted:
        world.store._engine.parts.queues.covered.forget()
    assert reopen(world, world.medium.crash(seed)) == []
    assert world.store.max_offset("new", 0) == len(world.store.get("new", 0, 0).messages) == 8
    world.abandon()


def test_a_count_between_two_expired_files_is_forgotten() -> None:
    """Retention pauses between queues, and a thorough pass may come just then."""
    sizes = {"mapped_file_size_consume_queue": 20 * 8, "message_index_enable": False}
    world = World(small_config("sync", file_reserved_time=72, **sizes))
    engine = world.store._engine
    put(world, "first", count=9)
    put(world, "rare", count=8)
    while len(engine.parts.segments.segments) < 4:
        put(world, "live", count=5)
    world.tide()
    engine.parts.segments.delete_expired(0, now_ms=1 << 60, batch_max=1, force_after_ms=0, at_once=True, below=None)
    retention = Retention(engine.config, engine.parts, engine.lifecycle, engine.dispatcher, engine.now_ms)._follow_log()
    assert next(retention) > 0
    put(world, "live")
    world.tide()
    put(world, "rare")
    for _ in retention:
        pass
    assert reopen(world, world.medium.kill()) == []
    world.abandon()


def test_who_waits_to_count_keeps_nobody_from_putting() -> None:
    """A listener may be busy for long: neither puts nor the checkpoint stand still behind it."""
    world = World(small_config("async"))
    is_busy, may_end = Event(), Event()

    def listen(arrival: Arrival) -> None:
        if arrival.topic == "slow":
            is_busy.set()
            may_end.wait()

    world.store.on_arrival(listen)
    slow = Thread(target=world.store.put, args=[Message("slow", b"")])
    slow.start()
    is_busy.wait()
    flush = Thread(target=world.tide)
    flush.start()
    time.sleep(0.05)
    began = time.monotonic()
    for _ in range(20):
        world.store.put(Message("many", b"new")).check()
    took_s = time.monotonic() - began
    flush.join(30)
    is_flushed = not flush.is_alive()
    may_end.set()
    slow.join()
    assert is_flushed
    assert took_s < 1, "twenty times the patience would be two seconds"
    world.abandon()


def noted(medium: FaultyMedium) -> CoveredQueues:
    made = CoveredQueues(ROOT, medium)
    made.load()
    return made


CLAIM = QueueClaim("orders", 0, 5, 100, 700)


def test_a_note_is_read_as_it_was_written() -> None:
    medium = FaultyMedium()
    noted(medium).write(CoveredNote(600, [CLAIM]))
    assert noted(medium).note == CoveredNote(600, [CLAIM])
    noted(medium).forget()
    assert noted(medium).note is None
    assert not noted(medium).is_damaged
    assert not medium.exists(NOTE)


def test_without_room_even_for_its_folder_there_is_nothing_to_take_back() -> None:
    class Full(FaultyMedium):
        def make_directories(self, path: Path) -> None:
            raise DiskFull("no space left", path=path)

    written = noted(Full())
    written.write(CoveredNote(100, [CLAIM]))
    assert written.note is None


OLD_NOTE = b'[{"covered": 100, "queueBytes": 20}]'


@pytest.mark.parametrize("content", [b"", b"[", b"{}", b'{"covered": "x"}', b"\xff\xfe", OLD_NOTE])
def test_a_damaged_note_and_one_of_an_earlier_version_are_known_as_such(content: bytes) -> None:
    medium = FaultyMedium()
    medium.make_directories(NOTE.parent)
    medium.write(NOTE, content)
    assert noted(medium).note is None
    assert noted(medium).is_damaged
    noted(medium).forget()
    assert not medium.exists(NOTE)


@pytest.mark.parametrize("content", [b"", OLD_NOTE, b'{"covered": 100'])
def test_with_a_damaged_note_the_queues_are_built_from_the_log(content: bytes) -> None:
    world = covered_world()
    put(world, "many", count=5)
    world.flush()
    found = world.medium.kill()
    found.write(NOTE, content)
    reopen(world, found)
    assert world.store.recovery.dispatched_from == 0
    world.check()
    world.abandon()
