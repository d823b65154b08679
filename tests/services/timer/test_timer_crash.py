"""Timed messages on a disk that loses its power between any two steps.

What must hold, whatever happens: a message that was acknowledged comes at least once; none comes early; none comes that
was recalled before it was due; and what was written down as delivered does not come again.
"""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.faults.stopping import PowerLost, StoppingMedium
from tests.services.timer_store import CONFIG, SLOTS, TIMER_TOPIC, delivered, timed, timer_of

from flintlog import FlintlogError, Store, StoreConfig, open_store
from flintlog.disk.faulty.faulty_disk import FaultyMedium
from flintlog.format.timer import parse_timer_checkpoint
from flintlog.services.timer.timer_message import Timed, parse_timed
from flintlog.services.timer.timer_service import TimerService
from flintlog.testing import FakeClock

ROOT = Path("/store")
CHECKPOINT = ROOT / "config" / "timercheck"
FAR_MS = 2_000_000

Step = tuple[str, int]


@pytest.fixture(scope="module", autouse=True)
def _small_wheel() -> object:
    before = TimerService.wheel_slots
    TimerService.wheel_slots = SLOTS
    yield
    TimerService.wheel_slots = before


@dataclass
class World:
    """One store with a timer through its crashes, and a record of its acknowledgements."""

    config: StoreConfig = CONFIG
    clock: FakeClock = field(default_factory=FakeClock)
    due_ms: dict[int, int] = field(default_factory=dict)
    asked_back: set[int] = field(default_factory=set)
    """Messages whose recall was tried: it may hold without an acknowledgement, if the power was cut in between."""
    recalled: set[int] = field(default_factory=set)
    final: dict[int, int] = field(default_factory=dict)
    """How often a message came that was written down as delivered: it must stay at that."""

    def __post_init__(self) -> None:
        self.medium = FaultyMedium(clock_ms=self.clock.now_ms)
        self.next_number = 0
        self.store = self.open()

    def open(self) -> Store:
        return open_store(ROOT, self.config, medium=self.medium, clock=self.clock)

    def run(self, steps: list[Step]) -> None:
        for name, value in steps:
            getattr(self, name)(value)

    # What can be done

    def put(self, seed: int) -> None:
        chance = random.Random(seed)
        for _ in range(chance.choice((1, 1, 3, 15))):
            due_ms = self.clock.now_ms() + chance.choice((1, 500, 1000, 3000, 20_000, 150_000, 350_000))
            number, self.next_number = self.next_number, self.next_number + 1
            if self.store.put(timed(number, due_ms), check=False):
                self.due_ms[number] = due_ms

    def recall(self, seed: int) -> None:
        waiting = [n for n, due in self.due_ms.items() if due > self.clock.now_ms() and n not in self.recalled]
        if waiting:
            number = random.Random(seed).choice(waiting)
            self.asked_back.add(number)
            if timer_of(self.store).cancel_by_key("orders", f"U{number}", self.due_ms[number]):
                self.recalled.add(number)

    def advance(self, by_ms: int) -> None:
        self.clock.advance(by_ms)

    def stop(self, _: int) -> None:
        self.shut_down()
        self.store = self.open()

    def kill(self, _: int) -> None:
        self.go_on_with(self.medium.kill())

    def crash(self, seed: int) -> None:
        self.go_on_with(self.medium.crash(seed))

    def drift(self, seed: int) -> None:
        self.medium.drift(seed)

    def lose(self, seed: int) -> None:
        """Files of the timer are lost while the store is stopped."""
        self.shut_down()
        chance = random.Random(seed)
        for place in (ROOT / "timerwheel", ROOT / "timerlog", CHECKPOINT):
            if chance.random() < 0.5:
                self.medium.remove_tree(place)
        self.store = self.open()

    def go_on_with(self, medium: FaultyMedium) -> None:
        with contextlib.suppress(FlintlogError):
            self.store.shutdown()
        self.medium = medium
        self.store = self.open()
        if self.config.flush == "async":
            self.forget_lost()
        self.note_recorded(self.counts())

    def shut_down(self) -> None:
        counts = self.counts()
        self.store.shutdown()
        self.note_recorded(counts)

    def forget_lost(self) -> None:
        """Without waiting for the disk a crash may take messages, and recalls."""
        there = {int(message.body) for message in delivered(self.store)}
        keys: set[str] = set()
        for found in filter(None, map(parse_timed, delivered(self.store, TIMER_TOPIC))):
            if found.cancels is not None:
                keys.add(found.cancels)
            elif self._is_whole(found):
                there.add(int(found.message.body))
        self.due_ms = {number: due for number, due in self.due_ms.items() if number in there}
        self.recalled = {number for number in self.recalled if f"U{number}" in keys}

    def _is_whole(self, found: Timed) -> bool:
        """The CRC covers only the body: a record with torn properties is readable, but differs from the sent one."""
        number = int(found.message.body)
        slot_ms = (self.due_ms.get(number, 0) - 1) // 1000 * 1000
        return (found.topic, found.queue_id, found.key, found.slot_ms) == ("orders", 0, f"U{number}", slot_ms)

    def note_recorded(self, counts: Counter[int]) -> None:
        """Everything before the checkpoint's time was delivered as often as it ever will be."""
        try:
            checkpoint = parse_timer_checkpoint(self.medium.read(CHECKPOINT))
        except FlintlogError:
            return
        for number, due_ms in self.due_ms.items():
            if (due_ms - 1) // 1000 * 1000 < checkpoint.read_ms:
                self.final.setdefault(number, counts[number])

    # What must hold

    def counts(self) -> Counter[int]:
        return Counter(int(message.body) for message in delivered(self.store))

    def check(self) -> None:
        for message in delivered(self.store):
            number = int(message.body)
            assert number not in self.due_ms or message.store_timestamp >= self.due_ms[number], f"{number} came early"
        counts = self.counts()
        assert not [number for number in self.recalled if counts[number]], "recalled, and came"
        again = {number: counts[number] for number, count in self.final.items() if counts[number] != count}
        assert not again, f"written down as delivered, and came again: {again}"

    def finish(self) -> None:
        for _ in range(FAR_MS // 100_000):
            self.clock.advance(100_000)
        self.check()
        counts = self.counts()
        lost = [number for number in self.due_ms if not counts[number] and number not in self.asked_back]
        assert not lost, f"lost: {lost}"
        self.store.shutdown()


steps = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["put", "put", "recall", "crash", "drift", "lose"]), st.integers(0, 1 << 16)),
        st.tuples(st.just("advance"), st.sampled_from([1, 400, 1000, 5000, 30_000, 90_000, 700_000])),
        st.tuples(st.sampled_from(["stop", "kill"]), st.just(0)),
    ),
    max_size=14,
)


