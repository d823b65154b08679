"""A clock that is turned back: services keep their pace, and none waits until the old time is reached again."""

from __future__ import annotations

from pathlib import Path
from typing import assert_type

import pytest

from flintlog import Message, Store, open_store
from flintlog.services.delay.schedule import ScheduleService
from flintlog.services.timer.timer_service import TimerService
from flintlog.services.transaction.transaction_service import Decision, TransactionService, UndecidedTransaction
from flintlog.testing import SMALL_FILES, FakeClock

DAY_MS = 86_400_000
ALL = SMALL_FILES.with_changes(services={"schedule", "timer", "transaction"})


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def transactions(store: Store) -> TransactionService:
    assert isinstance(assert_type(store.service("timer"), TimerService), TimerService)
    assert isinstance(assert_type(store.service("schedule"), ScheduleService), ScheduleService)
    service = assert_type(store.service("transaction"), TransactionService)
    assert isinstance(service, TransactionService)
    return service


def test_offsets_of_groups_are_saved_in_their_interval(tmp_path: Path, clock: FakeClock) -> None:
    with open_store(tmp_path, ALL, clock=clock) as store:
        store.put(Message("orders", b"x")).check()
        store.wait_dispatched()
        store.consumer_offsets.commit("g", "orders", 0, 1)
        clock.set(clock.now_ms() - DAY_MS)
        clock.advance(store.config.flush_consumer_offset_interval)
        assert "orders@g" in (tmp_path / "config" / "consumerOffset.json").read_text()


def test_delayed_messages_come_and_are_recorded(tmp_path: Path, clock: FakeClock) -> None:
    with open_store(tmp_path, ALL, clock=clock) as store:
        store.put(Message("orders", b"x", delay_level=1)).check()
        clock.advance(1000)
        store.put(Message("orders", b"y", delay_level=1)).check()
        clock.set(clock.now_ms() - DAY_MS)
        clock.advance(1000)
        assert store.max_offset("orders", 0) == 2
        clock.advance(store.config.flush_delay_offset_interval)
        assert "1:2" in (tmp_path / "config" / "delayOffset.json").read_text()


def test_decisions_are_noted_and_undecided_ones_asked_about(tmp_path: Path, clock: FakeClock) -> None:
    with open_store(tmp_path, ALL, clock=clock) as store:
        asked: list[str] = []

        def answer(undecided: UndecidedTransaction) -> Decision:
            asked.append(undecided.topic)
            return Decision.COMMIT

        transactions(store).on_check(answer)
        transactions(store).begin(Message("orders", b"x")).commit().check()
        clock.set(clock.now_ms() - DAY_MS)
        clock.advance(store.config.transaction_op_batch_interval)
        assert store.max_offset("RMQ_SYS_TRANS_OP_HALF_TOPIC", 0) == 1
        transactions(store).begin(Message("orders", b"y"))
        clock.advance(2 * store.config.transaction_check_interval)
        assert asked == ["orders"]


def test_timers_keep_their_moment(tmp_path: Path, clock: FakeClock) -> None:
    with open_store(tmp_path, ALL, clock=clock) as store:
        store.put(Message("orders", b"x", deliver_at_ms=clock.now_ms() + 5000)).check()
        clock.set(clock.now_ms() - 60_000)
        clock.advance(64_000)
        assert store.max_offset("orders", 0) == 0
        clock.advance(2_000)
        assert store.max_offset("orders", 0) == 1
