"""Delay levels on a failing disk: no message is lost or early, and none is delivered twice without need.

Power and process go at any time, also in the middle of a delivery and between the files of a save. What the log then
holds of a waiting message must have been delivered exactly once when everything is due; only when the power goes in the
middle of a group of deliveries may some of that group come again.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests.faults.stopping import PowerLost, StoppingMedium
from tests.faults.world import ROOT, small_config

from flintlog import DamagedRecord, FlintlogError, InvalidMessage, Message, Receipt, Store, StoredMessage, open_store
from flintlog.disk.faulty.faulty_disk import FaultyMedium
from flintlog.format.record import SCHEDULE_TOPIC
from flintlog.services.delay.delay_message import destination
from flintlog.services.delay.schedule import ScheduleService
from flintlog.store.runtime.service import Rewritten
from flintlog.testing import FakeClock

LEVELS_MS = (1000, 2000, 5000)
QUEUES = 2

Operation = tuple[str, int, int]
NAMES = ("put", "put", "put", "plain", "advance", "advance", "advance", "stop", "kill", "crash", "cut", "cut")
OPERATIONS = st.lists(
    st.tuples(st.sampled_from(NAMES), st.integers(0, 1_000_000), st.integers(1, 12)), min_size=2, max_size=16
)
# Threads make a run less than repeatable, so a failure is shown as it was found.
COMMON = settings(
    deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.explicit, Phase.reuse, Phase.generate]
)
QUICK = settings(COMMON, max_examples=40)
THOROUGH = settings(COMMON, max_examples=int(os.environ.get("FLINTLOG_FAULT_EXAMPLES", "1500")))


class DelayWorld:
    """One store with delay levels, through its crashes."""

    def __init__(self, flush: str) -> None:
        self.config = small_config(flush, services={"schedule"}, message_delay_level="1s 2s 5s")
        self.clock = FakeClock()
        self.medium = FaultyMedium(clock_ms=self.clock.now_ms)
        self.acknowledged: set[bytes] = set()
        self.number = 0
        self.is_torn = False
        self.may_repeat = False
        self.store = self.open(self.medium)

    def open(self, medium: FaultyMedium) -> Store:
        return open_store(ROOT, self.config, medium=medium, clock=self.clock)

    def put(self, seed: int, count: int) -> None:
        for place in range(count):
            self.number += 1
            level = (seed + place) % len(LEVELS_MS) + 1
            # Every third looks like others, but for its place in the log.
            body = b"same" if self.number % 3 == 0 else b"%d" % self.number
            message = Message("orders", body, queue_id=seed % QUEUES, born_timestamp=1, delay_level=level)
            if self.store.put(message, check=False) and self.config.flush == "sync" and body != b"same":
                self.acknowledged.add(body)

    def plain(self, seed: int, count: int) -> None:
        """Messages that look like deliveries and are none."""
        for place in range(count):
            fake = {"DELAY": str(seed % 3 + 1), "REAL_TOPIC": "orders", "REAL_QID": str(seed % QUEUES)}
            self.store.put(
                Message("orders", b"plain %d" % place, queue_id=seed % QUEUES, properties=fake, born_timestamp=2)
            )

    def advance(self, seed: int, count: int) -> None:
        self.clock.advance(seed % (count * 500))

    def stop(self) -> None:
        self.store.shutdown()
        self.store = self.open(self.medium)

    def lose_power(self, medium: FaultyMedium) -> None:
        """Under async flush that can take any record, or some of its properties, out of the middle of the log."""
        self.is_torn |= self.config.flush == "async"
        self.go_on_with(medium)

    def go_on_with(self, medium: FaultyMedium) -> None:
        self.abandon()
        self.medium = medium
        self.store = self.open(medium)

    def abandon(self) -> None:
        with suppress(FlintlogError, PowerLost):
            self.store.shutdown()

    def cut(self, seed: int, count: int) -> None:
        """Cut the power or kill the process during delivery: before the n-th message, or after the last."""
        seen: list[FaultyMedium] = []
        put = self.store._host.put_rebuilt

        def put_and_see(rebuilt: Rewritten, *, wait: bool = True, check: bool = True) -> Receipt:
            nonlocal count
            count -= 1
            if count == 0:
                seen.append(self.medium.kill() if seed % 2 else self.medium.crash(seed))
            return put(rebuilt, wait=wait, check=check)

        self.store._host.put_rebuilt = put_and_see  # type: ignore[method-assign]
        self.clock.advance(seed % 6000)
        if seen and not seed % 2:
            # Of deliveries that share a sync the power may leave a later one and take an earlier one.
            self.may_repeat = True
            self.lose_power(seen[0])
        else:
            self.go_on_with(seen[0] if seen else self.medium.kill())

    def run(self, operations: list[Operation]) -> None:
        try:
            for name, seed, count in operations:
                if name == "stop":
                    self.stop()
                elif name == "kill":
                    self.go_on_with(self.medium.kill())
                elif name == "crash":
                    self.lose_power(self.medium.crash(seed))
                else:
                    getattr(self, name)(seed, count)
                self.check()
            self.clock.advance(60_000)
            self.check(is_over=True)
        finally:
            self.abandon()

    def check(self, *, is_over: bool = False) -> None:
        """Compare deliveries with the waiting messages in the log, by all fields that they share."""
        self.store.wait_dispatched()
        waiting: dict[tuple[object, ...], list[int]] = {}
        for queue_id, delay_ms in enumerate(LEVELS_MS):
            for message in self.messages(SCHEDULE_TOPIC, queue_id):
                waiting.setdefault(shape(message), []).append(message.store_timestamp + delay_ms)
        found: Counter[tuple[object, ...]] = Counter()
        for queue_id in range(QUEUES):
            for message in self.messages("orders", queue_id):
                if message.born_timestamp == 1 and (shape(message) in waiting or not self.is_torn):
                    times = sorted(waiting[shape(message)])
                    # Among equal ones the next delivery may be the first message again, where that is allowed.
                    due = times[0 if self.may_repeat else min(found[shape(message)], len(times) - 1)]
                    assert message.store_timestamp >= due, "it came early"
                    found[shape(message)] += 1
        for place, times in waiting.items():
            assert found[place] <= len(times) or self.is_torn or self.may_repeat, f"{place[0]!r} came twice"
            assert found[place] >= len(times) or not is_over, f"{place[0]!r} was lost"
        if is_over:
            assert self.acknowledged <= {place[0] for place in found}

    def messages(self, topic: str, queue_id: int) -> Iterator[StoredMessage]:
        for offset in range(self.store.min_offset(topic, queue_id), self.store.max_offset(topic, queue_id)):
            entry = self.store._host.entry(topic, queue_id, offset)
            assert entry is not None
            with suppress(DamagedRecord):
                message = self.store.message_at(entry.physical_offset)
                assert message is not None
                if (self.is_torn or self.may_repeat) and not is_whole(message):
                    continue  # a delivery that was not synced yet, or under async flush any record
                if not self.is_torn or message.body != b"same":
                    yield message


def shape(message: StoredMessage) -> tuple[object, ...]:
    return (message.body, tuple(sorted(message.properties.items())), message.born_timestamp)


def is_whole(message: StoredMessage) -> bool:
    """Whether it still names its destination: a record's CRC covers its body alone."""
    try:
        destination(message.properties)
    except InvalidMessage:
        return False
    return not any("\0" in name + text for name, text in message.properties.items())


