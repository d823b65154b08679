"""Threads that waited together: all of them are woken, whatever becomes of the one before. Which loop runs here."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable

import pytest

from flintlog import Message, PutStatus, Receipt
from flintlog.store.flush.waiters import LoopHere, WaitingFuture, WaitingThread, finish_all

MESSAGE = Message("orders", b"42 pieces")
TIMEOUT = PutStatus.FLUSH_SLAVE_TIMEOUT


def receipt(number: int) -> Receipt:
    return Receipt(PutStatus.PUT_OK, number, number, 100)


class Interrupted:
    """A gate whose sleeper gets Ctrl-C, after something else has happened."""

    def __init__(self, before: Callable[[], None]) -> None:
        self._before = before

    def acquire(self) -> None:
        self._before()
        raise KeyboardInterrupt

    def release(self) -> None:
        """Nobody sleeps here any more."""


class Row:
    """Threads in `wait`, and what came of it."""

    def __init__(self, count: int) -> None:
        self.waiting = [WaitingThread(receipt(number), MESSAGE, 0.0) for number in range(count)]
        self.outcomes: dict[int, object] = {}

    def sleep(self, *numbers: int) -> list[threading.Thread]:
        def sleep(number: int) -> None:
            self.outcomes[number] = self.waiting[number].wait()

        threads = [threading.Thread(target=sleep, args=(number,), daemon=True) for number in numbers]
        for thread in threads:
            thread.start()
        return threads


def join(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()


def test_one_call_wakes_them_all_each_with_its_own_receipt() -> None:
    row = Row(5)
    threads = row.sleep(*range(5))
    finish_all(row.waiting, None)
    join(threads)
    assert row.outcomes == {number: receipt(number) for number in range(5)}


def test_who_comes_after_its_put_was_finished_goes_on_and_wakes_the_next() -> None:
    row = Row(3)
    threads = row.sleep(2)
    finish_all(row.waiting, TIMEOUT)
    join(threads + row.sleep(0, 1))
    assert row.outcomes == {number: receipt(number).with_status(TIMEOUT) for number in range(3)}


@pytest.mark.parametrize("place", [0, 1, 3])
def test_one_that_was_interrupted_before_holds_up_nobody(place: int) -> None:
    row = Row(4)
    row.waiting[place]._gate = Interrupted(lambda: None)  # type: ignore[assignment]
    with pytest.raises(KeyboardInterrupt):
        row.waiting[place].wait()
    threads = row.sleep(*(number for number in range(4) if number != place))
    finish_all(row.waiting, None)
    join(threads)


@pytest.mark.parametrize("place", [0, 1, 3])
def test_one_that_is_interrupted_while_they_are_told_holds_up_nobody(place: int) -> None:
    row = Row(4)
    threads = row.sleep(*(number for number in range(4) if number != place))
    row.waiting[place]._gate = Interrupted(lambda: finish_all(row.waiting, None))  # type: ignore[assignment]
    with pytest.raises(KeyboardInterrupt):
        row.waiting[place].wait()
    join(threads)


def test_futures_among_them_are_told_too() -> None:
    row = Row(2)
    future = WaitingFuture(receipt(7), MESSAGE, 0.0, check=True)
    threads = row.sleep(0, 1)
    finish_all([row.waiting[0], future, row.waiting[1]], None)
    join(threads)
    assert future.future.result(10) == receipt(7)


def test_the_loop_of_this_thread_is_known_without_asking(monkeypatch: pytest.MonkeyPatch) -> None:
    here = LoopHere()

    async def is_right() -> bool:
        return here.get() is asyncio.get_running_loop()

    async def nobody_asks() -> bool:
        known = here.get()
        monkeypatch.setattr(asyncio, "get_running_loop", None)
        try:
            return here.get() is known
        finally:
            monkeypatch.undo()

    with pytest.raises(RuntimeError):
        here.get()
    assert asyncio.run(is_right()) and asyncio.run(is_right()) and asyncio.run(nobody_asks())
    with pytest.raises(RuntimeError):
        here.get()


def test_a_loop_that_moved_to_another_thread_is_not_taken_for_the_one_here() -> None:
    here, moved, ran_here = LoopHere(), asyncio.new_event_loop(), asyncio.Event()

    async def get() -> asyncio.AbstractEventLoop:
        return here.get()

    assert moved.run_until_complete(get()) is moved
    elsewhere = threading.Thread(target=moved.run_until_complete, args=(ran_here.wait(),))
    elsewhere.start()
    try:
        while not moved.is_running():
            time.sleep(0.001)
        with asyncio.Runner() as runner:
            assert runner.run(get()) is runner.get_loop()
    finally:
        moved.call_soon_threadsafe(ran_here.set)
        elsewhere.join(10)
        moved.close()


def test_a_loop_that_does_not_say_its_thread_is_asked_for_each_time() -> None:
    class Silent(asyncio.SelectorEventLoop):
        """As loops of other libraries: it runs, and says nothing of how."""

        def __getattribute__(self, name: str) -> object:
            caller = sys._getframe(1).f_code.co_qualname
            if name == "_thread_id" and caller.startswith("LoopHere"):
                raise AttributeError(name)
            return super().__getattribute__(name)

    here = LoopHere()

    async def get() -> asyncio.AbstractEventLoop:
        assert here.get() is here.get()
        return here.get()

    with asyncio.Runner(loop_factory=Silent) as runner:
        assert runner.run(get()) is runner.get_loop()


def test_a_future_that_was_half_told_is_told_by_the_second_call() -> None:
    """The first was interrupted after it had marked the future as running."""
    waiting = WaitingFuture(receipt(1), MESSAGE, 0.0, check=True)
    waiting.future.set_running_or_notify_cancel()
    finish_all([waiting], None)
    assert waiting.future.result(10) == receipt(1)
    finish_all([waiting], TIMEOUT)
    assert waiting.future.result(10) == receipt(1)
