"""Every kind of put, interrupted at every single point at which Python can run a signal's handler."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.signals.interrupting import Interrupter
from tests.signals.scenes import KINDS, Scene

pytestmark = [
    # `shutil.rmtree`, interrupted between opening a folder and its `with`: the collector closes it.
    pytest.mark.filterwarnings(
        "ignore:Exception ignored in. <posix.ScandirIterator:pytest.PytestUnraisableExceptionWarning"
    ),
    # The finalizer of a map that nobody uses any more: the file stays mapped until the process ends.
    pytest.mark.filterwarnings("ignore:Exception ignored in. <finalize object:pytest.PytestUnraisableExceptionWarning"),
]
QUICK_POINTS = 25


@pytest.fixture
def interrupter() -> Iterator[Interrupter]:
    made = Interrupter()
    yield made
    made.close()


def interrupt_everywhere(name: str, interrupter: Interrupter, most: int) -> int:
    """Interrupt one put after the other, each a point later; how many were interrupted."""
    kind = KINDS[name]
    scene = Scene(kind)
    hits = 0
    try:
        for _ in range(3):  # the first ones make files and queues
            interrupter.run(lambda: kind.call(scene))
        total = interrupter.count
        most = most if kind.most is None else min(most, kind.most)
        first = int(os.environ.get("FIRST_POINT", "1"))
        for point in range(first, total + 1, max(1, total // most)):
            hits += interrupter.run(lambda: kind.call(scene), point)
            where = interrupter.where
            try:
                scene.probe()
            except BaseException as failure:
                raise AssertionError(f"{name}, point {point} of {total}, interrupted at\n{where}") from failure
        scene.check()
    finally:
        scene.close()
    return hits


@pytest.mark.parametrize("name", KINDS)
def test_a_put_that_is_interrupted_at_some_points(name: str, interrupter: Interrupter) -> None:
    assert interrupt_everywhere(name, interrupter, QUICK_POINTS)


def test_arming_a_wait_is_interrupted_at_every_point(interrupter: Interrupter) -> None:
    """Few points are open, and a store whose turn is kept cannot be closed."""
    assert interrupt_everywhere("arrival wait", interrupter, 1_000_000)


@pytest.mark.slow
@pytest.mark.timeout(900)  # a closed batch has five thousand points, and each is a note on the disk
@pytest.mark.parametrize("name", KINDS)
def test_a_put_that_is_interrupted_at_every_point(name: str, interrupter: Interrupter) -> None:
    assert interrupt_everywhere(name, interrupter, 1_000_000)
