"""Timed messages between the real broker and ours: each goes on with what the other left, in the same files."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest
from tests.services.timer_store import TIMER_TOPIC, delivered, numbers, timed, timer_of
from tests.store.small_store import read_all, wait_until

from flintlog import Message, StoreConfig, open_store
from flintlog.format.timer import DEFAULT_SLOTS, SLOT_SIZE, UNIT_SIZE, Slot, TimerUnit, parse_slot, parse_unit
from flintlog.testing import FakeClock
from interop.java_broker import BrokerMessage, JavaBroker

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("java")]

PRECISION_MS = 100
OPTIONS = {
    "mappedFileSizeCommitLog": "1048576",
    "mappedFileSizeConsumeQueue": "20000",
    "maxHashSlotNum": "100",
    "maxIndexNum": "400",
    "timerPrecisionMs": str(PRECISION_MS),
    "timerFlushIntervalMs": "100",
    "mappedFileSizeTimerLog": "1048576",
}
CONFIG = StoreConfig.from_rocketmq(OPTIONS).with_changes(services={"timer"})


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _cancellation(number: int, due_ms: int) -> Message:
    """What a client's recall makes the broker put."""
    properties = {"TIMER_DEL_UNIQKEY": f"U{number}", "UNIQ_KEY": f"U{number}"}
    return Message("orders", b"0", tags="_RECALL_TAG_", properties=properties, deliver_at_ms=due_ms)


def _live_slots(store: Path, from_ms: int) -> dict[int, Slot]:
    wheel = (store / "timerwheel").read_bytes()
    assert len(wheel) == DEFAULT_SLOTS * SLOT_SIZE
    times = memoryview(wheel).cast("q")[:: SLOT_SIZE // 8].tolist()
    slots = (parse_slot(wheel, index * SLOT_SIZE) for index, time in enumerate(times) if time)
    return {slot.time: slot for slot in slots if slot.time * PRECISION_MS >= from_ms}


def _units(store: Path, count: int) -> list[TimerUnit]:
    (file,) = sorted((store / "timerlog").iterdir())
    data = file.read_bytes()
    assert not any(data[count * UNIT_SIZE :])
    return [parse_unit(data, number * UNIT_SIZE) for number in range(count)]


def _come(messages: list[BrokerMessage]) -> list[int]:
    return sorted(int(message.body) for message in messages)


def test_a_broker_delivers_what_waits_in_our_store(tmp_path: Path) -> None:
    path = tmp_path / "store"
    start = _now_ms()
    with open_store(path, CONFIG) as store:
        receipts = [store.put(timed(number, start + 6000 + 20 * number)).check() for number in range(40)]
        timer_of(store).cancel(receipts[7]).check()
        store.put(timed(50, start + 300)).check()
        wait_until(lambda: numbers(store) == [50])
    with JavaBroker(path, OPTIONS) as broker:
        found = broker.wait_for("orders", 0, 40)
        time.sleep(0.5)
        assert _come(broker.messages("orders")) == [n for n in [*range(40), 50] if n != 7]
        for message in found[1:]:
            assert message.store_timestamp >= start + 6000 + 20 * int(message.body)
    with open_store(path, CONFIG) as store:
        time.sleep(0.3)
        assert len(numbers(store)) == 40


def test_we_deliver_what_waits_in_a_brokers_store_with_the_same_properties(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with JavaBroker(path, OPTIONS) as broker:
        start = _now_ms()
        broker.put([timed(50, start + 1500)])
        broker.put([timed(number, start + 60_000 + 20 * number) for number in range(20)])
        broker.put([_cancellation(3, start + 60_060)])
        broker.wait_for("orders", 0, 1)
    clock = FakeClock(_now_ms())
    with open_store(path, CONFIG, clock=clock) as store:
        assert numbers(store) == [50]
        clock.set(start + 60_200)
        assert set(numbers(store)) <= {50, *range(11)} - {3}
        clock.advance(1000)
        theirs, *ours = delivered(store)
        assert [int(message.body) for message in ours] == [number for number in range(20) if number != 3]
        assert [list(message.properties) for message in ours] == [list(theirs.properties)] * 19


def test_a_killed_brokers_store_is_gone_on_with(tmp_path: Path) -> None:
    path = tmp_path / "store"
    broker = JavaBroker(path, OPTIONS)
    start = _now_ms()
    broker.put([timed(number, start + 60_000 + 100 * number) for number in range(30)])
    broker.wait_until(lambda: broker.max_offset(TIMER_TOPIC, 0) == 30, "all of them")
    broker.kill()
    clock = FakeClock(_now_ms())
    with open_store(path, CONFIG, clock=clock) as store:
        clock.set(start + 70_000)
        assert numbers(store) == list(range(30))


def test_wheel_and_log_made_anew_are_those_that_the_broker_wrote(tmp_path: Path) -> None:
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    with JavaBroker(theirs, OPTIONS) as broker:
        start = _now_ms()
        broker.put([timed(number, start + 60_000 + 70 * (number * 7 % 30)) for number in range(30)])
        broker.put([_cancellation(number, start + 60_000 + 70 * (number * 7 % 30)) for number in (4, 11)])
        broker.wait_until(lambda: len(_live_slots(theirs, start + 50_000)) >= 21, "everything in the wheel")
    shutil.copytree(theirs, ours)
    shutil.rmtree(ours / "timerlog")
    (ours / "timerwheel").unlink()
    clock = FakeClock(_now_ms())
    with open_store(ours, CONFIG, clock=clock) as store:
        clock.advance(1000)
        assert len(read_all(store, TIMER_TOPIC)) == 32
    assert _live_slots(ours, start + 50_000) == _live_slots(theirs, start + 50_000)
    assert [_without_entering_time(unit) for unit in _units(ours, 32)] == [
        _without_entering_time(unit) for unit in _units(theirs, 32)
    ]


def _without_entering_time(unit: TimerUnit) -> tuple[int, ...]:
    return unit.previous, unit.magic, unit.slot_ms, unit.physical_offset, unit.size, unit.topic_hash, unit.reserved


def test_a_waiting_record_is_the_one_that_the_broker_writes(tmp_path: Path) -> None:
    """The same message, put into both: the same properties. (Their order depends on the way a message came to the
    broker; over the network, as producers come, it is ours: `tests/services/timer/test_timer_golden.py`.)"""
    due_ms = _now_ms() + 60_000
    message = Message("orders", b"1", tags="t", keys=["a", "b"], queue_id=2, deliver_at_ms=due_ms)
    with JavaBroker(tmp_path / "theirs", OPTIONS) as broker:
        broker.put([message])
        (theirs,) = broker.wait_for(TIMER_TOPIC, 0, 1)
    with open_store(tmp_path / "ours", CONFIG) as store:
        store.put(message).check()
        (ours,) = delivered(store, TIMER_TOPIC)
    with open_store(tmp_path / "theirs", CONFIG.with_changes(services=())) as store:
        (stored,) = read_all(store, TIMER_TOPIC)
    assert ours.properties == stored.properties
    assert theirs.properties["TIMER_OUT_MS"] == ours.properties["TIMER_OUT_MS"]
