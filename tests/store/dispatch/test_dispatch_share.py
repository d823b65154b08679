"""Who dispatches what: a put does its own share, a thread the rest, and nobody gets far ahead of dispatch."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.store.small_store import ASYNC, SMALL, wait_until

from flintlog import Arrival, Message, Store, open_store
from flintlog.disk.faulty.faulty_disk import FaultyMedium
from flintlog.store.dispatch import dispatcher as dispatch

ROOT = Path("/store")


def _open() -> Store:
    return open_store(ROOT, ASYNC, medium=FaultyMedium())


def _in_thread(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


class _Gate:
    """A listener that stands still at its first arrival, and notes in which thread each was reported."""

    def __init__(self) -> None:
        self.is_entered = threading.Event()
        self.may_go_on = threading.Event()
        self.heard_in: list[threading.Thread] = []

    def __call__(self, _: Arrival) -> None:
        self.heard_in.append(threading.current_thread())
        self.is_entered.set()
        assert self.may_go_on.wait(30)


def test_a_put_does_not_dispatch_what_others_put_meanwhile() -> None:
    gate = _Gate()
    with _open() as store:
        store.on_arrival(gate)
        first = _in_thread(lambda: store.put(Message("orders", b"first")))
        assert gate.is_entered.wait(30)
        for _ in range(20):
            store.put(Message("orders", b"meanwhile")).check()
        gate.may_go_on.set()
        first.join(30)
        wait_until(lambda: store.max_offset("orders", 0) == 21 and len(gate.heard_in) == 21)
        assert gate.heard_in.count(first) == 1, "only its own"
        assert gate.heard_in.count(threading.current_thread()) == 0


def test_a_listener_that_puts_for_ever_holds_no_put() -> None:
    heard_in: list[threading.Thread] = []
    with _open() as store:

        def answer(_: Arrival) -> None:
            heard_in.append(threading.current_thread())
            if len(heard_in) < 500:
                store.put(Message("orders", b"again"))

        store.on_arrival(answer)
        store.put(Message("orders", b"x")).check()
        wait_until(lambda: len(heard_in) == 500)
        assert heard_in.count(threading.current_thread()) == 1


def test_who_has_dispatch_to_itself_does_not_take_what_came_after() -> None:
    gate = _Gate()
    with _open() as store:
        store.on_arrival(gate)

        def alone() -> None:
            store._engine.dispatcher.alone(lambda: store.put(Message("orders", b"while nobody dispatches")))

        keeper = _in_thread(alone)
        assert gate.is_entered.wait(30)
        store.put(Message("orders", b"x")).check()
        gate.may_go_on.set()
        keeper.join(30)
        wait_until(lambda: len(gate.heard_in) == 2)
        assert gate.heard_in[0] is keeper and gate.heard_in[1] is not keeper


def test_far_behind_a_put_waits_for_dispatch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "FAR_BEHIND_BYTES", 1000)
    monkeypatch.setattr(dispatch, "PATIENCE_S", 30)
    gate = _Gate()
    with _open() as store:
        store.on_arrival(gate)
        first = _in_thread(lambda: store.put(Message("orders", b"first")))
        assert gate.is_entered.wait(30)
        store.put(Message("orders", b"not far behind yet")).check()
        waits = _in_thread(lambda: store.put(Message("orders", bytes(1000))))
        wait_until(lambda: store._engine.dispatcher.backlog_bytes > 1000)
        waits.join(0.2)
        assert waits.is_alive()
        gate.may_go_on.set()
        waits.join(30)
        first.join(30)
        assert not waits.is_alive() and store.max_offset("orders", 0) == 3, "visible when its put returned"


def test_far_behind_a_listener_may_wait_for_who_puts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The patience has an end: else these two would wait for each other."""
    monkeypatch.setattr(dispatch, "FAR_BEHIND_BYTES", 1000)
    is_entered, is_put = threading.Event(), threading.Event()
    with _open() as store:

        def wait_for_the_other(_: Arrival) -> None:
            is_entered.set()
            assert is_put.wait(30)

        store.on_arrival(wait_for_the_other)
        first = _in_thread(lambda: store.put(Message("orders", b"first")))
        assert is_entered.wait(30)
        store.put(Message("orders", bytes(2000))).check()
        is_put.set()
        first.join(30)


def test_a_listener_that_puts_far_behind_does_not_wait_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "FAR_BEHIND_BYTES", 10)
    monkeypatch.setattr(dispatch, "PATIENCE_S", 3600)
    with _open() as store:

        def answer(arrival: Arrival) -> None:
            if arrival.topic == "orders":
                store.put(Message("answers", b"x"))

        store.on_arrival(answer)
        for _ in range(10):
            store.put(Message("orders", b"x")).check()
        wait_until(lambda: store.max_offset("answers", 0) == 10)


def test_the_thread_ends_with_the_store(tmp_path: Path) -> None:
    def running() -> list[threading.Thread]:
        return [each for each in threading.enumerate() if each.name == "flintlog-dispatch"]

    before = len(running())
    for config in (SMALL, ASYNC, ASYNC.with_changes(enable_build_consume_queue_concurrently=True)):
        with open_store(tmp_path, config):
            assert len(running()) == before + 1
        assert len(running()) == before
