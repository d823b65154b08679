"""Stores that chance has damaged, through `repair`: no intact message moves, and a second repair has nothing to do."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.maintenance.random_damage import CASES, Damager, Truth, moved_messages

from flintlog import FlintlogError
from flintlog.maintenance.repair.repair import plan_repair, repair
from flintlog.maintenance.verify.verify import verify

Golden = Callable[[str], Path]
QUICK = 30
MANY = 1000


def check(seed: int, golden: Callable[[str], Path], truths: dict[str, Truth], folder: Path) -> str | None:
    """Damage and repair one store; why the repair was refused, if it was."""
    case = CASES[seed % len(CASES)]
    source = golden(case) / "store"
    if case not in truths:
        truths[case] = Truth.of(source)
    root = folder / str(seed) / "store"
    shutil.copytree(source, root)
    damager = Damager(root, truths[case], seed)
    damager.damage()
    what = f"seed {seed}, {case}: {'; '.join(damager.done)}"
    try:
        before = verify(root).findings
        refused = None
        try:
            repair(root)
        except FlintlogError as error:
            refused = str(error)
        after = verify(root).findings
        assert len(after) <= len(before), f"{what}: {before} became {after}"
        if refused is None:
            moved = list(moved_messages(root, truths[case], damager))
            assert not moved, f"{what}: {len(moved)} intact messages moved: {moved[:3]}"
            again = plan_repair(root)
            assert again.steps == (), f"{what}: {again.steps}"
    except FlintlogError as error:
        raise AssertionError(what) from error
    shutil.rmtree(root.parent)
    return refused


def run(seeds: range, golden: Golden, folder: Path) -> None:
    truths: dict[str, Truth] = {}
    refused = [reason for seed in seeds if (reason := check(seed, golden, truths, folder)) is not None]
    assert len(refused) <= len(seeds) // 5, refused
    undone = [reason for reason in refused if "was undone" in reason]
    assert len(undone) <= len(seeds) // 50, undone


def test_a_few_damaged_stores_are_repaired(golden: Golden, tmp_path: Path) -> None:
    run(range(QUICK), golden, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("first", range(0, MANY, 100))
def test_many_damaged_stores_are_repaired(first: int, golden: Golden, tmp_path: Path) -> None:
    run(range(first, first + 100), golden, tmp_path)
