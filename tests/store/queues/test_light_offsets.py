"""Offsets in a store with light queues: in `lmqConsumerOffset.json`, as a broker with `enableLmq` keeps them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.store.small_store import SMALL

from flintlog import InvalidConfig, InvalidTopic, Message, StoreConfig, open_store
from flintlog.disk.media.local import LocalMedium
from flintlog.format.config_json import parse_config_object
from flintlog.maintenance.inspect.overview import groups
from flintlog.maintenance.inspect.retention_report import report_retention
from flintlog.maintenance.inspect.store_files import look_at
from flintlog.maintenance.repair.offsets import load_offsets
from flintlog.maintenance.repair.reopen import settle
from flintlog.testing import FakeClock

LIGHT = SMALL.with_changes(enable_lmq=True, enable_multi_dispatch=True)
_VERSION = re.compile(r'"dataVersion":\{[^}]*\}')

JAVAS = """{
	"dataVersion":{
		"counter":0,
		"stateVersion":0,
		"timestamp":1794823840179
	},
	"groupTopicMap":{
		"plain":[
			"orders",
			"%LMQ%dev0"
		],
		"plain2":[
			"orders"
		]
	},
	"lmqOffsetTable":{
		"orders@%LMQ%g2":0,
		"%LMQ%dev0@%LMQ%g1":2,
		"%LMQ%dev1@%LMQ%g1":1
	},
	"offsetTable":{
		"%LMQ%dev0@plain":{
			0:1
		},
		"orders@plain":{
			0:1
		},
		"orders@plain2":{
			0:2
		}
	},
	"pullOffsetTable":{}
}"""
"""What the broker of RocketMQ 5.5.0 wrote for these offsets."""


def light_file(root: Path) -> Path:
    return root / "config" / "lmqConsumerOffset.json"


def plain_file(root: Path) -> Path:
    return root / "config" / "consumerOffset.json"


def put_some(root: Path, config: StoreConfig = LIGHT, count: int = 3) -> None:
    with open_store(root, config) as store:
        for _ in range(count):
            properties = {"INNER_MULTI_DISPATCH": "%LMQ%dev0,%LMQ%dev1"}
            store.put(Message("orders", b"x", properties=properties)).check()


def test_the_file_is_the_one_that_java_writes(tmp_path: Path) -> None:
    put_some(tmp_path)
    with open_store(tmp_path, LIGHT) as store:
        offsets = store.consumer_offsets
        offsets.commit("%LMQ%g1", "%LMQ%dev0", 0, 2)
        offsets.commit("%LMQ%g1", "%LMQ%dev1", 0, 1)
        offsets.commit("%LMQ%g2", "orders", 0, 0)
        offsets.commit("plain", "orders", 0, 1)
        offsets.commit("plain", "%LMQ%dev0", 0, 1)
        offsets.commit("plain2", "orders", 0, 2)
    assert _VERSION.sub("", light_file(tmp_path).read_text()) == _VERSION.sub("", JAVAS)
    assert not plain_file(tmp_path).exists()


def test_javas_file_is_read_and_written_back_as_it_was(tmp_path: Path) -> None:
    put_some(tmp_path)
    light_file(tmp_path).parent.mkdir(exist_ok=True)
    light_file(tmp_path).write_text(JAVAS)
    with open_store(tmp_path, LIGHT) as store:
        assert len(store.recovery) == 0
        offsets = store.consumer_offsets
        assert offsets.get("%LMQ%g1", "%LMQ%dev0", 0) == 2 and offsets.offsets("%LMQ%g2", "orders") == {0: 0}
        assert offsets.get("plain", "%LMQ%dev0", 0) == 1
        assert offsets.topics_of("%LMQ%g1") == ["%LMQ%dev0", "%LMQ%dev1"]
        offsets.commit("plain2", "orders", 0, 3)
    assert light_file(tmp_path).read_text() == JAVAS.replace("0:2", "0:3")


def test_other_queues_of_a_light_group_are_not_forgotten(tmp_path: Path) -> None:
    """A broker knows one offset a topic and light group; what it does not know it keeps."""
    with open_store(tmp_path, LIGHT) as store:
        for queue_id in range(2):
            store.put(Message("orders", b"x", queue_id=queue_id)).check()
            store.consumer_offsets.commit("%LMQ%g", "orders", queue_id, 1)
    content = parse_config_object(light_file(tmp_path).read_bytes())
    assert content["lmqOffsetTable"] == {"orders@%LMQ%g": 1}
    assert content["offsetTable"] == {"orders@%LMQ%g": {1: 1}}
    with open_store(tmp_path, LIGHT) as store:
        assert store.consumer_offsets.offsets("%LMQ%g", "orders") == {0: 1, 1: 1}


def test_without_light_queues_the_same_groups_are_in_the_plain_file(tmp_path: Path) -> None:
    with open_store(tmp_path, SMALL) as store:
        store.put(Message("orders", b"x")).check()
        store.consumer_offsets.commit("%LMQ%g", "orders", 0, 1)
    assert parse_config_object(plain_file(tmp_path).read_bytes())["offsetTable"] == {"orders@%LMQ%g": {0: 1}}
    assert "lmqOffsetTable" not in plain_file(tmp_path).read_text()
    assert not light_file(tmp_path).exists()


@pytest.mark.parametrize("is_back", [False, True], ids=["switched on", "switched off"])
def test_groups_go_on_when_light_queues_are_switched(tmp_path: Path, is_back: bool) -> None:
    before, after = (LIGHT, SMALL) if is_back else (SMALL, LIGHT)
    put_some(tmp_path, LIGHT)
    with open_store(tmp_path, before) as store:
        store.consumer_offsets.commit("%LMQ%g", "%LMQ%dev0", 0, 2)
        store.consumer_offsets.commit("plain", "orders", 0, 1)
    clock = FakeClock()
    with open_store(tmp_path, after, clock=clock) as store:
        assert [finding.id for finding in store.recovery] == ["offsets-taken-over"]
        assert store.consumer_offsets.get("%LMQ%g", "%LMQ%dev0", 0) == 2
        assert store.consumer_offsets.get("plain", "orders", 0) == 1
        clock.advance(after.flush_consumer_offset_interval)
        assert (plain_file if is_back else light_file)(tmp_path).exists(), "not only at the stop"
    with open_store(tmp_path, after) as store:
        assert len(store.recovery) == 0, "they were saved where they are looked for"
        assert store.consumer_offsets.get("%LMQ%g", "%LMQ%dev0", 0) == 2


def test_retention_knows_the_groups_of_the_other_file(tmp_path: Path) -> None:
    put_some(tmp_path)
    with open_store(tmp_path, LIGHT) as store:
        store.consumer_offsets.commit("plain", "orders", 0, 1)
    for config in (SMALL, LIGHT):
        report = report_retention(tmp_path, config, LocalMedium(), lambda: 0)
        assert [hold.group for hold in report.files[0].holds] == ["plain"]


def test_its_own_file_counts_when_both_are_there(tmp_path: Path) -> None:
    put_some(tmp_path)
    light_file(tmp_path).parent.mkdir(exist_ok=True)
    light_file(tmp_path).write_text('{"offsetTable":{},"lmqOffsetTable":{"%LMQ%dev0@%LMQ%g":2}}')
    plain_file(tmp_path).write_text('{"offsetTable":{"%LMQ%dev0@%LMQ%g":{0:1}}}')
    for config, expected in ((LIGHT, 2), (SMALL, 1)):
        with open_store(tmp_path, config) as store:
            assert store.consumer_offsets.get("%LMQ%g", "%LMQ%dev0", 0) == expected


def test_a_light_consumer_needs_no_configuration(tmp_path: Path) -> None:
    put_some(tmp_path)
    with open_store(tmp_path, LIGHT) as store:
        with store.consumer("%LMQ%dev0", "%LMQ%dev0", timeout_s=0.01, retries=False) as consumer:
            for message in consumer:
                consumer.acknowledge(message)
        group, topic = store.groups.get("%LMQ%dev0"), store.topics.get("%LMQ%dev0")
        assert group is not None and group.consume_enable
        assert topic is not None and (topic.read_queue_nums, topic.write_queue_nums, topic.perm) == (1, 1, 6)
        assert "%LMQ%other" in store.groups and "%LMQ%other" in store.topics
        assert len(store.groups) == len(store.topics) == 0
        with pytest.raises(InvalidConfig, match="already"):
            store.groups.create("%LMQ%dev0")
        with pytest.raises(InvalidTopic, match="already"):
            store.topics.create("%LMQ%dev0")
    assert not (tmp_path / "config" / "subscriptionGroup.json").exists()
    assert parse_config_object(light_file(tmp_path).read_bytes())["lmqOffsetTable"] == {"%LMQ%dev0@%LMQ%dev0": 3}


def test_commands_find_the_file_that_is_in_use(tmp_path: Path) -> None:
    put_some(tmp_path)
    with open_store(tmp_path, LIGHT) as store:
        store.consumer_offsets.commit("%LMQ%g", "%LMQ%dev0", 0, 2)
    for config in (None, LIGHT):
        files = look_at(tmp_path, config)
        (offset,) = groups(files)
        assert (offset.group, offset.topic, offset.queue_id) == ("%LMQ%g", "%LMQ%dev0", 0)
        assert (offset.offset, offset.lag) == (2, 1)
        assert load_offsets(files).get("%LMQ%g", "%LMQ%dev0", 0) == 2


@pytest.mark.parametrize("config", [SMALL, LIGHT], ids=["plain", "light"])
def test_settling_a_store_of_which_nothing_is_known_leaves_its_offsets_where_they_are(
    tmp_path: Path, config: StoreConfig
) -> None:
    put_some(tmp_path, config)
    with open_store(tmp_path, config) as store:
        store.consumer_offsets.commit("%LMQ%g", "orders", 0, 2)
        store.consumer_offsets.commit("plain", "orders", 0, 1)
    mine, other = light_file(tmp_path), plain_file(tmp_path)
    if config is SMALL:
        mine, other = other, mine
    before = mine.read_text()
    mine.write_text(before.replace("0:1", "0:99"))
    settle(tmp_path, SMALL, LocalMedium(), is_guessed=True)
    assert not other.exists()
    with open_store(tmp_path, config) as store:
        assert store.consumer_offsets.get("plain", "orders", 0) == 3, "it was brought back to the queue's end"
        assert store.consumer_offsets.get("%LMQ%g", "orders", 0) == 2
        assert len(store.recovery) == 0
