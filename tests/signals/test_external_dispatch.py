"""Waiting for a dispatcher in another process, interrupted: others who wait are woken, and the store closes."""

from __future__ import annotations

import threading
import time
from pathlib import Path

from flintlog import Message, open_store
from tests.signals.interrupting import Interrupter
from tests.signals.scenes import CONFIG, soon
from tests.signals.test_every_point import interrupter
from tests.store.outside import dispatching

__all__ = ["interrupter"]
POINTS = 120
EXTERNAL = CONFIG.with_changes(flush="async", dispatch="external", dispatch_poll_ms=1, dispatch_patience_ms=20_000)


def test_others_wait_for_the_dispatcher_after_one_that_was_interrupted(
    tmp_path: Path, interrupter: Interrupter
) -> None:
    with dispatching(tmp_path / "store", EXTERNAL, batch_bytes=3000):
        store = open_store(tmp_path / "store", EXTERNAL)

        def put_and_wait() -> None:
            store.put(Message("orders", b"x")).check()
            store.wait_dispatched()

        put_and_wait()
        interrupter.run(put_and_wait)
        total = interrupter.count
        for point in range(1, total + 1, max(1, total // POINTS)):
            interrupter.run(put_and_wait, point)
            try:
                soon(put_and_wait)
            except BaseException as failure:
                raise AssertionError(f"point {point} of {total}, interrupted at\n{interrupter.where}") from failure
        soon(store.close)


def test_a_waiting_caller_is_woken_when_the_dispatcher_is_through(tmp_path: Path) -> None:
    """And not only when it looks again by itself."""
    with dispatching(tmp_path / "store", EXTERNAL, batch_bytes=3000), open_store(tmp_path / "store", EXTERNAL) as store:
        store.wait_dispatched()
        began = time.monotonic()
        for _ in range(20):
            store.put(Message("orders", b"x")).check()
            waiting = [threading.Thread(target=store.wait_dispatched, daemon=True) for _ in range(4)]
            for thread in waiting:
                thread.start()
            for thread in waiting:
                thread.join()
        assert time.monotonic() - began < 10
