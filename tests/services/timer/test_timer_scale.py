"""Waiting messages cost nothing: a tick's work depends only on the due ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.services.timer_store import CONFIG, numbers, timed, timer_store

from flintlog.bench.services import TimersTask, measure_timers
from flintlog.services.timer import timer_log, timer_wheel
from flintlog.testing import FakeClock


def _look_counter(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Counts how often a slot or a unit is looked at."""
    looks = [0]

    def counted(original: object) -> object:
        def look(*args: object) -> object:
            looks[0] += 1
            return original(*args)  # type: ignore[operator]

        return look

    monkeypatch.setattr(timer_wheel.TimerWheel, "_slot", counted(timer_wheel.TimerWheel._slot))
    monkeypatch.setattr(timer_log.TimerLog, "unit_at", counted(timer_log.TimerLog.unit_at))
    return looks


def test_a_tick_reads_only_due_messages(tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    looks_a_tick = []
    for waiting_count in (0, 3000):
        config = CONFIG.with_changes(flush="async", mapped_file_size_commit_log=1 << 20, timer_roll_window_slot=100_000)
        with timer_store(tmp_path / str(waiting_count), clock, config) as store:
            for number in range(waiting_count):
                store.put(timed(number, clock.now_ms() + 100_000 + 20 * number)).check()
            for number in range(5):
                store.put(timed(number, clock.now_ms() + 10_000)).check()
            clock.advance(2000)
            with monkeypatch.context() as patch:
                looks = _look_counter(patch)
                clock.advance(20_000)
                looks_a_tick.append(looks[0])
            assert numbers(store) == [0, 1, 2, 3, 4]
    assert looks_a_tick[1] <= looks_a_tick[0] + 5 < 50


def test_the_benchmark_of_timers_runs(tmp_path: Path) -> None:
    measured = measure_timers(tmp_path, TimersTask(waiting_count=200, ticks=3))
    assert measured.waiting_count == 200
    assert min(measured.put_per_second, measured.enter_per_second, measured.tick_us, measured.open_seconds) > 0


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_million_waiting_messages_make_no_tick_slower(tmp_path: Path) -> None:
    measured = measure_timers(tmp_path, TimersTask())
    assert measured.tick_us < 5 * measured.tick_alone_us
    assert measured.idle_tick_us < 1000
    assert measured.open_seconds < 30
