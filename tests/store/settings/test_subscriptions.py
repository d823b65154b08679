"""Registered SQL filters: the file as RocketMQ's ConsumerFilterManager writes it, the bits as its dispatcher sets them.

The texts and bits below were taken from RocketMQ 5.5.0: ConsumerFilterManager.encode and CommitLogDispatcherCalcBitMap,
whose filter without a broker is laid out for 64 groups.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.store.small_store import ASYNC

from flintlog import InvalidFilter, Message, Sql92, Store, StoreClosed, StoreConfig, open_store
from flintlog.errors import DamagedStore
from flintlog.store.filters.tags import Extension, HasProperties, MessageFilter
from flintlog.store.model.stored_message import StoredMessage
from flintlog.store.queues.consume_queue import ConsumeQueue
from flintlog.store.settings.subscriptions import KEPT_AFTER_DEATH_MS
from flintlog.testing import FakeClock

NOW_MS = 1_794_813_921_901
CONFIG = ASYNC.with_changes(
    enable_consume_queue_ext=True,
    mapped_file_size_consume_queue_ext=4096,
    enable_calc_filter_bit_map=True,
    expect_consumer_num_use_filter=64,
)

JAVA_FILE = """{
	"filterDataByTopic":{
		"orders":{
			"groupFilterData":{
				"g1":{
					"bloomFilterData":{
						"bitNum":216,
						"bitPos":[131,168,194]
					},
					"bornTime":1794813921901,
					"clientVersion":7,
					"consumerGroup":"g1",
					"dead":false,
					"deadTime":0,
					"expression":"a > 5",
					"expressionType":"SQL92",
					"topic":"orders"
				},
				"g2":{
					"bloomFilterData":{
						"bitNum":216,
						"bitPos":[170,80,206]
					},
					"bornTime":1794813922084,
					"clientVersion":8,
					"consumerGroup":"g2",
					"dead":false,
					"deadTime":0,
					"expression":"b = 'x' OR a < 3",
					"expressionType":"SQL92",
					"topic":"orders"
				}
			},
			"topic":"orders"
		},
		"other":{
			"groupFilterData":{
				"g1":{
					"bloomFilterData":{
						"bitNum":216,
						"bitPos":[7,136,119]
					},
					"bornTime":1794813922086,
					"clientVersion":9,
					"consumerGroup":"g1",
					"dead":false,
					"deadTime":0,
					"expression":"c IS NULL",
					"expressionType":"SQL92",
					"topic":"other"
				}
			},
			"topic":"other"
		}
	}
}"""

PROPERTIES: list[dict[str, str]] = [
    {"a": "7"},
    {"a": "2"},
    {"a": "4", "b": "x"},
    {"a": "4"},
    {},
    {"a": "zz"},
    {"a": "9", "b": "x"},
]
JAVA_BITS = {
    "orders": [
        "000000000000000000000000000000000800000000010000040000",
        "000000000000000000000100000000000000000000040000004000",
        "000000000000000000000100000000000000000000040000004000",
        "000000000000000000000000000000000000000000000000000000",
        "000000000000000000000000000000000000000000000000000000",
        "000000000000000000000000000000000000000000000000000000",
        "000000000000000000000100000000000800000000050000044000",
    ],
    "other": ["800000000000000000000000000080000001000000000000000000"] * 7,
    "none": [""] * 7,
}


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(NOW_MS)


@pytest.fixture
def store(tmp_path: Path, clock: FakeClock) -> Iterator[Store]:
    with open_store(tmp_path / "store", CONFIG, clock=clock) as store:
        yield store


def register_all(store: Store, clock: FakeClock) -> None:
    store.subscriptions.register("g1", "orders", "a > 5", version=7)
    clock.advance(183)
    store.subscriptions.register("g2", "orders", Sql92("b = 'x' OR a < 3"), version=8)
    clock.advance(2)
    store.subscriptions.register("g1", "other", "c IS NULL", version=9)


def bitmaps(store: Store, topic: str) -> list[str]:
    queue = store._engine.parts.queues.get(topic, 0)
    assert isinstance(queue, ConsumeQueue)
    entries = queue.entries_from(0)
    assert entries is not None
    with entries:
        return [unit.extension.bitmap.hex() if unit.extension is not None else "" for unit in entries]


def put_all(store: Store, topic: str = "orders") -> None:
    for properties in PROPERTIES:
        store.put(Message(topic, b"x", properties=properties)).check()


class Counting:
    """A filter that says how many messages had to be read."""

    def __init__(self, inner: MessageFilter) -> None:
        self.inner = inner
        self.read = 0

    def matches_entry(self, tags_code: int | None, ext: Extension | None) -> bool:
        return self.inner.matches_entry(tags_code, ext)

    def matches_message(self, stored: HasProperties) -> bool:
        self.read += 1
        return self.inner.matches_message(stored)


def got(store: Store, filter: MessageFilter | None) -> tuple[list[StoredMessage], int]:
    assert filter is not None
    counting = Counting(filter)
    return store.get("orders", 0, 0, filter=counting).messages, counting.read


# ---------------------------------------------------------------------- against RocketMQ


def test_the_file_is_rocketmqs(store: Store, clock: FakeClock) -> None:
    register_all(store, clock)
    assert (store.path / "config/consumerFilter.json").read_text() == JAVA_FILE


def test_the_bits_are_rocketmqs(store: Store, clock: FakeClock) -> None:
    register_all(store, clock)
    for topic, expected in JAVA_BITS.items():
        put_all(store, topic)
        assert bitmaps(store, topic) == expected


def test_a_file_of_rocketmqs_is_carried_on(tmp_path: Path, clock: FakeClock) -> None:
    folder = tmp_path / "store" / "config"
    folder.mkdir(parents=True)
    (folder / "consumerFilter.json").write_text(JAVA_FILE)
    clock.set(NOW_MS + 60_000)
    with open_store(tmp_path / "store", CONFIG, clock=clock) as store:
        found = store.subscriptions.all()
        assert [(one.group, one.topic, one.expression) for one in found] == [
            ("g1", "orders", "a > 5"),
            ("g2", "orders", "b = 'x' OR a < 3"),
            ("g1", "other", "c IS NULL"),
        ]
        # As in RocketMQ, a group that has not come back yet counts as gone for half a minute
        assert all(one.is_dead and one.dead_timestamp == NOW_MS + 30_000 for one in found)
        put_all(store)
        assert bitmaps(store, "orders") == JAVA_BITS["orders"]
        again = store.subscriptions.register("g1", "orders", "a > 5", version=7)
        assert again is found[0]
        assert (again.is_dead, again.born_timestamp) == (False, NOW_MS)
    reported = json.loads((folder / "consumerFilter.json").read_text())
    assert reported["filterDataByTopic"]["orders"]["groupFilterData"]["g1"]["deadTime"] == 0


def test_a_file_for_bitmaps_of_another_size_is_of_no_use(tmp_path: Path, clock: FakeClock) -> None:
    folder = tmp_path / "store" / "config"
    folder.mkdir(parents=True)
    (folder / "consumerFilter.json").write_text(JAVA_FILE)
    with open_store(tmp_path / "store", CONFIG.with_changes(expect_consumer_num_use_filter=32), clock=clock) as store:
        assert store.subscriptions.all() == []


def test_a_broken_file_is_left_alone(tmp_path: Path) -> None:
    folder = tmp_path / "store" / "config"
    folder.mkdir(parents=True)
    (folder / "consumerFilter.json").write_text("{")
    for config in (CONFIG, ASYNC):
        with pytest.raises(DamagedStore, match="nothing was changed"):
            open_store(tmp_path / "store", config)
    for config in (CONFIG, ASYNC):
        with open_store(tmp_path / "store", config, read_only=True) as store:
            assert [finding.id for finding in store.recovery] == ["damaged-config"]
    assert (folder / "consumerFilter.json").read_text() == "{"


# ---------------------------------------------------------------------- reading


def test_messages_that_did_not_pass_are_not_read(store: Store, clock: FakeClock) -> None:
    register_all(store, clock)
    clock.advance(1)
    put_all(store)
    found, read = got(store, store.subscriptions.get("g1", "orders"))
    assert [message.properties["a"] for message in found] == ["7", "9"]
    assert read == 2
    plain, read = got(store, Sql92("a > 5"))
    assert [message.queue_offset for message in plain] == [message.queue_offset for message in found]
    assert read == len(PROPERTIES)


def test_messages_from_before_are_read_and_judged(store: Store, clock: FakeClock) -> None:
    put_all(store)
    subscription = store.subscriptions.register("g1", "orders", "a > 5")
    assert subscription.born_timestamp == clock.now_ms()
    put_all(store)  # in the same millisecond: not known to be later
    clock.advance(1)
    put_all(store)
    found, read = got(store, subscription)
    assert len(found) == 6
    assert read == 7 + 7 + 2


def test_bits_outlive_the_store(tmp_path: Path, clock: FakeClock) -> None:
    with open_store(tmp_path, CONFIG, clock=clock) as store:
        store.subscriptions.register("g1", "orders", "a > 5")
        clock.advance(1)
        put_all(store)
    with open_store(tmp_path, CONFIG, clock=clock, read_only=True) as store:
        found, read = got(store, store.subscriptions.get("g1", "orders"))
        assert (len(found), read) == (2, 2)
        with pytest.raises(StoreClosed):
            store.subscriptions.register("g1", "orders", "a > 6")


def test_bits_are_made_again_by_recovery(tmp_path: Path, clock: FakeClock) -> None:
    with open_store(tmp_path, CONFIG, clock=clock) as store:
        store.subscriptions.register("g1", "orders", "a > 5")
        clock.advance(1)
        put_all(store)
        expected = bitmaps(store, "orders")
    for name in ("consumequeue", "consumequeue_ext"):
        for file in sorted((tmp_path / name).rglob("*"), reverse=True):
            file.rmdir() if file.is_dir() else file.unlink()
    (tmp_path / "abort").write_text("1")
    (tmp_path / "checkpoint").unlink()
    with open_store(tmp_path, CONFIG, clock=clock) as store:
        assert bitmaps(store, "orders") == expected


@pytest.mark.parametrize("change", [{"enable_calc_filter_bit_map": False}, {"enable_consume_queue_ext": False}])
def test_without_bitmaps_everything_is_read(tmp_path: Path, clock: FakeClock, change: dict[str, Any]) -> None:
    with open_store(tmp_path, CONFIG.with_changes(**change), clock=clock) as store:
        subscription = store.subscriptions.register("g1", "orders", "a > 5")
        clock.advance(1)
        put_all(store)
        found, read = got(store, subscription)
        assert (len(found), read) == (2, 7)


# ---------------------------------------------------------------------- changing


def test_a_changed_expression_is_born_anew(store: Store, clock: FakeClock) -> None:
    old = store.subscriptions.register("g1", "orders", "a > 5")
    clock.advance(1)
    put_all(store)
    new = store.subscriptions.register("g1", "orders", "a < 5")
    assert store.subscriptions.get("g1", "orders") is new is not old
    clock.advance(1)
    put_all(store)
    assert [message.properties["a"] for message in got(store, new)[0]] == ["2", "4", "4"] * 2
    # A group that still reads with the old one misses nothing, though nobody sets its bits any more
    assert len(got(store, old)[0]) == 4


def test_an_older_version_changes_nothing(store: Store) -> None:
    old = store.subscriptions.register("g1", "orders", "a > 5", version=7)
    assert store.subscriptions.register("g1", "orders", "a > 6", version=6) is old
    assert store.subscriptions.register("g1", "orders", "a > 6", version=7) is old
    assert store.subscriptions.register("g1", "orders", "a > 6", version=8) is not old


def test_a_group_that_comes_back_within_a_day_finds_its_bits(store: Store, clock: FakeClock) -> None:
    subscription = store.subscriptions.register("g1", "orders", "a > 5")
    store.subscriptions.register("g2", "orders", "a > 5")
    clock.advance(1)
    store.subscriptions.unregister("g1")
    assert [one.is_dead for one in store.subscriptions.all("orders")] == [True, False]
    clock.advance(KEPT_AFTER_DEATH_MS - 1)
    put_all(store)
    assert store.subscriptions.register("g1", "orders", "a > 5") is subscription
    assert got(store, subscription)[1] == 2


def test_a_group_that_stays_away_for_a_day_is_forgotten(store: Store, clock: FakeClock) -> None:
    subscription = store.subscriptions.register("g1", "orders", "a > 5")
    clock.advance(1)
    store.subscriptions.unregister("g1", "orders")
    clock.advance(KEPT_AFTER_DEATH_MS)
    store.subscriptions.register("g2", "other", "a > 5")
    assert store.subscriptions.get("g1", "orders") is None
    put_all(store)
    assert bitmaps(store, "orders") == [""] * 7
    assert len(got(store, subscription)[0]) == 2


def test_a_hook_of_the_users_goes_first(store: Store) -> None:
    store.subscriptions.register("g1", "orders", "a > 5")
    store.set_bitmap_hook(lambda record: b"\x01\x02")
    store.put(Message("orders", b"x", properties={"a": "7"})).check()
    store.set_bitmap_hook(None)
    store.put(Message("orders", b"x", properties={"a": "7"})).check()
    assert bitmaps(store, "orders") == ["0102", JAVA_BITS["orders"][0]]


# ---------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("group", "topic", "expression"),
    [("g", "t", "a >"), ("g", "t", ""), ("", "t", "a > 5"), ("g", "t", "a > 'x"), ("g", "t", 5), (5, "t", "a > 5")],
)
def test_what_cannot_be_registered(store: Store, group: str, topic: str, expression: str) -> None:
    with pytest.raises(InvalidFilter):
        store.subscriptions.register(group, topic, expression)
    assert store.subscriptions.all() == []
    assert not (store.path / "config/consumerFilter.json").exists()


def test_an_expression_that_does_not_parse_leaves_the_old_one(store: Store) -> None:
    old = store.subscriptions.register("g1", "orders", "a > 5")
    with pytest.raises(InvalidFilter):
        store.subscriptions.register("g1", "orders", "a >")
    assert store.subscriptions.get("g1", "orders") is old


def test_entries_of_the_file_that_make_no_sense_are_left_out(tmp_path: Path, clock: FakeClock) -> None:
    reported = json.loads(JAVA_FILE)
    groups = reported["filterDataByTopic"]["orders"]["groupFilterData"]
    groups["g1"]["expression"] = "a >"
    groups["g2"]["bloomFilterData"]["bitPos"] = [1, 2, 3]
    groups["g3"] = None
    reported["filterDataByTopic"]["x"] = 5
    folder = tmp_path / "config"
    folder.mkdir()
    (folder / "consumerFilter.json").write_text(json.dumps(reported))
    with open_store(tmp_path, StoreConfig.from_rocketmq({}).with_changes(**_small()), clock=clock) as store:
        assert [(one.group, one.topic) for one in store.subscriptions.all()] == [("g1", "other")]


def _small() -> dict[str, Any]:
    return {
        name: getattr(CONFIG, name)
        for name in (
            *("mapped_file_size_commit_log", "mapped_file_size_consume_queue", "max_hash_slot_num", "max_index_num"),
            *("enable_consume_queue_ext", "mapped_file_size_consume_queue_ext", "expect_consumer_num_use_filter"),
        )
    }
