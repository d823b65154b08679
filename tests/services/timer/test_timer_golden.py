"""The timers of the golden store of delays: a Java broker's files are reproduced byte for byte."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

from tests.store.golden_cases import config_of, message_of, records
from tests.store.put.test_golden_replay import ReplayClock, files

from flintlog import Message, Store, open_store
from flintlog.format.record import Record
from flintlog.format.timer import TIMER_TOPIC
from flintlog.services.timer.timer_message import (
    Timed,
    deliver_time,
    delivered,
    parse_timed,
    slot_of,
    waiting,
)
from flintlog.store.runtime.service import Rewritten

Golden = Callable[[str], Path]
ADDED = ("TIMER_OUT_MS", "REAL_TOPIC", "REAL_QID")
PRECISION_MS = 1000


def asked_for(record: Record) -> Message:
    """The message that a producer sent, from the record in which it waits."""
    message = message_of(record)
    properties = dict(message.properties or {})
    _, topic, queue_id = (properties.pop(name) for name in ADDED)
    message.topic, message.queue_id, message.properties = topic, int(queue_id), properties
    return message


def waiting_again(record: Record) -> Rewritten:
    message = asked_for(record)
    properties = dict(message.properties or {})
    deliver_ms = deliver_time(properties, record.store_timestamp)
    assert deliver_ms is not None
    # The broker looked at its clock some milliseconds before the record got its time.
    slot_ms = slot_of(deliver_ms, PRECISION_MS)
    told_ms = int((message_of(record).properties or {})["TIMER_OUT_MS"])
    assert told_ms in (slot_ms, slot_ms - PRECISION_MS)
    return waiting(message, properties, told_ms)


def waiting_for(store: Store, record: Record) -> Timed:
    """The message of ours that waits for this delivery."""
    key = (message_of(record).properties or {})["UNIQ_KEY"]
    for offset in range(store.max_offset(TIMER_TOPIC, 0)):
        entry = store._host.entry(TIMER_TOPIC, 0, offset)
        assert entry is not None
        message = store.message_at(entry.physical_offset)
        assert message is not None
        if message.uniq_key == key:
            timed = parse_timed(message)
            assert timed is not None
            return timed
    raise AssertionError(f"nothing waits for {record}")


def test_waiting_and_delivered_records_have_java_s_bytes(golden: Golden, tmp_path: Path) -> None:
    source = golden("delay")
    clock, kinds = ReplayClock(), Counter[str]()
    with open_store(tmp_path / "store", config_of(source), clock=clock) as store:
        for record in records(source / "store"):
            clock.now = record.store_timestamp
            properties = message_of(record).properties or {}
            if record.topic == TIMER_TOPIC:
                kinds["waiting"] += 1
                rewritten = waiting_again(record)
            elif "TIMER_DEQUEUE_MS" in properties:
                kinds["delivered"] += 1
                entered_ms, dequeued_ms = int(properties["TIMER_ENQUEUE_MS"]), int(properties["TIMER_DEQUEUE_MS"])
                rewritten = delivered(waiting_for(store, record), entered_ms, dequeued_ms)
            else:
                rewritten = Rewritten(message_of(record))
            receipt = store._host.put_rebuilt(rewritten).check()
            assert receipt.physical_offset == record.physical_offset
    assert kinds == {"waiting": 45, "delivered": 40}
    for name in ("commitlog", "consumequeue"):
        assert files(tmp_path / "store" / name) == files(source / "store" / name), name
