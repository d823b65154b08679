"""Closing a store with services: from its own callbacks, in a forked child, and calls after close."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from flintlog import FlintlogError, InvalidConfig, Message, ServiceNotEnabled, StoreClosed, StoreInUse, open_store
from flintlog.services.transaction.transaction_service import Decision, TransactionService, UndecidedTransaction
from flintlog.store.model.stored_message import Arrival
from flintlog.testing import SMALL_FILES, FakeClock
from tests.store.runtime.test_forking import in_child

pytestmark = pytest.mark.timeout(60)

ALL = SMALL_FILES.with_changes(services={"schedule", "timer", "transaction"})


def threads_of_stores() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("flintlog-")}


def test_a_check_may_shut_the_store_down(tmp_path: Path) -> None:
    before = threads_of_stores()
    clock = FakeClock()
    store = open_store(tmp_path, ALL, clock=clock)

    def stop(_: UndecidedTransaction) -> Decision:
        store.shutdown()
        return Decision.COMMIT

    service = store.service("transaction")
    assert isinstance(service, TransactionService)
    service.on_check(stop)
    service.begin(Message("orders", b"x"))
    clock.advance(60_000)
    assert threads_of_stores() <= before
    with open_store(tmp_path, ALL, clock=clock) as again:
        later = again.service("transaction")
        assert isinstance(later, TransactionService)
        assert len(later.undecided()) == 1  # its answer came too late


def test_an_arrival_listener_cannot_shut_the_store_down(tmp_path: Path) -> None:
    before = threads_of_stores()
    store = open_store(tmp_path, ALL.with_changes(message_delay_level="1s"))
    refused: list[FlintlogError] = []
    heard = threading.Event()

    def stop(arrival: Arrival) -> None:
        try:
            store.shutdown()
        except FlintlogError as error:
            refused.append(error)
        if arrival.topic == "orders":
            heard.set()

    store.on_arrival(stop)
    store.put(Message("orders", b"x", delay_level=1)).check()
    assert heard.wait(20)
    store.shutdown()
    assert [type(error) for error in refused] == [StoreInUse, StoreInUse]
    assert threads_of_stores() <= before


def test_a_child_saves_nothing_of_its_parents_services_and_groups(tmp_path: Path) -> None:
    clock = FakeClock()
    store = open_store(tmp_path, ALL, clock=clock)
    store.put(Message("orders", b"x", delay_level=1)).check()
    store.put(Message("orders", b"y", deliver_at_ms=clock.now_ms() + 1000)).check()
    clock.advance(500)
    store.put(Message("orders", b"z")).check()
    store.wait_dispatched()
    store.consumer_offsets.commit("g", "orders", 0, 1)
    before = files_of(tmp_path)

    def child() -> None:
        store.shutdown()
        with pytest.raises(StoreClosed):
            store.topics.create("late")
        with pytest.raises(StoreClosed):
            store.consumer_offsets.commit("g", "orders", 0, 2)
        with pytest.raises(StoreClosed):
            store.consumer_offsets.save()
        assert files_of(tmp_path) == before

    in_child(child)
    clock.advance(2000)
    assert store.max_offset("orders", 0) == 3
    store.shutdown()


def files_of(folder: Path) -> dict[str, bytes]:
    """The files that services and groups save."""
    return {
        str(path): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.parent.name in ("config", "flintlog", "timerwheel", "timerlog")
    }


def test_a_call_after_close_changes_no_file(tmp_path: Path) -> None:
    store = open_store(tmp_path, ALL)
    store.put(Message("orders", b"x")).check()
    store.shutdown()
    before = sorted(os.listdir(tmp_path / "config")), files_of(tmp_path)
    with pytest.raises(StoreClosed):
        store.topics.create("late")
    with pytest.raises(StoreClosed):
        store.groups.create("late")
    with pytest.raises(StoreClosed):
        store.subscriptions.register("g", "orders", "a > 1")
    with pytest.raises(StoreClosed):
        store.consumer_offsets.commit("g", "orders", 0, 1)
    assert (sorted(os.listdir(tmp_path / "config")), files_of(tmp_path)) == before
    assert "late" not in store.topics


def test_a_service_that_does_not_run_reports_why(tmp_path: Path) -> None:
    with open_store(tmp_path, SMALL_FILES) as store:
        with pytest.raises(ServiceNotEnabled, match=r"services={'timer'}"):
            store.service("timer")
        with pytest.raises(InvalidConfig, match=r"no service 'times' .schedule, timer, transaction"):
            store.service("times")
    with open_store(tmp_path, ALL, read_only=True) as store, pytest.raises(ServiceNotEnabled, match="open for writing"):
        store.service("timer")
