"""Reading: by queue with filters and limits, by key, by place, by id, by time, and as Arrow."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from tests.store.small_store import ASYNC, bodies, read_all

from flintlog import DamagedRecord, GetStatus, Message, Sql92, Store, StoreConfig, StoredMessage, open_store
from flintlog.disk.faulty.faulty_disk import FaultyMedium
from flintlog.errors import InvalidConfig, InvalidFilter, InvalidOffset, StoreClosed
from flintlog.format.java import string_hash
from flintlog.store.log.segment_bytes import held
from flintlog.testing import FakeClock

ROOT = Path("/store")
START_MS = 1_700_000_000_000
COUNT = 60


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    """Sixty messages, a second apart, in three queues; nobody changes it."""
    clock = FakeClock(START_MS)
    with open_store(ROOT, ASYNC, medium=FaultyMedium(), clock=clock) as opened:
        for number in range(COUNT):
            opened.put(
                Message(
                    "orders",
                    b"%d" % number,
                    queue_id=number % 3,
                    tags=("open", "paid", "shipped")[number // 3 % 3],
                    keys=[f"o-{number}", f"group-{number % 4}"],
                    properties={"amount": str(number), "region": "eu" if number % 2 else "us"},
                )
            ).check()
            clock.advance(1000)
        yield opened


# By queue


def test_pages_follow_each_other(store: Store) -> None:
    first = store.get("orders", queue_id=0, offset=0, max_count=8)
    assert (first.status, first.next_offset, first.min_offset, first.max_offset) == (GetStatus.FOUND, 8, 0, 20)
    assert bodies(first.messages) == [b"%d" % number for number in range(0, 24, 3)]
    assert len(first) == 8
    assert bodies(read_all(store, "orders", 1)) == [b"%d" % number for number in range(1, COUNT, 3)]


def test_a_filter_by_tags_and_one_by_sql(store: Store) -> None:
    tagged = store.get("orders", 0, 0, filter="paid || shipped")
    assert {message.tags for message in tagged.messages} == {"paid", "shipped"}
    assert len(tagged) == 13 and tagged.next_offset == 20
    by_sql = store.get("orders", 0, 0, filter=Sql92("amount > 30 AND region = 'us'"))
    assert bodies(by_sql.messages) == [b"36", b"42", b"48", b"54"]
    assert len(store.get("orders", 0, 0, filter="*")) == 20


def test_tags_and_keys_that_share_a_hash_are_kept_apart() -> None:
    assert string_hash("Aa") == string_hash("BB") and string_hash("same#Aa") == string_hash("same#BB")
    with open_store(ROOT, ASYNC, medium=FaultyMedium()) as store:
        for name in ("Aa", "BB", "Aa", "BB", "BB", "BB", "BB"):
            store.put(Message("same", name.encode(), tags=name, keys=[name, name]))
        store.wait_dispatched()
        page, raw = (store.get("same", 0, 0, filter="Aa", exact=exact) for exact in (True, False))
        assert (bodies(page.messages), page.status, page.next_offset) == ([b"Aa", b"Aa"], GetStatus.FOUND, 7)
        assert (len(raw.messages), raw.status, raw.next_offset) == (7, GetStatus.FOUND, 7)
        rest = store.get("same", 0, 3, filter="Aa")
        assert (rest.messages, rest.status, rest.next_offset) == ([], GetStatus.NO_MATCHED_MESSAGE, 7)
        for kind in (None, "T"):
            assert bodies(store.query("same", "Aa", index_type=kind)) == [b"Aa", b"Aa"]
            newest = store.query("same", "Aa", max_count=1, index_type=kind)
            assert [message.queue_offset for message in newest] == [2], "four newer ones share the hash"
            assert set(bodies(store.query("same", "Aa", index_type=kind, exact=False))) == {b"Aa", b"BB"}
        for ask in (partial(store.get, "same", 0, 0, filter="Aa"), partial(store.query, "same", "Aa")):
            with pytest.raises(InvalidConfig, match="exact is True or False, not 'no'"):
                ask(exact="no")  # type: ignore[arg-type]


def test_a_filter_of_ones_own(store: Store) -> None:
    class Odd:
        def matches_entry(self, tags_code: int | None, ext: object) -> bool:
            return True

        def matches_message(self, stored: StoredMessage) -> bool:
            return int(stored.properties["amount"]) % 2 == 1

    found = store.get("orders", 0, 0, filter=Odd())  # type: ignore[arg-type]
    assert all(int(body) % 2 for body in bodies(found.messages)) and len(found) == 10


def test_a_page_without_a_match_has_the_next_offset(store: Store) -> None:
    page = store.get("orders", 0, 0, filter="none of them")
    assert (page.status, page.next_offset, page.messages) == (GetStatus.NO_MATCHED_MESSAGE, 20, [])


def test_pages_end_at_the_limit_of_bytes_but_hold_one_message(store: Store) -> None:
    sizes = [message.size for message in read_all(store, "orders", 0)]
    page = store.get("orders", 0, 0, max_bytes=sizes[0] + sizes[1])
    assert len(page) == 2
    assert len(store.get("orders", 0, 0, max_bytes=1)) == 1


def test_pages_of_a_second_reader_are_not_shared(store: Store) -> None:
    assert store.get("orders", 0, 20).messages is not store.get("orders", 0, 20).messages


# By key, place, id and time


def test_messages_are_found_by_key_tag_and_time(store: Store) -> None:
    assert bodies(store.query("orders", "o-17")) == [b"17"]
    assert len(store.query("orders", "group-1")) == 15
    assert len(store.query("orders", "group-1", max_count=4)) == 4
    between = store.query("orders", "group-1", begin=START_MS + 9_000, end=START_MS + 17_000)
    assert bodies(between) == [b"9", b"13", b"17"]
    assert {message.tags for message in store.query("orders", "paid", index_type="T", max_count=64)} == {"paid"}
    assert store.query("orders", "o-17", begin=START_MS + 18_000) == []
    assert store.query("others", "o-17") == []


def test_a_query_without_a_number_gives_the_default_and_never_more_than_the_most() -> None:
    config = ASYNC.with_changes(default_query_max_num=3, max_msgs_num_batch=5)
    with open_store(ROOT, config, medium=FaultyMedium()) as store:
        for _ in range(9):
            store.put(Message("orders", b"x", keys=["k"])).check()
        store.wait_dispatched()
        counts = [len(store.query("orders", "k", max_count=count)) for count in (None, 2, 4, 9)]
        assert counts == [3, 2, 4, 5]
    with open_store(ROOT, ASYNC, medium=FaultyMedium()) as store:
        for _ in range(40):
            store.put(Message("orders", b"x", keys=["k"])).check()
        store.wait_dispatched()
        assert len(store.query("orders", "k")) == 32


def test_each_message_is_found_by_its_place_and_id(store: Store) -> None:
    for message in read_all(store, "orders", 2):
        at_place, by_id = store.message_at(message.physical_offset), store.message_by_id(message.message_id)
        assert at_place is not None and by_id is not None
        assert at_place.record == by_id.record == message.record
    assert store.message_by_id(message.message_id.lower()) is not None
    assert store.message_at(message.physical_offset + 1) is None
    assert store.message_at(store.max_physical_offset) is None


def test_offsets_by_time(store: Store) -> None:
    # queue 0 has a message every three seconds
    assert store.offset_at("orders", 0, START_MS) == 0
    assert store.offset_at("orders", 0, START_MS + 3_000) == 1
    assert store.offset_at("orders", 0, START_MS + 3_001) == 2
    assert store.offset_at("orders", 0, START_MS + 3_001, boundary="upper") == 1
    assert store.offset_at("orders", 0, START_MS + 3_000, boundary="UPPER") == 1
    assert store.offset_at("orders", 0, 0) == 0
    assert store.offset_at("orders", 0, START_MS + 10**9) == 20
    assert store.offset_at("unknown", 0, START_MS) == 0


def test_queues_are_listed_by_topic_and_number(store: Store) -> None:
    listed = [(info.topic, info.queue_id, info.min_offset, info.max_offset, info.type) for info in store.queues()]
    assert listed == [("orders", queue_id, 0, 20, "SimpleCQ") for queue_id in range(3)]


# As Arrow


def _in_log_order(store: Store) -> list[StoredMessage]:
    found = itertools.chain.from_iterable(read_all(store, "orders", queue_id) for queue_id in range(3))
    return sorted(found, key=lambda message: message.physical_offset)


def test_a_scan_gives_every_field_of_every_message(store: Store) -> None:
    rows = pa.Table.from_batches(store.scan()).to_pylist()
    messages = _in_log_order(store)
    assert len(rows) == len(messages) == COUNT
    for row, message in zip(rows, messages, strict=True):
        row["properties"] = dict(row["properties"])
        assert row == {name: getattr(message, name) for name in row}
    assert {"topic", "body", "tags", "keys", "uniq_key", "tags_code", "message_id", "magic"} <= rows[0].keys()


def test_a_scan_without_bodies_and_of_some_topics(store: Store) -> None:
    without = pa.Table.from_batches(store.scan(include_body=False))
    assert "body" not in without.column_names and without.num_rows == COUNT
    assert sum(batch.num_rows for batch in store.scan(topics=["orders", "others"])) == COUNT
    assert [batch for batch in store.scan(topics=["others"]) if batch.num_rows] == []


def test_neighbouring_scans_give_each_message_once(store: Store) -> None:
    whole = [row["physical_offset"] for batch in store.scan() for row in batch.to_pylist()]
    for step in (97, 1000, 4096):
        cuts = [*range(0, store.max_physical_offset, step), store.max_physical_offset]
        parts = [
            row["physical_offset"]
            for start, end in itertools.pairwise(cuts)
            for batch in store.scan(start=start, end=end)
            for row in batch.to_pylist()
        ]
        assert parts == whole


def test_a_scan_continues_after_files_that_are_deleted_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flintlog.store.log.column_scan.MAX_BATCH_ROWS", 10)
    with open_store(tmp_path, ASYNC) as store:
        for number in range(400):
            store.put(Message("orders", b"%500d" % number)).check()
        segments = store._engine.parts.segments
        scan = store.scan()
        next(scan)
        with held(segments.segments[1]):  # a reader keeps the second: it is on its way out, and still listed
            assert segments.delete_expired(0, now_ms=1, at_once=True) == 1
            start = segments.segments[1].base
            rows = [row for batch in scan for row in batch.to_pylist()]
        assert rows[0]["physical_offset"] == start
        assert rows[-1]["queue_offset"] == 399
        assert segments.segments[0].references == 0
        ended = store.scan(end=segments.segments[2].base)
        next(ended)
        segments.delete_expired(0, now_ms=1, at_once=True)
        assert list(ended) == []


def test_a_scan_says_when_the_store_is_shut_down_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flintlog.store.log.column_scan.MAX_BATCH_ROWS", 10)
    store = open_store(tmp_path, ASYNC)
    for number in range(40):
        store.put(Message("orders", b"%d" % number)).check()
    scan = store.scan()
    next(scan)
    store.shutdown()
    with pytest.raises(StoreClosed):
        list(scan)


def test_a_scan_over_several_files_and_the_blanks_between() -> None:
    config = ASYNC.with_changes(mapped_file_size_commit_log=1024)
    with open_store(ROOT, config, medium=FaultyMedium()) as store:
        for number in range(40):
            store.put(Message("orders", b"%02d" % number * 50)).check()
        assert [row["body"] for batch in store.scan() for row in batch.to_pylist()] == [
            b"%02d" % number * 50 for number in range(40)
        ]
        tail = [row["queue_offset"] for batch in store.scan(start=5 * 1024) for row in batch.to_pylist()]
        assert tail == list(range(tail[0], 40)) and tail[0] > 0


def test_batches_outlive_the_store() -> None:
    store = open_store(ROOT, ASYNC, medium=FaultyMedium())
    store.put(Message("orders", b"kept")).check()
    batches = list(store.scan())
    message = store.get("orders", 0, 0).messages[0]
    store.shutdown()
    assert batches[0].column("body").to_pylist() == [b"kept"]
    assert message.body == b"kept"


# Damage


def test_a_damaged_body_is_an_error_that_names_the_place() -> None:
    disk = FaultyMedium()
    with open_store(ROOT, ASYNC, medium=disk) as store:
        receipts = [store.put(Message("orders", b"body %d" % number * 10, keys=["k"])) for number in range(5)]
        disk.flip_bit(ROOT / "commitlog" / f"{0:020d}", receipts[2].physical_offset + 100, 3)
        assert len(store.get("orders", 0, 0)) == 2
        with pytest.raises(DamagedRecord) as caught:
            store.get("orders", 0, 2)
        assert caught.value.offset == receipts[2].physical_offset and "queue offset 3" in str(caught.value)
        with pytest.raises(DamagedRecord):
            store.message_at(receipts[2].physical_offset)
        assert len(store.get("orders", 0, 3)) == 2
        assert len(store.query("orders", "k")) == 4


# As many as were asked for


def _numbered(store: Store, count: int, topic: str = "orders") -> None:
    for number in range(count):
        store.put(Message(topic, b"%d" % number, tags="even" if number % 2 == 0 else "odd"))
    store.wait_dispatched()


def _numbers(messages: Iterable[StoredMessage]) -> list[int]:
    return [int(message.body) for message in messages]


def test_a_get_gives_as_many_as_were_asked_for_over_the_ends_of_files() -> None:
    """The files hold 100 entries; the log's hold some 600 messages."""
    with open_store(ROOT, ASYNC, medium=FaultyMedium()) as store:
        _numbered(store, 1200)
        page = store.get("orders", 0, 7, max_count=1000)
        assert (page.status, page.next_offset, _numbers(page.messages)) == (GetStatus.FOUND, 1007, [*range(7, 1007)])
        assert _numbers(store.get("orders", 0, 1100, max_count=1000).messages) == [*range(1100, 1200)]
        assert _numbers(store.get("orders", 0, 95, max_count=10).messages) == [*range(95, 105)]
        odd = store.get("orders", 0, 0, max_count=1000, filter="odd")
        assert _numbers(odd.messages) == [*range(1, 1000, 2)], "it looks through 1000 entries"
        size = page.messages[0].size
        assert len(store.get("orders", 0, 7, max_count=1000, max_bytes=300 * size)) in range(290, 301)


