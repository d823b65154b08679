"""Closing a store, interrupted: a second call ends it, and the next opening has everything."""

from __future__ import annotations

import pytest

from flintlog import Message, open_store
from tests.signals.interrupting import Interrupter
from tests.signals.scenes import KINDS, Scene, soon
from tests.signals.test_every_point import interrupter

__all__ = ["interrupter"]
QUICK_POINTS = 12

# An interruption inside a callback of Python's own, when a map or a store is collected, is swallowed there.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


def close_everywhere(name: str, interrupter: Interrupter, most: int) -> None:
    total, point = 1, 0
    while point < total:
        scene = Scene(KINDS[name])
        try:
            for _ in range(3):
                KINDS[name].call(scene)
            interrupter.run(scene.store.close, point)
            if point == 0:
                total = interrupter.count
            soon(scene.store.close)
            with open_store(scene.folder / "store", scene.config) as again:
                scene._check_given(again)
                message = Message("orders", b"next")
                scene.took(message, again.put(message))
        except BaseException as failure:
            raise AssertionError(f"point {point} of {total}, interrupted at\n{interrupter.where}") from failure
        finally:
            scene.close()
        point += max(1, total // most) if point else 1


@pytest.mark.parametrize("name", ["hook, sync", "hook, async"])
def test_closing_is_interrupted_at_some_points(name: str, interrupter: Interrupter) -> None:
    close_everywhere(name, interrupter, QUICK_POINTS)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["hook, sync", "hook, async", "transaction, async", "write buffers, async"])
def test_closing_is_interrupted_at_many_points(name: str, interrupter: Interrupter) -> None:
    close_everywhere(name, interrupter, 1_000)
