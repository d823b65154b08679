"""Consuming: every message, in turn, until it is acknowledged; across restarts, threads, gaps and resets."""

from __future__ import annotations

import json
import platform
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
from tests.store.small_store import ASYNC, SMALL, bytes_of

from flintlog import (
    FlintlogError,
    InvalidConfig,
    InvalidMessage,
    InvalidOffset,
    InvalidTopic,
    Message,
    Sql92,
    Store,
    open_store,
)
from flintlog.format.config_json import parse_config_object
from flintlog.store.consume.consumer import Consumer
from flintlog.store.settings.topics import WRITE
from flintlog.testing import FakeClock, temporary_store

LONG_S = 20.0


def put(store: Store, count: int, topic: str = "orders", queues: int = 1, **values: object) -> None:
    first = sum(store.max_offset(topic, queue_id) for queue_id in range(queues))
    for number in range(first, first + count):
        store.put(Message(topic, b"%d" % number, queue_id=number % queues, **values)).check()  # type: ignore[arg-type]
    store.wait_dispatched()


def bodies(consumer: Consumer, *, ack: bool = True, most: int = 10_000) -> list[bytes]:
    found: list[bytes] = []
    while len(found) < most and (message := consumer.poll()) is not None:
        found.append(message.body)
        if ack:
            consumer.acknowledge(message)
    return found


def expire(store: Store, files: int) -> None:
    """Delete the oldest files of the log, as retention does."""
    parts = store._engine.parts
    assert parts.segments.delete_expired(0, now_ms=1 << 50, at_once=True, batch_max=files) == files
    parts.queues.delete_expired(store.min_physical_offset)


def test_every_queue_has_its_turn(tmp_path: Path) -> None:
    with open_store(tmp_path, SMALL) as store:
        put(store, 90, queues=3)
        with store.consumer("g", "orders") as consumer:
            found = bodies(consumer)
            assert sorted(found, key=int) == [b"%d" % number for number in range(90)]
            assert {int(body) % 3 for body in found[:3]} == {0, 1, 2}
            assert consumer.lag() == 0 and consumer.poll() is None


def test_what_was_not_acknowledged_comes_again_after_a_restart(tmp_path: Path) -> None:
    with open_store(tmp_path, SMALL) as store:
        put(store, 6)
        with store.consumer("g", "orders") as consumer:
            messages = [consumer.poll() for _ in range(6)]
            for number in (0, 1, 3, 5):
                message = messages[number]
                assert message is not None
                consumer.ack(message)
            assert store.consumer_offsets.get("g", "orders", 0) == 2
            assert consumer.lag() == 4
    with open_store(tmp_path, SMALL) as store, store.consumer("g", "orders") as consumer:
        assert bodies(consumer) == [b"2", b"3", b"4", b"5"]
        assert store.consumer_offsets.get("g", "orders", 0) == 6


def test_a_second_answer_and_one_for_a_message_of_before_change_nothing() -> None:
    with temporary_store(SMALL) as store:
        put(store, 4)
        with store.consumer("g", "orders") as consumer:
            first, second = consumer.poll(), consumer.poll()
            assert first is not None and second is not None
            consumer.ack(first)
            consumer.ack(first)
            consumer.rewind()
            again = consumer.poll()
            assert again is not None and again.body == second.body
            consumer.reset("earliest")
            consumer.ack(again)
            assert store.consumer_offsets.get("g", "orders", 0) == 0
            assert bodies(consumer) == [b"0", b"1", b"2", b"3"]


def test_a_message_of_another_consumer_is_refused() -> None:
    with temporary_store(SMALL) as store:
        put(store, 1)
        put(store, 1, "events")
        with store.consumer("g", "orders") as ours, store.consumer("h", "events") as theirs:
            other = theirs.poll()
            assert other is not None
            with pytest.raises(InvalidMessage, match="did not come from"):
                ours.ack(other)
            with pytest.raises(InvalidMessage):
                ours.ack(store.get("orders", 0, 0).messages[0])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("start", "expected"), [("earliest", [0, 1, 2, 3]), ("latest", []), (3000, [2, 3]), (99_000, [])]
)
def test_where_a_new_group_begins(start: str | int, expected: list[int], tmp_path: Path) -> None:
    clock = FakeClock(1000)
    with open_store(tmp_path, SMALL, clock=clock) as store:
        for _ in range(4):
            put(store, 1)
            clock.advance(1000)
        with store.consumer("g", "orders", start=start) as consumer:
            put(store, 1, queues=1)
            assert bodies(consumer) == [b"%d" % number for number in (*expected, 4)]


