"""Sending back: levels, limits, dead letters, and the records that RocketMQ makes of it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from flintlog import (
    InvalidConfig,
    InvalidMessage,
    InvalidTopic,
    Message,
    ServiceNotEnabled,
    Store,
    StoreConfig,
    StoredMessage,
    open_store,
)
from flintlog.format.record import parse_record
from flintlog.services.retry import send_back
from flintlog.store.settings.topics import READ
from flintlog.testing import SMALL_FILES, FakeClock, temporary_store
from tests.conftest import Golden

SCHEDULE = "SCHEDULE_TOPIC_XXXX"
WITH_SCHEDULE = SMALL_FILES.with_changes(services={"schedule"}, flush="async")


def put_and_read(store: Store, **values: object) -> StoredMessage:
    store.put(Message("orders", b"42 pieces", tags="paid", keys=["o-17"], **values)).check()  # type: ignore[arg-type]
    store.wait_dispatched()
    return store.get("orders", 0, store.max_offset("orders", 0) - 1).messages[0]


def test_the_records_are_those_that_rocketmq_makes(golden: Golden, tmp_path: Path) -> None:
    folder = golden("delay")
    options = json.loads((folder / "config.json").read_text())["set"]
    shutil.copytree(folder / "store", tmp_path / "store")
    config = StoreConfig.from_rocketmq(options).with_changes(services={"schedule"}, store_host="127.0.0.1:28511")
    clock = FakeClock(0)
    with open_store(folder / "store", config, read_only=True) as java:
        theirs = [message for message in java.get(SCHEDULE, 2, 0).messages if "RETRY_TOPIC" in message.properties]
    assert len(theirs) == 3
    with open_store(tmp_path / "store", config, clock=clock) as store:
        for expected in theirs:
            failed = store.message_by_id(expected.properties["ORIGIN_MESSAGE_ID"])
            assert failed is not None
            receipt = send_back(store._host, "CG_delay", failed).check()
            ours = store.message_at(receipt.physical_offset)
            assert ours is not None
            assert parts_of(ours) == parts_of(expected)


def parts_of(message: StoredMessage) -> object:
    """All fields except those that depend on the moment: offsets and the store time."""
    record = parse_record(message.record)
    return (
        *(record.topic, record.queue_id, record.flag, record.sys_flag, record.born_timestamp, record.born_host),
        *(record.store_host, record.reconsume_times, record.prepared_transaction_offset, message.body),
        record.properties,
    )


@pytest.mark.parametrize(("asked", "consumed", "level"), [(0, 0, 3), (0, 4, 7), (0, 15, 18), (2, 4, 2), (18, 0, 18)])
def test_the_level_grows_with_every_try(asked: int, consumed: int, level: int) -> None:
    with temporary_store(WITH_SCHEDULE, clock=FakeClock()) as store:
        failed = put_and_read(store, reconsume_times=consumed)
        send_back(store._host, "g", failed, asked).check()
        waiting = store.get(SCHEDULE, level - 1, 0).messages[0]
        assert waiting.reconsume_times == consumed + 1
        assert waiting.properties["DELAY"] == str(level)
        assert (waiting.properties["REAL_TOPIC"], waiting.properties["RETRY_TOPIC"]) == ("%RETRY%g", "orders")
        assert list(store.broker_stats.items("SNDBCK_PUT_NUMS")) == ["orders@g"]


def test_beyond_the_highest_level_it_stays_the_highest() -> None:
    with temporary_store(WITH_SCHEDULE, clock=FakeClock()) as store:
        store.groups.create("g", retry_max_times=100)
        send_back(store._host, "g", put_and_read(store, reconsume_times=40)).check()
        assert store.max_offset(SCHEDULE, 17) == 1


@pytest.mark.parametrize(("consumed", "level"), [(16, 0), (17, 5), (0, -1)])
def test_too_many_tries_and_a_negative_level_go_to_the_dead_letters(consumed: int, level: int) -> None:
    with temporary_store(SMALL_FILES) as store:
        failed = put_and_read(store, reconsume_times=consumed)
        send_back(store._host, "g", failed, level).check()
        store.wait_dispatched()
        dead = store.get("%DLQ%g", 0, 0).messages[0]
        assert dead.body == failed.body and dead.reconsume_times == consumed + 1
        assert dead.tags == "paid" and dead.keys == ["o-17"] and dead.born_timestamp == failed.born_timestamp
        assert dead.properties["DELAY"] == "0" and dead.properties["WAIT"] == "false"
        assert dead.properties["RETRY_TOPIC"] == "orders"
        assert dead.properties["ORIGIN_MESSAGE_ID"] == failed.message_id
        topic = store.topics.get("%DLQ%g")
        assert topic is not None and (topic.read_queue_nums, topic.perm) == (1, 6)


def test_the_groups_limit_and_that_of_the_caller() -> None:
    with temporary_store(SMALL_FILES) as store:
        store.groups.create("g", retry_max_times=1)
        send_back(store._host, "g", put_and_read(store, reconsume_times=1)).check()
        send_back(store._host, "h", put_and_read(store, reconsume_times=2), max_reconsume_times=2).check()
        store.wait_dispatched()
        assert store.max_offset("%DLQ%g", 0) == store.max_offset("%DLQ%h", 0) == 1


def test_the_first_id_and_the_first_topic_stay() -> None:
    clock = FakeClock()
    with temporary_store(WITH_SCHEDULE, clock=clock) as store:
        first = put_and_read(store)
        send_back(store._host, "g", first, 1).check()
        clock.advance(1000)
        second = store.get("%RETRY%g", 0, 0).messages[0]
        send_back(store._host, "g", second, 1).check()
        clock.advance(1000)
        third = store.get("%RETRY%g", 0, 1).messages[0]
        assert third.reconsume_times == 2
        assert third.properties["ORIGIN_MESSAGE_ID"] == first.message_id
        assert third.properties["RETRY_TOPIC"] == "orders"


def test_a_retry_needs_the_schedule_service_and_stores_nothing_without() -> None:
    with temporary_store(SMALL_FILES) as store:
        failed = put_and_read(store)
        end = store.max_physical_offset
        with pytest.raises(ServiceNotEnabled, match="schedule"):
            send_back(store._host, "g", failed)
        assert store.max_physical_offset == end


def test_bad_input_is_named() -> None:
    with temporary_store(WITH_SCHEDULE, clock=FakeClock()) as store:
        failed = put_and_read(store)
        with pytest.raises(InvalidMessage, match="stored message"):
            send_back(store._host, "g", Message("orders", b""))  # type: ignore[arg-type]
        with pytest.raises(InvalidMessage, match="delay level"):
            send_back(store._host, "g", failed, "3")  # type: ignore[arg-type]
        with pytest.raises(InvalidMessage, match="no delay level 19"):
            send_back(store._host, "g", failed, 19)
        with pytest.raises(InvalidConfig, match="a group cannot be"):
            send_back(store._host, "no group", failed)
        store.groups.create("closed", retry_queue_nums=0)
        with pytest.raises(InvalidConfig, match="no retry queue"):
            send_back(store._host, "closed", failed)
        store.topics.create("%DLQ%locked", perm=READ)
        with pytest.raises(InvalidTopic, match="may not be written"):
            send_back(store._host, "locked", failed, -1)


def test_a_retry_is_durable_before_the_original_may_be_acknowledged() -> None:
    with temporary_store(SMALL_FILES.with_changes(services={"schedule"}), clock=FakeClock()) as store:
        receipt = send_back(store._host, "g", put_and_read(store)).check()
        assert store.flushed_offset >= receipt.end_offset
