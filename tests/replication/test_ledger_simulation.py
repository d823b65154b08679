"""Groups of nodes under a seeded schedule of faults: nothing may break, and with a rule switched off something must."""

from __future__ import annotations

import pytest
from tests.replication.ledger_simulation.invariants import Violation
from tests.replication.ledger_simulation.schedule import Run, command

QUICK_SEEDS = 300


def _simulate(seed: int) -> None:
    try:
        Run(seed).simulate()
    except Violation as violation:
        pytest.fail(f"{violation}\nrepeat it with: {command(seed, ())} --trace")


@pytest.mark.parametrize("first", range(0, QUICK_SEEDS, 100))
def test_no_invariant_is_broken(first: int) -> None:
    for seed in range(first, first + 100):
        _simulate(seed)


def test_a_seed_is_a_run() -> None:
    traces: list[list[str]] = [[], []]
    for trace in traces:
        Run(17, trace=trace).simulate()
    assert traces[0] == traces[1]
    assert len(traces[0]) > 1_000
