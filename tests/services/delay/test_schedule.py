"""Delay levels by a fake clock: when messages are delivered, in which order, and how a restart continues."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from flintlog import DamagedStore, InvalidMessage, Message, PutStatus, Receipt, Store, StoreConfig, open_store
from flintlog.format.properties import encode_properties
from flintlog.format.record import SCHEDULE_TOPIC
from flintlog.services.delay import schedule
from flintlog.services.delay.schedule import ScheduleService
from flintlog.store.queues.entries import CqUnit
from flintlog.store.runtime.jobs import NEVER
from flintlog.store.runtime.service import Rewritten
from flintlog.testing import SMALL_FILES, FakeClock

CONFIG = SMALL_FILES.with_changes(services={"schedule"}, message_delay_level="1s 5s 10s")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture(params=["sync", "async"])
def store(request: pytest.FixtureRequest, tmp_path: Path, clock: FakeClock) -> Iterator[Store]:
    with open_store(tmp_path / "store", CONFIG.with_changes(flush=request.param), clock=clock) as opened:
        yield opened


def bodies(store: Store, topic: str = "orders", queue_id: int = 0) -> list[bytes]:
    found: list[bytes] = []
    while len(page := store.get(topic, queue_id, len(found))):
        found += [message.body for message in page.messages]
    return found


def delayed(body: bytes, level: int, **fields: object) -> Message:
    return Message("orders", body, delay_level=level, **fields)  # type: ignore[arg-type]


def service_of(store: Store) -> ScheduleService:
    return store.service("schedule")


def offsets_in(path: Path) -> dict[str, int]:
    """The table as RocketMQ reads it; its integer keys are not quoted."""
    text = path.read_text().partition("offsetTable")[2]
    return {pair.split(":")[0].strip(): int(pair.split(":")[1]) for pair in text.strip('":{}\n\t').split(",") if pair}


# ---------------------------------------------------------------------- when and what


def test_a_message_is_delivered_when_its_delay_is_over_and_not_before(store: Store, clock: FakeClock) -> None:
    store.put(delayed(b"one", 1)).check()
    store.put(delayed(b"two", 2)).check()
    clock.advance(999)
    assert bodies(store) == []
    clock.advance(1)
    assert bodies(store) == [b"one"]
    clock.advance(3999)
    assert bodies(store) == [b"one"]
    clock.advance(1)
    assert bodies(store) == [b"one", b"two"]


def test_a_level_is_delivered_in_order_and_each_message_once(store: Store, clock: FakeClock) -> None:
    sent = [b"%d" % number for number in range(700)]  # more than one batch
    for body in sent:
        store.put(delayed(body, 2)).check()
        clock.advance(3)
    clock.advance(5000)
    assert bodies(store) == sent
    assert service_of(store).delivered_count == 700
    clock.advance(60_000)
    assert len(bodies(store)) == 700


def test_a_delivery_keeps_everything_of_the_message_and_the_properties_of_its_wait(
    store: Store, clock: FakeClock
) -> None:
    message = Message(
        "orders", b"body", tags="paid", keys=["o-1", "o-2"], queue_id=3, properties={"region": "eu"}, flag=7,
        born_timestamp=42, born_host="10.0.0.1:1234", store_host="10.0.0.2:10911", reconsume_times=2, delay_level=1,
        compress="zlib",
    )  # fmt: skip
    store.put(message).check()
    (waiting,) = store.get(SCHEDULE_TOPIC, 0, 0).messages
    assert waiting.tags_code == waiting.store_timestamp + 1000
    clock.advance(1000)
    (found,) = store.get("orders", 3, 0).messages
    reported = {
        "TAGS": "paid",
        "KEYS": "o-1 o-2",
        "region": "eu",
        "DELAY": "1",
        "REAL_TOPIC": "orders",
        "REAL_QID": "3",
    }
    assert found.properties == reported
    assert found._parts().properties == waiting._parts().properties == encode_properties(reported, 128)
    assert found.plain_body() == b"body"
    assert (found.flag, found.born_timestamp, found.born_host) == (7, 42, "10.0.0.1:1234")
    assert (found.store_host, found.reconsume_times) == ("10.0.0.2:10911", 2)
    assert found.store_timestamp == waiting.store_timestamp + 1000
    assert [each.queue_id for each in store.query("orders", "o-2")] == [3]
    assert store.get("orders", 3, 0, filter="paid").messages


def test_a_message_that_was_delivered_can_wait_again(store: Store, clock: FakeClock) -> None:
    store.put(delayed(b"again", 1)).check()
    clock.advance(1000)
    (found,) = store.get("orders", 0, 0).messages
    store.put(Message("retries", found.body, properties=found.properties, queue_id=2, delay_level=3)).check()
    clock.advance(10_000)
    (twice,) = store.get("retries", 2, 0).messages
    assert twice.properties == {"DELAY": "3", "REAL_TOPIC": "retries", "REAL_QID": "2"}


def test_a_level_goes_before_a_time_in_the_properties(store: Store, clock: FakeClock) -> None:
    timer = {"TIMER_DELIVER_MS": "1", "TIMER_DELAY_SEC": "2", "TIMER_DELAY_MS": "3", "other": "4"}
    store.put(delayed(b"both", 1, properties=timer)).check()
    clock.advance(1000)
    (found,) = store.get("orders", 0, 0).messages
    assert sorted(found.properties) == ["DELAY", "REAL_QID", "REAL_TOPIC", "other"]


def test_it_asks_to_be_called_when_the_earliest_message_is_due(store: Store, clock: FakeClock) -> None:
    service = service_of(store)
    start = clock.now_ms()
    assert service.run_due() == NEVER
    store.put(delayed(b"late", 3)).check()
    save_at = start + CONFIG.flush_delay_offset_interval
    assert service.run_due() == min(save_at, start + 10_000)
    store.put(delayed(b"soon", 1)).check()
    store.run_due()
    assert service.run_due() == start + 1000


def test_a_clock_that_was_turned_back_does_not_hold_a_message_up_for_ever(store: Store, clock: FakeClock) -> None:
    store.put(delayed(b"old", 1)).check()
    clock.set(clock.now_ms() - 3_600_000)
    store.put(delayed(b"new", 2)).check()  # any message makes it look
    store.run_due()
    assert bodies(store) == [b"old"]


def test_real_time_needs_no_clock_to_be_turned(tmp_path: Path) -> None:
    config = CONFIG.with_changes(message_delay_level="1s")
    with open_store(tmp_path / "store", config) as store:
        arrived = threading.Event()
        store.on_arrival(lambda arrival: arrived.set() if arrival.topic == "orders" else None)
        began = time.monotonic()
        store.put(delayed(b"one", 1)).check()
        assert arrived.wait(20)
        assert time.monotonic() - began >= 0.99


# ---------------------------------------------------------------------- bad input


@pytest.mark.parametrize("level", [-1, 4, 18, 2**31])
def test_a_level_that_there_is_not_is_refused(store: Store, level: int) -> None:
    before = store.max_physical_offset
    with pytest.raises(InvalidMessage, match=f"no delay level {level} .levels go from 1 to 3"):
        store.put(delayed(b"x", level))
    assert store.max_physical_offset == before


def test_no_levels_at_all(tmp_path: Path, clock: FakeClock) -> None:
    with open_store(tmp_path / "store", CONFIG.with_changes(message_delay_level=""), clock=clock) as store:
        with pytest.raises(InvalidMessage, match="names no level"):
            store.put(delayed(b"x", 1))
        assert service_of(store).run_due() == NEVER


@pytest.mark.parametrize("fields", [{"sys_flag": 0x4}, {"sys_flag": 0xC}, {"queue_id": -1}, {"properties": {"": "x"}}])
def test_a_message_that_cannot_be_delayed_is_refused(store: Store, fields: dict[str, object]) -> None:
    with pytest.raises(InvalidMessage):
        store.put(delayed(b"x", 1, **fields))


@pytest.mark.parametrize(
    "properties",
    [
        {"DELAY": "1"},
        {"DELAY": "1", "REAL_TOPIC": "or/ders", "REAL_QID": "0"},
        {"DELAY": "1", "REAL_TOPIC": "orders", "REAL_QID": "first"},
        {"DELAY": "1", "REAL_TOPIC": "orders", "REAL_QID": "-1"},
        {"DELAY": "1", "REAL_TOPIC": "RMQ_SYS_TRANS_HALF_TOPIC", "REAL_QID": "0"},
    ],
)
def test_a_message_without_a_destination_does_not_hold_up_its_level(
    store: Store, clock: FakeClock, properties: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    store.put(Message(SCHEDULE_TOPIC, b"lost", queue_id=0, properties=properties)).check()
    store.put(delayed(b"next", 1)).check()
    clock.advance(1000)
    assert bodies(store) == [b"next"]
    assert service_of(store).passed_over_count == 1
    assert "message 0 of delay level 1 is never delivered" in caplog.text


# ---------------------------------------------------------------------- failures


def test_a_put_that_fails_is_tried_again_at_the_same_place(
    store: Store, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    for body in (b"one", b"two", b"three"):
        store.put(delayed(body, 1)).check()
    put = store._host.put_rebuilt
    refused: list[int] = []

    def second_fails(rebuilt: Rewritten, *, wait: bool = True, check: bool = True) -> Receipt:
        if rebuilt.message.body == b"two" and len(refused) < 3:
            refused.append(clock.now_ms())
            return Receipt(PutStatus.OS_PAGE_CACHE_BUSY)
        return put(rebuilt, wait=wait, check=check)

    monkeypatch.setattr(store._host, "put_rebuilt", second_fails)
    start = clock.advance(1000)
    assert bodies(store) == [b"one"]
    for _ in range(3):
        clock.advance(schedule.RETRY_MS)
    assert bodies(store) == [b"one", b"two", b"three"]
    assert refused == [start, start + 100, start + 200]


def test_a_message_stored_while_the_queue_is_read_is_not_taken_for_a_hole(
    store: Store, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    look, late = store._host.entry, [b"one", b"two"]

    def entry(topic: str, queue_id: int, offset: int) -> CqUnit | None:
        found = look(topic, queue_id, offset)
        if found is None and late:
            store.put(delayed(late.pop(0), 1)).check()
        return found

    store.put(delayed(b"first", 1)).check()
    monkeypatch.setattr(store._host, "entry", entry)
    clock.advance(1000)
    clock.advance(1000)
    clock.advance(1000)
    assert bodies(store) == [b"first", b"one", b"two"]
    assert service_of(store).passed_over_count == 0


def test_a_damaged_message_is_passed_over(tmp_path: Path, clock: FakeClock) -> None:
    root = tmp_path / "store"
    with open_store(root, CONFIG, clock=clock) as store:
        first = store.put(delayed(b"damaged", 1)).check()
        store.put(delayed(b"intact", 1)).check()
    log = root / "commitlog" / ("0" * 20)
    data = bytearray(log.read_bytes())
    place = data.index(b"damaged", first.physical_offset)
    data[place] ^= 1
    log.write_bytes(data)
    with open_store(root, CONFIG, clock=clock) as store:
        clock.advance(1000)
        assert bodies(store) == [b"intact"]
        assert service_of(store).passed_over_count == 1


def test_a_message_that_is_not_visible_yet_is_waited_for(
    tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_store(tmp_path / "store", CONFIG, clock=clock) as store:
        entry = store._host.entry
        monkeypatch.setattr(store._host, "entry", lambda *_: None)
        monkeypatch.setattr(store, "max_offset", lambda *_: 0)
        store.put(delayed(b"slow", 1)).check()
        clock.advance(1000)
        monkeypatch.undo()
        assert store._host.entry == entry
        assert bodies(store) == []
        clock.advance(schedule.RETRY_MS)
        assert bodies(store) == [b"slow"]


# ---------------------------------------------------------------------- restarts


def test_a_restart_goes_on_where_the_stop_was(tmp_path: Path, clock: FakeClock) -> None:
    root = tmp_path / "store"
    with open_store(root, CONFIG, clock=clock) as store:
        store.put(delayed(b"one", 1)).check()
        store.put(delayed(b"two", 2)).check()
        clock.advance(1000)
    assert (root / "config" / "delayOffset.json").read_text() == (
        '{\n\t"dataVersion":{\n\t\t"counter":0,\n\t\t"stateVersion":0,\n\t\t"timestamp":1700000000000\n\t},\n'
        '\t"offsetTable":{\n\t\t1:1,\n\t\t2:0\n\t}\n}'
    )
    clock.advance(60_000)
    with open_store(root, CONFIG, clock=clock) as store:
        store.run_due()
        assert bodies(store) == [b"one", b"two"]
        assert service_of(store).running_stats() == {"scheduleMessageOffset_1": "1,1", "scheduleMessageOffset_2": "1,1"}


def test_progress_is_saved_every_interval(tmp_path: Path, clock: FakeClock) -> None:
    root = tmp_path / "store"
    with open_store(root, CONFIG.with_changes(flush_delay_offset_interval=4000), clock=clock) as store:
        store.put(delayed(b"zero", 1)).check()
        clock.advance(1000)
        before = offsets_in(root / "config" / "delayOffset.json")
        for body in (b"one", b"two"):
            store.put(delayed(body, 1)).check()
        clock.advance(1000)
        assert offsets_in(root / "config" / "delayOffset.json") == before != {"1": 3}
        clock.advance(3000)
        assert offsets_in(root / "config" / "delayOffset.json") == {"1": 3}


def test_two_hundred_updates_are_a_new_version(tmp_path: Path, clock: FakeClock) -> None:
    root = tmp_path / "store"
    with open_store(root, CONFIG, clock=clock) as store:
        for number in range(400):
            store.put(delayed(b"%d" % number, 1)).check()
        clock.advance(1000)
    text = (root / "config" / "delayOffset.json").read_text()
    assert '"counter":2' in text
    assert f'"timestamp":{clock.now_ms()}' in text


@pytest.mark.parametrize(("recorded", "expected"), [(99, []), (1, [b"two"])])
def test_offsets_are_brought_into_their_queue(
    tmp_path: Path, clock: FakeClock, recorded: int, expected: list[bytes]
) -> None:
    root = tmp_path / "store"
    with open_store(root, CONFIG, clock=clock) as store:
        store.put(delayed(b"one", 1)).check()
        store.put(delayed(b"two", 1)).check()
    (root / "config").mkdir(exist_ok=True)
    (root / "config" / "delayOffset.json").write_text(json.dumps({"offsetTable": {"1": recorded}}))
    clock.advance(1000)
    with open_store(root, CONFIG, clock=clock) as store:
        store.run_due()
        assert bodies(store) == expected
    assert offsets_in(root / "config" / "delayOffset.json") == {"1": 2}


def test_a_level_that_is_no_longer_configured_is_reported_and_its_offset_kept(
    tmp_path: Path, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    root = tmp_path / "store"
    with open_store(root, CONFIG, clock=clock) as store:
        store.put(delayed(b"three", 3)).check()
        clock.advance(1)
    with open_store(root, CONFIG.with_changes(message_delay_level="1s"), clock=clock) as store:
        store.put(delayed(b"one", 1)).check()
        clock.advance(10_000)
        assert bodies(store) == [b"one"]
    assert "1 messages wait for delay level 3, which is not configured" in caplog.text
    assert offsets_in(root / "config" / "delayOffset.json") == {"1": 1, "3": 0}
    with open_store(root, CONFIG, clock=clock) as store:
        store.run_due()
        assert bodies(store) == [b"one", b"three"]


def test_a_broken_file_gives_way_to_its_backup(
    tmp_path: Path, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    root = tmp_path / "store"
    for body in (b"one", b"two"):
        with open_store(root, CONFIG, clock=clock) as store:
            store.put(delayed(body, 1)).check()
            clock.advance(1000)
    file = root / "config" / "delayOffset.json"
    file.write_text("{")
    with open_store(root, CONFIG, clock=clock) as store:
        store.run_due()
        assert bodies(store)[:2] == [b"one", b"two"]
    assert "its backup delayOffset.json.bak is used" in caplog.text


@pytest.mark.parametrize("text", ["{", '{"offsetTable":{1:-5}}', '{"offsetTable":{"a":5}}', '{"offsetTable":{1:"5"}}'])
def test_when_file_and_backup_are_broken_nothing_is_overwritten(tmp_path: Path, clock: FakeClock, text: str) -> None:
    root = tmp_path / "store"
    with open_store(root, CONFIG, clock=clock) as store:
        store.put(delayed(b"one", 1)).check()
    names = ("delayOffset.json", "delayOffset.json.bak")
    (root / "config").mkdir(exist_ok=True)
    for name in names:
        (root / "config" / name).write_text(text)
    with pytest.raises(DamagedStore):
        open_store(root, CONFIG, clock=clock)
    assert [(root / "config" / name).read_text() for name in names] == [text, text]
    with open_store(root, CONFIG.with_changes(services=set()), clock=clock) as store:
        assert store.max_offset(SCHEDULE_TOPIC, 0) == 1


def test_messages_wait_while_the_service_is_off(tmp_path: Path, clock: FakeClock) -> None:
    root = tmp_path / "store"
    with open_store(root, CONFIG, clock=clock) as store:
        store.put(delayed(b"one", 1)).check()
    with open_store(root, CONFIG.with_changes(services=set()), clock=clock) as store:
        clock.advance(5000)
        assert bodies(store) == []
    with open_store(root, CONFIG, clock=clock) as store:
        store.run_due()
        assert bodies(store) == [b"one"]


def test_a_change_of_levels_leaves_waiting_messages_their_time(tmp_path: Path, clock: FakeClock) -> None:
    """As in RocketMQ the time is in the queue entry; only one beyond the new delay is not waited for."""
    root = tmp_path / "store"
    with open_store(root, CONFIG, clock=clock) as store:
        store.put(delayed(b"one", 1)).check()
    with open_store(root, CONFIG.with_changes(message_delay_level="1m"), clock=clock) as store:
        clock.advance(999)
        assert bodies(store) == []
        clock.advance(1)
        assert bodies(store) == [b"one"]


def test_a_note_that_does_not_parse_is_not_needed(
    tmp_path: Path, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    root = tmp_path / "store"
    with open_store(root, CONFIG, clock=clock) as store:
        store.put(delayed(b"one", 1)).check()
        clock.advance(1000)
    (root / "flintlog" / "delay.json").write_text("no")
    with caplog.at_level(logging.WARNING), open_store(root, CONFIG, clock=clock) as store:
        store.run_due()
        assert bodies(store) == [b"one"]
    assert "delay.json is not believed" in caplog.text


def test_ten_thousand_waiting_messages_are_not_looked_at(
    tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    config: StoreConfig = CONFIG.with_changes(flush="async", mapped_file_size_consume_queue=300_000)
    with open_store(tmp_path / "store", config, clock=clock) as store:
        for number in range(10_000):
            store.put(delayed(b"%d" % number, 3))
        looked: list[int] = []
        entry = store._host.entry

        def look(topic: str, queue_id: int, offset: int) -> CqUnit | None:
            looked.append(offset)
            return entry(topic, queue_id, offset)

        monkeypatch.setattr(store._host, "entry", look)
        clock.advance(9999)
        assert len(looked) <= 3  # once a level


def test_messages_that_were_deleted_while_they_waited_are_passed(
    tmp_path: Path, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    """A log file with waiting messages was deleted: the level continues with the remaining ones."""
    root = tmp_path / "store"
    config = CONFIG.with_changes(mapped_file_size_commit_log=4096)
    with open_store(root, config, clock=clock) as store:
        for number in range(6):
            store.put(delayed(b"%d" % number + bytes(1500), 1)).check()
    first = root / "commitlog" / ("0" * 20)
    assert first.stat().st_size == 4096
    first.unlink()
    with open_store(root, config, clock=clock) as store:
        low = store.min_offset(SCHEDULE_TOPIC, 0)
        assert low > 0
        clock.advance(1000)
        assert [body[:1] for body in bodies(store)] == [b"%d" % number for number in range(low, 6)]
