"""A crash between any two steps of an opening: the next opening does it again, and ends at the same store."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from flintlog import DamagedStore
from flintlog.disk.faulty.faulty_disk import FaultyMedium
from tests.faults.stopping import PowerLost, StoppingMedium
from tests.faults.world import ROOT, SEGMENT_BYTES, World, small_config

MAX_STEPS = 500


def crash_at_every_step(
    world: World, found: FaultyMedium, seeds: range, stride: int = 1, then: Callable[[], bool] = lambda: True
) -> int:
    """Open `found` again and again, the power failing one step later each time; how many steps there were."""
    for step in range(0, MAX_STEPS, stride):
        for seed in seeds:
            dying = StoppingMedium.over(found, step)
            try:
                world.store = world.open(dying)
            except PowerLost:
                world.medium = dying.crash(seed)
                world.store = world.open(world.medium)
                world.forget_lost()
                world.check()
                assert then()
                world.abandon()
            else:
                dying.left = MAX_STEPS
                world.abandon()
                return step
    raise AssertionError("an opening that does not end")


def filled(flush: str, seed: int, *, leave: str) -> tuple[World, FaultyMedium]:
    """A store with a past, and its disk as an opening finds it."""
    chance = random.Random(seed)
    world = World(small_config(flush))
    world.put(chance.randrange(1 << 30), 60)
    world.tide()
    world.put(chance.randrange(1 << 30), 30)
    world.put_batch(chance.randrange(1 << 30), 6)
    if leave == "clean":
        world.store.shutdown()
        world.kept.update(world.loose)
        world.loose.clear()
        return world, world.medium
    found = world.medium.kill() if leave == "killed" else world.medium.crash(seed)
    world.abandon()
    return world, found


@pytest.mark.parametrize("flush", ["sync", "async"])
@pytest.mark.parametrize("leave", ["killed", "crashed"])
def test_crash_in_the_recovery_of_a_crashed_store(flush: str, leave: str) -> None:
    world, found = filled(flush, 7, leave=leave)
    assert crash_at_every_step(world, found, range(1), stride=3) > 5


@pytest.mark.parametrize("missing", ["consumequeue", "index", "consumequeue/orders/1", "checkpoint"])
def test_crash_while_what_was_deleted_is_built_again(missing: str) -> None:
    world, found = filled("sync", 11, leave="clean")
    found.remove_tree(ROOT / missing)
    found.sync_directory((ROOT / missing).parent)
    assert crash_at_every_step(world, found, range(2), stride=2) > 3


def test_a_log_that_went_missing_after_a_clean_stop_is_refused_before_anything_changes() -> None:
    world, found = filled("sync", 12, leave="clean")
    found.remove_tree(ROOT / "commitlog")
    found.sync_directory(ROOT)
    for _ in range(2):
        with pytest.raises(DamagedStore, match="the log is missing"):
            world.open(found)
        assert not found.exists(ROOT / "abort") and found.exists(ROOT / "consumequeue" / "orders")


@pytest.mark.parametrize("missing", ["consumequeue/orders/1/00000000000000000000", "consumequeue/orders/1"])
def test_crash_while_a_queue_that_lost_its_first_file_is_built_again(missing: str) -> None:
    world, found = filled("sync", 11, leave="clean")
    found.remove_tree(ROOT / missing) if missing.endswith("/1") else found.remove(ROOT / missing)
    found.sync_directory((ROOT / missing).parent)
    assert crash_at_every_step(world, found, range(1), stride=4) > 3


def test_crash_while_a_torn_tail_is_cut_keeps_the_whole_of_it() -> None:
    world, found = filled("sync", 13, leave="killed")
    end = max(sent.receipt.end_offset for sent in world.kept.values())
    path = ROOT / "commitlog" / f"{end // SEGMENT_BYTES * SEGMENT_BYTES:020d}"
    torn = random.Random(13).randbytes(min(3000, SEGMENT_BYTES - end % SEGMENT_BYTES))
    file = found.open(path, writable=True)
    file.buffer[end % SEGMENT_BYTES : end % SEGMENT_BYTES + len(torn)] = torn
    file.sync()

    def is_kept() -> bool:
        kept = [
            world.medium.read(ROOT / "flintlog/cut" / info.name) for info in world.medium.listing(ROOT / "flintlog/cut")
        ]
        return torn in kept

    assert crash_at_every_step(world, found, range(2), stride=2, then=is_kept) > 5


@pytest.mark.slow
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("flush", ["sync", "async"])
@pytest.mark.parametrize("leave", ["killed", "crashed", "clean"])
def test_crash_at_every_single_step(flush: str, leave: str, seed: int) -> None:
    world, found = filled(flush, seed, leave=leave)
    chance = random.Random(seed)
    if leave == "clean":
        missing = ROOT / chance.choice(["consumequeue", "index", "consumequeue/orders/1"])
        found.remove_tree(missing)
        found.sync_directory(missing.parent)
    assert crash_at_every_step(world, found, range(seed, seed + 3)) > 3