@pytest.mark.parametrize("had_messages", [True, False])
def test_a_group_that_began_at_the_end_misses_nothing_after_a_crash(had_messages: bool, tmp_path: Path) -> None:
    clock = FakeClock()
    with open_store(tmp_path, SMALL, clock=clock) as store:
        put(store, 3 if had_messages else 0)
        store.consumer("g", "orders", start="latest").close()
        saved = (tmp_path / "config/consumerOffset.json").read_bytes()
        put(store, 2)
        store.put(Message("orders", b"in a new queue", queue_id=5)).check()
    # As if the process had died before anything more was saved.
    (tmp_path / "config/consumerOffset.json").write_bytes(saved)
    with open_store(tmp_path, SMALL, clock=clock) as store, store.consumer("g", "orders", start="latest") as consumer:
        assert len(bodies(consumer)) == 3


def test_filters_by_tag_by_text_and_by_sql() -> None:
    with temporary_store(SMALL) as store:
        for tag in ("Aa", "BB", "other"):  # the first two share a hash
            put(store, 1, tags=tag, properties={"n": "5" if tag == "BB" else "1"})
        for wanted, expected in (("Aa", [b"0"]), ("BB || other", [b"1", b"2"]), (Sql92("n > 3"), [b"1"])):
            with store.consumer("g", "orders", filter=wanted, start="earliest") as consumer:
                consumer.reset("earliest")
                assert bodies(consumer) == expected
                assert consumer.lag() == 0, "what is not wanted is passed over"


def test_a_filter_that_wants_nothing_of_a_long_queue_ends() -> None:
    with temporary_store(ASYNC) as store:
        for _ in range(15):
            store.put_batch([Message("orders", b"", tags="no") for _ in range(200)]).check()
        store.wait_dispatched()
        with store.consumer("g", "orders", filter="yes") as consumer:
            began = time.monotonic()
            assert consumer.poll(0.05) is None
            assert time.monotonic() - began < LONG_S
            assert consumer.lag() == 0


def test_consumers_part_a_topic_by_queue_and_do_not_share_one() -> None:
    with temporary_store(SMALL) as store:
        put(store, 30, queues=3)
        with store.consumer("g", "orders", queue_ids=[0, 2]) as first:
            for bad in ({"queue_ids": [2], "retries": False}, {"retries": False}, {"queue_ids": (0,)}):
                with pytest.raises(InvalidConfig, match="has a consumer of 'orders'"):
                    store.consumer("g", "orders", **bad)
            with pytest.raises(InvalidConfig, match="retries=False"):
                store.consumer("g", "orders", queue_ids=[1])
            with store.consumer("g", "orders", queue_ids=[1], retries=False) as second:
                assert len(bodies(first)) == 20 and len(bodies(second)) == 10
            with store.consumer("h", "orders") as other:
                assert len(bodies(other)) == 30
        with store.consumer("g", "orders") as alone:
            assert bodies(alone) == []


def test_a_put_wakes_a_consumer_that_sleeps() -> None:
    for config in (SMALL, ASYNC):
        with temporary_store(config) as store, store.consumer("g", "orders") as consumer:
            found: list[bytes] = []

            def work(consumer: Consumer = consumer, found: list[bytes] = found) -> None:
                for message in consumer:
                    found.append(message.body)
                    consumer.ack(message)

            thread = threading.Thread(target=work)
            thread.start()
            for number in range(5):
                time.sleep(0.01)
                put(store, 1, queues=number + 1)
            deadline = time.monotonic() + LONG_S
            while len(found) < 5 and time.monotonic() < deadline:
                time.sleep(0.001)
            assert len(found) == 5 and thread.is_alive()
            consumer.close()
            thread.join(LONG_S)
            assert not thread.is_alive()


