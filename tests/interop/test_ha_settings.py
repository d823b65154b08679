"""A node of ours and a real broker: topics, groups, offsets in both directions; questions that it does not know."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.replication.ha_pair import wait_until

from flintlog import Message, open_store
from flintlog.remoting.client import RemotingClient
from flintlog.replication.ha.metadata import PARTS, MetadataFollower
from flintlog.replication.ha.node import HaNode
from flintlog.store.options.store_config import StoreConfig
from flintlog.testing.free_ports import free_ports
from interop.java_broker import JavaBroker

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("java"), pytest.mark.timeout(300)]

OPTIONS = {
    "mappedFileSizeCommitLog": "1048576",
    "mappedFileSizeConsumeQueue": "20000",
    "maxHashSlotNum": "100",
    "maxIndexNum": "400",
    "messageDelayLevel": "1s 2s",
}
CONFIG = StoreConfig.from_rocketmq(OPTIONS)


def test_our_slave_takes_the_settings_of_a_java_broker(tmp_path: Path) -> None:
    async def fetch(follower: MetadataFollower, code: int) -> bool:
        received = {code: await follower.ask(code)}
        return await asyncio.to_thread(follower.write_all, received)

    async def fetch_all(follower: MetadataFollower) -> list[bool]:
        written = [await fetch(follower, code) for code in PARTS]
        assert not any([await fetch(follower, code) for code in PARTS if code != 45])
        await follower.stop()
        return written

    with JavaBroker(tmp_path / "java", OPTIONS) as broker:
        broker.put([Message("orders", b"late", delay_level=1)])
        broker.create_topic("orders", 3)
        broker.commit_consumer_offset("readers", "orders", 2, 7)
        broker.wait_until(lambda: broker.delay_offsets().get(1) == 1, "level 1 was delivered")
        with open_store(tmp_path / "ours", CONFIG.with_changes(broker_role="SLAVE")) as store:
            assert any(asyncio.run(fetch_all(MetadataFollower(store, RemotingClient(broker.address)))))
    with open_store(tmp_path / "ours", CONFIG.with_changes(broker_role="SLAVE")) as store:
        topic = store.topics.get("orders")
        assert topic is not None
        assert topic.write_queue_nums == 3
        assert store.consumer_offsets.get("readers", "orders", 2) == 7
    assert b"1:1" in (tmp_path / "ours" / "config" / "delayOffset.json").read_bytes()


def test_a_java_broker_takes_the_settings_of_our_master(tmp_path: Path) -> None:
    node = HaNode(tmp_path / "ours", CONFIG.with_changes(ha_listen_port=0), port=0)
    node.start()
    try:
        node.store.topics.create("orders")
        node.store.groups.create("billing")
        node.store.consumer_offsets.commit("billing", "orders", 1, 2)
        with JavaBroker(tmp_path / "java", OPTIONS) as broker:
            broker.sync_from(f"127.0.0.1:{node.port}")
            assert broker.consumer_offset("billing", "orders", 1) == 2
    finally:
        node.stop()
    config = tmp_path / "java" / "config"
    assert b'"orders"' in (config / "topics.json").read_bytes()
    assert b'"billing"' in (config / "subscriptionGroup.json").read_bytes()


def test_our_node_follows_a_java_broker_that_knows_none_of_our_questions(tmp_path: Path) -> None:
    (ha_port,) = free_ports(1)
    config = CONFIG.with_changes(broker_role="SLAVE", ha_master_address=f"127.0.0.1:{ha_port}", ha_listen_port=0)
    with JavaBroker(tmp_path / "java", {**OPTIONS, "haListenPort": str(ha_port)}) as broker:
        for count in (5, 10):  # the second time there is a log to compare
            broker.put([Message("orders", b"%d" % number) for number in range(5)])
            node = HaNode(tmp_path / "ours", config, port=0, master_remoting=broker.address, reconnect_s=0.1)
            node.start()
            try:
                wait_until(lambda: node.store.max_offset("orders", 0) == count, 60.0)  # noqa: B023 - called here
            finally:
                node.stop()
