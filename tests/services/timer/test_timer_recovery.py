"""The timer's recovery when its files are missing, stale, torn, or ahead of the commit log."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.services.timer_store import CONFIG, TIMER_TOPIC, numbers, timed, timer_of, timer_store

from flintlog import Message, Store
from flintlog.format.timer import parse_timer_checkpoint
from flintlog.testing import FakeClock

pytestmark = pytest.mark.usefixtures("small_wheel")

Harm = Callable[[Path], None]


def _remove(name: str) -> Harm:
    def harm(path: Path) -> None:
        place = path / name
        shutil.rmtree(place) if place.is_dir() else place.unlink()

    return harm


def _zero(name: str) -> Harm:
    def harm(path: Path) -> None:
        for file in sorted((path / name).iterdir()) if (path / name).is_dir() else [path / name]:
            file.write_bytes(bytes(file.stat().st_size))

    return harm


def _shorten(name: str) -> Harm:
    def harm(path: Path) -> None:
        for file in sorted((path / name).iterdir()) if (path / name).is_dir() else [path / name]:
            file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])

    return harm


def _garble(name: str) -> Harm:
    def harm(path: Path) -> None:
        for file in sorted((path / name).iterdir()) if (path / name).is_dir() else [path / name]:
            file.write_bytes(bytes(255 - byte for byte in file.read_bytes()))

    return harm


def _drop_last_log_file(path: Path) -> None:
    max((path / "timerlog").iterdir()).unlink()


def _all_gone(path: Path) -> None:
    for name in ("timerwheel", "timerlog", "config/timercheck", "config/timermetrics"):
        _remove(name)(path)


HARMS: dict[str, Harm] = {
    f"{name} {what.__name__.strip('_')}": what(name)
    for what in (_remove, _zero, _shorten, _garble)
    for name in ("timerwheel", "timerlog", "config/timercheck")
} | {"the last log file gone": _drop_last_log_file, "everything gone": _all_gone}


def _fill(store: Store, clock: FakeClock, count: int = 60) -> None:
    """Messages for each second from the next one on, some of them beyond the window; each tenth is recalled."""
    for number in range(count):
        receipt = store.put(timed(number, clock.now_ms() + 4000 * (number + 1))).check()
        if number % 10 == 9:
            timer_of(store).cancel(receipt).check()


def _expected(count: int = 60) -> list[int]:
    return [number for number in range(count) if number % 10 != 9]


@pytest.mark.parametrize("harm", HARMS.values(), ids=HARMS)
def test_after_any_harm_to_files_each_message_is_delivered_once(tmp_path: Path, clock: FakeClock, harm: Harm) -> None:
    with timer_store(tmp_path / "s", clock) as store:
        _fill(store, clock)
        clock.advance(20_000)
        clock.advance(20_000)
        before = numbers(store)
        assert before == _expected(10)
        clock.advance(70_000)
        before = numbers(store)
    harm(tmp_path / "s")
    clock.advance(50_000)
    with timer_store(tmp_path / "s", clock) as store:
        assert numbers(store) == before
        for _ in range(5):
            clock.advance(60_000)
        assert sorted(numbers(store)) == _expected()
        store.put(timed(100, clock.now_ms() + 5000)).check()
        clock.advance(6000)
        assert numbers(store)[-1] == 100
    with timer_store(tmp_path / "s", clock) as store:
        clock.advance(1000)
        assert len(numbers(store)) == len(_expected()) + 1


@pytest.mark.parametrize("kept", [0, 1, 13, 25])
def test_a_commit_log_cut_below_the_wheels_units(tmp_path: Path, clock: FakeClock, kept: int) -> None:
    """RocketMQ's timer stands still, or takes other messages for those that it waits for (issues 7480, 9735, 10668)."""
    path = tmp_path / "s"
    with timer_store(path, clock) as store:
        store.put(Message("other", b"", keys=["k"])).check()
        for number in range(kept):
            store.put(timed(number, clock.now_ms() + 30_000 + number * 1000)).check()
        clock.advance(1000)
    shutil.copytree(path, tmp_path / "earlier")
    with timer_store(path, clock) as store:
        for number in range(100, 140):
            store.put(timed(number, clock.now_ms() + 20_000 + number * 100)).check()
        clock.advance(1000)
        cut_at = parse_timer_checkpoint((path / "config" / "timercheck").read_bytes())
    for name in ("commitlog", "consumequeue", "index", "checkpoint", "flintlog"):
        place = path / name
        shutil.rmtree(place) if place.is_dir() else place.unlink()
        back = tmp_path / "earlier" / name
        shutil.copytree(back, place) if back.is_dir() else shutil.copy(back, place)
    with timer_store(path, clock) as store:
        assert store.max_offset(TIMER_TOPIC, 0) == kept < cut_at.queue_offset
        for number in range(200, 210):
            store.put(timed(number, clock.now_ms() + 5000)).check()
        clock.advance(100_000)
        assert numbers(store) == [*range(200, 210), *range(kept)]
    with timer_store(path, clock) as store:
        store.put(timed(300, clock.now_ms() + 5000)).check()
        clock.advance(100_000)
        assert numbers(store) == [*range(200, 210), *range(kept), 300]


def test_another_precision_is_no_harm(tmp_path: Path, clock: FakeClock) -> None:
    expected: list[int] = []
    for precision_ms in (1000, 100, 500, 1000):
        with timer_store(tmp_path / "s", clock, CONFIG.with_changes(timer_precision_ms=precision_ms)) as store:
            for number in range(5):
                expected.append(len(expected))
                store.put(timed(expected[-1], clock.now_ms() + 10_000 + 1000 * number)).check()
            clock.advance(2000)
    with timer_store(tmp_path / "s", clock) as store:
        clock.advance(60_000)
        assert sorted(numbers(store)) == expected


def test_another_size_of_the_log_files_is_no_harm(tmp_path: Path, clock: FakeClock) -> None:
    with timer_store(tmp_path / "s", clock) as store:
        _fill(store, clock, 30)
        clock.advance(1000)
    with timer_store(tmp_path / "s", clock, CONFIG.with_changes(mapped_file_size_timer_log=52 * 30)) as store:
        clock.advance(300_000)
        assert numbers(store) == _expected(30)


def test_timer_log_files_are_deleted_after_their_commit_log_files(tmp_path: Path, clock: FakeClock) -> None:
    with timer_store(tmp_path / "s", clock) as store:
        _fill(store, clock)
        clock.advance(300_000)
        files = len(list((tmp_path / "s" / "timerlog").iterdir()))
        for number in range(100):
            store.put(timed(number, 0))
        first = store._engine.parts.segments
        while first.max_offset < first.segment_size:
            store.put(timed(1, 0))
        first.delete_expired(0, now_ms=clock.now_ms(), at_once=True)
        store.put(timed(1, clock.now_ms() + 1000)).check()
        clock.advance(60_000)
        assert len(list((tmp_path / "s" / "timerlog").iterdir())) < files
    with timer_store(tmp_path / "s", clock) as store:
        store.put(timed(7, clock.now_ms() + 1000)).check()
        clock.advance(60_000)
        assert numbers(store)[-1] == 7