def test_a_listener_may_consume() -> None:
    for config in (SMALL, ASYNC):
        with temporary_store(config) as store, store.consumer("g", "orders") as consumer:
            found: list[bytes] = []
            store.on_arrival(lambda _, consumer=consumer, found=found: found.extend(bodies(consumer)))  # type: ignore[misc]
            put(store, 5)
            assert sorted([*found, *bodies(consumer)]) == [b"%d" % number for number in range(5)]


def test_the_store_that_closes_ends_its_consumers() -> None:
    with temporary_store(SMALL) as store:
        consumer = store.consumer("g", "orders")
        thread = threading.Thread(target=lambda: list(consumer))
        thread.start()
        time.sleep(0.02)
        store.shutdown()
        thread.join(LONG_S)
        assert not thread.is_alive() and consumer.poll() is None


def test_polling_ends_in_time() -> None:
    with temporary_store(SMALL) as store, store.consumer("g", "orders", timeout_s=0.05) as consumer:
        began = time.monotonic()
        assert consumer.poll(0.05) is None and list(consumer) == []
        assert 0.1 <= time.monotonic() - began < LONG_S
        assert consumer.poll() is None


def test_threads_share_a_consumer() -> None:
    with temporary_store(ASYNC) as store, store.consumer("g", "orders", timeout_s=1.0) as consumer:
        found: Counter[bytes] = Counter()
        lock = threading.Lock()

        def work() -> None:
            for message in consumer:
                with lock:
                    found[message.body] += 1
                consumer.ack(message)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        put(store, 500, queues=4)
        for thread in threads:
            thread.join(LONG_S)
        assert found == Counter(b"%d" % number for number in range(500))
        assert consumer.lag() == 0


def test_too_much_unacknowledged_holds_a_queue_up_until_an_answer_comes() -> None:
    with temporary_store(SMALL) as store:
        put(store, 6)
        with store.consumer("g", "orders", max_unacknowledged=2) as consumer:
            first, second = consumer.poll(), consumer.poll()
            assert first is not None and second is not None
            assert consumer.poll(0.02) is None
            threading.Timer(0.05, consumer.ack, args=(first,)).start()
            third = consumer.poll(LONG_S)
            assert third is not None and third.body == b"2"


def test_messages_that_retention_took_are_passed_over_and_that_is_said(tmp_path: Path) -> None:
    with open_store(tmp_path, SMALL) as store:
        with store.consumer("g", "orders") as consumer:
            for number in range(60):
                store.put(Message("orders", b"%d" % number + bytes(4000))).check()
            store.wait_dispatched()
            expire(store, 2)
            first = store.min_offset("orders", 0)
            assert first > 0
            message = consumer.poll()
            assert message is not None and message.offset == first and message.queue_offset == first
            (move,) = consumer.moves
            assert (move.requested, move.offset, move.reason) == (0, first, "OFFSET_TOO_SMALL")
            consumer.ack(message)
            assert store.consumer_offsets.get("g", "orders", 0) == first + 1
        assert store.max_offset("OFFSET_MOVED_EVENT", 0) == 0, "a store puts nothing of its own unless asked to"


def test_the_event_of_a_moved_offset_is_put_where_it_is_asked_for(tmp_path: Path) -> None:
    with open_store(tmp_path, SMALL.with_changes(offset_moved_event=True)) as store:
        with store.consumer("g", "orders") as consumer:
            for _ in range(60):
                store.put(Message("orders", bytes(4000))).check()
            store.wait_dispatched()
            expire(store, 2)
            consumer.poll()
        store.wait_dispatched()
        event = store.get("OFFSET_MOVED_EVENT", 0, 0).messages[0]
        assert json.loads(event.body) == {
            "consumerGroup": "g",
            "messageQueue": {"brokerName": platform.node(), "queueId": 0, "topic": "orders"},
            "offsetNew": store.min_offset("orders", 0),
            "offsetRequest": 0,
        }
        assert list(event.properties.items()) == [("KEYS", "g"), ("DELAY", "0"), ("TAGS", "g")]
        assert event.born_host == store.config.store_host


