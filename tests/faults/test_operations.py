"""Any order of puts, deletions, flushes, full disks, stops, kills and power losses: promises are kept, and what is
derived is right."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from tests.faults.world import World, small_config

Operation = tuple[str, int, int]
SEEDS = st.integers(0, 1_000_000)
COUNTS = st.integers(1, 30)
NAMES = (
    "put",
    "put",
    "put",
    "put_batch",
    "flush",
    "tide",
    "stop",
    "kill",
    "crash",
    "crash",
    "drift",
    "fail_sync",
    "fail_sync",
    "squeeze",
    "delete_topic",
)
OPERATIONS = st.lists(st.tuples(st.sampled_from(NAMES), SEEDS, COUNTS), min_size=2, max_size=14)
# Threads make a run less than repeatable, so a failure is shown as it was found.
COMMON = settings(
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
)
QUICK = settings(COMMON, max_examples=25)
THOROUGH = settings(COMMON, max_examples=int(os.environ.get("FLINTLOG_FAULT_EXAMPLES", "600")))


def run(world: World, operations: list[Operation]) -> None:
    try:
        for name, seed, count in operations:
            if name in ("put", "put_batch"):
                getattr(world, name)(seed, count)
            elif name in ("flush", "tide", "stop", "kill"):
                getattr(world, name)()
            elif name in ("crash", "fail_sync", "decay", "squeeze", "delete_topic"):
                getattr(world, name)(seed)
            else:
                world.medium.drift(seed)
            if name in ("crash", "kill", "decay"):
                world.check()
        world.check()
    finally:
        world.abandon()


@pytest.mark.parametrize("flush", ["sync", "async"])
@QUICK
@given(OPERATIONS, st.booleans())
@example([("put", 0, 17), ("tide", 0, 1), ("delete_topic", 0, 1), ("tide", 0, 1), ("crash", 0, 1)], False)
@example([("put", 0, 2), ("delete_topic", 0, 1), ("kill", 0, 1), ("kill", 0, 1)], False)
@example([("put", 17399, 5), ("delete_topic", 1, 1), ("crash", 0, 1), ("kill", 0, 1)], False)
@example([("put", 470, 9), ("crash", 1, 1)], False)
def test_what_was_promised_survives_everything(flush: str, operations: list[Operation], torn_creates: bool) -> None:
    run(World(small_config(flush), torn_creates=torn_creates), operations)


@pytest.mark.parametrize("flush", ["sync", "async"])
@settings(QUICK, max_examples=8)
@given(OPERATIONS)
def test_concurrent_dispatch_survives_everything_too(flush: str, operations: list[Operation]) -> None:
    run(World(small_config(flush, enable_build_consume_queue_concurrently=True)), operations)


@pytest.mark.parametrize("seed", range(8))
def test_the_checkpoint_vouches_only_for_what_is_durable(seed: int) -> None:
    world = World(small_config("async"))
    world.put(seed, 40)
    world.tide()
    assert 0 < world.store._engine.parts.checkpoint.values.logics_physical_offset < world.store.flushed_offset
    world.put(seed + 1, 40)
    world.crash(seed)
    world.check()
    world.abandon()


@pytest.mark.slow
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("flush", ["sync", "async"])
@THOROUGH
@given(OPERATIONS, st.booleans(), st.booleans())
def test_what_was_promised_survives_everything_for_long(
    flush: str, operations: list[Operation], torn_creates: bool, concurrent: bool
) -> None:
    config = small_config(flush, enable_build_consume_queue_concurrently=concurrent)
    run(World(config, torn_creates=torn_creates), operations)
