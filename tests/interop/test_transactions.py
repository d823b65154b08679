"""Transactions between a real broker and ours: the same records, and each goes on where the other stopped."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from tests.interop.broker_transactions import transactions_through
from tests.services.transaction_replay import GROUP, OPTIONS, replay
from tests.services.transaction_store import OP, bodies, order, service_of

from flintlog import StoreConfig, open_store
from flintlog.services.transaction.transaction_service import Decision, UndecidedTransaction
from flintlog.testing import FakeClock
from interop.java_broker import HalfMessage, JavaBroker, TransactionCheck
from interop.java_store import JavaReceipt

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("java")]


def config(**changes: object) -> StoreConfig:
    return StoreConfig.from_rocketmq(OPTIONS).with_changes(**{"services": frozenset({"transaction"}), **changes})


def test_every_record_of_a_transaction_is_rocketmqs_byte_for_byte(tmp_path: Path) -> None:
    with JavaBroker(tmp_path / "java", OPTIONS) as broker:
        transactions_through(broker)
    replay(tmp_path / "java", tmp_path / "ours", config())


def test_a_broker_decides_what_we_left_undecided_and_nothing_else(tmp_path: Path) -> None:
    with open_store(tmp_path, config(transaction_check_interval=3_600_000)) as store:
        service = service_of(store)
        for number in range(4):
            service.begin(order(number), GROUP)
        service.commit("t0").check()
        service.rollback("t1").check()
    asked: dict[str | None, TransactionCheck] = {}
    with JavaBroker(tmp_path, OPTIONS) as broker:
        broker.register_producer(GROUP)

        def was_asked() -> bool:
            asked.update((check.transaction_id, check) for check in broker.checks(GROUP))
            return len(asked) >= 2

        broker.wait_until(was_asked, "checks of t2 and t3")
        assert asked.keys() == {"t2", "t3"}
        assert asked["t2"].message.body == b"order 2"
        for name, decide in (("t2", broker.commit), ("t3", broker.rollback)):
            receipt = JavaReceipt("PUT_OK", asked[name].physical_offset, asked[name].queue_offset, 0, None)
            assert decide(HalfMessage("orders", GROUP, name, receipt), from_check=True).code == 0
        assert [message.body for message in broker.wait_for("orders", 0, 2)] == [b"order 0", b"order 2"]
        broker.wait_until(lambda: broker.max_offset(OP, 0) >= 3, "notes of both decisions")
    with open_store(tmp_path, config(), clock=FakeClock(time.time_ns() // 1_000_000)) as store:
        assert service_of(store).undecided() == []
        assert bodies(store) == [b"order 0", b"order 2"]


@pytest.mark.parametrize("leave", ["stopped", "killed"])
def test_we_decide_what_a_broker_left_undecided_and_nothing_else(leave: str, tmp_path: Path) -> None:
    patient = {**OPTIONS, "transactionCheckInterval": "3600000", "transactionOpBatchInterval": "3600000"}
    broker = JavaBroker(tmp_path, patient)
    halves = [broker.put_half(order(number), GROUP, f"t{number}") for number in range(4)]
    assert broker.commit(halves[0]).code == 0
    broker.wait_for("orders", 0, 1)
    (broker.close if leave == "stopped" else broker.kill)()
    clock = FakeClock(time.time_ns() // 1_000_000)
    asked: list[str] = []

    def owner(transaction: UndecidedTransaction) -> Decision:
        asked.append(transaction.id)
        return Decision.COMMIT

    with open_store(tmp_path, config(), clock=clock) as store:
        service = service_of(store)
        assert [each.id for each in service.undecided()] == ["t1", "t2", "t3"]  # t0 is committed, though not noted
        service.rollback("t1").check()
        service.commit("t2").check()
        service.on_check(owner)
        clock.advance(10_000)
        assert asked == ["t3"] and bodies(store) == [b"order 0", b"order 2", b"order 3"]
    with JavaBroker(tmp_path, OPTIONS) as broker:
        broker.register_producer(GROUP)
        time.sleep(1.5)  # a few rounds
        assert broker.checks(GROUP) == []
        assert [message.body for message in broker.messages("orders")] == [b"order 0", b"order 2", b"order 3"]
