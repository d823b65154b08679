"""Random power cuts of real file systems: what was acknowledged is there, and what is derived equals a rebuild.

A seed decides the options, the workload and the order of kills and cuts; a failure prints the command that repeats it.
`tests/power/plan.py` says what is drawn, `tests/power/model.py` what each acknowledgement promises.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from tests.power.conftest import MakeDevice
from tests.power.driver import DISK_MIB, run

QUICK = [
    ("store", 11),  # queues that were never synced
    ("store", 16),  # a kill, then a cut: what the opening took over is synced
    ("store", 22),
    ("store", 23),  # retention ahead of the checkpoint
    ("store", 39),  # a topic deleted while messages of it are in the write buffers
    ("store", 43),  # write buffers, extensions, retention and deletions
    ("store", 70),  # a log that is lost before its first sync
    ("ha", 4),
    ("ledger", 4),
]
"""About twenty cuts. Seeds that once found a defect stay."""

SLOW = [
    *[("store", seed) for seed in range(100, 200)],
    *[("ha", seed) for seed in range(100, 115)],
    *[("ledger", seed) for seed in range(100, 115)],
]
"""More than two hundred cuts."""


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("kind", "seed"), QUICK)
def test_power_cuts_lose_nothing_that_was_acknowledged(
    kind: str, seed: int, make_device: MakeDevice, tmp_path: Path
) -> None:
    run(kind, seed, partial(make_device, size_mib=DISK_MIB), tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("kind", "seed"), SLOW)
def test_two_hundred_power_cuts_lose_nothing_that_was_acknowledged(
    kind: str, seed: int, make_device: MakeDevice, tmp_path: Path
) -> None:
    run(kind, seed, partial(make_device, size_mib=DISK_MIB), tmp_path)
