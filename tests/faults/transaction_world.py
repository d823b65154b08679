"""Transactions on a disk that fails, and a memory of what was promised about each.

`TransactionWorld` runs operations and keeps, for each transaction, what it must be and what it may be after a power
loss. What holds after anything:

- committed, and acknowledged as durable: seen exactly once, whatever its owner answers later;
- rolled back likewise: never seen;
- begun and undecided: neither seen nor lost, known to the service exactly once;
- nothing is ever seen twice, or given up twice.
"""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from pathlib import Path

from flintlog import Message, Store, StoreConfig, open_store
from flintlog.disk.faulty.faulty_disk import FaultyMedium
from flintlog.errors import FlintlogError
from flintlog.services.transaction.transaction_service import Decision, UndecidedTransaction
from flintlog.store.model.stored_message import StoredMessage
from flintlog.testing import FakeClock
from tests.faults.world import NEVER_MS, small_config
from tests.services.transaction_store import DISCARD, read, service_of

ROOT = Path("/store")
OPEN, COMMITTED, ROLLED_BACK, GIVEN_UP, LOST = "open", "committed", "rolled back", "given up", "lost"
CHECK_MAX = 3


def transaction_config(flush: str = "sync", **changes: object) -> StoreConfig:
    return small_config(
        flush,
        services=frozenset({"transaction"}),
        transaction_check_max=CHECK_MAX,
        transaction_metric_flush_interval=NEVER_MS,
        **changes,
    )


class TransactionWorld:
    """One store directory with transactions, through its crashes."""

    def __init__(self, config: StoreConfig | None = None, medium: FaultyMedium | None = None) -> None:
        self.config = transaction_config() if config is None else config
        self.clock = FakeClock()
        self.medium = FaultyMedium(clock_ms=self.clock.now_ms) if medium is None else medium
        self.state: dict[str, str] = {}
        self.durable: dict[str, str] = {}
        self.chance = random.Random(0)
        self.store = self.open()

    def open(self) -> Store:
        store = open_store(ROOT, self.config, medium=self.medium, clock=self.clock)
        service_of(store).on_check(self.answer)
        return store

    # What can be done

    def begin(self, seed: int) -> None:
        name = f"t{len(self.state)}"
        chance = random.Random(seed)
        properties = {"UNIQ_KEY": name}
        if chance.random() < 0.2:
            properties["CHECK_IMMUNITY_TIME_IN_SECONDS"] = "40"
        body = name.encode() + b":" + chance.randbytes(chance.choice((0, 30, 700, 3000)))
        message = Message("orders", body, queue_id=chance.randrange(2), properties=properties)
        self.state[name] = OPEN
        service_of(self.store).begin(message)
        self.promised()

    def commit(self, seed: int) -> None:
        self.decide(seed, Decision.COMMIT)

    def rollback(self, seed: int) -> None:
        self.decide(seed, Decision.ROLLBACK)

    def decide(self, seed: int, decision: Decision) -> None:
        waiting = [name for name, state in self.state.items() if state == OPEN]
        if not waiting:
            return
        name = random.Random(seed).choice(waiting)
        service = service_of(self.store)
        self.intend(name, decision)
        (service.commit if decision is Decision.COMMIT else service.rollback)(name).check()
        self.promised()

    def answer(self, asked: UndecidedTransaction) -> Decision:
        """An owner who makes up its mind when it is asked, and never remembers."""
        decision = self.chance.choice(list(Decision))
        self.intend(asked.id, decision)
        return decision

    def intend(self, name: str, decision: Decision) -> None:
        assert self.state[name] == OPEN, f"{name} is {self.state[name]}, and yet somebody is asked"
        if decision is not Decision.UNKNOWN:
            self.state[name] = COMMITTED if decision is Decision.COMMIT else ROLLED_BACK

    def wait(self, seed: int) -> None:
        """Time passes: notes are written, owners asked, some given up."""
        self.chance = random.Random(seed)
        self.clock.advance(self.chance.choice((3_000, 10_000, 31_000, 31_000)))
        self.note_given_up()
        self.promised()

    def note_given_up(self) -> None:
        for message in self.discarded():
            name = str(message.uniq_key)
            assert self.state[name] in (OPEN, GIVEN_UP)
            self.state[name] = GIVEN_UP

    def promised(self) -> None:
        """What was acknowledged is durable under sync flush."""
        if self.config.flush == "sync":
            self.durable = dict(self.state)

    def flush(self) -> None:
        self.store.flush()
        self.durable = dict(self.state)

    def stop(self) -> None:
        self.store.shutdown()
        self.durable = dict(self.state)
        self.store = self.open()

    def kill(self) -> None:
        self.go_on_with(self.medium.kill(), self.state)

    def crash(self, seed: int) -> None:
        self.go_on_with(self.medium.crash(seed), self.durable)

    def go_on_with(self, medium: FaultyMedium, kept: dict[str, str]) -> None:
        self.abandon()
        self.medium = medium
        self.store = self.open()
        self.reconcile(kept)
        self.check()

    def abandon(self) -> None:
        """End the threads of a store whose disk is no longer ours."""
        with contextlib.suppress(FlintlogError):
            self.store.shutdown()

    # What must hold

    def seen(self) -> Counter[str]:
        # What was not synced may be torn, and something behind it whole: then it is damage, and lost.
        around = self.config.flush == "async"
        messages = [
            message for queue_id in range(2) for message in read(self.store, "orders", queue_id, around_damage=around)
        ]
        return Counter(str(message.uniq_key) for message in messages)

    def discarded(self) -> list[StoredMessage]:
        return read(self.store, DISCARD, around_damage=self.config.flush == "async")

    def found(self) -> dict[str, str]:
        """What the store says about each transaction."""
        seen = self.seen()
        discarded = Counter(str(message.uniq_key) for message in self.discarded())
        waiting = Counter(each.id for each in service_of(self.store).undecided())
        for counter in (seen, discarded, waiting):
            assert all(count == 1 for count in counter.values()), counter
        assert not seen.keys() & discarded.keys() and not waiting.keys() & (seen.keys() | discarded.keys())
        named = (dict.fromkeys(waiting, OPEN), dict.fromkeys(seen, COMMITTED), dict.fromkeys(discarded, GIVEN_UP))
        return {name: state for group in named for name, state in group.items()}

    def reconcile(self, kept: dict[str, str]) -> None:
        """After a power loss: what was durable is so, what was not has happened or has not."""
        found = self.found()
        for name, state in list(self.state.items()):
            is_now = found.get(name, ROLLED_BACK if state == ROLLED_BACK else LOST)
            if name in kept and kept[name] != OPEN:
                allowed = {kept[name]}
            else:
                allowed = {OPEN, state} | (set() if name in kept else {LOST})
            assert is_now in allowed, f"{name} was {kept.get(name)}, then {state}, and is {is_now}"
            self.state[name] = is_now
        self.durable = dict(self.state)

    def check(self) -> None:
        found = self.found()
        for name, state in self.state.items():
            assert found.get(name, state) == state, f"{name} is {found.get(name)}, and should be {state}"
            assert name in found or state in (ROLLED_BACK, LOST), f"{name} should be {state}, and is nowhere"

    def settle(self) -> None:
        """Let owners be asked until nothing is undecided: no old decision comes to life, nothing stays behind."""
        for round_number in range(CHECK_MAX + 4):
            self.wait(round_number)
            self.clock.advance(31_000)
            self.note_given_up()
        self.check()
        assert OPEN not in self.state.values()
