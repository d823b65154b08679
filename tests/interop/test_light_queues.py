"""Light queues, batch queues and extensions: the same messages at the same times give Java's bytes, and its answers."""

from __future__ import annotations

from pathlib import Path

import pytest

from flintlog.format.config_json import parse_config_object
from flintlog.store.model.message import Message
from flintlog.store.open_store import open_store
from flintlog.store.options.store_config import StoreConfig
from flintlog.testing.clock import FakeClock
from interop.java_broker import JavaBroker
from interop.java_store import JavaStore
from interop.questions import GetQuestion, ask
from interop.workload import OPTIONS

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("java"), pytest.mark.timeout(600)]

BEGIN_MS = 1_700_000_000_000
EXTENDED = {
    **OPTIONS,
    "enableLmq": "true",
    "enableMultiDispatch": "true",
    "enableConsumeQueueExt": "true",
    "mappedFileSizeConsumeQueueExt": "1024",
}
TYPES = {"batches": "BatchCQ"}
FOLDERS = ("commitlog", "consumequeue", "consumequeue_ext", "batchconsumequeue")


def _messages() -> list[Message]:
    found = []
    for number in range(60):
        names = ",".join(f"%LMQ%dev{light}" for light in range(1 + number % 4))
        properties = {"INNER_MULTI_DISPATCH": names} if number % 3 else {"region": "eu"}
        found.append(
            Message(
                *("orders", b"order %d" % number),
                tags=f"tag{number % 5}",
                queue_id=number % 2,
                properties=properties,
                born_timestamp=BEGIN_MS,
            )
        )
        if number % 7 == 0:
            count = str(1 + number % 5)
            batch = Message("batches", b"many", sys_flag=0x80, properties={"INNER_NUM": count}, born_timestamp=BEGIN_MS)
            found.append(batch)
    return found


def _files(store: Path) -> dict[str, bytes]:
    return {
        str(file.relative_to(store)): file.read_bytes().rstrip(b"\0")
        for folder in FOLDERS
        for file in sorted((store / folder).rglob("*"))
        if file.is_file()
    }


def _config() -> StoreConfig:
    return StoreConfig.from_rocketmq(EXTENDED).with_changes(topic_queue_types=TYPES)


def test_light_queues_and_extensions_byte_for_byte(tmp_path: Path) -> None:
    messages = _messages()
    with JavaStore(tmp_path / "java", EXTENDED, topic_queue_types=TYPES) as java:
        for number, message in enumerate(messages):
            (receipt,) = java.put([message], clock_ms=BEGIN_MS + number)
            assert receipt.status == "PUT_OK"
        java.wait_dispatched()
    clock = FakeClock(BEGIN_MS)
    with open_store(tmp_path / "ours", _config(), clock=clock) as store:
        for message in messages:
            store.put(message).check()
            clock.advance(1)
        questions = [
            GetQuestion(topic, queue_id, offset, 4, tags)
            for topic, queue_id in (("orders", 0), ("%LMQ%dev0", 0), ("%LMQ%dev3", 0), ("batches", 0))
            for offset in range(store.max_offset(topic, queue_id) + 2)
            for tags in (None, "tag1 || tag4")
        ]
        answers = [ask(store, question) for question in questions]
    ours, theirs = _files(tmp_path / "ours"), _files(tmp_path / "java")
    assert sorted(ours) == sorted(theirs)
    assert [name for name in ours if ours[name] != theirs[name]] == []
    with JavaStore(tmp_path / "ours", EXTENDED, topic_queue_types=TYPES) as java:
        assert java.answers(questions) == answers


def test_light_groups_go_on_where_the_other_side_was(tmp_path: Path) -> None:
    """Offsets of light and other groups, through `lmqConsumerOffset.json`, which a broker with enableLmq uses alone."""
    folder, file = tmp_path / "store", tmp_path / "store/config/lmqConsumerOffset.json"
    with open_store(folder, _config()) as store:
        for _ in range(4):
            store.put(Message("orders", b"x", properties={"INNER_MULTI_DISPATCH": "%LMQ%dev0,%LMQ%dev1"})).check()
        with store.consumer("%LMQ%dev0", "%LMQ%dev0", timeout_s=0.01) as consumer:
            for message in [consumer.poll() for _ in range(3)]:
                assert message is not None
                consumer.acknowledge(message)
        store.consumer_offsets.commit("billing", "orders", 0, 2)
        store.consumer_offsets.commit("billing", "%LMQ%dev1", 0, 1)
    ours = parse_config_object(file.read_bytes())
    with JavaBroker(folder, EXTENDED) as broker:
        assert broker.consumer_offset("%LMQ%dev0", "%LMQ%dev0", 0) == 3
        assert broker.consumer_offset("billing", "orders", 0) == 2
        assert broker.consumer_offset("billing", "%LMQ%dev1", 0) == 1
        assert broker.consumer_offset("%LMQ%dev1", "%LMQ%dev1", 0) == -1
        broker.persist()
        theirs = parse_config_object(file.read_bytes())
        assert {**theirs, "dataVersion": 0} == {**ours, "dataVersion": 0}, "it writes back what we wrote"
        broker.commit_consumer_offset("%LMQ%dev0", "%LMQ%dev0", 0, 4)
        broker.commit_consumer_offset("%LMQ%dev1", "%LMQ%dev1", 0, 2)
        broker.commit_consumer_offset("billing", "orders", 0, 3)
        broker.persist()
    with open_store(folder, _config()) as store:
        assert len(store.recovery) == 0
        offsets = store.consumer_offsets
        assert offsets.get("%LMQ%dev0", "%LMQ%dev0", 0) == 4
        assert offsets.get("%LMQ%dev1", "%LMQ%dev1", 0) == 2
        assert offsets.get("billing", "orders", 0) == 3
        with store.consumer("%LMQ%dev1", "%LMQ%dev1", timeout_s=0.01) as consumer:
            assert [message.offset for message in consumer] == [2, 3]
