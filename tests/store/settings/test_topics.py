"""Topics: created, changed, deleted, listed, and kept in `topics.json` as RocketMQ keeps them."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Golden
from tests.store.small_store import ASYNC, SMALL, bytes_of

from flintlog import DamagedStore, InvalidConfig, InvalidTopic, Message, StoreClosed, open_store
from flintlog.disk.media.local import LocalMedium
from flintlog.errors import DiskFull, FlintlogError
from flintlog.format.config_json import parse_config_object
from flintlog.store.runtime.note_file import NoteFile
from flintlog.store.settings.config_table import ConfigTable
from flintlog.store.settings.json_file import JsonFile
from flintlog.store.settings.topics import INHERIT, READ, SYSTEM_TOPICS, WRITE, TopicConfig
from flintlog.testing import FakeClock, temporary_store

_VERSION = re.compile(rb'"dataVersion":\{[^}]*\}')


def topics_file(root: Path) -> Path:
    return root / "config" / "topics.json"


def test_a_created_topic_has_rocketmqs_defaults_and_survives_a_restart(tmp_path: Path) -> None:
    with open_store(tmp_path, SMALL) as store:
        created = store.topics.create("orders")
        assert (created.read_queue_nums, created.write_queue_nums, created.perm) == (8, 8, READ | WRITE)
        assert (created.topic_filter_type, created.topic_sys_flag, created.order) == ("SINGLE_TAG", 0, False)
        store.topics.create("events", read_queue_nums=2, write_queue_nums=4, perm=READ, order=True)
    with open_store(tmp_path, SMALL) as store:
        assert store.topics.get("orders") == created
        assert [topic.name for topic in store.topics] == ["events", "orders"] and len(store.topics) == 2
        assert "orders" in store.topics and "nothing" not in store.topics and 7 not in store.topics
        events = store.topics.get("events")
        assert events is not None and events.is_readable and not events.is_writeable and events.order


def test_the_file_is_the_one_that_java_writes(golden: Golden, tmp_path: Path) -> None:
    theirs = (golden("delay") / "store/config/topics.json").read_bytes()
    table = ConfigTable(JsonFile(tmp_path / "topics.json", LocalMedium()), TopicConfig, "topicConfigTable", lambda: 0)
    for topic in SYSTEM_TOPICS:
        table.put(topic)
    known = {topic.name for topic in SYSTEM_TOPICS}
    entries: Any = parse_config_object(theirs)["topicConfigTable"]
    for name, entry in entries.items():
        if name not in known:
            count = entry["readQueueNums"]
            table.put(TopicConfig(topic_name=name, read_queue_nums=count, write_queue_nums=count, perm=entry["perm"]))
    assert _VERSION.sub(b"", (tmp_path / "topics.json").read_bytes()) == _VERSION.sub(b"", theirs)


def test_system_topics_are_there_without_a_file_and_nobody_changes_them(tmp_path: Path) -> None:
    with open_store(tmp_path, SMALL) as store:
        assert store.topics.list() == [] and not topics_file(tmp_path).exists()
        default = store.topics.get("TBW102")
        assert default is not None and default.perm == READ | WRITE | INHERIT
        assert {topic.name for topic in store.topics.list(system=True)} == {topic.name for topic in SYSTEM_TOPICS}
        for change in (store.topics.create, store.topics.change, store.topics.delete):
            with pytest.raises(InvalidTopic, match="RocketMQ's own"):
                change("SCHEDULE_TOPIC_XXXX")


def test_each_change_raises_the_version(tmp_path: Path) -> None:
    clock = FakeClock(1000)
    with open_store(tmp_path, SMALL, clock=clock) as store:
        store.topics.create("orders")
        clock.advance(5)
        store.topics.change("orders", perm=READ, read_queue_nums=2)
        version = parse_config_object(topics_file(tmp_path).read_bytes())["dataVersion"]
        assert version == {"counter": 2, "stateVersion": 0, "timestamp": 1005}
        changed = store.topics.get("orders")
        assert changed is not None and (changed.perm, changed.read_queue_nums, changed.write_queue_nums) == (4, 2, 8)


def test_what_we_do_not_know_is_kept(tmp_path: Path) -> None:
    topics_file(tmp_path).parent.mkdir()
    topics_file(tmp_path).write_text(
        '{"dataVersion":{"counter":"7"},"later":[1],"topicConfigTable":{"orders":{"topicName":"orders","aNewField":'
        '{"x":1},"perm":6,"readQueueNums":"3","attributes":{"unheard.of":"1"}},"events":{"topicName":"events"}}}'
    )
    with open_store(tmp_path, SMALL) as store:
        topic = store.topics.get("orders")
        assert topic is not None and topic.read_queue_nums == 3
        store.topics.change("orders", perm=4)
    found: Any = parse_config_object(topics_file(tmp_path).read_bytes())
    orders, table = found["topicConfigTable"]["orders"], found["topicConfigTable"]
    assert list(found["later"]) == [1] and found["dataVersion"]["counter"] == 8
    assert orders["aNewField"] == {"x": 1} and orders["perm"] == 4
    assert orders["attributes"] == {"unheard.of": "1"}
    assert list(orders) == sorted(orders) and "events" in table


def test_opening_a_store_of_javas_writes_nothing(golden: Golden, tmp_path: Path) -> None:
    shutil.copytree(golden("delay") / "store/config", tmp_path / "config")
    before = bytes_of(tmp_path / "config")
    with open_store(tmp_path, SMALL) as store:
        assert [topic.name for topic in store.topics][:2] == ["%RETRY%CG_delay", "%RETRY%CG_timer"]
    after = bytes_of(tmp_path / "config")
    # The offsets are of messages that are not in this log.
    after.pop("consumerOffset.json"), before.pop("consumerOffset.json")
    after.pop("consumerOffset.json.bak"), before.pop("consumerOffset.json.bak")
    assert after == before


def test_a_deleted_topic_loses_queues_and_offsets_but_not_its_messages(tmp_path: Path) -> None:
    with open_store(tmp_path, SMALL) as store:
        store.topics.create("orders")
        receipt = store.put(Message("orders", b"old")).check()
        store.put(Message("events", b"other")).check()
        store.consumer_offsets.commit("g", "orders", 0, 1)
        store.consumer_offsets.commit("g", "events", 0, 1)
        store.topics.delete("orders")
        assert "orders" not in store.topics and store._host.queue_ids("orders") == []
        assert store.consumer_offsets.get("g", "orders", 0) is None
        assert store.consumer_offsets.get("g", "events", 0) == 1
        assert not (tmp_path / "consumequeue/orders").exists()
        old = store.message_at(receipt.physical_offset)
        assert old is not None and old.body == b"old"
        assert store.put(Message("orders", b"new")).queue_offset == 1
        store.wait_dispatched()
        assert store.min_offset("orders", 0) == 1
        assert [message.body for message in store.get("orders", 0, 1).messages] == [b"new"]
        assert store._host.queue_ids("orders") == [0] and "orders" not in store.topics
        store.topics.delete("orders")
        with pytest.raises(InvalidTopic, match=r"no topic 'orders'$"):
            store.topics.delete("orders")


@pytest.mark.parametrize("name", ["orders", "%RETRY%g", "a.b c"])
def test_a_topic_that_was_never_created_is_deleted_with_its_queues(tmp_path: Path, name: str) -> None:
    with open_store(tmp_path, SMALL) as store:
        for queue_id in (0, 2):
            store.put(Message(name, b"", queue_id=queue_id)).check()
        store.put(Message("events", b"")).check()
        store.consumer_offsets.commit("g", name, 2, 1)
        store.topics.delete(name)
        assert store._host.queue_ids(name) == [] and store._host.queue_ids("events") == [0]
        assert store.consumer_offsets.get("g", name, 2) is None
        assert not (tmp_path / "consumequeue" / name).exists() and not topics_file(tmp_path).exists()
    with open_store(tmp_path, SMALL) as store:
        assert store._host.queue_ids(name) == [] and store._host.queue_ids("events") == [0]


@pytest.mark.parametrize("name", ["nothing", "a.b c", "", "..", "../config", 7, None])
def test_what_is_not_there_is_not_deleted_nor_advised_to_be_created(tmp_path: Path, name: str) -> None:
    with open_store(tmp_path, SMALL) as store:
        store.put(Message("orders", b"")).check()
        before = [bytes_of(tmp_path / folder) for folder in ("config", "consumequeue")]  # log files are made ahead
        with pytest.raises(InvalidTopic) as refused:
            store.topics.delete(name)
        assert "create it" not in str(refused.value)
        assert [bytes_of(tmp_path / folder) for folder in ("config", "consumequeue")] == before


def test_system_topics_that_have_queues_are_not_deleted(tmp_path: Path) -> None:
    with open_store(tmp_path, SMALL) as store:
        store.put(Message("BenchmarkTest", b"")).check()
        with pytest.raises(InvalidTopic, match="RocketMQ's own"):
            store.topics.delete("BenchmarkTest")
        assert store._host.queue_ids("BenchmarkTest") == [0]


@pytest.fixture(params=["SimpleCQ", "BatchCQ"])
def anew(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A store that still runs somewhere: its topic was deleted and made anew, and has messages again."""
    folder = tmp_path / "running"
    with open_store(folder, SMALL) as store:
        store.topics.create("orders", attributes={"queue.type": request.param})
        for number in range(3):
            store.put(Message("orders", b"old %d" % number)).check()
        store.topics.delete("orders")
        store.topics.create("orders", attributes={"queue.type": request.param})
    with open_store(folder, SMALL) as store:  # also a restart in between leaves the offsets where they are
        for number in range(2):
            assert store.put(Message("orders", b"new %d" % number)).check().queue_offset == 3 + number
        store.flush()
        shutil.copytree(folder, tmp_path / "crashed")
        (tmp_path / "crashed" / "lock").unlink()
    return tmp_path


