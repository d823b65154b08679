"""A group that a Java broker leads: its settings and offsets are asked for, and are the group's when one of ours leads.

The broker is a store behind RocketMQ's requests; `tests/interop/test_ha_settings.py` asks a real one in the same way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.replication.ledger_group import config_of, until

from flintlog import InvalidConfig, Message, Store, StoreConfig, open_store
from flintlog.errors import NotLeading, PeerFailed
from flintlog.format.topics import STATE_TOPIC
from flintlog.remoting.client import RemotingClient
from flintlog.remoting.server import RemotingServer
from flintlog.replication.ha.metadata import PARTS, MetadataFollower, handlers_of
from flintlog.replication.ledger.node.polling import LeaderPoll
from flintlog.replication.ledger.store_node import LedgerStoreNode
from flintlog.replication.loop_thread import LoopThread
from flintlog.testing.free_ports import ledger_addresses

SMALL = StoreConfig(mapped_file_size_commit_log=64 * 1024, max_hash_slot_num=100, max_index_num=400)


@contextmanager
def broker(path: Path) -> Iterator[tuple[Store, str]]:
    """What answers as a broker does, and its address."""
    loop = LoopThread()
    with open_store(path, SMALL) as store:
        server = RemotingServer(handlers_of(store))
        port = loop.call(server.start("127.0.0.1", 0))
        try:
            yield store, f"127.0.0.1:{port}"
        finally:
            loop.call(server.stop())
            loop.stop()


def ask(node: LedgerStoreNode, address: str, leader: str | None = "n1") -> None:
    """Ask once, as if n1 were a broker, and this one led."""

    async def once() -> None:
        poll = LeaderPoll(node.store, lambda: leader, {"n1": address})
        await poll.ask()
        await poll.stop()

    asyncio.run(once())


def member(root: Path, addresses: dict[str, str], **options: object) -> LedgerStoreNode:
    return LedgerStoreNode(root / "n0", config_of(addresses, "n0"), fast=True, **options)  # type: ignore[arg-type]


def offset(store: Store) -> int | None:
    return store.consumer_offsets.get("billing", "orders", 0)


def lead_alone(root: Path, addresses: dict[str, str]) -> LedgerStoreNode:
    """The same member when the group has shrunk to it."""
    node = member(root, {"n0": addresses["n0"]})
    node.start()
    until(lambda: node.is_serving, "it leads")
    return node


def test_what_a_broker_says_while_it_leads_is_the_groups_when_we_lead(tmp_path: Path) -> None:
    addresses = ledger_addresses("n0", "n1")
    with broker(tmp_path / "java") as (java, address):
        java.topics.create("orders", read_queue_nums=7)
        java.groups.create("billing")
        java.consumer_offsets.commit("billing", "orders", 0, 12)
        node = member(tmp_path, addresses)
        ask(node, address)
        assert offset(node.store) == 12
        java.consumer_offsets.commit("billing", "orders", 0, 15)
        ask(node, address)
        assert offset(node.store) == 15
        with pytest.raises(NotLeading):
            node.store.consumer_offsets.commit("billing", "orders", 0, 16)
        node.stop()
    node = lead_alone(tmp_path, addresses)
    try:
        topic = node.store.topics.get("orders")
        assert topic is not None
        assert (offset(node.store), topic.read_queue_nums) == (15, 7)
        until(lambda: node.store.max_offset(STATE_TOPIC, 0) == 1, "what is the group's can be read from its log")
    finally:
        node.stop()


def test_the_settings_of_the_last_leader_count(tmp_path: Path) -> None:
    """Ours leads and shares 5; a broker leads and says 9; restarts in between; ours leads again and shares 9."""
    addresses = ledger_addresses("n0", "n1")
    node = lead_alone(tmp_path, addresses)
    node.store.put(Message("orders", b"x")).check()
    node.store.consumer_offsets.commit("billing", "orders", 0, 5)
    node.stop()
    with broker(tmp_path / "java") as (java, address):
        java.consumer_offsets.commit("billing", "orders", 0, 9)
        java.consumer_offsets.commit("audit", "orders", 0, 2)
        node = member(tmp_path, addresses)
        assert offset(node.store) == 5
        ask(node, address)
        assert offset(node.store) == 9
        node.stop()
        node = member(tmp_path, addresses)
        assert offset(node.store) == 9
        node.stop()
    node = lead_alone(tmp_path, addresses)
    assert offset(node.store) == 9
    node.store.consumer_offsets.reset("billing", "orders", 0, 3)
    node.stop()
    node = member(tmp_path, addresses)
    assert offset(node.store) == 3  # what the broker said is over
    assert node.store.consumer_offsets.get("audit", "orders", 0) == 2
    node.stop()


def test_nobody_is_asked_unless_a_broker_leads(tmp_path: Path) -> None:
    addresses = ledger_addresses("n0", "n1")
    node = member(tmp_path, addresses)
    try:
        for leader in (None, "n0", "n2"):
            ask(node, "127.0.0.1:1", leader)
        with pytest.raises(PeerFailed):
            ask(node, "127.0.0.1:1")
    finally:
        node.stop()


def test_a_leader_takes_nothing_from_a_broker(tmp_path: Path) -> None:
    addresses = ledger_addresses("n0", "n1")
    with broker(tmp_path / "java") as (java, address):
        java.consumer_offsets.commit("billing", "orders", 0, 9)
        node = lead_alone(tmp_path, addresses)
        try:
            with pytest.raises(NotLeading):
                ask(node, address)
            assert offset(node.store) is None
            assert not (tmp_path / "n0/config/consumerOffset.json").exists()
        finally:
            node.stop()


def test_a_leader_of_ours_answers_javas_questions(tmp_path: Path) -> None:
    addresses = ledger_addresses("n0", "n1")
    node = LedgerStoreNode(tmp_path / "n0", config_of({"n0": addresses["n0"]}, "n0"), fast=True, port=0)
    node.start()
    try:
        until(lambda: node.is_serving, "it leads")
        node.store.topics.create("orders", read_queue_nums=7)
        node.store.put(Message("orders", b"x")).check()
        node.store.consumer_offsets.commit("billing", "orders", 0, 1)

        async def reported() -> list[dict[object, object]]:
            asking = MetadataFollower(node.store, RemotingClient(f"127.0.0.1:{node.port}"))
            found = [await asking.ask(code) for code in PARTS]
            await asking.stop()
            return found  # type: ignore[return-value]

        topics, offsets, *_ = asyncio.run(reported())
        assert topics["topicConfigTable"]["orders"]["readQueueNums"] == 7  # type: ignore[index]
        assert offsets["offsetTable"]["orders@billing"] == {0: 1}  # type: ignore[index]
    finally:
        node.stop()


def test_brokers_are_other_members(tmp_path: Path) -> None:
    addresses = ledger_addresses("n0", "n1")
    for brokers in ({"n0": "127.0.0.1:1"}, {"n7": "127.0.0.1:1"}):
        with pytest.raises(InvalidConfig):
            member(tmp_path, addresses, brokers=brokers)
    assert not (tmp_path / "n0").exists()


def test_a_member_asks_by_itself(tmp_path: Path) -> None:
    """Each takes the other for a broker: the follower asks it, again and again."""
    addresses = ledger_addresses("n0", "n1")
    with broker(tmp_path / "java") as (java, address):
        java.consumer_offsets.commit("billing", "orders", 0, 9)
        nodes = [
            LedgerStoreNode(
                tmp_path / name, config_of(addresses, name), fast=True, brokers={other: address}, poll_s=0.1
            )
            for name, other in (("n0", "n1"), ("n1", "n0"))
        ]
        try:
            for node in nodes:
                node.start()
            until(lambda: any(node.is_serving for node in nodes), "a leader")
            (follower,) = (node for node in nodes if not node.is_serving)
            until(lambda: offset(follower.store) == 9, "it has asked")
            java.consumer_offsets.commit("billing", "orders", 0, 10)
            until(lambda: offset(follower.store) == 10, "it has asked again")
        finally:
            for node in nodes:
                node.stop()
