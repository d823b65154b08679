"""One seed of one store: its lives one after the other on one device, and a check after each cut."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from tests.power.checks import check_cut
from tests.power.device import Device
from tests.power.model import Broken, Model
from tests.power.plan import CUTS, End, Life, Plan, make_plan
from tests.power.process import Child

PATIENCE_S = 60.0
_WAITS_FOR = {
    End.KILL: "open",
    End.CUT: "open",
    End.KILL_OPENING: "opening",
    End.CUT_OPENING: "opening",
    End.CUT_CLOSING: "stopping",
    End.CUT_FLUSHED: "flushed",
    End.CLOSE: "stopped",
}


def run_store(seed: int, make_disk: Callable[[], Device], scratch: Path, keep: Path | None = None) -> str:
    """Every life of a seed's plan; what happened."""
    plan = make_plan(seed)
    run = StoreRun(plan, make_disk(), scratch, keep)
    try:
        for life in plan.lives:
            run.live(life)
    except Exception as failure:
        lives = [f"{life.end} after {life.delay_s:.3f} s" for life in plan.lives]
        raise Broken(f"{failure}\nlives: {', '.join(lives)}") from failure
    return f"{run.cut_count} cuts, {run.model.counts}"


class StoreRun:
    """One store on one device, and the model of what its workers promised."""

    def __init__(self, plan: Plan, disk: Device, scratch: Path, keep: Path | None = None) -> None:
        self.plan = plan
        self.disk = disk
        self.model = Model(has_pool=plan.has_pool)
        self.cut_count = 0
        self._scratch = scratch
        self._keep = keep

    @property
    def path(self) -> Path:
        return self.disk.mount / "store"

    def live(self, life: Life) -> None:
        """One life to its end; after a cut, the check."""
        worker = Child("tests.power.worker", self.path, self.plan.seed, life.number)
        is_cut = life.end in CUTS
        try:
            self._hear(worker, life)
            if is_cut:
                self.disk.cut()
                self.cut_count += 1
        finally:
            rest = worker.kill()
        for line in rest:
            self.model.take(json.loads(line), is_late=is_cut)
        self._check_errors()
        if is_cut:
            self._check()
        else:
            self.model.killed()

    def _hear(self, worker: Child, life: Life) -> None:
        """Listen until the life's end is due."""
        awaited, end_at = _WAITS_FOR[life.end], time.monotonic() + PATIENCE_S
        is_due = False
        while not worker.is_at_end and time.monotonic() < end_at:
            for line in map(json.loads, worker.lines(0.001)):
                self.model.take(line)
                if line[0] == awaited and not is_due:
                    is_due, end_at = True, time.monotonic() + life.delay_s
            self._check_errors()
        if not is_due:
            raise Broken(f"the worker of {life} never said {awaited!r}")

    def _check(self) -> None:
        self.model.cut()
        self.disk.restore()
        if not self.path.exists():
            return
        if self._keep is not None:
            shutil.rmtree(self._keep, ignore_errors=True)
            shutil.copytree(self.path, self._keep)
        check_cut(self.path, self.plan, self.model, self._scratch)

    def _check_errors(self) -> None:
        if self.model.errors:
            raise Broken(f"a worker failed before the cut: {self.model.errors[0]}")
