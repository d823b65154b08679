"""Delayed messages between a real broker and ours: each delivers what the other left waiting, and nothing twice."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from flintlog import Message, Store, StoreConfig, open_store
from flintlog.format.record import SCHEDULE_TOPIC
from flintlog.testing import FakeClock
from interop.java_broker import JavaBroker

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("java")]

OPTIONS = {
    "mappedFileSizeCommitLog": "1048576",
    "mappedFileSizeConsumeQueue": "20000",
    "maxHashSlotNum": "100",
    "maxIndexNum": "400",
    "timerWheelEnable": "false",
}


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def options(levels: str) -> dict[str, str]:
    return {**OPTIONS, "messageDelayLevel": levels}


def config(levels: str) -> StoreConfig:
    return StoreConfig.from_rocketmq(options(levels)).with_changes(services={"schedule"})


def bodies(store: Store, queue_id: int) -> list[bytes]:
    return [message.body for message in store.get("orders", queue_id, 0).messages]


def test_java_delivers_what_waits_in_our_store(tmp_path: Path) -> None:
    clock = FakeClock(now_ms() - 2000)
    with open_store(tmp_path / "store", config("1s 4s"), clock=clock) as store:
        for number in range(3):
            store.put(Message("orders", b"ours %d" % number, tags="t", keys=["k"], delay_level=1)).check()
        clock.advance(1000)
        assert len(bodies(store, 0)) == 3
        clock.set(now_ms())
        for number in range(3):
            store.put(Message("orders", b"java's %d" % number, tags="t", keys=["k"], queue_id=1, delay_level=2)).check()
        waiting = store.get(SCHEDULE_TOPIC, 1, 0).messages
    broker = JavaBroker(tmp_path / "store", options("1s 4s"))
    try:
        assert broker.delay_offsets() == {1: 3, 2: 0}
        came = broker.wait_for("orders", 1, 3)
        assert [message.body for message in came] == [message.body for message in waiting]
        assert [message.properties for message in came] == [message.properties for message in waiting]
        for message, before in zip(came, waiting, strict=True):
            assert message.store_timestamp >= before.store_timestamp + 4000
        broker.wait_until(lambda: broker.delay_offsets() == {1: 3, 2: 3}, "both levels are done")
        assert len(broker.messages("orders", 0)) == 3
    finally:
        broker.kill()


def test_our_store_carries_on_what_a_killed_broker_left(tmp_path: Path) -> None:
    broker = JavaBroker(tmp_path / "store", options("1s 30m"))
    try:
        broker.put([Message("orders", b"soon %d" % number, delay_level=1) for number in range(3)])
        broker.put([Message("orders", b"late %d" % number, queue_id=1, delay_level=2) for number in range(3)])
        broker.wait_for("orders", 0, 3)
        broker.wait_until(lambda: broker.delay_offsets() == {1: 3, 2: 0}, "the first level is done")
        broker.persist()
    finally:
        broker.kill()
    clock = FakeClock(now_ms())
    with open_store(tmp_path / "store", config("1s 30m"), clock=clock) as store:
        assert not store.recovery.clean
        store.run_due()
        assert bodies(store, 0) == [b"soon 0", b"soon 1", b"soon 2"]
        assert bodies(store, 1) == []
        clock.advance(1_800_000)
        assert bodies(store, 0) == [b"soon 0", b"soon 1", b"soon 2"]
        assert bodies(store, 1) == [b"late 0", b"late 1", b"late 2"]