def test_large_messages_are_given_as_asked_for_too() -> None:
    with open_store(ROOT, ASYNC, medium=FaultyMedium()) as store:
        for _ in range(100):
            store.put(Message("orders", bytes(4000)))
        assert len(store.get("orders", 0, 0, max_count=100)) == 100


def test_old_messages_are_given_as_asked_for_too() -> None:
    config = ASYNC.with_changes(access_message_in_memory_max_ratio=0)
    with open_store(ROOT, config, medium=FaultyMedium()) as store:
        _numbered(store, 50)
        assert len(store.get("orders", 0, 0, max_count=50)) == 50


def test_batch_queues_give_as_many_as_were_asked_for() -> None:
    config = ASYNC.with_changes(topic_queue_types={"batch": "BatchCQ"}, mapped_file_size_batch_consume_queue=46 * 10)
    with open_store(ROOT, config, medium=FaultyMedium()) as store:
        _numbered(store, 64, "batch")
        assert _numbers(store.get("batch", 0, 3, max_count=60).messages) == [*range(3, 63)]
        assert _numbers(store.get("batch", 0, 0, max_count=10).messages) == [*range(10)]
        assert _numbers(store.messages("batch", 0)) == [*range(64)]


def test_rocketmqs_limits_hold_where_they_are_configured() -> None:
    theirs = StoreConfig.from_rocketmq({})
    limits = {name: getattr(theirs, name) for name in theirs.__struct_fields__ if name.startswith("max_transfer_")}
    assert sorted(limits.values()) == [8, 32, 64 * 1024, 256 * 1024] and theirs.max_msgs_num_batch == 64
    with open_store(ROOT, ASYNC.with_changes(**limits), medium=FaultyMedium()) as store:
        _numbered(store, 200)
        assert len(store.get("orders", 0, 0, max_count=100)) == 32
        assert len(store.get("orders", 0, 90, max_count=32)) == 10, "RocketMQ's page ends with the file"
        assert _numbers(store.messages("orders", 0)) == [*range(200)]
    named = StoreConfig.from_rocketmq({"maxTransferCountOnMessageInMemory": "1000"})
    assert named.max_transfer_count_on_message_in_memory == 1000


