"""Consumers whose calls a signal's handler interrupts at every point: what was not acknowledged comes again, once."""

from __future__ import annotations

import pytest

from flintlog import Message, Store
from flintlog.store.consume.consumer import Consumer
from flintlog.testing import temporary_store
from tests.signals.interrupting import Interrupter
from tests.signals.test_every_point import interrupter

__all__ = ["interrupter"]
COUNT = 4


def drain(consumer: Consumer) -> set[int]:
    found = set()
    while (message := consumer.poll()) is not None:
        found.add(message.offset)
        consumer.acknowledge(message)
    return found


def consume_interrupted(store: Store, what: str, interrupter: Interrupter, point: int) -> set[int]:
    """The offsets that were received after the interruption, or acknowledged before it."""
    consumer = store.consumer("workers", "orders", retries=False)
    other = store.consumer("workers", "orders", retries=False)
    found: set[int] = set()
    if what == "poll":
        interrupter.run(consumer.poll, point)
        other.close()
    else:
        consumer.poll()
        calls = {"rewind": consumer.rewind, "close": consumer.close, "join": other.close}
        interrupter.run(calls[what], point)
        calls[what]()
    for reader in (other, consumer):
        found |= drain(reader)
        reader.rewind()
        found |= drain(reader)
    other.close()
    consumer.close()
    return found


@pytest.mark.parametrize("what", ["poll", "rewind", "close", "join"])
def test_no_message_is_passed_over_by_an_interrupted_call(what: str, interrupter: Interrupter) -> None:
    total, point = 1, 0
    while point < total:
        with temporary_store() as store:
            for number in range(COUNT):
                store.put(Message("orders", b"%d" % number))
            found = consume_interrupted(store, what, interrupter, point)
            committed = store.consumer_offsets.get("workers", "orders", 0)
            assert (found, committed) == (set(range(COUNT)), COUNT), f"{point} of {total}, {interrupter.where}"
        total = interrupter.count if point == 0 else total
        point += 1
