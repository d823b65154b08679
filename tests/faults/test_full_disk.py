"""A disk without room: puts are refused with a status, reads go on, and all goes on when there is room again."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from flintlog import Message, PutStatus
from flintlog.errors import DiskFull
from flintlog.store.runtime.lifecycle import State
from tests.faults.world import ROOT, SEGMENT_BYTES, World, assert_there, small_config


@pytest.fixture(params=["sync", "async"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    made = World(small_config(request.param))
    yield made
    made.medium.capacity = None
    made.abandon()


def used(world: World) -> int:
    return world.medium._used()


def test_puts_are_refused_and_reads_go_on_until_there_is_room(world: World) -> None:
    world.put(1, 30)
    world.medium.capacity = used(world)
    statuses = [world.store.put(Message("orders", bytes(3000), keys=["k"]), check=False).status for _ in range(30)]
    assert statuses[-1] is PutStatus.CREATE_MAPPED_FILE_FAILED
    assert (
        world.store.put_batch([Message("orders", bytes(3000))] * 3, check=False).status
        is PutStatus.CREATE_MAPPED_FILE_FAILED
    )
    world.store.wait_dispatched()
    for sent in (*world.kept.values(), *world.loose.values()):
        assert_there(world.store, sent)
    world.medium.capacity = None
    world.put(2, 30)
    world.flush()
    world.check()
    world.crash(3)
    world.check()


def test_dispatch_stalls_without_room_for_a_queue_and_goes_on_with_it(world: World) -> None:
    world.put(1, 10)
    world.medium.capacity = used(world)
    receipts = [world.store.put(Message("new", b"%d" % n, queue_id=n, keys=[f"n{n}"])) for n in range(4)]
    assert all(receipts), "the log has room"
    assert isinstance(world.store._engine.dispatcher.failure, DiskFull)
    assert world.store.max_offset("new", 0) == 0
    with pytest.raises(DiskFull):
        world.store.wait_dispatched()
    world.store._engine.tick()
    assert world.store.put(Message("new", b"more"), check=False).status is PutStatus.SERVICE_NOT_AVAILABLE
    world.medium.capacity = None
    world.store._engine.tick()
    assert [world.store.max_offset("new", n) for n in range(4)] == [1] * 4
    assert world.store.put(Message("new", b"more"))
    world.store.wait_dispatched()
    world.check()


@pytest.mark.parametrize("seed", range(12))
def test_dispatch_that_stalls_at_an_index_file_in_the_middle_of_a_record_gives_the_same_index(seed: int) -> None:
    chance = random.Random(seed)
    world = World(small_config("async", mapped_file_size_commit_log=1 << 20))
    world.put(seed, 5)
    world.medium.capacity = used(world)
    dispatcher = world.store._engine.dispatcher
    while not dispatcher.failure:
        keys = [f"k{n}" for n in range(chance.randrange(1, 9))]
        assert world.store.put(Message("orders", b"x", keys=keys, queue_id=chance.randrange(3)))
    for _ in range(chance.randrange(3)):
        dispatcher.advance()
    world.medium.capacity = None
    world.store._engine.tick()
    assert not world.store._engine.dispatcher.failure
    world.check()
    world.abandon()


def test_a_stop_without_room_gives_the_store_back_and_loses_nothing(world: World) -> None:
    world.put(1, 10)
    world.medium.capacity = used(world)
    world.put(2, 40)
    world.store.shutdown()
    assert world.store._engine.lifecycle.state is State.SHUTDOWN_OK
    world.kept.update(world.loose)
    world.medium.capacity = None
    world.store = world.open(world.medium)
    world.check()


def test_an_opening_without_room_says_so_and_can_be_repeated(world: World) -> None:
    world.put(1, 60)
    found = world.medium.kill()
    world.abandon()
    found.remove_tree(ROOT / "consumequeue")
    found.remove(ROOT / "checkpoint")
    found.capacity = found._used()
    with pytest.raises(DiskFull):
        world.open(found)
    found.capacity = None
    world.medium = found
    world.store = world.open(found)
    world.kept.update(world.loose)
    world.check()


def test_a_full_disk_at_a_crash(world: World) -> None:
    for seed in range(10):
        world.put(seed, 15)
        world.medium.capacity = used(world) + seed % 3 * SEGMENT_BYTES
        world.put(seed + 50, 25)
        world.medium = world.medium.crash(seed)
        world.medium.capacity = None
        old, world.store = world.store, world.open(world.medium)
        old.shutdown()
        world.forget_lost()
        world.check()
