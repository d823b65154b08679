"""Timed messages, situation by situation, with a clock that is turned by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.services.timer_store import CONFIG, TIMER_TOPIC, delivered, numbers, timed, timer_of, timer_store
from tests.store.small_store import read_all

from flintlog import InvalidMessage, Message, PutFailed, PutStatus, Receipt, ServiceNotEnabled, open_store
from flintlog.errors import DiskFull
from flintlog.format.timer import Slot
from flintlog.store.runtime.jobs import NEVER
from flintlog.testing import FakeClock

pytestmark = pytest.mark.usefixtures("small_wheel")


def test_a_message_waits_in_the_timers_topic_and_is_delivered_at_its_time(tmp_path: Path, clock: FakeClock) -> None:
    at_ms = clock.now_ms() + 5500
    with timer_store(tmp_path / "s", clock) as store:
        receipt = store.put(Message("orders", b"1", tags="paid", keys=["k"], queue_id=3, deliver_at_ms=at_ms))
        assert receipt.check().queue_offset == 0
        waits = read_all(store, TIMER_TOPIC)
        assert waits[0].properties == {
            "TAGS": "paid",
            "KEYS": "k",
            "TIMER_DELIVER_MS": str(at_ms),
            "TIMER_OUT_MS": str(at_ms - 500),
            "REAL_TOPIC": "orders",
            "REAL_QID": "3",
        }
        clock.advance(5500)
        assert delivered(store, queue_id=3) == []
        clock.advance(500)
        (message,) = delivered(store, queue_id=3)
        assert message.properties == {
            **waits[0].properties,
            "TIMER_ENQUEUE_MS": str(at_ms - 500),  # entered when the clock was turned first
            "TIMER_DEQUEUE_MS": str(clock.now_ms()),
        }
        assert (message.tags, message.keys, message.born_timestamp) == ("paid", ["k"], waits[0].born_timestamp)


def test_a_moment_on_a_whole_second_is_met_and_never_early(tmp_path: Path, clock: FakeClock) -> None:
    start = clock.now_ms()
    with timer_store(tmp_path / "s", clock) as store:
        store.put(timed(1, start + 3000)).check()
        store.put(timed(2, start + 3001)).check()
        clock.advance(2999)
        assert numbers(store) == []
        clock.advance(1)
        assert numbers(store) == [1]
        clock.advance(999)
        assert numbers(store) == [1]
        clock.advance(1)
        assert numbers(store) == [1, 2]


def test_messages_come_by_time_and_within_a_slot_in_the_order_of_their_puts(tmp_path: Path, clock: FakeClock) -> None:
    start = clock.now_ms()
    with timer_store(tmp_path / "s", clock) as store:
        for number in range(60):
            store.put(timed(number, start + 1000 * (1 + number % 3))).check()
        clock.advance(10_000)
        assert numbers(store) == [*range(0, 60, 3), *range(1, 60, 3), *range(2, 60, 3)]


def test_a_time_in_the_past_is_delivered_at_once_as_it_is(tmp_path: Path, clock: FakeClock) -> None:
    with timer_store(tmp_path / "s", clock) as store:
        for moment in (clock.now_ms(), clock.now_ms() - 1, 0, -5):
            assert store.put(timed(1, moment)).status is PutStatus.PUT_OK
        found = delivered(store)
        assert len(found) == 4
        assert found[0].properties == {"TAGS": "t", "UNIQ_KEY": "U1", "TIMER_DELIVER_MS": str(clock.now_ms())}
        assert store.max_offset(TIMER_TOPIC, 0) == 0


def test_a_time_beyond_the_limit_is_refused(tmp_path: Path, clock: FakeClock) -> None:
    limit_ms = CONFIG.timer_max_delay_sec * 1000
    with timer_store(tmp_path / "s", clock) as store:
        assert (
            store.put(timed(1, clock.now_ms() + limit_ms + 1), check=False).status is PutStatus.WHEEL_TIMER_MSG_ILLEGAL
        )
        assert store.put(timed(1, clock.now_ms() + limit_ms)).status is PutStatus.PUT_OK
        with pytest.raises(InvalidMessage, match="deliver_at_ms"):
            store.put(timed(1, 1 << 63))
        with pytest.raises(InvalidMessage):
            store.put(Message("orders", b"", deliver_at_ms="soon"))  # type: ignore[arg-type]


def test_a_timer_that_is_turned_off_reports_it(tmp_path: Path, clock: FakeClock) -> None:
    with timer_store(tmp_path / "s", clock, CONFIG.with_changes(timer_wheel_enable=False)) as store:
        assert store.put(timed(1, clock.now_ms() + 5000), check=False).status is PutStatus.WHEEL_TIMER_NOT_ENABLE
    with (
        open_store(tmp_path / "s", CONFIG.with_changes(services=())) as store,
        pytest.raises(ServiceNotEnabled, match="timer"),
    ):
        store.put(timed(1, clock.now_ms() + 5000))


def test_delays_in_milliseconds_and_seconds_are_written_as_clients_write_them(tmp_path: Path, clock: FakeClock) -> None:
    with timer_store(tmp_path / "s", clock) as store:
        timer = timer_of(store)
        timer.put_after(Message("orders", b"1"), delay_ms=2500).check()
        timer.put_after(Message("orders", b"2"), delay_sec=1).check()
        assert timer.put_after(Message("orders", b"0"), delay_ms=0).check().queue_offset == 0
        found = [message.properties for message in read_all(store, TIMER_TOPIC)]
        assert [p.get("TIMER_DELAY_MS") for p in found] == ["2500", None]
        assert [p.get("TIMER_DELAY_SEC") for p in found] == [None, "1"]
        assert all("TIMER_DELIVER_MS" not in p for p in found)
        clock.advance(3000)
        assert numbers(store) == [0, 2, 1]
        for wrong in ({}, {"delay_ms": 1, "delay_sec": 1}, {"delay_ms": "x"}, {"delay_sec": 1 << 64}):
            with pytest.raises(InvalidMessage):
                timer.put_after(Message("orders", b""), **wrong)
        assert (
            timer.put_after(Message("orders", b""), delay_sec=10**15, check=False).status
            is PutStatus.WHEEL_TIMER_MSG_ILLEGAL
        )


def test_properties_that_are_no_numbers_are_refused(tmp_path: Path, clock: FakeClock) -> None:
    with timer_store(tmp_path / "s", clock) as store:
        for text in ("", "soon", "1.5", "9" * 30, "\u0661"):
            message = Message("orders", b"", properties={"TIMER_DELAY_SEC": text}, deliver_at_ms=clock.now_ms() + 5000)
            assert store.put(message, check=False).status is PutStatus.WHEEL_TIMER_MSG_ILLEGAL


def test_a_recalled_message_is_never_delivered(tmp_path: Path, clock: FakeClock) -> None:
    start = clock.now_ms()
    with timer_store(tmp_path / "s", clock) as store:
        receipts = [store.put(timed(number, start + 4700)).check() for number in range(6)]
        timer_of(store).cancel(receipts[2]).check()
        timer_of(store).cancel_by_key("orders", "U4", start + 4700).check()
        clock.advance(4600)
        timer_of(store).cancel(receipts[5]).check()
        clock.advance(10_000)
        assert numbers(store) == [0, 1, 3]
        cancellation = read_all(store, TIMER_TOPIC)[6]
        assert cancellation.body == b"0"
        assert cancellation.properties["TIMER_DEL_UNIQKEY"] == "U2"
        assert cancellation.tags == "_RECALL_TAG_"


def test_a_recall_that_is_too_late_or_of_no_message_is_refused(tmp_path: Path, clock: FakeClock) -> None:
    with timer_store(tmp_path / "s", clock) as store:
        timer = timer_of(store)
        receipt = store.put(timed(1, clock.now_ms() + 1000)).check()
        nameless = store.put(Message("orders", b"2", deliver_at_ms=clock.now_ms() + 1000)).check()
        plain = store.put(Message("orders", b"3")).check()
        for wrong in (nameless, plain, Receipt(PutStatus.SERVICE_NOT_AVAILABLE)):
            with pytest.raises(InvalidMessage):
                timer.cancel(wrong)
        with pytest.raises(InvalidMessage):
            timer.cancel_by_key("orders", "", clock.now_ms() + 1000)
        clock.advance(2000)
        assert timer.cancel(receipt, check=False).status is PutStatus.WHEEL_TIMER_MSG_ILLEGAL
        assert numbers(store) == [3, 1, 2]


def test_recalls_may_name_the_topic_too(tmp_path: Path, clock: FakeClock) -> None:
    config = CONFIG.with_changes(append_topic_for_timer_delete_key=True)
    at_ms = clock.now_ms() + 2000
    with timer_store(tmp_path / "s", clock, config) as store:
        store.put(timed(1, at_ms, topic="orders")).check()
        store.put(timed(1, at_ms, topic="events")).check()
        timer_of(store).cancel_by_key("orders", "U1", at_ms).check()
        clock.advance(5000)
        assert (numbers(store, "orders"), numbers(store, "events")) == ([], [1])


def test_a_message_beyond_the_window_is_rolled_until_it_is_due(tmp_path: Path, clock: FakeClock) -> None:
    start = clock.now_ms()
    with timer_store(tmp_path / "s", clock) as store:
        store.put(timed(1, start + 330_000)).check()
        receipt = store.put(timed(2, start + 330_000)).check()
        timer_of(store).cancel(receipt).check()
        for _ in range(32):
            clock.advance(10_000)
        assert numbers(store) == []
        clock.advance(9_999)
        assert numbers(store) == []
        clock.advance(1)
        (message,) = delivered(store)
        assert message.properties["TIMER_ROLL_TIMES"] == "2"
        copies = [m for m in read_all(store, TIMER_TOPIC) if m.properties.get("TIMER_ROLL_TIMES")]
        assert [m.properties["TIMER_ROLL_TIMES"] for m in copies if m.uniq_key == "U1"] == ["1", "2"]


def test_rolling_works_when_the_clock_jumps_over_everything(tmp_path: Path, clock: FakeClock) -> None:
    with timer_store(tmp_path / "s", clock) as store:
        receipts = [store.put(timed(number, clock.now_ms() + 500_000)).check() for number in range(3)]
        timer_of(store).cancel(receipts[1]).check()
        clock.advance(100_000_000)
        assert numbers(store) == [0, 2]


def test_a_slot_takes_no_more_than_its_share(tmp_path: Path, clock: FakeClock) -> None:
    config = CONFIG.with_changes(timer_congest_num_each_slot=10)
    at_ms = clock.now_ms() + 50_000
    with timer_store(tmp_path / "s", clock, config) as store:
        statuses = []
        for number in range(200):
            statuses.append(store.put(timed(number, at_ms), check=False).status)
            clock.advance(1)
            store.run_due()
            if number % 20 == 0:
                clock.advance(1000)
        assert statuses[:11] == [PutStatus.PUT_OK] * 11
        assert PutStatus.WHEEL_TIMER_FLOW_CONTROL in statuses
        assert store.put(timed(500, at_ms + 1000)).status is PutStatus.PUT_OK
        clock.advance(60_000)
        assert len(numbers(store)) == statuses.count(PutStatus.PUT_OK) + 1


@pytest.mark.parametrize(("number", "refused"), [(100, 0), (110, 90), (150, 50), (190, 10), (200, 100), (300, 100)])
def test_how_many_of_a_hundred_a_full_slot_refuses_is_rocketmqs_rule(
    number: int, refused: int, tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    with timer_store(tmp_path / "s", clock, CONFIG.with_changes(timer_congest_num_each_slot=100)) as store:
        timer, slot_ms = timer_of(store), clock.now_ms() // 1000 * 1000 + 50_000
        timer._files.wheel.put(Slot(slot_ms // 1000, 0, 0, number, 0))
        draws = iter(range(5, 1000, 10))
        monkeypatch.setattr(timer._chance, "randrange", lambda _: next(draws))
        assert sum(timer._is_congested(slot_ms) for _ in range(100)) == refused


def test_a_stopped_store_goes_on_where_it_was(tmp_path: Path, clock: FakeClock) -> None:
    start = clock.now_ms()
    with timer_store(tmp_path / "s", clock) as store:
        for number in range(50):
            store.put(timed(number, start + 1000 * (number + 1))).check()
        clock.advance(20_000)
        assert numbers(store) == list(range(20))
    clock.advance(10_000)
    with timer_store(tmp_path / "s", clock) as store:
        assert numbers(store) == list(range(20))
        store.run_due()
        assert numbers(store) == list(range(30))
        clock.advance(100_000)
        assert numbers(store) == list(range(50))


def test_a_very_long_stop_loses_nothing(tmp_path: Path, clock: FakeClock) -> None:
    with timer_store(tmp_path / "s", clock) as store:
        for number in range(10):
            store.put(timed(number, clock.now_ms() + 1000 * (number + 1))).check()
        clock.advance(1)
    clock.advance(10_000 * 1000)
    with timer_store(tmp_path / "s", clock) as store:
        for number in range(10, 20):
            store.put(timed(number, clock.now_ms() + 1000 * (number - 9))).check()
        store.run_due()
        assert numbers(store) == list(range(10))
        clock.advance(30_000)
        assert numbers(store) == list(range(20))


def test_a_clock_that_was_turned_back_makes_nothing_early(tmp_path: Path, clock: FakeClock) -> None:
    with timer_store(tmp_path / "s", clock) as store:
        clock.advance(3_600_000)
        store.put(timed(1, clock.now_ms() + 1000)).check()
        clock.advance(5000)
        assert numbers(store) == [1]
        clock.set(clock.now_ms() - 3_600_000)
        store.put(timed(2, clock.now_ms() + 20_000)).check()
        clock.advance(19_000)
        assert numbers(store) == [1]
        clock.advance(3_600_000)
        assert numbers(store) == [1, 2]


def test_an_undeliverable_message_does_not_block_later_ones(tmp_path: Path, clock: FakeClock) -> None:
    at_ms = clock.now_ms() + 3000
    good = {"TIMER_OUT_MS": str(at_ms - 1000), "REAL_TOPIC": "orders", "REAL_QID": "0"}
    with timer_store(tmp_path / "s", clock) as store:
        store.put(timed(1, at_ms)).check()
        for wrong in (
            {"TIMER_OUT_MS": "x"}, {"TIMER_OUT_MS": "-5"}, {"REAL_TOPIC": "../x"}, {"REAL_QID": "-1"}, {"REAL_QID": ""},
            {"TIMER_ROLL_TIMES": "many"},
        ):  # fmt: skip
            store.put(Message(TIMER_TOPIC, b"0", properties={**good, **wrong})).check()
        store.put(Message(TIMER_TOPIC, b"2", properties=good)).check()
        store.put(timed(3, at_ms)).check()
        clock.advance(5000)
        assert numbers(store) == [1, 2, 3]


def test_properties_that_leave_no_room_for_a_delivery_are_refused(tmp_path: Path, clock: FakeClock) -> None:
    at_ms = clock.now_ms() + 3000
    with timer_store(tmp_path / "s", clock, CONFIG.with_changes(mapped_file_size_commit_log=256 * 1024)) as store:
        with pytest.raises(InvalidMessage, match="room"):
            store.put(Message("orders", b"1", properties={"a": "b" * 32_600}, deliver_at_ms=at_ms))
        store.put(Message("orders", b"2", properties={"a": "b" * 32_500}, deliver_at_ms=at_ms)).check()
        clock.advance(5000)
        assert numbers(store) == [2]


def test_the_job_sleeps_until_something_is_due(tmp_path: Path, clock: FakeClock) -> None:
    with timer_store(tmp_path / "s", clock) as store:
        timer = timer_of(store)
        assert timer.run_due() == NEVER
        at_ms = clock.now_ms() + 90_000
        store.put(timed(1, at_ms)).check()
        clock.advance(1000)
        assert timer.run_due() == at_ms
        clock.advance(50_000)
        assert timer.run_due() == at_ms
        clock.advance(50_000)
        assert timer.run_due() == NEVER


def test_the_counts_are_of_waiting_messages(tmp_path: Path, clock: FakeClock) -> None:
    with timer_store(tmp_path / "s", clock) as store:
        receipts = [store.put(timed(number, clock.now_ms() + 3000)).check() for number in range(4)]
        store.put(timed(9, clock.now_ms() + 300_000, topic="events")).check()
        clock.advance(1000)
        assert timer_of(store).waiting_counts == {"orders": 4, "events": 1}
        timer_of(store).cancel(receipts[0]).check()
        clock.advance(1000)
        assert timer_of(store).waiting_counts == {"orders": 3, "events": 1}
    text = (tmp_path / "s" / "config" / "timermetrics").read_bytes()
    assert b'"orders":{"count":3,"timeStamp":' in text
    with timer_store(tmp_path / "s", clock) as store:
        clock.advance(5000)
        assert timer_of(store).waiting_counts == {"events": 1}


def test_a_rolled_message_is_counted_once_and_so_is_its_recall(tmp_path: Path, clock: FakeClock) -> None:
    with timer_store(tmp_path / "s", clock) as store:
        receipts = [store.put(timed(number, clock.now_ms() + 950_000)).check() for number in range(4)]
        timer_of(store).cancel(receipts[1]).check()
        for _ in range(9):
            clock.advance(100_000)
            assert timer_of(store).waiting_counts == {"orders": 3}
        assert any("TIMER_ROLL_TIMES" in message.properties for message in delivered(store, TIMER_TOPIC))
        clock.advance(100_000)
        assert numbers(store) == [0, 2, 3] and timer_of(store).waiting_counts == {}


@pytest.mark.parametrize("is_recalled", [False, True])
def test_a_message_refused_for_a_while_is_counted_until_it_is_delivered(
    is_recalled: bool, tmp_path: Path, clock: FakeClock
) -> None:
    with timer_store(tmp_path / "s", clock) as store:
        receipts = [store.put(timed(number, clock.now_ms() + 3000)).check() for number in range(10)]
        if is_recalled:
            timer_of(store).cancel(receipts[0]).check()
        put, refusals = store._host.put_rebuilt, iter([False] * 4 + [True] * 5 + [False] * 9)
        busy = Receipt(PutStatus.OS_PAGE_CACHE_BUSY)
        store._host.put_rebuilt = lambda *a, **k: busy if next(refusals) else put(*a, **k)  # type: ignore[method-assign]
        for _ in range(5):
            clock.advance(1000)
        assert timer_of(store).waiting_counts == {"orders": 5 if is_recalled else 6}
        for _ in range(10):
            clock.advance(1000)
        assert numbers(store) == list(range(is_recalled, 10)) and timer_of(store).waiting_counts == {}


def test_a_disk_that_fails_amid_a_slot_doubles_nothing(tmp_path: Path, clock: FakeClock) -> None:
    with timer_store(tmp_path / "s", clock) as store:
        for number in range(10):
            store.put(timed(number, clock.now_ms() + 3000)).check()
        put, fails = store._host.put_rebuilt, iter([False] * 4 + [True] + [False] * 6)

        def failing(*arguments: object, **named: object) -> Receipt:
            if next(fails):
                raise DiskFull("no room")
            return put(*arguments, **named)  # type: ignore[arg-type]

        store._host.put_rebuilt = failing  # type: ignore[method-assign]
        with pytest.raises(DiskFull):
            clock.advance(4000)
        assert timer_of(store).waiting_counts == {"orders": 6}
        clock.advance(10_000)
        assert numbers(store) == list(range(10)) and timer_of(store).waiting_counts == {}


@pytest.mark.parametrize("flush", ["sync", "async"])
def test_a_timer_on_the_machines_own_clock(tmp_path: Path, flush: str) -> None:
    import time

    config = CONFIG.with_changes(flush=flush, timer_precision_ms=100)
    with open_store(tmp_path / "s", config) as store:
        now_ms = store._host.now_ms()
        store.put(timed(1, now_ms + 150)).check()
        deadline = time.monotonic() + 10
        while not numbers(store):
            assert time.monotonic() < deadline
            time.sleep(0.005)
        (message,) = delivered(store)
        assert message.store_timestamp >= now_ms + 150


def test_a_refused_time_says_what_was_wrong_with_it(tmp_path: Path) -> None:
    clock = FakeClock()
    with timer_store(tmp_path, clock) as store:
        with pytest.raises(PutFailed, match=r"WHEEL_TIMER_MSG_ILLEGAL .*timer_max_delay_sec"):
            store.put(timed(1, clock.now_ms() + 1000 * store.config.timer_max_delay_sec + 60_000)).check()
        with pytest.raises(InvalidMessage, match="by its receipt, not by str"):
            timer_of(store).cancel("U1")  # type: ignore[arg-type]
