"""The golden store of delays: a Java broker's files are reproduced and continued."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.store.golden_cases import config_of, message_of, records
from tests.store.put.test_golden_replay import ReplayClock, files

from flintlog import Message, Store, StoreConfig, open_store
from flintlog.format.record import SCHEDULE_TOPIC, Record
from flintlog.services.delay.delay_message import delivered, scheduled
from flintlog.services.delay.schedule import ScheduleService
from flintlog.store.runtime.service import Rewritten
from flintlog.testing import FakeClock

Golden = Callable[[str], Path]
ASKED = ("DELAY", "REAL_TOPIC", "REAL_QID")


def config(source: Path) -> StoreConfig:
    return config_of(source).with_changes(services={"schedule"}, ignored=())


def asked_for(record: Record) -> Message:
    """The message that a producer sent, from the record in which it waits."""
    message = message_of(record)
    properties = dict(message.properties or {})
    level, topic, queue_id = (properties.pop(name) for name in ASKED)
    message.topic, message.queue_id, message.delay_level = topic, int(queue_id), int(level)
    message.properties = properties
    return message


def is_delivery(record: Record) -> bool:
    properties = message_of(record).properties or {}
    return int(properties.get("DELAY", 0)) > 0 and properties.get("REAL_TOPIC") == record.topic


def test_waiting_and_delivered_records_have_java_s_bytes(golden: Golden, tmp_path: Path) -> None:
    """Reproduce the whole log: waiting messages from the sent ones, deliveries from those that wait in our store."""
    source = golden("delay")
    clock, kinds = ReplayClock(), Counter[str]()
    with open_store(tmp_path / "store", config_of(source), clock=clock) as store:
        for record in records(source / "store"):
            clock.now = record.store_timestamp
            if record.topic == SCHEDULE_TOPIC:
                kinds["waiting"] += 1
                rewritten = scheduled(asked_for(record), 18)
            elif is_delivery(record):
                kinds["delivered"] += 1
                rewritten = delivered_again(store, record)
            else:
                # A timer's records are not ours to make here; all others are plain.
                rewritten = Rewritten(message_of(record))
            receipt = store._host.put_rebuilt(rewritten).check()
            assert receipt.physical_offset == record.physical_offset
    assert kinds == {"waiting": 53, "delivered": 48}
    for name in ("commitlog", "consumequeue"):
        assert files(tmp_path / "store" / name) == files(source / "store" / name), name


def delivered_again(store: Store, record: Record) -> Rewritten:
    level = int((message_of(record).properties or {})["DELAY"])
    for offset in range(store.max_offset(SCHEDULE_TOPIC, level - 1)):
        entry = store._host.entry(SCHEDULE_TOPIC, level - 1, offset)
        assert entry is not None
        waiting = store.message_at(entry.physical_offset)
        assert waiting is not None
        if waiting._parts().properties == record.properties and waiting.reconsume_times == record.reconsume_times:
            return delivered(waiting)
    raise AssertionError(f"nothing waits for {record}")


def test_the_running_service_delivers_the_same_messages_as_java(golden: Golden, tmp_path: Path) -> None:
    """The same messages at the same times; only when within their turn they are stored is left to the clock."""
    source = golden("delay")
    reported = list(records(source / "store"))
    clock = FakeClock(reported[0].store_timestamp)
    with open_store(tmp_path / "store", config(source), clock=clock) as store:
        for record in reported:
            if record.topic == SCHEDULE_TOPIC:
                clock.set(record.store_timestamp)
                store.put(asked_for(record)).check()
        clock.advance(60_000)
        ours = [shape(record) for record in records(tmp_path / "store") if record.topic != SCHEDULE_TOPIC]
        service = store.service("schedule")
        assert isinstance(service, ScheduleService)
        assert service.running_stats() == {
            "scheduleMessageOffset_1": "15,15",
            "scheduleMessageOffset_2": "15,15",
            "scheduleMessageOffset_3": "18,18",
            "scheduleMessageOffset_18": "0,5",
        }
    assert Counter(ours) == Counter(shape(record) for record in reported if is_delivery(record))


def shape(record: Record) -> tuple[object, ...]:
    """A record without its place and time."""
    hosts = (record.born_host, record.store_host)
    fields = (record.body, record.properties, record.flag, record.sys_flag, record.born_timestamp)
    return (record.topic, record.queue_id, *fields, *hosts, record.reconsume_times)


def test_java_s_half_delivered_store_is_carried_on(golden: Golden, tmp_path: Path) -> None:
    source = golden("delay")
    shutil.copytree(source / "store", tmp_path / "store")
    last = max(record.store_timestamp for record in records(source / "store"))
    clock = FakeClock(last)
    with open_store(tmp_path / "store", config(source), clock=clock) as store:
        before = {queue: store.max_offset("DelayTopic", queue) for queue in range(4)}
        store.run_due()
        clock.advance(600_000)
        assert {queue: store.max_offset("DelayTopic", queue) for queue in range(4)} == before
        clock.advance(7_200_000)
        late = [
            message.body for queue in range(4) for message in store.get("DelayTopic", queue, before[queue]).messages
        ]
    assert sorted(late) == [b"late %d" % number for number in range(5)]


def test_offsets_that_java_recorded_are_written_back_unchanged(golden: Golden, tmp_path: Path) -> None:
    source = golden("delay")
    shutil.copytree(source / "store", tmp_path / "store")
    java = (source / "store/config/delayOffset.json").read_bytes()
    clock = FakeClock(max(record.store_timestamp for record in records(source / "store")))
    with open_store(tmp_path / "store", config(source), clock=clock) as store:
        store.run_due()
    assert (tmp_path / "store/config/delayOffset.json").read_bytes() == java


@pytest.mark.parametrize("lost", [1, 7])
def test_deliveries_that_java_did_not_record_are_repeated(golden: Golden, tmp_path: Path, lost: int) -> None:
    """As Java does: without our note of the log's end, an equal message looks the same as a delivery."""
    source = golden("delay")
    shutil.copytree(source / "store", tmp_path / "store")
    file = tmp_path / "store/config/delayOffset.json"
    file.write_text(file.read_text().replace("1:15", f"1:{15 - lost}"))
    clock = FakeClock(max(record.store_timestamp for record in records(source / "store")))
    with open_store(tmp_path / "store", config(source), clock=clock) as store:
        before = sum(store.max_offset("DelayTopic", queue) for queue in range(4))
        store.run_due()
        assert sum(store.max_offset("DelayTopic", queue) for queue in range(4)) == before + lost