def visible(folder: Path) -> list[bytes]:
    with open_store(folder, SMALL) as store:
        offsets = range(store.min_offset("orders", 0), store.max_offset("orders", 0))
        pages = [store.get("orders", 0, offset, 1).messages for offset in offsets]
        assert store.put(Message("orders", b"newest")).queue_offset == 5
        return [message.body for page in pages for message in page]


def test_after_a_restart_a_topic_that_was_made_anew_has_its_messages(anew: Path) -> None:
    assert visible(anew / "running") == [b"new 0", b"new 1"]


@pytest.mark.parametrize("how", ["crash", "queues are gone"])
def test_building_its_queue_again_loses_none_of_them(anew: Path, how: str) -> None:
    """RocketMQ counts from 0 again, and then drops what it takes for repeated."""
    folder = anew / ("crashed" if how == "crash" else "running")
    if how != "crash":
        for name in ("consumequeue", "batchconsumequeue"):
            shutil.rmtree(folder / name, ignore_errors=True)
    found = visible(folder)
    assert found[-2:] == [b"new 0", b"new 1"] and len(found) in (2, 5)


@pytest.mark.parametrize(("first", "second"), [("SimpleCQ", "BatchCQ"), ("BatchCQ", "SimpleCQ")])
def test_a_topic_that_is_made_anew_with_another_queue_type_reuses_no_offset(
    tmp_path: Path, first: str, second: str
) -> None:
    with open_store(tmp_path, SMALL) as store:
        store.topics.create("orders", attributes={"queue.type": first})
        for _ in range(3):
            store.put(Message("orders", b"old"))
        store.topics.delete("orders")
        store.topics.create("orders", attributes={"queue.type": second})
        assert store.put(Message("orders", b"new")).queue_offset == 3
        store.wait_dispatched()
        assert [message.body for message in store.get("orders", 0, 3).messages] == [b"new"]
    with open_store(tmp_path, SMALL) as store:
        assert [message.body for message in store.get("orders", 0, 3).messages] == [b"new"]
        assert store.put(Message("orders", b"newer")).queue_offset == 4


