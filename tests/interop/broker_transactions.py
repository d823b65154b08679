"""Transactions of every kind through a real broker."""

from __future__ import annotations

import time

from tests.services.transaction_replay import GROUP, UNDECIDED, message_of

from flintlog.services.transaction import transaction_records as records
from interop.java_broker import HalfMessage, JavaBroker
from interop.java_store import JavaReceipt


def transactions_through(broker: JavaBroker, count: int = 40) -> None:
    """Some are committed, some rolled back, some decided by a check, some given up."""
    broker.register_producer(GROUP)
    halves = [broker.put_half(message_of(number), GROUP, f"T{number}") for number in range(count)]
    for number, half in enumerate(halves):
        if number % 5 == 1:
            assert (broker.commit if number % 2 else broker.rollback)(half).code == 0
    deadline = time.monotonic() + 30
    while broker.max_offset(records.DISCARD_TOPIC, 0) < count // 5 and time.monotonic() < deadline:
        answer_checks(broker)
        time.sleep(0.05)
    for number in UNDECIDED:
        broker.put_half(message_of(number), GROUP, f"T{number}")


def answer_checks(broker: JavaBroker) -> None:
    for check in broker.checks(GROUP):
        receipt = JavaReceipt("PUT_OK", check.physical_offset, check.queue_offset, 0, None)
        half = HalfMessage(check.message.topic, GROUP, str(check.transaction_id), receipt)
        remainder = int(check.message.properties["i"]) % 5
        if remainder == 2:
            broker.commit(half, from_check=True)
        elif remainder in (0, 3):
            broker.rollback(half, from_check=True)
