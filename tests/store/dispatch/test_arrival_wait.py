"""Sleeping until a message comes: it wakes for every way into a queue, and other topics' puts do not notice."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.store.small_store import ASYNC, SMALL

from flintlog import Message, Store, StoreConfig, open_store
from flintlog.store.dispatch.entry_writer import EntryWriter
from flintlog.testing import temporary_store

LONG_S = 20.0

CONFIGS = {
    "sync": SMALL,
    "async": ASYNC,
    "concurrent": ASYNC.with_changes(enable_build_consume_queue_concurrently=True),
    "pool": ASYNC.with_changes(transient_store_pool_enable=True, transient_store_pool_size=2),
    "extension": ASYNC.with_changes(enable_consume_queue_ext=True),
}


@pytest.fixture(params=list(CONFIGS))
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    with open_store(tmp_path, CONFIGS[request.param]) as opened:
        yield opened


def test_the_next_message_of_a_topic_wakes(store: Store) -> None:
    wait = store._host.arrival_wait(["orders"])
    for number in range(5):
        armed = wait.arm()
        assert not wait.wait(armed, 0)
        store.put(Message("orders", b"%d" % number, queue_id=number % 2)).check()
        store.wait_dispatched()
        assert wait.wait(armed, LONG_S)
        assert store.max_offset("orders", number % 2) == number // 2 + 1, "woken before the message could be seen"


def test_other_topics_do_not_wake(store: Store) -> None:
    wait = store._host.arrival_wait(["orders", "%RETRY%g"])
    armed = wait.arm()
    for _ in range(10):
        store.put(Message("events", b"")).check()
    store.wait_dispatched()
    assert not wait.wait(armed, 0)
    store.put(Message("%RETRY%g", b"")).check()
    store.wait_dispatched()
    assert wait.wait(armed, LONG_S)


def test_a_sleeper_in_a_thread(store: Store) -> None:
    wait, seen = store._host.arrival_wait(["orders"]), []
    store.put(Message("orders", b"before")).check()
    store.wait_dispatched()
    armed = wait.arm()
    thread = threading.Thread(target=lambda: seen.append(wait.wait(armed, LONG_S)))
    thread.start()
    store.put(Message("orders", b"after")).check()
    thread.join(LONG_S)
    assert seen == [True]


def test_puts_of_other_topics_stay_on_the_short_way(monkeypatch: pytest.MonkeyPatch) -> None:
    by_hand: list[int] = []
    step: Callable[..., None] = EntryWriter.write

    def counted(self: EntryWriter, view: memoryview, position: int, base: int) -> None:
        by_hand.append(position)
        step(self, view, position, base)

    monkeypatch.setattr(EntryWriter, "write", counted)
    with temporary_store(ASYNC) as store:
        for topic in ("orders", "events"):
            store.put(Message(topic, b"")).check()
        assert len(by_hand) == 2
        wait = store._host.arrival_wait(["orders"])
        armed = wait.arm()
        for _ in range(50):
            store.put(Message("events", b"")).check()
        assert len(by_hand) == 2 and not wait.wait(armed, 0)
        for _ in range(50):
            store.put(Message("orders", b"")).check()
        assert len(by_hand) == 3 and wait.wait(armed, 0), "one put a sleep is dispatched by hand"


def test_light_queues_and_batch_queues_wake_too() -> None:
    config = ASYNC.with_changes(enable_lmq=True, enable_multi_dispatch=True, topic_queue_types={"batches": "BatchCQ"})
    with temporary_store(config) as store:
        wait = store._host.arrival_wait(["%LMQ%a", "batches"])
        for message in (
            Message("orders", b"", properties={"INNER_MULTI_DISPATCH": "%LMQ%b,%LMQ%a"}),
            Message("batches", b""),
            Message("orders", b"", properties={"INNER_MULTI_DISPATCH": "%LMQ%b,%LMQ%a"}),
        ):
            armed = wait.arm()
            store.put(message).check()
            store.wait_dispatched()
            assert wait.wait(armed, LONG_S)


def test_a_listener_that_arms_does_not_wait_for_itself() -> None:
    with temporary_store(SMALL) as store:
        wait, woken = store._host.arrival_wait(["orders"]), []

        def listen(_: object) -> None:
            armed = wait.arm()
            woken.append(wait.wait(armed, LONG_S))

        store.on_arrival(listen)
        store.put(Message("orders", b"")).check()
        store.wait_dispatched()
        assert woken == [True]


@pytest.mark.parametrize("config", [SMALL, ASYNC], ids=["sync", "async"])
def test_no_wake_up_is_lost_between_arming_and_sleeping(config: StoreConfig) -> None:
    with temporary_store(config) as store:
        count, seen = 300, 0
        wait = store._host.arrival_wait(["orders"])

        def put() -> None:
            for number in range(count):
                store.put(Message("orders", b"", queue_id=number % 3)).check()

        thread = threading.Thread(target=put)
        thread.start()
        while seen < count:
            armed = wait.arm()
            now = sum(store.max_offset("orders", queue_id) for queue_id in range(3))
            if now == seen:
                assert wait.wait(armed, LONG_S), "a message came, and nobody was woken"
            seen = now
        thread.join()
