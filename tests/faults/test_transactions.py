"""Transactions and crashes: a committed message is neither lost nor doubled, a rolled-back one never delivered."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from flintlog.disk.faulty.faulty_disk import FaultyMedium
from flintlog.disk.faulty.faulty_file import FaultyFile
from flintlog.disk.faulty.faulty_state import FaultyNode
from tests.faults.transaction_world import TransactionWorld, transaction_config

Operation = tuple[str, int]
NAMES = (
    *("begin", "begin", "begin", "commit", "commit", "rollback", "wait", "wait"),
    *("flush", "stop", "kill", "crash", "crash", "drift"),
)
OPERATIONS = st.lists(st.tuples(st.sampled_from(NAMES), st.integers(0, 1_000_000)), min_size=4, max_size=30)
COMMON = settings(
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
)
THOROUGH = int(os.environ.get("FLINTLOG_FAULT_EXAMPLES", "600"))


def run(world: TransactionWorld, operations: list[Operation]) -> None:
    try:
        for name, seed in operations:
            if name == "drift":
                world.medium.drift(seed)
            elif name in ("flush", "stop", "kill"):
                getattr(world, name)()
            else:
                getattr(world, name)(seed)
        world.check()
        world.settle()
        world.kill()
    finally:
        world.abandon()


@pytest.mark.parametrize("flush", ["sync", "async"])
@settings(COMMON, max_examples=25)
@given(OPERATIONS)
def test_decisions_survive_everything(flush: str, operations: list[Operation]) -> None:
    run(TransactionWorld(transaction_config(flush)), operations)


@pytest.mark.slow
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("flush", ["sync", "async"])
@settings(COMMON, max_examples=THOROUGH)
@given(OPERATIONS)
def test_decisions_survive_everything_for_long(flush: str, operations: list[Operation]) -> None:
    run(TransactionWorld(transaction_config(flush)), operations)


def test_a_commit_that_a_power_cut_tore_in_the_middle_of_the_log_is_undone_and_the_rest_is_read() -> None:
    names = ("begin", "begin", "begin", "commit", "stop", "commit", "begin", "crash")
    run(TransactionWorld(transaction_config("async")), [(name, 0) for name in names])


class WatchedMedium(FaultyMedium):
    """Remembers what a crash right before each of its changes would leave, and what had been promised by then."""

    def __init__(self) -> None:
        super().__init__(clock_ms=lambda: 0)
        self.world: TransactionWorld | None = None
        self.moments: list[tuple[FaultyMedium, dict[str, str], dict[str, str], int]] = []

    def _step(self) -> None:
        world = self.world
        if world is not None:
            for after in (self.kill(), *(self.crash(len(self.moments) + seed) for seed in range(2))):
                self.moments.append((after, dict(world.durable), dict(world.state), world.clock.now_ms()))

    def create(self, path: Path, size: int, allocated: int | None = None) -> FaultyFile:
        self._step()
        return super().create(path, size, allocated)

    def sync_node(self, node: FaultyNode, path: Path, start: int, stop: int) -> None:
        self._step()
        super().sync_node(node, path, start, stop)
        self._step()

    def rename(self, source: Path, target: Path) -> None:
        self._step()
        super().rename(source, target)

    def remove(self, path: Path) -> None:
        self._step()
        super().remove(path)


def a_day_of_transactions(world: TransactionWorld) -> None:
    """Each kind of step, and all that follow from it: decisions, notes, copies, questions, giving up, a stop."""
    for seed in range(5):
        world.begin(seed)
    world.flush()
    world.commit(1)
    world.rollback(2)
    world.wait(1)
    for seed in range(2):
        world.begin(seed)
    world.commit(3)
    for seed in range(4):
        world.wait(seed)
    world.begin(9)
    world.commit(4)
    world.stop()
    world.wait(3)


@pytest.mark.parametrize("flush", ["sync", "async"])
def test_a_crash_between_any_two_steps_changes_no_decision(flush: str) -> None:
    medium = WatchedMedium()
    world = TransactionWorld(transaction_config(flush), medium)
    medium.world = world
    a_day_of_transactions(world)
    medium.world = None
    world.abandon()
    assert len(medium.moments) > 100
    chance = random.Random(5)
    for number, (after, durable, state, now_ms) in enumerate(medium.moments):
        again = TransactionWorld.__new__(TransactionWorld)
        again.config, again.clock, again.medium, again.chance = world.config, world.clock, after, chance
        again.clock.set(now_ms)
        again.state, again.durable = state, durable
        again.store = again.open()
        try:
            again.reconcile(durable)
            if number % 9 == 0:
                again.settle()
            else:
                again.wait(number)
                again.check()
        finally:
            again.abandon()
