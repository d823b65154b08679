"""One flipped bit costs at most the message it is in."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from flintlog import DamagedRecord, Store
from flintlog.disk.faulty.faulty_disk import FaultyMedium
from tests.faults.decaying_world import PROTECTED, DecayingWorld
from tests.faults.world import ROOT, SEGMENT_BYTES, Sent, World, derived, is_there, small_config

SEEDS = [*range(10), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(10, 80))]


def filled(seed: int, *, clean: bool) -> tuple[World, FaultyMedium]:
    world = World(small_config("sync"))
    world.put(seed, 45)
    world.tide()
    world.put(seed + 1, 15)
    found = world.medium if clean else world.medium.kill()
    world.store.shutdown()
    return world, found


def readable_by_queue(store: Store, sent: Sent) -> bool:
    try:
        page = store.get(sent.message.topic, sent.message.queue_id, sent.receipt.queue_offset, 1)
    except DamagedRecord:
        return False
    return [m.physical_offset for m in page.messages] == [sent.receipt.physical_offset]


def lost(world: World) -> list[Sent]:
    return [s for s in world.kept.values() if not (is_there(world.store, s) and readable_by_queue(world.store, s))]


def assert_costs_only(world: World, victim: Sent | None) -> None:
    gone = lost(world)
    assert gone in ([], [victim]), [s.receipt for s in gone]


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "killed"])
@pytest.mark.parametrize("seed", SEEDS)
def test_flipped_bit_in_a_record(seed: int, clean: bool) -> None:
    chance = random.Random(seed)
    world, found = filled(seed, clean=clean)
    victim = chance.choice(list(world.kept.values()))
    receipt = victim.receipt
    body = range(88, 88 + len(victim.message.body))
    at = receipt.physical_offset + chance.choice([chance.choice(PROTECTED), chance.choice(body)])
    found.flip_bit(ROOT / "commitlog" / f"{at // SEGMENT_BYTES * SEGMENT_BYTES:020d}", at % SEGMENT_BYTES, seed % 8)
    world.medium, world.store = found, world.open(found)
    assert_costs_only(world, victim)
    del world.kept[receipt.physical_offset]  # lost, it may leave its offset to another
    world.put(seed + 2, 20)
    world.crash(seed)
    assert lost(world) == []
    world.stop()
    assert lost(world) == []
    world.abandon()


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "killed"])
@pytest.mark.parametrize("seed", SEEDS)
def test_flipped_bit_in_a_queue(seed: int, clean: bool) -> None:
    chance = random.Random(seed)
    world, found = filled(seed, clean=clean)
    victim = chance.choice(list(world.kept.values()))
    folder = ROOT / "consumequeue" / victim.message.topic / str(victim.message.queue_id)
    file, place = divmod(victim.receipt.queue_offset * 20, 800)
    bit = chance.choice([0, 64, chance.randrange(160)])  # the signs of offset and size end a queue
    found.flip_bit(folder / f"{file * 800:020d}", place + bit // 8, 7 - bit % 8)
    world.medium, world.store = found, world.open(found)
    assert_costs_only(world, victim)
    world.put(seed + 2, 20)
    assert_costs_only(world, victim)
    world.abandon()


def put_into_one_queue(world: DecayingWorld, count: int) -> None:
    for seed in range(count):
        message = world.make(random.Random(seed), "orders", 0)
        world.note(message, world.store.put(message))


def one_queue(*, clean: bool) -> tuple[DecayingWorld, Path]:
    """Ten messages in one queue, stopped, and the queue's file; the checkpoint vouches for all of them."""
    world = DecayingWorld(small_config("sync"))
    put_into_one_queue(world, 10)
    world.tide()
    found = world.medium if clean else world.medium.kill()
    world.store.shutdown()
    world.medium = found
    return world, ROOT / "consumequeue" / "orders" / "0" / f"{0:020d}"


