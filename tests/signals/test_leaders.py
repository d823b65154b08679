"""A put that leads a group commit is interrupted at every point, while other threads, futures and a loop wait for it.

Time-outs are long, so that the watcher, which would find a wake-up that was lost, never looks.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from flintlog import Message, Store
from tests.signals.interrupting import Interrupter
from tests.signals.scenes import KINDS, SOON_S, Kind, Scene

QUICK_POINTS = 60
PATIENT = {"sync_flush_timeout": 3_600_000}


@pytest.fixture
def interrupter() -> Iterator[Interrupter]:
    made = Interrupter()
    yield made
    made.close()


class Others:
    """What puts beside the main thread, and how often each was acknowledged."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._is_over = False
        self.counts = {"thread 1": 0, "thread 2": 0, "future": 0, "loop": 0}
        works: list[Callable[[], None]] = [
            lambda: self._put("thread 1"),
            lambda: self._put("thread 2"),
            self._put_futures,
            lambda: asyncio.run(self._put_from_loop()),
        ]
        self._threads = [threading.Thread(target=work, daemon=True) for work in works]
        for thread in self._threads:
            thread.start()

    def _put(self, name: str) -> None:
        while not self._is_over:
            self._store.put(Message("others", b"x")).check()
            self.counts[name] += 1

    def _put_futures(self) -> None:
        while not self._is_over:
            self._store.put_async(Message("others", b"x")).result(SOON_S).check()
            self.counts["future"] += 1

    async def _put_from_loop(self) -> None:
        while not self._is_over:
            await self._store.aput(Message("others", b"x"))
            self.counts["loop"] += 1

    def check_progress(self) -> None:
        """Each is acknowledged twice more: the first one may have been on its way."""
        before = dict(self.counts)
        deadline = time.monotonic() + SOON_S
        while stuck := [name for name, count in self.counts.items() if count < before[name] + 2]:
            assert time.monotonic() < deadline, f"waiting for ever: {stuck}"
            time.sleep(0.0005)

    def stop(self) -> None:
        self._is_over = True
        for thread in self._threads:
            thread.join(SOON_S)
            assert not thread.is_alive()


def interrupt_beside_others(interrupter: Interrupter, most: int) -> int:
    scene = Scene(Kind(KINDS["plain, sync"].call, PATIENT))
    hits = 0
    try:
        put = KINDS["plain, sync"].call
        total = 0
        for _ in range(5):
            interrupter.run(lambda: put(scene))
            total = max(total, interrupter.count)
        others = Others(scene.store)
        for point in range(1, total + 1, max(1, total // most)):
            hits += interrupter.run(lambda: put(scene), point)
            where = interrupter.where
            try:
                others.check_progress()
            except BaseException as failure:
                raise AssertionError(f"point {point} of {total}, interrupted at\n{where}") from failure
        others.stop()
        scene.check()
    finally:
        scene.close()
    return hits


def test_others_go_on_when_a_leader_is_interrupted_at_some_points(interrupter: Interrupter) -> None:
    assert interrupt_beside_others(interrupter, QUICK_POINTS)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_others_go_on_when_a_leader_is_interrupted_at_every_point(interrupter: Interrupter) -> None:
    assert interrupt_beside_others(interrupter, 1_000_000)


@pytest.mark.parametrize("name", ["plain, sync", "batch, sync", "future, sync"])
def test_a_lone_leader_is_interrupted_and_no_watcher_helps(name: str, interrupter: Interrupter) -> None:
    scene = Scene(Kind(KINDS[name].call, PATIENT))
    try:
        for _ in range(3):
            interrupter.run(lambda: KINDS[name].call(scene))
        total = interrupter.count
        for point in range(1, total + 1, max(1, total // QUICK_POINTS)):
            interrupter.run(lambda: KINDS[name].call(scene), point)
            scene.probe()
        scene.check()
    finally:
        scene.close()
