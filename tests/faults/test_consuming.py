"""Any order of puts, polls, answers, stops, kills and power losses: offsets never go back, and nothing is skipped.

A message counts as done when it was acknowledged, or sent back and its dead letter is there. Whatever is in the log and
not done must be given again by the next consumer of the group.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from flintlog import DamagedRecord, Store, StoredMessage, open_store
from flintlog.disk.faulty.faulty_disk import FaultyMedium
from flintlog.store.consume.consumer import Consumer
from flintlog.store.consume.consumer_queue import ReceivedMessage
from flintlog.testing import FakeClock
from tests.faults.world import ROOT, World, small_config

GROUP, TOPIC = "billing", "orders"
DEAD = f"%DLQ%{GROUP}"
NAMES = ("put", "put", "poll", "poll", "answer", "answer", "bury", "wait", "rewind", "stop", "kill", "crash", "crash")
OPERATIONS = st.lists(
    st.tuples(st.sampled_from(NAMES), st.integers(0, 1_000_000), st.integers(1, 12)), min_size=8, max_size=30
)
COMMON = settings(
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
)
QUICK = settings(COMMON, max_examples=25)
THOROUGH = settings(COMMON, max_examples=int(os.environ.get("FLINTLOG_FAULT_EXAMPLES", "600")))


class Consuming(World):
    """A world with one consumer in it."""

    def __init__(self, flush: str) -> None:
        self.turned = FakeClock()
        self.held: list[ReceivedMessage] = []
        self.done: set[bytes] = set()
        self.buried: set[bytes] = set()
        self.committed: dict[int, int] = {}
        super().__init__(small_config(flush))

    def open(self, medium: FaultyMedium) -> Store:
        store = open_store(ROOT, self.config, medium=medium, clock=self.turned)
        self.held.clear()
        self.committed = {}
        self.consumer: Consumer = store.consumer(GROUP, TOPIC)
        return store

    def put_orders(self, seed: int, count: int) -> None:
        chance = random.Random(seed)
        for _ in range(count):
            message = self.make(chance, TOPIC)
            self.note(message, self.store.put(message))

    def poll(self, count: int) -> None:
        self.store.wait_dispatched()
        for _ in range(count):
            message = self.consumer.poll()
            if message is not None:
                self.held.append(message)

    def answer(self, seed: int, count: int, *, bury: bool = False) -> None:
        chance = random.Random(seed)
        chance.shuffle(self.held)
        for message in self.held[:count]:
            if bury:
                assert self.consumer.send_back(message, -1)
                self.buried.add(message.body)
            else:
                self.consumer.acknowledge(message)
            self.done.add(message.body)
        del self.held[:count]
        self.check_offsets()

    def check_offsets(self) -> None:
        """Within one run an offset only grows, and it never passes a message that is not done."""
        now = self.store.consumer_offsets.offsets(GROUP, TOPIC)
        for queue_id, offset in now.items():
            assert offset >= self.committed.get(queue_id, 0), "an ordinary commit went backwards"
        self.committed = now
        for message in self.left():
            assert now.get(message.queue_id, 0) <= message.queue_offset, f"skipped: {message}"

    def left(self) -> list[StoredMessage]:
        """What is in the queues and not done."""
        queues = self.store._host.queue_ids(TOPIC)
        return [
            message for queue_id in queues for message in self.stored(TOPIC, queue_id) if message.body not in self.done
        ]

    def stored(self, topic: str, queue_id: int) -> Iterator[StoredMessage]:
        """Every message of a queue that can be read."""
        offset, end = 0, self.store.max_offset(topic, queue_id)
        while offset < end:
            try:
                page = self.store.get(topic, queue_id, offset)
            except DamagedRecord as damage:
                offset = damage.next_queue_offset or end
                continue
            yield from page.messages
            offset = page.next_offset

    def check_all_is_given(self) -> None:
        """What is left is given again, and what was buried is with the dead letters."""
        self.store.wait_dispatched()
        self.check_offsets()
        self.consumer.rewind()
        given: set[bytes] = set()
        while (message := self.consumer.poll()) is not None:
            given.add(message.body)
        assert {message.body for message in self.left()} <= given
        self.consumer.rewind()
        self.held.clear()
        dead = {message.body for message in self.stored(DEAD, 0)}
        stored = {message.body for queue in self.store._host.queue_ids(TOPIC) for message in self.stored(TOPIC, queue)}
        assert (self.buried - dead) & stored <= given, "neither with the dead letters nor given again"
        self.done -= self.buried - dead
        self.buried &= dead


def run(world: Consuming, operations: list[tuple[str, int, int]]) -> None:
    try:
        for name, seed, count in operations:
            if name == "put":
                world.put_orders(seed, count)
            elif name == "poll":
                world.poll(count)
            elif name in ("answer", "bury"):
                world.answer(seed, count, bury=name == "bury")
            elif name == "wait":
                world.turned.advance(6000)
            elif name == "rewind":
                world.consumer.rewind()
                world.held.clear()
            elif name == "crash":
                world.crash(seed)
            else:
                getattr(world, name)()
            if name in ("stop", "kill", "crash"):
                world.check_all_is_given()
        world.check_all_is_given()
    finally:
        world.abandon()


@pytest.mark.parametrize("flush", ["sync", "async"])
@QUICK
@given(OPERATIONS)
def test_nothing_unacknowledged_is_skipped(flush: str, operations: list[tuple[str, int, int]]) -> None:
    run(Consuming(flush), operations)


@pytest.mark.parametrize("flush", ["sync", "async"])
@pytest.mark.parametrize("seed", range(8))
def test_an_acknowledgement_does_not_outlive_what_was_put_before_it(seed: int, flush: str) -> None:
    world = Consuming(flush)
    world.put_orders(seed, 5)
    world.stop()
    world.poll(5)
    world.answer(seed, 5, bury=True)
    world.turned.advance(6000)
    world.crash(seed)
    assert world.consumer.lag() == 0 and world.store.max_offset(DEAD, 0) == 5
    world.check_all_is_given()
    world.abandon()


@pytest.mark.slow
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("flush", ["sync", "async"])
@THOROUGH
@given(OPERATIONS)
def test_nothing_unacknowledged_is_skipped_for_long(flush: str, operations: list[tuple[str, int, int]]) -> None:
    run(Consuming(flush), operations)
