"""Transactions whose commit or begin is interrupted: others can go on with them, even while the exception is held."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from flintlog import Message, Receipt
from flintlog.services.transaction.transaction_decisions import Decisions
from flintlog.services.transaction.transaction_service import TransactionService
from flintlog.store.model.message import PutStatus
from tests.signals.interrupting import Interrupter
from tests.signals.scenes import KINDS, Scene, soon
from tests.signals.test_every_point import interrupter

__all__ = ["interrupter"]


@pytest.fixture
def decisions() -> Iterator[Decisions]:
    scene = Scene(KINDS["transaction, async"])
    service = scene.store.service("transaction")
    assert isinstance(service, TransactionService)
    service.begin(Message("orders", b"x"), "shop")
    service.undecided()
    yield service._decisions
    soon(scene.store.close)
    scene.close()


def not_put(_: object = None) -> Receipt:
    return Receipt(PutStatus.SERVICE_NOT_AVAILABLE)


def test_a_decision_that_is_interrupted_keeps_no_claim(decisions: Decisions, interrupter: Interrupter) -> None:
    (transaction,) = decisions.undecided()
    interrupter.run(lambda: decisions.claimed(transaction, not_put))
    total = interrupter.count
    for point in range(1, total + 1):
        interrupter.run(lambda: decisions.claimed(transaction, not_put), point)
        where = f"point {point} of {total}, interrupted at\n{interrupter.where}"
        assert transaction.claimed_by is None, where


def test_a_begin_that_is_interrupted_does_not_keep_the_id(decisions: Decisions, interrupter: Interrupter) -> None:
    interrupter.run(lambda: decisions.begin("id", not_put))
    total = interrupter.count
    for point in range(1, total + 1):
        interrupter.run(lambda: decisions.begin("id", not_put), point)
        where = f"point {point} of {total}, interrupted at\n{interrupter.where}"
        assert decisions.begin("id", not_put) is not None, where
