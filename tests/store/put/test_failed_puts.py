"""A put that fails raises, whichever put it is; `check=False` gives the receipt instead."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.store.small_store import SMALL

from flintlog import Message, PutFailed, PutStatus, Store, encoded_batch, open_store
from flintlog.services.retry import send_back
from flintlog.services.timer.timer_service import TimerService
from flintlog.services.transaction.transaction_service import TransactionService
from flintlog.store.model.message import Receipt, Receipts
from flintlog.store.runtime.service import Rewritten

MESSAGE = Message("orders", b"42 pieces")
SILENT = SMALL.with_changes(broker_role="SYNC_MASTER", in_sync_replicas=2, slave_timeout=50)
ONE_PUTS: dict[str, Callable[[Store, bool], Receipt]] = {
    "put": lambda store, check: store.put(MESSAGE, check=check),
    "put_async": lambda store, check: store.put_async(MESSAGE, check=check).result(10),
    "aput": lambda store, check: asyncio.run(store.aput(MESSAGE, check=check)),
    "put_rewritten": lambda store, check: store._host.put_rewritten(MESSAGE, Rewritten, check=check),
    "put_rebuilt": lambda store, check: store._host.put_rebuilt(Rewritten(MESSAGE), check=check),
}
BATCH_PUTS: dict[str, Callable[[Store, bool], Receipts]] = {
    "put_batch": lambda store, check: store.put_batch([MESSAGE, MESSAGE], check=check),
    "put_encoded": lambda store, check: store.put_encoded(encoded_batch([MESSAGE, MESSAGE]), check=check),
    "aput_batch": lambda store, check: asyncio.run(store.aput_batch([MESSAGE, MESSAGE], check=check)),
}


@pytest.mark.parametrize("flush", ["sync", "async"])
@pytest.mark.parametrize("put", ONE_PUTS.values(), ids=ONE_PUTS)
def test_a_message_that_was_stored_and_not_confirmed_raises_with_its_receipt(
    tmp_path: Path, put: Callable[[Store, bool], Receipt], flush: str
) -> None:
    with open_store(tmp_path, SILENT.with_changes(flush=flush)) as store:
        with pytest.raises(PutFailed, match=r"FLUSH_SLAVE_TIMEOUT.*may be stored nevertheless") as raised:
            put(store, True)
        assert raised.value.status is PutStatus.FLUSH_SLAVE_TIMEOUT
        assert raised.value.receipt is not None and raised.value.receipt.physical_offset == 0
        assert raised.value.receipts is None
        assert put(store, False).status is PutStatus.FLUSH_SLAVE_TIMEOUT
        assert store.max_offset("orders", 0) == 2


@pytest.mark.parametrize("flush", ["sync", "async"])
@pytest.mark.parametrize("put", BATCH_PUTS.values(), ids=BATCH_PUTS)
def test_a_batch_that_was_stored_and_not_confirmed_raises_with_all_receipts(
    tmp_path: Path, put: Callable[[Store, bool], Receipts], flush: str
) -> None:
    with open_store(tmp_path, SILENT.with_changes(flush=flush)) as store:
        with pytest.raises(PutFailed, match=r"FLUSH_SLAVE_TIMEOUT.*may be stored nevertheless") as raised:
            put(store, True)
        assert raised.value.status is PutStatus.FLUSH_SLAVE_TIMEOUT
        assert raised.value.receipts is not None and raised.value.receipt == raised.value.receipts[0]
        assert [receipt.queue_offset for receipt in raised.value.receipts] == [0, 1]
        assert put(store, False).status is PutStatus.FLUSH_SLAVE_TIMEOUT
        assert store.max_offset("orders", 0) == 4


@pytest.mark.parametrize("put", [*ONE_PUTS.values(), *BATCH_PUTS.values()], ids=[*ONE_PUTS, *BATCH_PUTS])
def test_a_put_after_shutdown_raises(tmp_path: Path, put: Callable[[Store, bool], Receipt | Receipts]) -> None:
    store = open_store(tmp_path, SMALL)
    store.shutdown()
    with pytest.raises(PutFailed, match="SERVICE_NOT_AVAILABLE") as raised:
        put(store, True)
    assert raised.value.status is PutStatus.SERVICE_NOT_AVAILABLE
    assert put(store, False).status is PutStatus.SERVICE_NOT_AVAILABLE


def test_the_future_of_a_put_carries_the_error(tmp_path: Path) -> None:
    with open_store(tmp_path, SILENT) as store:
        error = store.put_async(MESSAGE).exception(10)
        assert isinstance(error, PutFailed) and error.status is PutStatus.FLUSH_SLAVE_TIMEOUT


def test_puts_of_services_raise_too(tmp_path: Path) -> None:
    config = SMALL.with_changes(services={"schedule", "timer", "transaction"})
    with open_store(tmp_path, config) as store:
        store.put(MESSAGE)
        [stored] = store.get("orders", 0, 0).messages
        timer, transactions = store.service("timer"), store.service("transaction")
        assert isinstance(timer, TimerService) and isinstance(transactions, TransactionService)
        transaction = transactions.begin(MESSAGE)
        store.add_put_hook(lambda _: Receipt(PutStatus.MESSAGE_ILLEGAL))
        for put in (
            lambda: send_back(store._host, "billing", stored),
            lambda: send_back(store._host, "billing", stored, -1),
            lambda: timer.put_after(MESSAGE, delay_sec=1),
            lambda: timer.cancel_by_key("orders", "key", store._host.now_ms() + 5000),
            lambda: transactions.begin(MESSAGE),
        ):
            with pytest.raises(PutFailed) as raised:
                put()
            assert raised.value.status is PutStatus.MESSAGE_ILLEGAL
        assert send_back(store._host, "billing", stored, check=False).status is PutStatus.MESSAGE_ILLEGAL
        assert timer.put_after(MESSAGE, delay_sec=1, check=False).status is PutStatus.MESSAGE_ILLEGAL
        store._appender.refuse(PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH)
        for decide in (transaction.commit, transaction.rollback):
            with pytest.raises(PutFailed, match="IN_SYNC_REPLICAS_NOT_ENOUGH"):
                decide()
            assert decide(check=False).status is PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH
        store._appender.refuse(None)
        assert transaction.commit()


def test_a_message_that_could_not_be_sent_back_is_not_acknowledged(tmp_path: Path) -> None:
    with open_store(tmp_path, SMALL.with_changes(services={"schedule"})) as store:
        store.put(MESSAGE)
        with store.consumer("billing", "orders") as consumer:
            message = consumer.poll(10)
            assert message is not None
            store.add_put_hook(lambda _: Receipt(PutStatus.MESSAGE_ILLEGAL))
            with pytest.raises(PutFailed):
                consumer.send_back(message)
            assert not consumer.send_back(message, check=False)
            assert consumer.lag() == 1
