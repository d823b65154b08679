"""One flipped bit costs at most the message it is in."""

from __future__ import annotations

import random

import pytest

from flintlog import DamagedRecord, Store
from flintlog.disk.faulty import FaultyMedium
from tests.faults.world import ROOT, SEGMENT_BYTES, Sent, World, derived, is_there, small_config

# A record's bytes that its CRC or its lengths protect: size, magic, body CRC, its own offset. The body comes on top.
SEEDS = [*range(10), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(10, 80))]
PROTECTED = (*range(12), *range(28, 36))


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
    world.put(seed + 2, 20)
    world.crash(seed)
    assert_costs_only(world, victim)
    world.stop()
    assert_costs_only(world, victim)
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
