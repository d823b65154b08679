"""Power cuts by a seed: workers write, lives end, the power goes, and everything that was promised is looked for.

    python -m tests.power.driver --seed 17 [--kind store|ha|ledger] [--count 10] [--times 20] [--keep FOLDER]

A failure prints the command that repeats it. The workload of a seed is always the same; when the kernel writes which
page is not, so a seed may need several runs to fail again (`--times`).
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from tests.power.device import Device, device
from tests.power.group_run import run_group
from tests.power.model import Broken
from tests.power.pair_run import run_pair
from tests.power.store_run import run_store

KINDS = ("store", "ha", "ledger")
DISK_MIB = 96
_IN_MEMORY = Path("/dev/shm")

MakeDisk = Callable[[], Device]


def run(kind: str, seed: int, make_disk: MakeDisk, scratch: Path, keep: Path | None = None) -> str:
    """One seed of a kind: what happened; `Broken` says what was not kept, and how to repeat it."""
    runs = {"store": run_store, "ha": run_pair, "ledger": run_group}
    try:
        return runs[kind](seed, make_disk, scratch, keep)
    except Exception as failure:
        again = f"{sys.executable} -m tests.power.driver --kind {kind} --seed {seed}"
        raise Broken(f"{failure}\nrepeat with: {again}") from failure


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", choices=KINDS, default="store")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--count", type=int, default=1, help="so many seeds, from --seed on")
    parser.add_argument("--times", type=int, default=1, help="each seed so many times")
    parser.add_argument("--keep", type=Path, help="leave in this folder what the last cut left, before any opening")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(2))  # so that devices are unmounted
    failed = 0
    for seed in range(arguments.seed, arguments.seed + arguments.count):
        for _ in range(arguments.times):
            failed += _run_one(arguments.kind, seed, arguments.keep)
    return 1 if failed else 0


def _run_one(kind: str, seed: int, keep: Path | None) -> int:
    folder = Path(tempfile.mkdtemp(prefix="flintlog-power-", dir=_IN_MEMORY if _IN_MEMORY.is_dir() else None))
    began = time.monotonic()
    try:
        with ExitStack() as disks:

            def make_disk() -> Device:
                return disks.enter_context(device(Path(tempfile.mkdtemp(dir=folder)), DISK_MIB))

            happened = run(kind, seed, make_disk, folder, keep)
        _say(f"{kind} seed {seed}: kept; {happened}; {time.monotonic() - began:.1f} s")
    except Broken as failure:
        _say(f"{kind} seed {seed}: BROKEN {failure}")
        return 1
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
