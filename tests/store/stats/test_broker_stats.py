"""Figures by topic, queue and group: RocketMQ's names and lines, under a clock that the test turns."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.store.small_store import ASYNC, SMALL, fill, read_all

from flintlog import InvalidConfig, Message, Store, StoreConfig, open_store
from flintlog.store.stats.broker_stats import BrokerStats
from flintlog.store.stats.figure_names import MOMENT_NAMES, STATS_NAMES
from flintlog.store.stats.put_figures import QueuePuts
from flintlog.store.stats.stats_items import PERIODS, Pace, Period, StatsItem, StatsSnapshot, next_morning_ms
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


# ---------------------------------------------------------------------- one item


# RocketMQ's own lines: StatsItem's samples taken by hand at these times, values added in between
def test_lines_of_a_minute() -> None:
    item = StatsItem("TOPIC_PUT_NUMS", "orders")
    assert item.line(Period.MINUTE) == "[TOPIC_PUT_NUMS] [orders] Stats In One Minute, SUM: 0 TPS: 0.00 AVGPT: 0.00"
    item.add(5, 2, 0)
    item.sample(Period.MINUTE, 0)
    assert item.line(Period.MINUTE) == "[TOPIC_PUT_NUMS] [orders] Stats In One Minute, SUM: 5 TPS: 0.50 AVGPT: 2.50"
    item.add(10, 1, 10_000)
    item.sample(Period.MINUTE, 10_000)
    assert item.line(Period.MINUTE) == "[TOPIC_PUT_NUMS] [orders] Stats In One Minute, SUM: 15 TPS: 0.75 AVGPT: 5.00"
    assert item.line(Period.HOUR) == "[TOPIC_PUT_NUMS] [orders] Stats In One Hour, SUM: 0 TPS: 0.00 AVGPT: 0.00"
    assert item.line(Period.DAY) == "[TOPIC_PUT_NUMS] [orders] Stats In One Day, SUM: 0 TPS: 0.00 AVGPT: 0.00"


def test_a_latency_says_how_often_and_how_long_on_average() -> None:
    item = StatsItem("GROUP_GET_LATENCY", "0@orders@g", is_latency=True)
    item.add(31, 3, 0)
    item.sample(Period.DAY, 0)
    assert item.line(Period.DAY) == "[GROUP_GET_LATENCY] [0@orders@g] Stats In One Day, TIMES: 3 AVGRT: 10.33"


@pytest.mark.parametrize("period", PERIODS)
@given(steps=st.lists(st.sampled_from([0, 0, 0, 0, 0, 0, 0, 0, 1, 7]), max_size=80))
@settings(max_examples=60, deadline=None)
def test_resting_changes_no_answer(period: Period, steps: list[int]) -> None:
    """RocketMQ samples an item for ever; ours rests when nothing happens."""
    item = StatsItem("x", "k")
    seen: list[tuple[int, int]] = []
    is_awake = False
    for number, step in enumerate(steps):
        now = number * period.interval_ms
        if step:
            item.add(step, 1, now)
            is_awake = item.wake(period) or is_awake
        if is_awake:
            is_awake = item.sample(period, now)
        if not seen and item.value:
            seen.append((now - period.interval_ms, 0))
        if seen:
            seen = [*seen, (now, item.value)][-period.kept :]
        expected = seen[-1][1] - seen[0][1] if seen else 0
        assert item.snapshot(period).sum == expected
        if expected:
            assert item.snapshot(period).tps == expected * 1000.0 / (seen[-1][0] - seen[0][0])


def test_what_was_missed_is_not_made_up_for() -> None:
    pace = Pace(lambda now: now + 10, 0, at_once=True)
    assert [pace.is_due(now) for now in (0, 5, 9, 10, 45, 46, 54, 55)] == [True, False, False, True] * 2
    assert [pace.is_due(now) for now in (-1000, -995, -990)] == [False, False, True]


def test_a_day_ends_at_local_midnight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        assert next_morning_ms(1_711_839_600_000) - 1_711_839_600_000 == 23 * 3_600_000  # the clocks go forward
        assert next_morning_ms(1_711_839_600_000 - 1) == 1_711_839_600_000
    finally:
        monkeypatch.undo()
        time.tzset()


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


def test_rates_of_a_minute_and_the_rest_after_it(store: Store, clock: FakeClock) -> None:
    for _ in range(70):
        store.put(Message("orders", b"x")).check()
        clock.advance(1000)
    assert store.broker_stats.tps_topic_put_nums("orders") == 1.0
    item = store.broker_stats.item("TOPIC_PUT_NUMS", "orders")
    assert item is not None and (item.in_minute.sum, item.in_minute.times, item.in_minute.avgpt) == (60, 60, 1.0)
    run_seconds(clock, 70)
    assert item.in_minute == StatsSnapshot()
    assert item.value == 70
    store.put(Message("orders", b"x")).check()
    run_seconds(clock, 10)
    assert item.in_minute == StatsSnapshot(1, 1000 / 60_000, 1, 1.0)


def test_an_idle_store_is_not_looked_through(store: Store, clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    store.put(Message("orders", b"x")).check()
    store.wait_dispatched()
    run_seconds(clock, 80)
    queues = store._engine.parts.queues
    monkeypatch.setattr(queues, "handed_out_by_queue", lambda: pytest.fail("nothing was put"))
    run_seconds(clock, 30)
    awake = store.broker_stats._awake[Period.MINUTE]
    assert not awake


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


def test_a_topic_that_was_removed_and_made_anew(tmp_path: Path) -> None:
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
    values = {name: {key: item.value for key, item in figures.items(name).items()} for name in STATS_NAMES}
    assert values["GROUP_GET_NUMS"] == {"orders@g": 3, "orders@picky": 4}
    assert values["GROUP_GET_SIZE"]["orders@g"] == sum(message.size for message in page.messages)
    assert values["QUEUE_GET_NUMS"] == {"orders@0@g": 3, "orders@0@picky": 4}
    assert set(values["GROUP_GET_LATENCY"]) == {"0@orders@g", "0@orders@late", "0@orders@picky"}
    assert values["BROKER_GET_NUMS"] == {"DefaultCluster": 7}
    last = read_all(store, "orders")[-1]
    behind = {key: item.value for key, item in figures.moments("GROUP_GET_FALL_SIZE").items()}
    end = store.max_physical_offset
    assert behind == {
        "0@orders@g": end - page.messages[-1].physical_offset,
        "0@orders@late": 0,
        "0@orders@picky": end - last.physical_offset,
    }
    assert {key: item.value for key, item in figures.moments("GROUP_GET_FALL_TIME").items()} == {
        "0@orders@g": 250,
        "0@orders@late": 0,
        "0@orders@picky": 250,
    }
    assert "[GROUP_GET_FALL_TIME] [0@orders@g] Stats Every 5 Minutes, Value: 250" in figures.moment_lines()


def test_how_far_groups_are_behind_is_an_option(tmp_path: Path) -> None:
    with open_store(tmp_path, ASYNC.with_changes(disk_fall_recorded=False)) as store:
        store.put(Message("orders", b"x")).check()
        store.get("orders", 0, 0, group="g")
        assert not store.broker_stats.moments("GROUP_GET_FALL_SIZE")


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
    keys = {key for name in STATS_NAMES for key in figures.items(name)}
    assert keys == {"other", "other@0", "other@g", "other@0@g", "0@other", "0@other@g", "DefaultCluster"}
    assert {key for name in MOMENT_NAMES for key in figures.moments(name)} == {"0@other@g"}


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


# ---------------------------------------------------------------------- the whole table


def test_every_name_of_rocketmq_can_be_counted() -> None:
    figures = BrokerStats(lambda: 0, list, lambda: 0)
    for name in STATS_NAMES:
        figures.add(name, "key", 7)
    figures.tick()
    assert len(figures.lines()) == len(STATS_NAMES) == len(set(STATS_NAMES))
    assert all("SUM: 7 TPS: 0.70" in line or "TIMES: 1 AVGRT: 7.00" in line for line in figures.lines())


@pytest.mark.parametrize("ask", [lambda f: f.items("X"), lambda f: f.moments("X"), lambda f: f.add("X", "k", 1)])
def test_a_name_that_is_none(ask: object) -> None:
    figures = BrokerStats(lambda: 0, list, lambda: 0)
    with pytest.raises(InvalidConfig, match="no figure 'X'"):
        ask(figures)  # type: ignore[operator]


def test_lines_are_logged_each_minute_hour_and_day(caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock(next_morning_ms(1_700_000_000_000) - 3_600_000)
    figures = BrokerStats(clock.now_ms, list, lambda: 0)
    figures.add("BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC", "DefaultCluster", 12)
    figures.fell_behind("g", "orders", 0, size=5, elapsed_ms=None)
    with caplog.at_level(logging.INFO):
        for _ in range(3600):
            clock.advance(1000)
            figures.tick()
    lines = [record.message for record in caplog.records]
    assert sum("One Minute" in line for line in lines) == 60
    assert sum("One Hour" in line for line in lines) == 1
    assert sum("One Day" in line for line in lines) == 1
    assert sum("Every 5 Minutes" in line for line in lines) == 12
    assert "yesterday put message total: 12" in lines
    assert figures.values()["msgPutTotalTodayMorning"] == 12
    assert figures.values()["msgPutTotalYesterdayMorning"] == 0