def test_a_query_gives_as_many_as_were_asked_for() -> None:
    with open_store(ROOT, ASYNC, medium=FaultyMedium()) as store:
        for _ in range(150):
            store.put(Message("orders", b"x", keys=["k"]))
        store.wait_dispatched()
        assert len(store.query("orders", "k", max_count=150)) == 150


# A whole queue


def test_all_messages_of_a_queue_are_read_in_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flintlog.store.read.readable.PAGE_MESSAGES", 7)
    with open_store(ROOT, ASYNC, medium=FaultyMedium()) as store:
        _numbered(store, 250)
        assert _numbers(store.messages("orders", 0)) == [*range(250)]
        assert _numbers(store.messages("orders", 0, start=199)) == [*range(199, 250)]
        assert _numbers(store.messages("orders", 0, filter="odd")) == [*range(1, 250, 2)]
        assert [*store.messages("orders", 0, filter="none of them")] == []
        assert _numbers(store.messages("orders", 0, start=-5)) == [*range(250)]
        assert [*store.messages("orders", 0, start=250)] == [*store.messages("orders", 0, start=999)] == []
        assert [*store.messages("orders", 1)] == [*store.messages("others", 0)] == []


@pytest.mark.parametrize("wanted", [None, "*"])
def test_an_iteration_ends_where_the_queue_ended_when_it_began(wanted: str | None) -> None:
    with open_store(ROOT, ASYNC, medium=FaultyMedium()) as store:
        _numbered(store, 10)
        found = store.messages("orders", 0, filter=wanted)
        _numbered(store, 5)
        assert _numbers(found) == [*range(10)]
        assert len([*store.messages("orders", 0, filter=wanted)]) == 15