@pytest.mark.parametrize("flush", ["sync", "async"])
@QUICK
@given(OPERATIONS)
def test_each_message_is_delivered_once_and_never_early(flush: str, operations: list[Operation]) -> None:
    DelayWorld(flush).run(operations)


@pytest.mark.slow
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("flush", ["sync", "async"])
@THOROUGH
@given(OPERATIONS)
def test_each_message_is_delivered_once_and_never_early_for_long(flush: str, operations: list[Operation]) -> None:
    DelayWorld(flush).run(operations)


@pytest.mark.parametrize("power", [True, False])
def test_the_disk_goes_at_each_step_of_a_delivery_and_its_save(power: bool) -> None:
    """Under async flush nothing but the service touches the disk, so every step is one of a save."""
    for step in range(40):
        world = DelayWorld("async")
        world.put(0, 6)
        world.store.flush()
        world.abandon()
        stopping = StoppingMedium.over(world.medium, 10_000)
        world.store = world.open(stopping)
        world.medium, stopping.left = stopping, step
        with suppress(PowerLost):
            world.clock.advance(5000)
            world.clock.advance(10_000)
        is_done = not stopping.is_off
        stopping.left = 10_000
        (world.lose_power if power else world.go_on_with)(stopping.crash(step) if power else stopping.kill())
        world.clock.advance(60_000)
        world.check(is_over=True)
        world.abandon()
        if is_done:
            break
    assert is_done, "more steps than were tried"
    assert step > 5


def test_a_failed_sync_records_nothing() -> None:
    world = DelayWorld("sync")
    world.put(0, 1)
    world.clock.advance(1000)
    world.put(0, 1)
    world.medium.fail_next_syncs(1)
    with suppress(FlintlogError):
        world.clock.advance(1000)
    service = world.store.service("schedule")
    assert isinstance(service, ScheduleService)
    world.go_on_with(world.medium.crash(0))
    world.clock.advance(60_000)
    world.check(is_over=True)
    world.abandon()


def test_a_repeated_delivery_is_not_taken_for_that_of_an_equal_message_which_still_waits() -> None:
    world = DelayWorld("sync")
    for _ in range(2):
        world.number = 2  # so the next one is "same"
        world.put(0, 1)
        world.clock.advance(999)
    medium = world.medium.kill()
    for place in ("flintlog/delay.json", "config/delayOffset.json", "config/delayOffset.json.bak"):
        if medium.exists(ROOT / place):
            medium.remove(ROOT / place)
    world.may_repeat = True
    world.go_on_with(medium)
    world.clock.advance(0)
    assert world.store.max_offset("orders", 0) == 2
    world.check()
    world.abandon()
