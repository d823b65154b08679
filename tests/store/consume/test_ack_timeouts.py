"""A message that is not acknowledged in time: it comes again, here or at another consumer, and is counted."""

from __future__ import annotations

import math
import pickle
import threading
import time

import pytest
from tests.store.small_store import SMALL

from flintlog import Consumer, InvalidConfig, Message, Store
from flintlog.store.consume.consumer_queue import ReceivedMessage
from flintlog.testing import FakeClock, temporary_store

LONG_S = 20.0


def put(store: Store, count: int, queues: int = 1) -> None:
    for number in range(count):
        store.put(Message("orders", b"%d" % number, queue_id=number % queues)).check()
    store.wait_dispatched()


def taken(consumer: Consumer, timeout_s: float = 0.0) -> ReceivedMessage:
    message = consumer.poll(timeout_s)
    assert message is not None
    return message


def test_a_message_comes_again_with_its_count_until_it_is_acknowledged() -> None:
    clock = FakeClock()
    with temporary_store(SMALL, clock=clock) as store:
        put(store, 2)
        with store.consumer("g", "orders", ack_timeout_s=10) as consumer:
            assert (taken(consumer).body, taken(consumer).body) == (b"0", b"1")
            clock.advance(9_999)
            assert consumer.poll() is None
            for count in (2, 3):
                clock.advance(10_000)
                first, second = taken(consumer), taken(consumer)
                assert (first.body, second.body) == (b"0", b"1")
                assert first.delivery_count == second.delivery_count == count
            assert pickle.loads(pickle.dumps(first)).delivery_count == 3
            consumer.ack(second)
            clock.advance(10_000)
            assert taken(consumer).delivery_count == 4 and consumer.poll() is None
            assert store.consumer_offsets.get("g", "orders", 0) == 0
            consumer.ack(first)
            clock.advance(10_000)
            assert consumer.poll() is None and consumer.lag() == 0


def test_each_message_has_its_own_time() -> None:
    clock = FakeClock()
    with temporary_store(SMALL, clock=clock) as store:
        put(store, 4, queues=2)
        with store.consumer("g", "orders", ack_timeout_s=10) as consumer:
            for _ in range(4):
                taken(consumer)
                clock.advance(1_000)
            seen: list[bytes] = []
            for _ in range(4):
                clock.advance(6_000 if not seen else 1_000)
                seen.append(taken(consumer).body)
                assert consumer.poll() is None
            assert seen == [b"0", b"1", b"2", b"3"]


def test_a_late_acknowledgement_counts() -> None:
    clock = FakeClock()
    with temporary_store(SMALL, clock=clock) as store:
        put(store, 2)
        with store.consumer("g", "orders", ack_timeout_s=10) as consumer:
            first, second = taken(consumer), taken(consumer)
            clock.advance(10_000)
            assert taken(consumer).body == b"0"
            consumer.ack(first)  # delivered again by now
            consumer.ack(second)  # due again, and not delivered yet
            assert consumer.lag() == 0 and consumer.poll() is None
            clock.advance(10_000)
            assert consumer.poll() is None


def test_what_a_message_must_not_do_too_often_can_be_a_dead_letter() -> None:
    clock = FakeClock()
    with temporary_store(SMALL, clock=clock) as store:
        put(store, 1)
        with store.consumer("g", "orders", ack_timeout_s=10) as consumer:
            while (message := taken(consumer)).delivery_count < 3:
                clock.advance(10_000)
            consumer.send_back(message, delay_level=-1)
            clock.advance(10_000)
            assert consumer.poll() is None and consumer.lag() == 0
        assert store.max_offset("%DLQ%g", 0) == 1


def test_a_full_queue_gives_again_what_expired() -> None:
    clock = FakeClock()
    with temporary_store(SMALL, clock=clock) as store:
        put(store, 3)
        with store.consumer("g", "orders", ack_timeout_s=10, max_unacknowledged=2) as consumer:
            taken(consumer), taken(consumer)
            assert consumer.poll() is None
            clock.advance(10_000)
            assert [message.body for message in iter(consumer.poll, None)] == [b"0", b"1"]


def test_the_queues_of_a_consumer_that_hangs_are_read_by_the_others_until_it_polls() -> None:
    clock = FakeClock()
    with temporary_store(SMALL, clock=clock) as store:
        put(store, 8, queues=2)
        with (
            store.consumer("g", "orders", ack_timeout_s=10) as hangs,
            store.consumer("g", "orders", ack_timeout_s=60) as works,
        ):
            stuck = taken(hangs)
            assert stuck.queue_id == 0
            clock.advance(10_000)
            found = []
            while (message := works.poll()) is not None:
                found.append((message.body, message.delivery_count))
                works.ack(message)
            assert sorted(found) == [(b"0", 2), *((b"%d" % number, 1) for number in range(1, 8))]
            assert hangs.positions() == [] and works.lag() == 0
            assert hangs.poll() is None, "it polls again, so it is there again"
            assert [place.queue_id for place in hangs.positions() if place.topic == "orders"] != []
            hangs.ack(stuck)


def test_a_consumer_with_a_thread_in_poll_keeps_its_queues() -> None:
    clock = FakeClock()
    with temporary_store(SMALL, clock=clock) as store:
        put(store, 1)
        with store.consumer("g", "orders", ack_timeout_s=10) as one, store.consumer("g", "orders") as other:
            taken(one)
            again: list[ReceivedMessage | None] = []
            thread = threading.Thread(target=lambda: again.append(one.poll(LONG_S)))
            thread.start()
            while not one._seat.sleepers:
                time.sleep(0.001)
            clock.advance(10_000)
            assert other.poll() is None and other.positions() == []
            thread.join(LONG_S)
            assert again[0] is not None and again[0].delivery_count == 2


def test_what_is_due_again_is_not_committed() -> None:
    clock = FakeClock()
    with temporary_store(SMALL, clock=clock) as store:
        put(store, 3)
        with store.consumer("g", "orders", ack_timeout_s=10) as consumer:
            for _ in range(3):
                taken(consumer)
            clock.advance(10_000)
            consumer.ack(taken(consumer))
            assert store.consumer_offsets.get("g", "orders", 0) == 1 and consumer.lag() == 2


def test_a_sleeper_wakes_when_the_message_of_another_expires() -> None:
    with temporary_store(SMALL) as store:
        put(store, 1)
        with store.consumer("g", "orders", ack_timeout_s=0.1) as hangs, store.consumer("g", "orders") as works:
            again: list[ReceivedMessage | None] = []
            thread = threading.Thread(target=lambda: again.append(works.poll(LONG_S)))
            thread.start()
            while not works._seat.sleepers:
                time.sleep(0.001)
            began = time.monotonic()
            taken(hangs)
            thread.join(LONG_S)
            assert time.monotonic() - began < LONG_S / 2
            assert again[0] is not None and again[0].delivery_count == 2


@pytest.mark.parametrize("bad", [0, -1, math.inf, math.nan, "10"])
def test_a_timeout_that_makes_no_sense_is_refused(bad: float) -> None:
    with temporary_store(SMALL) as store, pytest.raises(InvalidConfig, match="ack_timeout_s"):
        store.consumer("g", "orders", ack_timeout_s=bad)
