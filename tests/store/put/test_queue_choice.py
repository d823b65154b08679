"""A message that names no queue: each in turn, or by a key, over as many queues as its topic has."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.store.small_store import ASYNC, SMALL

from flintlog import InvalidMessage, InvalidTopic, Message, Store, StoreConfig, encoded_batch, open_store
from flintlog.testing import FakeClock, temporary_store

KEYS = {"customer-7": 0, "customer-8": 3, "o-17": 0, "BB": 0, "": 0, "péage €": 2, "order-1000001": 3}
"""Keys, and their queue of four as Java computes `Math.abs(key.hashCode() % 4)`; two of the hashes are negative."""


def put(store: Store, key: str) -> int:
    store.put(Message("orders", key.encode(), queue_id=9), key=key)
    store.wait_dispatched()
    (queue_id,) = (info.queue_id for info in store.queues() if info.topic == "orders")
    return queue_id


@pytest.mark.parametrize("key", KEYS, ids=repr)
def test_a_key_has_the_queue_that_java_gives_it(key: str) -> None:
    with temporary_store(SMALL) as store:
        store.topics.create("orders", read_queue_nums=4, write_queue_nums=4)
        assert put(store, key) == store.topics.queue_of("orders", key) == KEYS[key]


WAYS: dict[str, Callable[[Store, Message], object]] = {
    "put": lambda store, message: store.put(message, key="péage €"),
    "put_async": lambda store, message: store.put_async(message, key="péage €").result(),
    "aput": lambda store, message: asyncio.run(_aput(store, message)),
}


async def _aput(store: Store, message: Message) -> None:
    await store.aput(message, key="péage €")


@pytest.mark.parametrize("config", [SMALL, ASYNC], ids=["sync", "async"])
@pytest.mark.parametrize("way", WAYS)
def test_every_way_to_put_one_message_takes_a_key(way: str, config: StoreConfig) -> None:
    with temporary_store(config) as store:
        store.topics.create("orders", write_queue_nums=4)
        WAYS[way](store, Message("orders", b"1", queue_id=None))
        WAYS[way](store, Message("orders", b"2", keys=["o-17"]))
        store.wait_dispatched()
        assert [message.body for message in store.messages("orders", 2)] == [b"1", b"2"]
        assert store.get("orders", 2, 1).messages[0].keys == ["o-17"]


def test_a_key_keeps_its_queue_after_an_opening_until_the_number_changes(tmp_path: Path) -> None:
    with open_store(tmp_path, SMALL) as store:
        store.topics.create("orders", write_queue_nums=16)
        first = store.topics.queue_of("orders", "customer-7")
    with open_store(tmp_path, SMALL) as store:
        assert store.topics.queue_of("orders", "customer-7") == first
        store.topics.change("orders", write_queue_nums=1)
        assert store.topics.queue_of("orders", "customer-7") == 0
        assert {store.topics.queue_of("never created", f"{n}") for n in range(100)} == set(range(8))


@pytest.mark.parametrize("config", [SMALL, ASYNC], ids=["sync", "async"])
def test_without_a_key_each_queue_has_its_turn(config: StoreConfig) -> None:
    with temporary_store(config) as store:
        store.topics.create("orders", write_queue_nums=3)
        message = Message("orders", b"", queue_id=None)
        for _ in range(6):
            store.put(message)
            store.put(Message("events", b"", queue_id=None))
        assert str(message.queue_id) == "None", "the caller's message stays as it is"
        store.wait_dispatched()
        counts = {(info.topic, info.queue_id): info.max_offset for info in store.queues()}
        assert counts == {**{("orders", n): 2 for n in range(3)}, **{("events", n): 1 for n in range(6)}}


def test_batches_have_one_turn_and_batches_of_any_queues_one_a_message() -> None:
    with temporary_store(SMALL) as store:
        store.topics.create("orders", write_queue_nums=3)
        some = [Message("orders", b"", queue_id=None) for _ in range(4)]
        for batch in (some, tuple(some)):
            store.put_batch(batch)
        asyncio.run(_aput_batch(store, some))
        store.put_closed(some)
        store.wait_dispatched()
        assert [store.max_offset("orders", n) for n in range(3)] == [4 + 2, 4 + 1, 4 + 1]
        with pytest.raises(InvalidMessage):
            store.put_batch([Message("orders", b"", queue_id=None), Message("orders", b"", queue_id=2)])


async def _aput_batch(store: Store, messages: list[Message]) -> None:
    await store.aput_batch(messages)


def test_an_encoded_batch_may_leave_its_queue_to_the_store() -> None:
    with temporary_store(SMALL) as store:
        store.topics.create("orders", write_queue_nums=2)
        for _ in range(2):
            batch = encoded_batch([Message("orders", b"1"), Message("orders", b"2")])
            batch.queue_id = None  # type: ignore[assignment]
            store.put_encoded(batch)
        store.wait_dispatched()
        assert [store.max_offset("orders", n) for n in range(2)] == [2, 2]


def test_services_and_hooks_see_the_chosen_queue() -> None:
    clock = FakeClock()
    seen: list[int] = []
    config = SMALL.with_changes(services={"schedule", "timer", "transaction"})
    with temporary_store(config, clock=clock) as store:
        store.topics.create("orders", write_queue_nums=4)
        store.put(Message("orders", b"delayed", delay_level=1), key="customer-8")
        store.put(Message("orders", b"timed", queue_id=None, deliver_at_ms=clock.now_ms() + 5_000))
        store.service("transaction").begin(Message("orders", b"in a transaction", queue_id=None)).commit()
        clock.advance(10_000)
        store.wait_dispatched()
        found = Counter((each.queue_id, each.body) for n in range(4) for each in store.messages("orders", n))
        assert found == Counter([(3, b"delayed"), (0, b"timed"), (1, b"in a transaction")])
        store.add_put_hook(lambda message: seen.append(message.queue_id))
        store.put(Message("orders", b"", queue_id=None))
        assert seen == [2]


def test_bad_keys_and_topics_are_named() -> None:
    with temporary_store(SMALL) as store:
        with pytest.raises(InvalidMessage, match="a key is text"):
            store.put(Message("orders", b""), key=7)  # type: ignore[arg-type]
        with pytest.raises(InvalidMessage, match="takes a Message"):
            store.put(b"orders", key="7")  # type: ignore[arg-type]
        with pytest.raises(InvalidTopic):
            store.put(Message(7, b""), key="7")  # type: ignore[arg-type]
        with pytest.raises(InvalidTopic):
            store.put(Message(7, b"", queue_id=None))  # type: ignore[arg-type]
        assert store.max_physical_offset == 0
