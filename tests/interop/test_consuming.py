"""Topics, groups, offsets and retries that one side began and the other goes on with."""

from __future__ import annotations

from pathlib import Path

import pytest

from flintlog import Message, StoreConfig, open_store
from interop.java_broker import JavaBroker

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("java")]

OPTIONS = {
    "mappedFileSizeCommitLog": "1048576",
    "mappedFileSizeConsumeQueue": "20000",
    "maxHashSlotNum": "100",
    "maxIndexNum": "400",
    "messageDelayLevel": "1s 2s",
}
CONFIG = StoreConfig.from_rocketmq(OPTIONS).with_changes(services={"schedule"})


def test_a_broker_goes_on_where_our_consumer_was_and_we_where_its_was(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    with open_store(folder, CONFIG) as store:
        store.topics.create("orders", read_queue_nums=2, write_queue_nums=2)
        store.groups.create("billing", retry_max_times=5)
        for number in range(6):
            store.put(Message("orders", b"%d" % number, queue_id=number % 2)).check()
        with store.consumer("billing", "orders") as consumer:
            for message in [consumer.poll() for _ in range(4)]:
                assert message is not None
                if message.body == b"2":
                    consumer.send_back(message, delay_level=1).check()
                else:
                    consumer.acknowledge(message)
    with JavaBroker(folder, OPTIONS) as broker:
        assert [broker.consumer_offset("billing", "orders", queue_id) for queue_id in (0, 1)] == [2, 2]
        assert broker.consumer_offset("nobody", "orders", 0) == -1
        (again,) = broker.wait_for("%RETRY%billing", 0, 1)
        assert again.body == b"2" and again.properties["RETRY_TOPIC"] == "orders"
        broker.create_topic("events", 3)
        broker.commit_consumer_offset("billing", "orders", 0, 3)
        broker.persist()
    with open_store(folder, CONFIG) as store:
        assert len(store.recovery) == 0
        orders, events = store.topics.get("orders"), store.topics.get("events")
        assert orders is not None and orders.read_queue_nums == 2
        assert events is not None and events.write_queue_nums == 3
        billing = store.groups.get("billing")
        assert billing is not None and billing.retry_max_times == 5
        with store.consumer("billing", "orders", timeout_s=0.05) as consumer:
            left = {(message.topic, message.body, message.reconsume_times) for message in consumer}
        assert left == {("orders", b"5", 0), ("orders", b"2", 1)}