def test_a_damaged_message_is_passed_over_and_that_is_said(tmp_path: Path) -> None:
    with open_store(tmp_path, SMALL) as store:
        put(store, 3)
        place = store.get("orders", 0, 1).messages[0].physical_offset
    log = tmp_path / "commitlog" / f"{0:020}"
    data = bytearray(log.read_bytes())
    data[place + 88] ^= 0xFF
    log.write_bytes(data)
    with open_store(tmp_path, SMALL) as store, store.consumer("g", "orders") as consumer:
        assert bodies(consumer) == [b"0", b"2"]
        (move,) = consumer.moves
        assert (move.requested, move.offset) == (1, 2) and "damaged" in move.reason
        assert consumer.lag() == 0


def test_a_deleted_topic_continues_where_its_queue_ended() -> None:
    with temporary_store(SMALL) as store:
        store.topics.create("orders")
        put(store, 5)
        with store.consumer("g", "orders") as consumer:
            assert len(bodies(consumer)) == 5
            store.topics.delete("orders")
            put(store, 2)
            assert bodies(consumer) == [b"0", b"1"]
            assert store.consumer_offsets.get("g", "orders", 0) == 7


def test_reset_and_seek() -> None:
    clock = FakeClock(1000)
    with temporary_store(SMALL, clock=clock) as store:
        for _ in range(5):
            put(store, 1)
            clock.advance(1000)
        with store.consumer("g", "orders") as consumer:
            assert len(bodies(consumer)) == 5
            consumer.reset(3000)
            assert consumer.lag() == 3 and bodies(consumer, ack=False) == [b"2", b"3", b"4"]
            consumer.reset("latest")
            assert consumer.lag() == 0 and bodies(consumer) == []
            consumer.seek(0, 1)
            assert bodies(consumer, most=1) == [b"1"]
            (place,) = consumer.positions()
            assert (place.topic, place.queue_id, place.committed, place.max_offset) == ("orders", 0, 2, 5)
            consumer.seek(0, 99)
            assert consumer.lag() == 0 and consumer.poll() is None
            with pytest.raises(InvalidOffset):
                consumer.seek(7, 0)
            with pytest.raises(InvalidOffset):
                consumer.reset("somewhere")


def test_light_queues_and_batch_queues_are_acknowledged_by_their_own_offsets() -> None:
    config = ASYNC.with_changes(enable_lmq=True, enable_multi_dispatch=True, topic_queue_types={"batches": "BatchCQ"})
    with temporary_store(config) as store:
        put(store, 3)
        for number in range(4):
            names = {"INNER_MULTI_DISPATCH": "%LMQ%b,%LMQ%a"}
            store.put(Message("orders", b"%d" % number, properties=names, tags="x" if number % 2 else None)).check()
        inner = {"INNER_NUM": "5"}
        for _ in range(2):
            store.put(Message("batches", b"five", sys_flag=0x80, properties=inner)).check()
        store.wait_dispatched()
        for wanted, count in ((None, 4), ("x", 2)):
            with store.consumer(f"g{count}", "%LMQ%a", filter=wanted) as consumer:
                for number in range(count):
                    message = consumer.poll()
                    assert message is not None
                    consumer.ack(message)
                    assert (store.consumer_offsets.get(f"g{count}", "%LMQ%a", 0) or 0) > number
                assert consumer.lag() == 0
        with store.consumer("g", "batches") as consumer:
            for end in (5, 10):
                message = consumer.poll()
                assert message is not None and message.offset == end - 5
                assert store.consumer_offsets.get("g", "batches", 0) == end - 5
                consumer.ack(message)
                assert store.consumer_offsets.get("g", "batches", 0) == end


def test_a_failed_message_comes_back_with_its_own_topic_until_it_is_a_dead_letter() -> None:
    clock = FakeClock()
    config = SMALL.with_changes(services={"schedule"})
    with temporary_store(config, clock=clock) as store:
        store.groups.create("g", retry_max_times=2)
        put(store, 1, tags="paid")
        with store.consumer("g", "orders", filter="paid") as consumer:
            for tries in range(3):
                message = consumer.poll()
                assert message is not None and message.reconsume_times == tries
                assert message.topic == "orders"
                assert message.stored_topic == ("%RETRY%g" if tries else "orders")
                consumer.send_back(message).check()
                assert consumer.lag() == 0, "what was sent back is acknowledged"
                clock.advance(60_000)
            assert consumer.poll() is None
        with store.consumer("undertaker", "%DLQ%g") as dead:
            message = dead.poll()
            assert message is not None and message.body == b"0" and message.reconsume_times == 3
            assert message.properties["RETRY_TOPIC"] == "orders"


