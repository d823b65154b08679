"""Groups of nodes under a seeded schedule of faults: nothing may break, and with a rule switched off something must."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest
from tests.replication.ledger_simulation.invariants import COMMITTED_IS_KEPT, Violation
from tests.replication.ledger_simulation.schedule import RULES, SECOND_LINE, Run, command

QUICK_SEEDS = 300
SLOW_SEEDS = 10_000


def _failures(seeds: range) -> list[str]:
    failures = []
    for seed in seeds:
        try:
            Run(seed).simulate()
        except Violation as violation:
            failures.append(f"{violation}\n    repeat it with: {command(seed, ())} --trace")
    return failures


@pytest.mark.parametrize("first", range(0, QUICK_SEEDS, 100))
def test_no_invariant_is_broken(first: int) -> None:
    assert _failures(range(first, first + 100)) == []


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_no_invariant_is_broken_in_ten_thousand_runs() -> None:
    parts = [range(first, first + 250) for first in range(QUICK_SEEDS, QUICK_SEEDS + SLOW_SEEDS, 250)]
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        failures = [failure for part in pool.map(_failures, parts) for failure in part]
    assert failures == []


def test_a_seed_is_a_run() -> None:
    traces: list[list[str]] = [[], []]
    for trace in traces:
        for seed in range(4):
            Run(seed, trace=trace).simulate()
    assert traces[0] == traces[1]
    assert len(traces[0]) > 1_000


# The same runs with a rule switched off.


def _first_violation(rule: str) -> str | None:
    for seed in range(600):
        try:
            Run(seed, (rule,)).simulate()
        except Violation as violation:
            return violation.kind
    return None


@pytest.mark.parametrize("rule", RULES)
def test_without_a_rule_something_breaks(rule: str) -> None:
    """Not merely the progress of the group: something that is promised."""
    assert _first_violation(rule) not in (None, "progress")


# A rule that only matters when another one has failed: the same runs with that one off, and then with both.


def _cut_and_halted(*without: str) -> tuple[int, int]:
    """In how many runs a node cut what it had given as committed, and in how many one halted instead."""
    cut = halted = 0
    for seed in range(20):
        try:
            nodes = Run(seed, without, watched=frozenset((COMMITTED_IS_KEPT,))).simulate().nodes
            halted += any(node.is_halted for node in nodes.values())
        except Violation:
            cut += 1
    return cut, halted


@pytest.mark.parametrize("failed", ["agree_once_a_term", "peers_only"])
def test_when_another_rule_fails_a_node_halts_before_it_cuts_what_is_committed(failed: str) -> None:
    cut, halted = _cut_and_halted(failed)
    assert cut == 0
    assert halted > 0
    cut, halted = _cut_and_halted(failed, SECOND_LINE)
    assert cut > 0
    assert halted == 0
