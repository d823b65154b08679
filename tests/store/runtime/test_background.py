"""Jobs run when they are due: in threads, or in the thread that turns the clock."""

from __future__ import annotations

import threading
import time

import pytest

from flintlog.errors import FlintlogError
from flintlog.store.runtime.jobs import NEVER, Background
from flintlog.testing import FakeClock

START_MS = 1_000_000


class Recorder:
    """A job that comes back every second of its clock and notes when it ran."""

    def __init__(self, clock: FakeClock) -> None:
        self.ran_at_ms: list[int] = []
        self._clock = clock

    def __call__(self) -> int:
        self.ran_at_ms.append(self._clock.now_ms())
        return self._clock.now_ms() + 1000


def test_turning_the_clock_runs_what_is_due_before_it_returns() -> None:
    clock = FakeClock(START_MS)
    background, job = Background(clock), Recorder(clock)
    background.add("job", job)
    background.start()
    clock.advance(0)
    clock.advance(999)
    clock.advance(1)
    assert job.ran_at_ms == [START_MS, START_MS + 1000]
    assert not [thread for thread in threading.enumerate() if thread.name == "flintlog-job"]


def test_a_stopped_background_runs_nothing() -> None:
    clock = FakeClock(START_MS)
    background, job = Background(clock), Recorder(clock)
    background.add("job", job)
    background.start()
    background.stop()
    background.stop()
    clock.advance(5000)
    assert job.ran_at_ms == []


def test_a_job_that_makes_another_due() -> None:
    clock = FakeClock(START_MS)
    background, ran = Background(clock), []

    def first() -> int:
        ran.append("first")
        second_job.nudge()
        return NEVER

    def second() -> int:
        ran.append("second")
        return NEVER

    second_job = background.add("second", second)
    background.add("first", first)
    background.start()
    clock.advance(1)
    assert ran == ["second", "first", "second"]


def test_a_job_without_an_end_is_an_error() -> None:
    clock = FakeClock(START_MS)
    background = Background(clock)
    background.add("busy", lambda: START_MS)
    background.start()
    with pytest.raises(FlintlogError, match="busy is due again and again"):
        clock.advance(1)


@pytest.mark.parametrize("clock", [None, lambda: time.time_ns() // 1_000_000], ids=["system", "given"])
def test_a_thread_runs_its_job_when_nudged(clock: object) -> None:
    ran = threading.Event()
    runs: list[int] = []

    def run() -> int:
        runs.append(1)
        if len(runs) > 1:
            ran.set()
        return NEVER

    background = Background(clock)  # type: ignore[arg-type]
    job = background.add("job", run)
    background.start()
    while not runs:
        time.sleep(0.001)
    job.nudge()
    assert ran.wait(5)
    background.stop()
    assert not [thread for thread in threading.enumerate() if thread.name == "flintlog-job"]


def test_a_job_that_fails_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock(START_MS)
    background, attempts = Background(clock), []

    def fail_once() -> int:
        attempts.append(clock.now_ms())
        if len(attempts) == 1:
            raise FlintlogError("no luck")
        return NEVER

    background.add("job", fail_once)
    background.start()
    with pytest.raises(FlintlogError, match="no luck"):
        clock.advance(0)
    clock.advance(9_999)
    assert len(attempts) == 1
    clock.advance(1)
    assert len(attempts) == 2


def test_a_clock_that_is_turned_back_makes_a_job_due_once() -> None:
    clock = FakeClock(START_MS)
    background, job = Background(clock), Recorder(clock)
    background.add("job", job)
    background.start()
    clock.advance(0)
    clock.advance(500)
    clock.set(START_MS + 400)
    clock.advance(1)
    assert job.ran_at_ms == [START_MS, START_MS + 400]