def test_a_consumer_of_a_topic_that_is_deleted_under_it_goes_on_with_the_new_one(tmp_path: Path) -> None:
    with open_store(tmp_path, SMALL) as store:
        store.topics.create("orders")
        store.put(Message("orders", b"old")).check()
        with store.consumer("g", "orders") as consumer:
            held = consumer.poll(10)
            store.topics.delete("orders")
            store.topics.create("orders")
            store.put(Message("orders", b"new")).check()
            assert held is not None
            consumer.acknowledge(held)
            message = consumer.poll(10)
            assert message is not None and message.body == b"new"


@pytest.mark.parametrize(
    "damage", [b"[{", b"\xff", b"[" * 100_000, b'[{"topic":"orders","queueId":0,"nextOffset":' + b"9" * 5000]
)
@pytest.mark.parametrize("is_clean", [True, False])
def test_with_a_damaged_note_deleted_topics_come_back_and_no_offset_is_given_again(
    tmp_path: Path, damage: bytes, is_clean: bool
) -> None:
    with open_store(tmp_path / "store", SMALL) as store:
        store.topics.create("orders")
        for _ in range(3):
            store.put(Message("orders", b"old")).check()
        store.put(Message("events", b"kept")).check()
        store.topics.delete("orders")
        killed = shutil.copytree(tmp_path / "store", tmp_path / "killed")
    root = tmp_path / "store" if is_clean else killed
    (root / "flintlog" / "deleted.json").write_bytes(damage)
    with open_store(root, SMALL) as store:
        assert [found.id for found in store.recovery] == ["damaged-note"]
        assert store.put(Message("orders", b"new")).queue_offset == 3
        assert [message.body for message in store.get("events", 0, 0).messages] == [b"kept"]
    with open_store(root, SMALL) as store:
        assert not list(store.recovery)
        assert store.put(Message("orders", b"new")).queue_offset == 4