def test_an_iteration_begins_with_the_first_message_that_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flintlog.store.read.readable.PAGE_MESSAGES", 10)
    with open_store(ROOT, ASYNC, medium=FaultyMedium()) as store:
        for number in range(60):
            store.put(Message("orders", b"%4000d" % number))
        store.wait_dispatched()
        begun = store.messages("orders", 0)
        next(begun)
        segments = store._engine.parts.segments
        segments.delete_expired(0, now_ms=1, at_once=True)
        store._engine.parts.queues.delete_expired(segments.min_offset)
        low = store.min_offset("orders", 0)
        assert low > 10
        assert _numbers(begun) == [*range(1, 10), *range(low, 60)]
        for start in (None, 0):
            assert _numbers(store.messages("orders", 0, start)) == [*range(low, 60)]


def test_an_iteration_reports_damage_and_goes_on_after_it() -> None:
    disk = FaultyMedium()
    with open_store(ROOT, ASYNC, medium=disk) as store:
        receipts = [store.put(Message("orders", b"%d" % number)) for number in range(5)]
        disk.flip_bit(ROOT / "commitlog" / f"{0:020d}", receipts[2].physical_offset + 84, 1)
        found = store.messages("orders", 0)
        assert _numbers(itertools.islice(found, 2)) == [0, 1]
        with pytest.raises(DamagedRecord) as caught:
            next(found)
        assert _numbers(store.messages("orders", 0, start=caught.value.next_queue_offset)) == [3, 4]


def test_wrong_arguments_of_an_iteration_are_refused_at_once(store: Store) -> None:
    with pytest.raises(InvalidOffset, match="a queue offset cannot be 'first'"):
        store.messages("orders", 0, start="first")  # type: ignore[arg-type]
    with pytest.raises(InvalidOffset):
        store.messages("orders", -1)
    with pytest.raises(InvalidFilter):
        store.messages("orders", 0, filter=7)  # type: ignore[arg-type]
