"""Real alarms whose handler raises at random moments of puts; the program goes on, as one with time-outs does."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Iterator

import pytest

from tests.signals.scenes import KINDS, Scene

# An alarm in a callback of the garbage collector is reported by Python, and goes no further.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
QUICK_KINDS = ["hook, sync", "plain, sync", "hook, async", "batch with hook, async", "delayed, async"]


class Alarm(Exception):
    """What the handler raises."""


class Clockwork:
    """Alarms within the next microseconds, while armed."""

    def __init__(self) -> None:
        self.is_armed = False
        self._before = signal.signal(signal.SIGALRM, self._handle)

    def _handle(self, _signum: int, _frame: object) -> None:
        if self.is_armed:
            self.is_armed = False
            raise Alarm

    def close(self) -> None:
        self.is_armed = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, self._before)


@pytest.fixture
def alarms() -> Iterator[Clockwork]:
    made = Clockwork()
    yield made
    made.close()


def put_beside_alarms(name: str, alarms: Clockwork, seed: int, seconds: float) -> int:
    """How many puts were interrupted; a failure repeats with its seed, by chance."""
    kind, chance = KINDS[name], random.Random(seed)
    scene = Scene(kind)
    hits = 0
    try:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            try:
                alarms.is_armed = True
                signal.setitimer(signal.ITIMER_REAL, chance.uniform(2e-6, 400e-6))
                kind.call(scene)
            except Alarm:
                hits += 1
            alarms.is_armed = False
            if chance.random() < 0.02:
                scene.probe()
        scene.check()
    finally:
        alarms.is_armed = False
        scene.close()
    return hits


@pytest.mark.parametrize("name", QUICK_KINDS)
def test_puts_go_on_beside_alarms(name: str, alarms: Clockwork) -> None:
    assert put_beside_alarms(name, alarms, seed=1, seconds=0.7)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", KINDS)
def test_puts_of_every_kind_go_on_beside_alarms_for_long(name: str, seed: int, alarms: Clockwork) -> None:
    put_beside_alarms(name, alarms, seed, seconds=10)