def go_on_in_one_queue(world: DecayingWorld, entry: int) -> None:
    """Open, put into the same queue again, and see what a consumer meets."""
    world.victim_entries.add(("orders", 0, entry))
    world.are_queues_comparable = False
    world.store = world.reopened()
    put_into_one_queue(world, 5)
    world.check()
    world.abandon()


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "killed"])
@pytest.mark.parametrize("byte", [0, 1, 4, 6, 7, 9, 10, 11])
@pytest.mark.parametrize("entry", [0, 4, 9])
def test_an_entry_that_points_elsewhere_takes_no_other_along(entry: int, byte: int, clean: bool) -> None:
    world, queue = one_queue(clean=clean)
    world.medium.flip_bit(queue, entry * 20 + byte, 4)
    go_on_in_one_queue(world, entry)


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "killed"])
def test_a_last_entry_that_is_too_long_does_not_hide_what_is_put_next(clean: bool) -> None:
    world, queue = one_queue(clean=clean)
    world.medium.flip_bit(queue, 9 * 20 + 8, 0)  # 16 MiB more
    go_on_in_one_queue(world, 9)
    assert [found.id for found in world.store.recovery.findings] == ["damaged-queues"]


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "killed"])
@pytest.mark.parametrize("byte", [10, 11])
def test_an_entry_behind_the_end_is_no_message(byte: int, clean: bool) -> None:
    world, queue = one_queue(clean=clean)
    world.medium.flip_bit(queue, 10 * 20 + byte, 4)
    go_on_in_one_queue(world, 10)
    # After a crash nothing after the noted end is believed, so nothing there is doubtful.
    assert [found.id for found in world.store.recovery.findings] == (["damaged-queues"] if clean else [])


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "killed"])
@pytest.mark.parametrize("bit", range(13, 63, 7))
def test_the_only_record_of_a_file_that_says_another_place_does_not_keep_the_store_shut(bit: int, clean: bool) -> None:
    """It looks as if the file had a wrong name."""
    world = DecayingWorld(small_config("sync"))
    while world.store.max_physical_offset <= 2 * SEGMENT_BYTES:
        world.put(1)
    found = world.medium if clean else world.medium.kill()
    world.store.shutdown()
    world.medium = found
    world.flip_log_at(2 * SEGMENT_BYTES + 28 + 7 - bit // 8, bit % 8)
    world.store = world.reopened()
    world.check()
    world.put(2, 10)
    world.check()
    world.abandon()


@pytest.mark.parametrize("is_covered", [True, False], ids=["covered", "behind-the-checkpoint"])
@pytest.mark.parametrize("place", [15, 27, 39, "topic"])
def test_a_record_whose_queue_rotted_takes_no_other_ones_place(place: int | str, is_covered: bool) -> None:
    """Queue id, queue offset, system flag, topic: the CRC over all of the record knows that one of them is wrong."""
    for seed in range(6):
        world = DecayingWorld(small_config("sync", enabled_append_prop_crc=True))
        world.put(seed, 20)
        if is_covered:
            world.tide()
        world.put(seed + 50, 20)
        found = world.medium.kill()
        world.store.shutdown()
        victim = list(world.kept.values())[25]
        at = place if isinstance(place, int) else 88 + len(victim.message.body) + 1
        world.medium = found
        world.flip_log_at(victim.receipt.physical_offset + at, bit=seed % 3)
        world.store = world.reopened()
        world.check()
        world.put(seed + 100, 20)
        world.stop()
        world.check()
        world.abandon()


@pytest.mark.parametrize("seed", SEEDS)
def test_flipped_bit_in_the_checkpoint_costs_nothing(seed: int) -> None:
    world, found = filled(seed, clean=False)
    bit = random.Random(seed).randrange(48 * 8)
    found.flip_bit(ROOT / "checkpoint", bit // 8, bit % 8)
    world.medium, world.store = found, world.open(found)
    assert lost(world) == []
    assert derived(world.store, world.medium)[0] == world.rebuilt()[0]
    world.put(seed + 2, 20)
    world.crash(seed)
    assert lost(world) == []
    world.abandon()


@pytest.mark.parametrize("seed", SEEDS)
def test_flipped_bit_in_the_index_costs_no_message(seed: int) -> None:
    chance = random.Random(seed)
    world, found = filled(seed, clean=chance.random() < 0.5)
    file = chance.choice(found.listing(ROOT / "index"))
    found.flip_bit(ROOT / "index" / file.name, chance.randrange(file.size), chance.randrange(8))
    world.medium, world.store = found, world.open(found)
    assert lost(world) == []
    world.put(seed + 2, 30)
    assert lost(world) == []
    for sent in world.kept.values():
        world.store.query(sent.message.topic, sent.message.keys[0])
    world.abandon()
