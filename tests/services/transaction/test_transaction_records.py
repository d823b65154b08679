"""The records of transactions as values: properties, their order, op bodies, keys."""

from __future__ import annotations

import re
from datetime import datetime
from pathlib import Path

import pytest
from tests.services.transaction_store import HALF, OP, opened, order, read

from flintlog import InvalidMessage, Message
from flintlog.format.message_id import parse_unique_key
from flintlog.format.properties import encode_properties
from flintlog.services.transaction import transaction_records as records
from flintlog.services.transaction.transaction_ops import GatheredOps
from flintlog.services.unique_key import UniqueKeys
from flintlog.store.runtime.jobs import NEVER
from flintlog.testing import FakeClock


def test_a_half_message_names_its_destination() -> None:
    rewritten = records.prepare(
        Message("orders", b"x", tags="paid", queue_id=3, sys_flag=0x4 | 0x2, flag=9), "shop", "t1"
    )
    half = rewritten.message
    assert (half.topic, half.queue_id, half.sys_flag, half.flag, half.body) == (HALF, 0, 0x2, 9, b"x")
    assert encode_properties(half.properties or {}, rewritten.capacity) == (
        b"UNIQ_KEY\x01t1\x02PGROUP\x01shop\x02__transactionId__\x01t1\x02TAGS\x01paid\x02TRAN_MSG\x01true\x02"
        b"REAL_TOPIC\x01orders\x02REAL_QID\x013\x02"
    )


def test_a_property_with_a_separator_is_refused(tmp_path: Path) -> None:
    with opened(tmp_path, FakeClock()) as (store, service):
        for message in (order(1, note="a\x02b"), order(1, note="a\x01b")):
            with pytest.raises(Exception, match="separat"):
                service.begin(message)
        with pytest.raises(Exception, match="separat"):
            service.begin(order(1), "sh\x02op")
        assert read(store, HALF) == []


@pytest.mark.parametrize(
    ("body", "tags", "offsets"),
    [
        (b"12,7,", "d", [12, 7]),
        (b"12", "d", [12]),
        (b"", "d", []),
        (b"12,7,", "x", []),
        (b"12,7,", None, []),
        (b"a,-3,+4,,99999999999999999999999, 5,6", "d", [-3, 4, 6]),
        (b"\xff\xfe,8", "d", [8]),
        ("１２,9".encode(), "d", [9]),
    ],
)
def test_an_op_body_that_anyone_may_have_written(
    body: bytes, tags: str | None, offsets: list[int], tmp_path: Path
) -> None:
    with opened(tmp_path, FakeClock()) as (store, _):
        receipt = store.put(Message(OP, body, tags=tags)).check()
        stored = store.message_at(receipt.physical_offset)
        assert stored is not None and records.read_op(stored) == offsets


def test_a_store_with_records_that_are_no_transactions_opens(tmp_path: Path) -> None:
    clock = FakeClock()
    with opened(tmp_path, clock) as (store, service):
        for properties in ({}, {"REAL_TOPIC": "orders"}, {"REAL_TOPIC": "orders", "REAL_QID": "x"}, {"REAL_QID": "1"}):
            store.put(Message(HALF, b"", properties=properties)).check()
        store.put(Message(HALF, b"by hand", properties={"REAL_TOPIC": "orders", "REAL_QID": "0"})).check()
        store.put(Message(OP, b"nonsense", tags="d")).check()
        (found,) = service.undecided()
        assert re.fullmatch("[0-9A-F]{32}", found.id)  # without a UNIQ_KEY, RocketMQ's message id
    with opened(tmp_path, clock) as (store, service):
        assert [each.id for each in service.undecided()] == [found.id]
        service.commit(found.id).check()
        assert [message.body for message in read(store)] == [b"by hand"]


def test_immunity_as_java_reads_it() -> None:
    assert records.immunity_ms("3", 6000) == 3000
    assert (
        records.immunity_ms("-1", 6000) == records.immunity_ms("soon", 6000) == records.immunity_ms(None, 6000) == 6000
    )


def test_ops_are_taken_as_rocketmq_takes_them() -> None:
    ops = GatheredOps(max_size=6, interval_ms=3000)
    assert ops.due_at_ms() == NEVER and ops.take() == []
    assert ops.add([10], 1000) and not ops.add([], 1000) and ops.due_at_ms() == 4000
    assert ops.add([11], 1500) and ops.due_at_ms() == 0 and not ops.add([12, 13], 1600)
    taken = ops.take()
    assert taken == [10, 11] and len(ops) == 2
    ops.put_back(taken)
    assert ops.is_full and [ops.take(), ops.take(), ops.take()] == [[10, 11], [12, 13], []]
    assert ops.due_at_ms() == NEVER and not ops.is_full


def test_unique_keys_have_the_parts_of_rocketmqs() -> None:
    clock = FakeClock()
    keys = UniqueKeys("10.1.2.3:10911", clock.now_ms)
    made = [keys.next() for _ in range(70_000)]
    assert len(set(made)) == len(made)
    key = parse_unique_key(made[0])
    month = datetime.fromtimestamp(clock.now_ms() / 1000).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    assert key.ip == bytes([10, 1, 2, 3])
    assert key.since_month_start_ms == clock.now_ms() - int(month.timestamp()) * 1000


def test_a_negative_queue_is_refused() -> None:
    with pytest.raises(InvalidMessage, match="queue_id"):
        records.prepare(Message("orders", b"", queue_id=-1), "shop", "t1")
