"""Consumers of one group share a topic's queues: who reads which, when one joins, when one closes."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
from tests.store.small_store import ASYNC, SMALL

from flintlog import Consumer, InvalidConfig, Message, Sql92, Store, open_store
from flintlog.testing import temporary_store

LONG_S = 20.0


def put(store: Store, count: int, queues: int, first: int = 0) -> None:
    for number in range(first, first + count):
        store.put(Message("orders", b"%d" % number, queue_id=number % queues)).check()
    store.wait_dispatched()


def queue_ids(consumer: Consumer) -> list[int]:
    return [place.queue_id for place in consumer.positions() if place.topic == "orders"]


def drain(consumer: Consumer) -> list[bytes]:
    found: list[bytes] = []
    while (message := consumer.poll()) is not None:
        found.append(message.body)
        consumer.ack(message)
    return found


def test_queues_are_divided_evenly_and_each_message_is_delivered_once() -> None:
    with temporary_store(SMALL) as store:
        put(store, 50, queues=5)
        with store.consumer("g", "orders") as one, store.consumer("g", "orders") as other:
            assert sorted(len(queue_ids(each)) for each in (one, other)) == [2, 3]
            found = drain(one), drain(other)
            assert {int(body) % 5 for body in found[0]} == set(queue_ids(one))
            assert sorted(map(int, found[0] + found[1])) == list(range(50))
            assert one.lag() == other.lag() == 0


def test_as_few_queues_as_possible_change_hands() -> None:
    with temporary_store(SMALL) as store:
        put(store, 12, queues=6)
        consumers = [store.consumer("g", "orders")]
        before: list[list[int]] = [queue_ids(consumers[0])]
        for expected in ([3, 3], [2, 2, 2], [2, 2, 1, 1]):
            consumers.append(store.consumer("g", "orders"))
            now = [queue_ids(each) for each in consumers]
            assert [len(ids) for ids in now] == expected
            assert sorted(queue_id for ids in now for queue_id in ids) == list(range(6))
            for old, new in zip(before, now, strict=False):
                assert set(new) <= set(old), "a queue moved between two that were there before"
            before = now
        consumers[0].close()
        assert sorted(len(queue_ids(each)) for each in consumers[1:]) == [2, 2, 2]


def test_more_consumers_than_queues_and_a_queue_that_is_new() -> None:
    with temporary_store(SMALL) as store:
        put(store, 2, queues=1)
        with store.consumer("g", "orders") as one, store.consumer("g", "orders") as other:
            assert (queue_ids(one), queue_ids(other)) == ([0], [])
            store.put(Message("orders", b"in a new queue", queue_id=7))
            store.wait_dispatched()
            message = other.poll(LONG_S)
            assert message is not None and message.body == b"in a new queue"
            assert (queue_ids(one), queue_ids(other)) == ([0], [7])


def test_a_queue_moves_when_its_reader_has_acknowledged_and_stays_in_order() -> None:
    with temporary_store(SMALL) as store:
        put(store, 8, queues=2)
        with store.consumer("g", "orders") as one:
            first, second = one.poll(), one.poll()
            assert first is not None and second is not None
            with store.consumer("g", "orders") as other:
                assert other.poll() is None, "what one reader has open is not overtaken by another one"
                kept = [message.body for message in iter(one.poll, None)]
                assert kept == [b"2", b"4", b"6"], "the queue that is to move gives its reader nothing new"
                one.ack(second)
                assert (queue_ids(one), queue_ids(other)) == ([0], [1])
                assert drain(other) == [b"3", b"5", b"7"]


def test_a_sleeping_consumer_wakes_when_it_gets_a_queue() -> None:
    with temporary_store(SMALL) as store:
        put(store, 2, queues=2)
        with store.consumer("g", "orders") as one, store.consumer("g", "orders") as other:
            assert drain(one) and drain(other)
            found: list[bytes] = []
            thread = threading.Thread(target=lambda: found.extend(each.body for each in other))
            thread.start()
            put(store, 1, queues=1, first=2)
            message = one.poll(LONG_S)
            assert message is not None and not found
            one.close()
            deadline = time.monotonic() + LONG_S
            while not found and time.monotonic() < deadline:
                time.sleep(0.001)
            other.close()
            thread.join(LONG_S)
            assert found == [b"2"]


def test_what_a_closed_consumer_left_open_comes_again_first_and_its_count_is_visible() -> None:
    with temporary_store(SMALL) as store:
        put(store, 5, queues=1)
        one, other = store.consumer("g", "orders"), store.consumer("g", "orders")
        messages = [one.poll() for _ in range(3)]
        assert messages[1] is not None and messages[2] is not None
        one.ack(messages[1])
        one.close()
        again = [(message.body, message.delivery_count) for message in iter(other.poll, None)]
        assert again == [(b"0", 2), (b"2", 2), (b"3", 1), (b"4", 1)]
        one.ack(messages[2])  # it was done after all: this counts
        other.rewind()
        again = [(message.body, message.delivery_count) for message in iter(other.poll, None)]
        assert again == [(b"0", 3), (b"3", 2), (b"4", 2)]


def test_retries_have_one_reader_too() -> None:
    with temporary_store(SMALL) as store:
        put(store, 2, queues=2)
        with store.consumer("g", "orders") as one, store.consumer("g", "orders") as other:
            store.put(Message("%RETRY%g", b"again"))
            store.wait_dispatched()
            assert sorted(drain(one) + drain(other)) == [b"0", b"1", b"again"]


@pytest.mark.parametrize(
    "values", [{"filter": "paid"}, {"retries": False}, {"max_unacknowledged": 5}, {"queue_ids": [0]}], ids=str
)
def test_consumers_that_would_read_differently_cannot_share(values: dict[str, object]) -> None:
    with temporary_store(SMALL) as store:
        put(store, 2, queues=2)
        with store.consumer("g", "orders", filter=Sql92("n > 1")):
            with pytest.raises(InvalidConfig, match="has a consumer of 'orders'"):
                store.consumer("g", "orders", **{"filter": Sql92("n > 1"), **values})  # type: ignore[arg-type]
            store.consumer("g", "orders", filter=Sql92("n > 1")).close()
            store.consumer("h", "orders", filter="paid").close()


def test_a_reset_concerns_the_whole_group() -> None:
    with temporary_store(SMALL) as store:
        put(store, 4, queues=2)
        with store.consumer("g", "orders") as one, store.consumer("g", "orders") as other:
            assert len(drain(one)) == len(drain(other)) == 2
            one.reset("earliest")
            assert (drain(one), drain(other)) == ([b"0", b"2"], [b"1", b"3"])
            one.seek(1, 1)
            assert (drain(one), drain(other)) == ([], [b"3"])


def test_what_was_acknowledged_by_several_is_committed(tmp_path: Path) -> None:
    with open_store(tmp_path, SMALL) as store:
        put(store, 8, queues=2)
        one, other = store.consumer("g", "orders"), store.consumer("g", "orders")
        for consumer, count in ((one, 3), (other, 1)):
            for _ in range(count):
                message = consumer.poll()
                assert message is not None
                consumer.ack(message)
    with open_store(tmp_path, SMALL) as store, store.consumer("g", "orders") as consumer:
        assert sorted(drain(consumer)) == [b"3", b"5", b"6", b"7"]


@pytest.mark.parametrize("seed", range(3))
def test_nothing_is_lost_or_with_two_at_once_while_consumers_come_and_go(seed: int) -> None:
    count, queues = 600, 6
    chance = random.Random(seed)
    handled: Counter[bytes] = Counter()
    busy: set[int] = set()
    faults: list[str] = []
    lock = threading.Lock()
    with temporary_store(ASYNC) as store:

        def work(most: int, leaves_open: bool) -> None:
            with store.consumer("g", "orders", timeout_s=0.5) as consumer:
                for taken, message in enumerate(consumer):
                    if leaves_open and taken == most:
                        return  # this one was not handled
                    with lock:
                        if message.queue_id in busy:
                            faults.append(f"{message} while its queue is being read")
                        busy.add(message.queue_id)
                    if taken % 7 == 0:
                        time.sleep(0.0005)
                    with lock:
                        handled[message.body] += 1
                        busy.discard(message.queue_id)
                    consumer.ack(message)
                    if taken == most:
                        return

        def come_and_go(seed: int) -> None:
            choice = random.Random(seed)
            while len(handled) < count and time.monotonic() < deadline:
                work(choice.randrange(1, 60), choice.random() < 0.5)

        deadline = time.monotonic() + 3 * LONG_S
        workers = [threading.Thread(target=come_and_go, args=(chance.random(),)) for _ in range(4)]
        for worker in workers:
            worker.start()
        put(store, count, queues)
        for worker in workers:
            worker.join()
        assert not faults
        assert handled == Counter(b"%d" % number for number in range(count)), "each once: all that was done was said"
        with store.consumer("g", "orders") as consumer:
            assert consumer.lag() == 0
