"""Bells and latches: no wake-up is lost, and a wait ends in time."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

from flintlog.disk.bell import Bell, Bells, Latch


def test_a_ring_before_listening_is_heard_once() -> None:
    bell = Bell()
    bell.ring()
    bell.ring()
    assert bell.listen(0)
    assert not bell.listen(0.001)


def test_all_waiters_check_their_condition_after_a_ring() -> None:
    bells = Bells()
    done = threading.Event()
    with ThreadPoolExecutor(3) as pool:
        waiting = [pool.submit(bells.wait_for, done.is_set, 30) for _ in range(3)]
        done.set()
        bells.ring()
        assert all(each.result(30) for each in waiting)


def test_a_wait_for_what_does_not_happen_ends_in_time() -> None:
    assert not Bells().wait_for(lambda: False, 0.01)
    assert not Latch().wait(0.01)


def test_a_set_latch_lets_waiters_through_until_it_is_cleared() -> None:
    latch = Latch()
    latch.set()
    assert latch.is_set() and latch.wait(0)
    latch.clear()
    assert not latch.is_set() and not latch.wait(0)


def test_a_latch_that_is_set_and_cleared_at_once_still_wakes_its_waiter() -> None:
    latch = Latch()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(latch.wait, 30)
        began = time.monotonic()
        while not waiting.done() and time.monotonic() < began + 20:
            time.sleep(0.01)
            latch.set()
            latch.clear()
        assert waiting.result(30)
