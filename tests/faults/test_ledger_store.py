"""A store whose log is a ledger loses its power under load: what was acknowledged is there, what is there is whole."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from flintlog import Message, StoreConfig
from flintlog.disk.faulty.faulty_disk import FaultyMedium
from flintlog.replication.ledger.store_node import LedgerStoreNode
from flintlog.store.model.message import PutStatus
from flintlog.testing.free_ports import ledger_addresses

ROOT = Path("/disk/store")
PATIENCE_S = 60.0


def member(medium: FaultyMedium) -> LedgerStoreNode:
    (address,) = ledger_addresses("n0").values()
    config = StoreConfig(
        mapped_file_size_commit_log=16 * 1024,
        mapped_file_size_consume_queue=50 * 20,
        max_hash_slot_num=20,
        max_index_num=80,
        enable_dledger_commit_log=True,
        dledger_group="orders",
        dledger_peers=f"n0-{address}",
        dledger_self_id="n0",
        ledger_index_file_size=32 * 64,
    )
    node = LedgerStoreNode(ROOT, config, fast=True, medium=medium)
    node.start()
    deadline = time.monotonic() + PATIENCE_S
    while not node.is_serving:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return node


class Producer(threading.Thread):
    """Puts to a queue of its own until it is asked to stop, and remembers what was acknowledged."""

    def __init__(self, node: LedgerStoreNode, queue_id: int, first: int) -> None:
        super().__init__()
        self.acknowledged: list[bytes] = []
        self.is_stopped = False
        self._node = node
        self._queue_id = queue_id
        self._next = first
        self.start()

    def run(self) -> None:
        while not self.is_stopped:
            body = b"%d:%d" % (self._queue_id, self._next) * 10
            receipt = self._node.store.put(Message("orders", body, keys=["k"], queue_id=self._queue_id), check=False)
            if receipt.status is PutStatus.PUT_OK:
                self.acknowledged.append(body)
            self._next += 1


def served(node: LedgerStoreNode, queue_id: int) -> list[bytes]:
    found: list[bytes] = []
    while page := node.store.get("orders", queue_id, len(found), 32).messages:
        assert [message.queue_offset for message in page] == list(range(len(found), len(found) + len(page)))
        found += [message.body for message in page]
    return found


@pytest.mark.parametrize("way", ["power", "process"])
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 5))])
def test_nothing_that_was_acknowledged_is_lost(way: str, seed: int) -> None:
    medium = FaultyMedium(clock_ms=lambda: int(time.time() * 1000))
    acknowledged: dict[int, list[bytes]] = {0: [], 1: []}
    for life in range(3):
        node = member(medium)
        for queue_id, bodies in acknowledged.items():
            found = served(node, queue_id)
            places = {body: place for place, body in enumerate(found)}
            order = [places[body] for body in bodies]  # a KeyError here is a lost message
            assert order == sorted(order)
        assert node.store.recovery.findings == () or life
        producers = [Producer(node, queue_id, life * 10_000) for queue_id in acknowledged]
        time.sleep(0.3)
        # What was acknowledged before the crash: whatever comes after it is not on the disk that is left.
        known = [len(producer.acknowledged) for producer in producers]
        medium.drift(seed, 0.3)
        left = medium.crash(seed + 10 * life) if way == "power" else medium.kill()
        for producer in producers:
            producer.is_stopped = True
        for producer, count in zip(producers, known, strict=True):
            producer.join(PATIENCE_S)
            assert count > 0
            acknowledged[producer._queue_id] += producer.acknowledged[:count]
        node.stop()
        medium = left
    node = member(medium)
    for queue_id, bodies in acknowledged.items():
        assert set(bodies) <= set(served(node, queue_id))
    assert all(node.store.query("orders", "k", max_count=4))
    node.stop()