@settings(max_examples=40, deadline=None)
@given(steps)
def test_timed_messages_survive_any_sequence(steps: list[Step]) -> None:
    world = World()
    world.run(steps)
    world.check()
    world.finish()


@settings(max_examples=20, deadline=None)
@given(steps)
def test_timed_messages_survive_any_sequence_without_waiting_for_the_disk(steps: list[Step]) -> None:
    world = World(CONFIG.with_changes(flush="async"))
    world.run(steps)
    world.check()
    world.finish()


@pytest.mark.slow
@pytest.mark.timeout(3000)
@settings(max_examples=2000, deadline=None)
@given(steps)
def test_timed_messages_survive_thousands_of_sequences(steps: list[Step]) -> None:
    world = World()
    world.run(steps)
    world.check()
    world.finish()


@pytest.mark.parametrize("seed", range(3))
def test_the_power_goes_between_any_two_steps(seed: int) -> None:
    """The disk fails before its n-th change, for every n until a whole run needs fewer changes."""
    for after in range(1, 400):
        world = World()
        world.run([("put", seed), ("put", seed + 10), ("advance", 2000)])
        stopping = StoppingMedium.over(world.medium, after * 3 + seed)
        world.store.shutdown()
        world.medium = stopping
        try:
            world.store = world.open()
            world.run([("recall", seed), ("put", seed + 20), ("advance", 3000), ("advance", 120_000), ("put", 4)])
            world.store.shutdown()
        except (PowerLost, FlintlogError):
            pass
        was_off = stopping.is_off
        stopping.left = 1 << 30
        world.go_on_with(stopping.crash(seed))
        world.check()
        world.finish()
        if not was_off:
            return
    raise AssertionError("the power never lasted")