def test_when_the_log_has_none_of_its_records_a_deleted_topic_counts_anew(tmp_path: Path) -> None:
    with open_store(tmp_path, SMALL) as store:
        store.topics.create("orders")
        end = store.put(Message("orders", b"old")).check().end_offset
        store.topics.delete("orders")
        table = store._engine.parts.queues
        table.rebuild_offsets(end - 1)
        assert table.offsets.next("orders", 0) == 1
        table.rebuild_offsets(end)
        assert table.offsets.next("orders", 0) == 0


def test_deleting_while_others_put_and_read() -> None:
    with temporary_store(ASYNC) as store:
        for round_number in range(20):
            store.topics.create("orders")
            for number in range(50):
                store.put(Message("orders", b"%d" % number, queue_id=number % 3)).check()
            store.topics.delete("orders")
            store.put(Message("events", b"")).check()
            store.wait_dispatched()
            assert store.max_offset("events", 0) == round_number + 1
            assert store._host.queue_ids("orders") == []


def test_what_was_put_before_is_deleted_with_its_topic_also_from_the_write_buffers(tmp_path: Path) -> None:
    config = ASYNC.with_changes(
        transient_store_pool_enable=True,
        commit_interval_commit_log=60_000,
        commit_commit_log_thorough_interval=60_000,
        wake_commit_when_put_message=False,
    )
    with open_store(tmp_path, config) as store:
        store.topics.create("orders")
        store.put(Message("orders", b"seen")).check()
        store.wait_dispatched()
        store.put(Message("orders", b"gathered")).check()
        store.topics.delete("orders")
        store.wait_dispatched()
        assert store.queues() == []
        assert store.put(Message("orders", b"after")).queue_offset == 2


