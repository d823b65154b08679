"""Delay levels, timer, transactions and a group together in one store, on a disk that fails.

Each message is known by its body. Under synchronous flush, whatever crashes come in between:

- nothing is seen before its time, and what was acknowledged is seen when that is over;
- a committed message is seen once, and a rolled-back or undecided one never;
- a group's offset goes back only by a crash, and never beyond the end of its queue.
"""

from __future__ import annotations

import os
from collections import Counter
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from flintlog import FlintlogError, Message, Store, open_store
from flintlog.disk.faulty.faulty_disk import FaultyMedium
from flintlog.services.timer.timer_service import TimerService
from flintlog.services.transaction.transaction_service import Decision, TransactionService, UndecidedTransaction
from flintlog.testing import FakeClock
from tests.faults.world import ROOT, small_config

LEVELS_MS = (1000, 2000, 5000)
NAMES = ("delay", "timer", "begin", "begin", "commit", "rollback", "consume", "advance", "advance", "advance")
ENDS = ("stop", "kill", "crash", "crash")

Operation = tuple[str, int]
OPERATIONS = st.lists(st.tuples(st.sampled_from(NAMES + ENDS), st.integers(0, 1_000_000)), min_size=3, max_size=20)
# Threads make a run less than repeatable, so a failure is shown as it was found.
COMMON = settings(
    deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.explicit, Phase.reuse, Phase.generate]
)
QUICK = settings(COMMON, max_examples=30)
THOROUGH = settings(COMMON, max_examples=int(os.environ.get("FLINTLOG_FAULT_EXAMPLES", "1500")))


@pytest.fixture(scope="module", autouse=True)
def _small_wheel() -> object:
    before = TimerService.wheel_slots
    TimerService.wheel_slots = 512
    yield
    TimerService.wheel_slots = before


class AllServices:
    """One store through its crashes, and a record of its acknowledgements."""

    def __init__(self) -> None:
        self.config = small_config(
            services={"schedule", "timer", "transaction"},
            message_delay_level="1s 2s 5s",
            mapped_file_size_timer_log=52 * 10 + 20,
            timer_roll_window_slot=100,
        )
        self.clock = FakeClock()
        self.medium = FaultyMedium(clock_ms=self.clock.now_ms)
        self.due_ms: dict[bytes, int] = {}
        self.decided: dict[str, Decision] = {}
        self.begun: dict[str, bytes] = {}
        self.consumed = 0
        self.number = 0
        self.store = self.open()

    def open(self) -> Store:
        store = open_store(ROOT, self.config, medium=self.medium, clock=self.clock)
        service = store.service("transaction")
        assert isinstance(service, TransactionService)
        self.transactions = service
        service.on_check(self.answer)
        return store

    def body(self, kind: str) -> bytes:
        self.number += 1
        return f"{kind} {self.number}".encode()

    # ------------------------------------------------------------------ what can be done

    def delay(self, seed: int) -> None:
        body, level = self.body("delay"), seed % 3 + 1
        receipt = self.store.put(Message("orders", body, delay_level=level)).check()
        self.due_ms[body] = receipt.store_timestamp + LEVELS_MS[level - 1]

    def timer(self, seed: int) -> None:
        body, due_ms = self.body("timer"), self.clock.now_ms() + 1 + seed % 150_000
        self.store.put(Message("orders", body, deliver_at_ms=due_ms)).check()
        self.due_ms[body] = due_ms

    def begin(self, _: int) -> None:
        body = self.body("transaction")
        self.begun[self.transactions.begin(Message("orders", body)).id] = body

    def commit(self, seed: int) -> None:
        self.decide(seed, Decision.COMMIT)

    def rollback(self, seed: int) -> None:
        self.decide(seed, Decision.ROLLBACK)

    def decide(self, seed: int, decision: Decision) -> None:
        waiting = [each for each in self.begun if each not in self.decided]
        if waiting:
            chosen = waiting[seed % len(waiting)]
            decide = self.transactions.commit if decision is Decision.COMMIT else self.transactions.rollback
            decide(chosen).check()
            self.decided[chosen] = decision

    def answer(self, undecided: UndecidedTransaction) -> Decision:
        """A check decides by the transaction itself, so that an answer lost in a crash is given again."""
        decision = (Decision.COMMIT, Decision.ROLLBACK, Decision.UNKNOWN)[undecided.message.body[-1] % 3]
        if decision is not Decision.UNKNOWN:
            self.decided[undecided.id] = decision
        return decision

    def consume(self, seed: int) -> None:
        self.store.wait_dispatched()
        offset = seed % (self.store.max_offset("orders", 0) + 1)
        self.store.consumer_offsets.commit("g", "orders", 0, offset)
        found = self.store.consumer_offsets.get("g", "orders", 0)
        assert found == max(offset, self.consumed), "an offset went back"
        self.consumed = found

    def advance(self, seed: int) -> None:
        self.clock.advance(seed % 70_000)

    def stop(self, _: int) -> None:
        self.store.shutdown()
        self.store = self.open()

    def kill(self, _: int) -> None:
        self.go_on_with(self.medium.kill())

    def crash(self, seed: int) -> None:
        self.go_on_with(self.medium.crash(seed))

    def go_on_with(self, medium: FaultyMedium) -> None:
        self.abandon()
        self.medium = medium
        self.store = self.open()
        found = self.store.consumer_offsets.get("g", "orders", 0) or 0
        assert found <= self.consumed, "a group has consumed more than it said"
        self.consumed = found

    def abandon(self) -> None:
        with suppress(FlintlogError):
            self.store.shutdown()

    # ------------------------------------------------------------------ what must hold

    def run(self, operations: list[Operation]) -> None:
        try:
            for name, seed in operations:
                getattr(self, name)(seed)
                self.check()
            for _ in range(8):
                self.clock.advance(50_000)
            self.check(is_over=True)
        finally:
            self.abandon()

    def check(self, *, is_over: bool = False) -> None:
        self.store.wait_dispatched()
        end = self.store.max_offset("orders", 0)
        assert (self.store.consumer_offsets.get("g", "orders", 0) or 0) <= end
        seen: Counter[bytes] = Counter()
        for offset in range(end):
            entry = self.store._host.entry("orders", 0, offset)
            assert entry is not None
            message = self.store.message_at(entry.physical_offset)
            assert message is not None
            seen[message.body] += 1
            assert message.store_timestamp >= self.due_ms.get(message.body, 0), "it came early"
        for key, body in self.begun.items():
            wanted = int(self.decided.get(key) is Decision.COMMIT)
            assert seen[body] == wanted, f"{body!r} was seen {seen[body]} times, and not {wanted}"
        lost = [body for body in self.due_ms if not seen[body]]
        assert not lost or not is_over, f"lost: {lost}"


@QUICK
@given(OPERATIONS)
def test_all_services_keep_their_promises(operations: list[Operation]) -> None:
    AllServices().run(operations)


@pytest.mark.slow
@pytest.mark.timeout(3000)
@THOROUGH
@given(OPERATIONS)
def test_all_services_keep_their_promises_for_long(operations: list[Operation]) -> None:
    AllServices().run(operations)
