"""Figures by topic, queue and group: under RocketMQ's names and a clock that the test turns."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.store.small_store import ASYNC, SMALL, fill, read_all

from flintlog import InvalidConfig, Message, Store, StoreConfig, open_store
from flintlog.store.stats.broker_stats import BrokerStats
from flintlog.store.stats.figure_names import KEY_FIELDS
from flintlog.store.stats.put_figures import QueuePuts
from flintlog.testing import FakeClock


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture(params=[ASYNC, SMALL], ids=["async", "sync"])
def store(request: pytest.FixtureRequest, tmp_path: Path, clock: FakeClock) -> Iterator[Store]:
    config: StoreConfig = request.param
    with open_store(tmp_path / "store", config, clock=clock) as store:
        yield store


def run_seconds(clock: FakeClock, seconds: int) -> None:
    for _ in range(seconds):
        clock.advance(1000)


# ---------------------------------------------------------------------- puts


def test_puts_by_topic_and_queue_are_exact(store: Store, clock: FakeClock) -> None:
    for number in range(10):
        store.put(Message("orders", b"x" * number, queue_id=number % 2)).check()
    store.put_batch([Message("other", b"y")] * 5).check()
    store.put(Message("rmq_sys_x", b"z")).check()
    store.wait_dispatched()
    figures = store.broker_stats
    assert {key: item.value for key, item in figures.items("TOPIC_PUT_NUMS").items()} == {
        "orders": 10,
        "other": 5,
        "rmq_sys_x": 1,
    }
    for queue_id in (0, 1):
        messages = read_all(store, "orders", queue_id)
        for name, value in (("NUMS", len(messages)), ("SIZE", sum(message.size for message in messages))):
            item = figures.item(f"QUEUE_PUT_{name}", f"orders@{queue_id}")
            assert item is not None and item.value == value
    sizes = sum(item.value for item in figures.items("TOPIC_PUT_SIZE").values())
    assert sizes == store.stats()["putMessageSizeTotal"]
    found = store.stats()
    assert (found["msgPutTotalTodayNow"], found["msgGetTotalTodayNow"]) == (15, 10)
    broker = figures.item("BROKER_PUT_NUMS", "DefaultCluster")
    assert broker is not None and broker.value == 16


def test_what_was_there_before_is_not_counted(tmp_path: Path) -> None:
    fill(tmp_path, ASYNC, count=7)
    (tmp_path / "abort").write_text("1")  # recovery dispatches again
    with open_store(tmp_path, ASYNC) as store:
        assert not store.broker_stats.items("TOPIC_PUT_NUMS")
        size = store.put(Message("orders", b"one more")).check().size
        assert {k: i.value for k, i in store.broker_stats.items("TOPIC_PUT_NUMS").items()} == {"orders": 1}
        assert {k: i.value for k, i in store.broker_stats.items("TOPIC_PUT_SIZE").items()} == {"orders": size}


def test_a_batch_queue_and_light_queues(tmp_path: Path) -> None:
    config = ASYNC.with_changes(enable_lmq=True, enable_multi_dispatch=True, topic_queue_types={"b": "BatchCQ"})
    with open_store(tmp_path, config) as store:
        inner = Message("b", b"abc", sys_flag=0x80, properties={"INNER_NUM": "3"})
        size = store.put(inner).check().size
        store.put(Message("orders", b"x", properties={"INNER_MULTI_DISPATCH": "%LMQ%one,%LMQ%two"})).check()
        assert {k: i.value for k, i in store.broker_stats.items("TOPIC_PUT_NUMS").items()} == {"b": 3, "orders": 1}
        item = store.broker_stats.item("TOPIC_PUT_SIZE", "b")
        assert item is not None and item.value == size


def test_an_idle_store_is_not_looked_through(store: Store, clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    store.put(Message("orders", b"x")).check()
    store.wait_dispatched()
    run_seconds(clock, 80)
    queues = store._engine.parts.queues
    monkeypatch.setattr(queues.offsets, "given_by_queue", lambda: pytest.fail("nothing was put"))
    run_seconds(clock, 30)


def test_bytes_that_are_not_visible_yet_come_with_the_next_look(tmp_path: Path) -> None:
    fill(tmp_path, ASYNC, count=1)
    with open_store(tmp_path, ASYNC) as store:
        dispatcher = store._engine.dispatcher
        store.on_arrival(lambda arrival: None)  # so that the dispatcher is needed
        with dispatcher._running:
            size = store.put(Message("orders", b"x")).check().size
            puts = store._engine.figures.puts.take()
            assert puts == [QueuePuts("orders", 0, 1, 0)]
        store.wait_dispatched()
        assert store._engine.figures.puts.take() == [QueuePuts("orders", 0, 0, size)]
        assert store._engine.figures.puts.take() == []


def test_a_topic_that_was_removed_and_created_again(tmp_path: Path) -> None:
    with open_store(tmp_path, ASYNC) as store:
        for _ in range(5):
            store.put(Message("orders", b"x")).check()
        figures = store._engine.figures.puts
        figures.take()
        store._engine.parts.queues.remove_topic("orders", 0)
        store.put(Message("other", b"x")).check()
        assert [puts.topic for puts in figures.take()] == ["other"]


def test_records_without_a_place_in_a_queue_are_puts_too(store: Store) -> None:
    prepared = Message("orders", b"x", queue_id=1, sys_flag=4)
    sizes = [store.put(message).check().size for message in (prepared, Message("orders", b"y"), prepared)]
    store.wait_dispatched()
    figures = store.broker_stats
    assert {key: item.value for key, item in figures.items("QUEUE_PUT_NUMS").items()} == {"orders@0": 1, "orders@1": 2}
    store.put(prepared).check()
    assert store.counters.topics["orders"] == (4, sum(sizes) + sizes[0])
    assert store.counters.put_times_total == 4
    assert store.max_offset("orders", 1) == 0


# ---------------------------------------------------------------------- gets


def test_gets_by_group(store: Store, clock: FakeClock) -> None:
    for number in range(6):
        store.put(Message("orders", b"%d" % number, tags="a" if number < 4 else "b")).check()
    store.wait_dispatched()
    clock.advance(250)
    page = store.get("orders", 0, 0, 3, group="g")
    store.get("orders", 0, 6, group="late")
    store.get("orders", 0, 0, filter="a", group="picky")
    figures = store.broker_stats
    values = {name: {key: item.value for key, item in figures.items(name).items()} for name in KEY_FIELDS}
    assert values["GROUP_GET_NUMS"] == {"orders@g": 3, "orders@picky": 4}
    assert values["GROUP_GET_SIZE"]["orders@g"] == sum(message.size for message in page.messages)
    assert values["QUEUE_GET_NUMS"] == {"orders@0@g": 3, "orders@0@picky": 4}
    assert set(values["GROUP_GET_LATENCY"]) == {"0@orders@g", "0@orders@late", "0@orders@picky"}
    assert values["BROKER_GET_NUMS"] == {"DefaultCluster": 7}
    last = read_all(store, "orders")[-1]
    lag = {key: item.value for key, item in figures.items("GROUP_GET_FALL_SIZE").items()}
    end = store.max_physical_offset
    assert lag == {
        "0@orders@g": end - page.messages[-1].physical_offset,
        "0@orders@late": 0,
        "0@orders@picky": end - last.physical_offset,
    }
    assert {key: item.value for key, item in figures.items("GROUP_GET_FALL_TIME").items()} == {
        "0@orders@g": 250,
        "0@orders@late": 0,
        "0@orders@picky": 250,
    }


def test_recording_the_lag_of_groups_is_an_option(tmp_path: Path) -> None:
    with open_store(tmp_path, ASYNC.with_changes(disk_fall_recorded=False)) as store:
        store.put(Message("orders", b"x")).check()
        store.get("orders", 0, 0, group="g")
        assert not store.broker_stats.items("GROUP_GET_FALL_SIZE")


def test_a_deleted_topic_and_a_deleted_group_lose_their_figures(store: Store) -> None:
    for topic in ("orders", "other"):
        store.put(Message(topic, b"x")).check()
        store.wait_dispatched()
        for group in ("g", "h"):
            store.get(topic, 0, 0, group=group)
    figures = store.broker_stats
    figures.refresh()
    figures.forget_topic("orders")
    figures.forget_group("h")
    keys = {key for name in KEY_FIELDS for key in figures.items(name)}
    assert keys == {"other", "other@0", "other@g", "other@0@g", "0@other", "0@other@g", "DefaultCluster"}
    assert set(figures.items("GROUP_GET_FALL_SIZE")) == {"0@other@g"}


def test_deleting_a_topic_or_a_group_of_the_store_takes_its_figures(store: Store) -> None:
    store.groups.create("g")
    for topic in ("orders", "other"):
        store.topics.create(topic)
        store.put(Message(topic, b"x")).check()
        store.wait_dispatched()
        store.get(topic, 0, 0, group="g")
    store.broker_stats.refresh()
    store.topics.delete("orders")
    assert set(store.broker_stats.items("GROUP_GET_NUMS")) == {"other@g"}
    store.groups.delete("g")
    assert set(store.broker_stats.items("GROUP_GET_NUMS")) == set()
    assert set(store.broker_stats.items("TOPIC_PUT_NUMS")) == {"other"}


# ---------------------------------------------------------------------- names and days


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="no figure 'X'"):
        BrokerStats(lambda: 0, list, lambda: 0).items("X")


def test_totals_are_kept_at_local_midnight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        # The last hour before 31 March 2024, a day of 23 hours; five messages are put in each hour of 49
        clock = FakeClock(1_711_839_600_000 - 3_600_000)
        figures = BrokerStats(clock.now_ms, lambda: [QueuePuts("orders", 0, 5, 500)], lambda: 0)
        mornings = []
        for _ in range(49):
            clock.advance(3_600_000)
            figures.tick()
            found = figures.values()
            mornings.append((found["msgPutTotalYesterdayMorning"], found["msgPutTotalTodayMorning"]))
    finally:
        monkeypatch.undo()
        time.tzset()
    assert [hour for hour in range(1, 49) if mornings[hour] != mornings[hour - 1]] == [23, 47]
    totals = [mornings[hour] for hour in (0, 23, 47)]
    assert [yesterday for yesterday, _ in totals] == [0, *(today for _, today in totals[:-1])]
    assert 0 < totals[0][1] < totals[1][1] < totals[2][1]


def test_the_clock_may_be_turned_back(clock: FakeClock) -> None:
    figures = BrokerStats(clock.now_ms, lambda: [QueuePuts("orders", 0, 5, 500)], lambda: 0)
    clock.set(clock.now_ms() - 30 * 3_600_000)
    figures.tick()
    assert figures.values()["msgPutTotalTodayMorning"] == 0