def test_a_listener_may_delete() -> None:
    with temporary_store(SMALL) as store:
        store.topics.create("orders")
        store.on_arrival(lambda arrival: store.topics.delete("orders") if "orders" in store.topics else None)
        store.put(Message("orders", b"")).check()
        store.wait_dispatched()
        assert store._host.queue_ids("orders") == [] and "orders" not in store.topics


def test_a_batch_queue_by_attribute(tmp_path: Path) -> None:
    with open_store(tmp_path, SMALL) as store:
        store.put(Message("simple", b"")).check()
        store.topics.create("batches", attributes={"queue.type": "BatchCQ", "message.type": "NORMAL"})
        store.put(Message("batches", b"one")).check()
        store.wait_dispatched()
        kinds = {queue.topic: queue.type for queue in store.queues()}
        assert kinds == {"simple": "SimpleCQ", "batches": "BatchCQ"}
        with pytest.raises(InvalidConfig, match="has queues of type SimpleCQ"):
            store.topics.create("simple", attributes={"queue.type": "BatchCQ"})
        assert "simple" not in store.topics
        with pytest.raises(InvalidConfig, match="stays as it was created"):
            store.topics.change("batches", attributes={"queue.type": "SimpleCQ"})
        store.topics.change("batches", attributes={"reserve.time": "5"})
        changed = store.topics.get("batches")
        assert changed is not None
        assert changed.attributes == {"queue.type": "BatchCQ", "message.type": "NORMAL", "reserve.time": "5"}
    with open_store(tmp_path, SMALL) as store:
        assert [message.body for message in store.get("batches", 0, 0).messages] == [b"one"]
        store.put(Message("batches", b"two")).check()
        store.wait_dispatched()
        assert store.max_offset("batches", 0) == 2


@pytest.mark.parametrize("name", ["", "a b", "a.b", "a/b", "é", "..", "x" * 128, "%RETRY%" + "x" * 249, 7, None])
def test_names_that_a_broker_would_refuse(name: str) -> None:
    with temporary_store(SMALL) as store, pytest.raises(InvalidTopic):
        store.topics.create(name)


@pytest.mark.parametrize(
    "values",
    [
        {"read_queue_nums": 0},
        {"write_queue_nums": 70_000},
        {"read_queue_nums": "8"},
        {"read_queue_nums": True},
        {"perm": 8},
        {"order": 1},
        {"attributes": {"queue.type": "RocksDBCQ"}},
        {"attributes": {"reserve.time": "x"}},
        {"attributes": {"reserve.time": 5}},
        {"attributes": {"lite.topic.expiration": "43201"}},
        {"attributes": {"unheard.of": "1"}},
        {"attributes": 5},
    ],
)
def test_values_that_cannot_be(values: dict[str, object]) -> None:
    with temporary_store(SMALL) as store:
        with pytest.raises(InvalidConfig):
            store.topics.create("orders", **values)  # type: ignore[arg-type]
        assert store.topics.list() == []
        store.topics.create("orders")
        with pytest.raises(InvalidConfig):
            store.topics.change("orders", **values)  # type: ignore[arg-type]
        for unknown in ({"colour": 1}, {"topic_name": "other"}):
            with pytest.raises(InvalidConfig, match="no value"):
                store.topics.change("orders", **unknown)
        with pytest.raises(InvalidTopic, match="already"):
            store.topics.create("orders")
        with pytest.raises(InvalidTopic, match="no topic"):
            store.topics.change("nothing", perm=6)