def test_a_message_that_cannot_be_sent_back_stays_unacknowledged() -> None:
    with temporary_store(SMALL) as store:
        put(store, 1)
        with store.consumer("g", "orders") as consumer:
            message = consumer.poll()
            assert message is not None
            store.groups.change("g", retry_queue_nums=0)
            with pytest.raises(Exception, match="schedule"):
                consumer.send_back(message)
            assert consumer.lag() == 1


def test_a_consumer_writes_down_its_group_and_its_retry_topic(tmp_path: Path) -> None:
    with open_store(tmp_path, SMALL) as store, store.consumer("g", "orders"):
        assert "g" in store.groups and "%RETRY%g" in store.topics
        retry = store.topics.get("%RETRY%g")
        assert retry is not None and (retry.read_queue_nums, retry.write_queue_nums, retry.perm) == (1, 1, 6)


def test_groups_and_topics_that_may_not_be_consumed() -> None:
    with temporary_store(SMALL) as store:
        store.groups.create("closed", consume_enable=False)
        store.topics.create("secret", perm=WRITE)
        with pytest.raises(InvalidConfig, match="may not consume"):
            store.consumer("closed", "orders")
        with pytest.raises(InvalidTopic, match="may not be read"):
            store.consumer("g", "secret")
        store.topics.change("secret", perm=6)
        store.consumer("g", "secret").close()


@pytest.mark.parametrize(
    ("group", "topic", "values"),
    [
        ("", "orders", {}),
        ("a@b", "orders", {}),
        ("g", "or@ders", {}),
        ("g", 5, {}),
        ("g", "orders", {"queue_ids": []}),
        ("g", "orders", {"queue_ids": [-1]}),
        ("g", "orders", {"queue_ids": "01"}),
        ("g", "orders", {"start": "middle"}),
        ("g", "orders", {"start": 1.5}),
        ("g", "orders", {"filter": 5}),
        ("g", "orders", {"max_unacknowledged": 0}),
    ],
)
def test_bad_input_is_named(group: str, topic: str, values: dict[str, object]) -> None:
    with temporary_store(SMALL) as store:
        with pytest.raises(FlintlogError):
            store.consumer(group, topic, **values)  # type: ignore[arg-type]
        assert store.groups.list() == []
        store.consumer("g", "orders").close()


def test_a_read_only_store_can_be_consumed_and_stays_as_it_is(tmp_path: Path) -> None:
    with open_store(tmp_path, SMALL) as store:
        put(store, 4)
        with store.consumer("g", "orders") as consumer:
            bodies(consumer, most=1)
    before = bytes_of(tmp_path)
    with open_store(tmp_path, SMALL, read_only=True) as store:
        with store.consumer("g", "orders") as consumer:
            assert bodies(consumer) == [b"1", b"2", b"3"] and consumer.lag() == 0
        with store.consumer("new", "orders") as consumer:
            assert len(bodies(consumer)) == 4
    assert bytes_of(tmp_path) == before


def test_puts_to_topics_that_were_not_created_change_no_configuration(tmp_path: Path) -> None:
    with open_store(tmp_path, SMALL) as store:
        put(store, 3)
    assert not (tmp_path / "config").exists()


def test_the_file_after_consuming_is_what_a_broker_expects(tmp_path: Path) -> None:
    with open_store(tmp_path, SMALL) as store:
        put(store, 4, queues=2)
        with store.consumer("g", "orders") as consumer:
            bodies(consumer)
    found = parse_config_object((tmp_path / "config/consumerOffset.json").read_bytes())
    assert list(found) == ["dataVersion", "groupTopicMap", "offsetTable", "pullOffsetTable"]
    assert found["offsetTable"] == {"orders@g": {0: 2, 1: 2}}
    assert found["groupTopicMap"] == {"g": ["orders"]}
