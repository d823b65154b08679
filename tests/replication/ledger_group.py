"""Members of a group with their stores, in this process, started and stopped one by one."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from flintlog import Message, StoreConfig
from flintlog.replication.ledger.store_node import LedgerStoreNode
from flintlog.store.model.message import PutStatus
from flintlog.store.runtime.clock import Clock
from flintlog.testing.free_ports import ledger_addresses

FILE_BYTES = 64 * 1024
PATIENCE_S = 60.0


def config_of(addresses: dict[str, str], member: str) -> StoreConfig:
    return StoreConfig(
        mapped_file_size_commit_log=FILE_BYTES,
        mapped_file_size_consume_queue=100 * 20,
        max_hash_slot_num=100,
        max_index_num=400,
        enable_dledger_commit_log=True,
        dledger_group="orders",
        dledger_peers=";".join(f"{each}-{address}" for each, address in addresses.items()),
        dledger_self_id=member,
        ledger_index_file_size=32 * 128,
    )


def until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"never: {what}")
        time.sleep(0.01)


class Group:
    """Members in this process, started and stopped one by one."""

    def __init__(self, root: Path, *members: str, clock: Clock | None = None, **changes: object) -> None:
        """`changes` are to every member's configuration."""
        self.root = root
        self.addresses = ledger_addresses(*members)
        self.nodes: dict[str, LedgerStoreNode] = {}
        self._clock = clock
        self.changes = changes

    def start(self, *members: str) -> None:
        for member in members or tuple(self.addresses):
            config = config_of(self.addresses, member).with_changes(**self.changes)
            node = LedgerStoreNode(self.root / member, config, fast=True, clock=self._clock)
            node.start()
            self.nodes[member] = node

    def stop(self, member: str) -> None:
        self.nodes.pop(member).stop()

    def drop(self, member: str) -> None:
        """Stop a member as a kill does, as far as the group can see: at the end nothing is brought to it."""
        node = self.nodes.pop(member)
        loop, node._loop = node._loop, None
        assert loop is not None
        loop.call(node._stop())
        loop.stop()
        node.stop()

    def drop_leader(self) -> str:
        """Lose the leader."""
        name = self.name_of(self.leader)
        self.drop(name)
        return name

    def stop_all(self) -> None:
        for member in list(self.nodes):
            self.stop(member)

    @property
    def leader(self) -> LedgerStoreNode:
        until(lambda: any(node.is_serving for node in self.nodes.values()), "a leader that takes puts")
        return next(node for node in self.nodes.values() if node.is_serving)

    def name_of(self, node: LedgerStoreNode) -> str:
        return next(member for member, each in self.nodes.items() if each is node)

    def settle(self) -> None:
        """Until all members show the same."""
        until(
            lambda: (
                len({node.store.max_physical_offset for node in self.nodes.values()}) == 1
                and all(node.node.status().end == node.node.status().committed for node in self.nodes.values())
            ),
            "the same committed end everywhere",
        )

    def put(self, message: Message) -> int:
        """Put through the leader of the moment, again and again until it is acknowledged."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            receipt = self.leader.store.put(message, check=False)
            if receipt.status is PutStatus.PUT_OK:
                return receipt.physical_offset
            time.sleep(0.02)
        raise AssertionError("no put was acknowledged")


def bodies(node: LedgerStoreNode, topic: str = "orders", queue_id: int = 0) -> list[bytes]:
    found: list[bytes] = []
    while True:
        page = node.store.get(topic, queue_id, len(found), 32)
        if not page.messages:
            return found
        assert [message.queue_offset for message in page.messages] == list(
            range(len(found), len(found) + len(page.messages))
        )
        found += [message.body for message in page.messages]