def test_a_read_only_store_lists_and_changes_nothing(tmp_path: Path) -> None:
    with open_store(tmp_path, SMALL) as store:
        store.topics.create("orders")
    before = bytes_of(tmp_path)
    with open_store(tmp_path, SMALL, read_only=True) as store:
        assert "orders" in store.topics
        for change in (store.topics.create, store.topics.change, store.topics.delete, store.groups.create):
            with pytest.raises(StoreClosed):
                change("orders")
    assert bytes_of(tmp_path) == before


def test_a_broken_file_is_replaced_by_its_backup_and_that_is_a_finding(tmp_path: Path) -> None:
    with open_store(tmp_path, SMALL) as store:
        store.topics.create("orders")
        store.topics.create("events")
    topics_file(tmp_path).write_bytes(b"{ torn")
    with open_store(tmp_path, SMALL) as store:
        assert [topic.name for topic in store.topics] == ["orders"]
        (finding,) = store.recovery
        assert finding.id == "config-restored" and finding.file == str(topics_file(tmp_path))
        store.topics.create("again")
    with open_store(tmp_path, SMALL) as store:
        assert [topic.name for topic in store.topics] == ["again", "orders"] and len(store.recovery) == 0


@pytest.mark.parametrize("broken", ["{ torn", "[]", '{"topicConfigTable":5}', '{"topicConfigTable":{"a":5}}'])
def test_when_nothing_can_be_made_of_a_file_nothing_is_overwritten(tmp_path: Path, broken: str) -> None:
    with open_store(tmp_path, SMALL) as store:
        store.put(Message("orders", b"")).check()
    topics_file(tmp_path).parent.mkdir(exist_ok=True)
    for path in (topics_file(tmp_path), topics_file(tmp_path).with_name("topics.json.bak")):
        path.write_text(broken)
    before = bytes_of(tmp_path / "config")
    with pytest.raises(DamagedStore):
        open_store(tmp_path, SMALL)
    assert bytes_of(tmp_path / "config") == before
    with open_store(tmp_path, SMALL, read_only=True) as store:
        assert [finding.id for finding in store.recovery] == ["damaged-config"]
        assert store.max_offset("orders", 0) == 1
    topics_file(tmp_path).unlink()
    topics_file(tmp_path).with_name("topics.json.bak").unlink()
    with open_store(tmp_path, SMALL) as store:
        assert store.recovery.clean


def test_a_change_that_cannot_be_saved_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_store(tmp_path, SMALL) as store:

        def full(*_: object) -> None:
            raise DiskFull("no space")

        with monkeypatch.context() as patch:
            patch.setattr(JsonFile, "save", full)
            with pytest.raises(FlintlogError):
                store.topics.create("orders", attributes={"queue.type": "BatchCQ"})
        assert "orders" not in store.topics
        store.put(Message("orders", b"")).check()
        store.wait_dispatched()
        assert store.queues()[0].type == "SimpleCQ"


def test_a_deletion_that_cannot_be_noted_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise DiskFull("no space")

    with open_store(tmp_path, SMALL) as store:
        for topic in ("kept", "deleted"):
            store.put(Message(topic, b"")).check()
        store.wait_dispatched()
        with monkeypatch.context() as patch:
            patch.setattr(NoteFile, "save", full)
            with pytest.raises(DiskFull):
                store.topics.delete("kept")
        store.topics.delete("deleted")
    with open_store(tmp_path, SMALL) as store:
        assert [queue.topic for queue in store.queues()] == ["kept"]
        assert store.put(Message("kept", b"")).check().queue_offset == 1


def test_destroying_a_store_takes_its_configuration_along(tmp_path: Path) -> None:
    (tmp_path / "store/config").mkdir(parents=True)
    (tmp_path / "store/config/own.txt").write_text("mine")
    with open_store(tmp_path / "store", SMALL) as store:
        store.topics.create("orders")
        store.topics.create("events")
        store.groups.create("g")
        store.consumer_offsets.commit("g", "orders", 0, 0)
        store.destroy()
    assert list(bytes_of(tmp_path)) == ["store/config/own.txt"]
