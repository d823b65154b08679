"""The thread that dispatches what others left is not lost with a ring that was interrupted."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from flintlog.store.dispatch.dispatch_thread import DispatchThread
from tests.signals.interrupting import Interrupter
from tests.signals.scenes import SOON_S
from tests.signals.test_every_point import interrupter

__all__ = ["interrupter"]


class Rounds:
    """What is wanted, and whether it is done."""

    def __init__(self) -> None:
        self.is_wanted = False
        self.thread = DispatchThread(lambda: self.is_wanted, self._do)
        self.thread.start()

    def _do(self) -> None:
        self.is_wanted = False

    def is_done_soon(self) -> bool:
        deadline = time.monotonic() + SOON_S
        while self.is_wanted and time.monotonic() < deadline:
            time.sleep(0.001)
        return not self.is_wanted


@pytest.fixture
def rounds() -> Iterator[Rounds]:
    made = Rounds()
    yield made
    made.thread.stop()


def test_a_round_is_done_after_a_ring_that_was_interrupted(rounds: Rounds, interrupter: Interrupter) -> None:
    time.sleep(0.02)  # it sleeps now
    interrupter.run(rounds.thread.ring)
    total = interrupter.count
    for point in range(1, total + 1):
        time.sleep(0.02)
        interrupter.run(rounds.thread.ring, point)
        rounds.is_wanted = True
        rounds.thread.ring()
        assert rounds.is_done_soon(), f"point {point} of {total}, interrupted at\n{interrupter.where}"


def test_a_round_that_nobody_rang_for_is_done(rounds: Rounds) -> None:
    time.sleep(0.02)
    rounds.is_wanted = True
    assert rounds.is_done_soon()
