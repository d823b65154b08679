"""Nodes of ours in one loop, for tests: over memory or over files, with the group's addresses on this machine."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from random import Random

from tests.replication.ledger_memory import MemoryStorage

from flintlog.disk.media.local import LocalMedium
from flintlog.replication.ledger.core.interface import LedgerConfig, Role, Truncation
from flintlog.replication.ledger.core.messages import AppendResponse, Entry, ResponseCode
from flintlog.replication.ledger.node.file_storage import FileStorage
from flintlog.replication.ledger.node.node import LedgerListeners, LedgerNode
from flintlog.replication.ledger.node.storage import LedgerStorage
from flintlog.replication.loop_thread import LoopThread
from flintlog.store.ledger.ledger_files import LedgerFiles
from flintlog.testing.free_ports import ledger_addresses

GROUP = "orders"


class SlowDisk(MemoryStorage):
    """Counts syncs, and lets them wait until `gate` is set; `breaks` makes the next one fail.

    A log that is cut while a sync runs is a fault of the node, and remembered.
    """

    def __init__(self, sync_s: float = 0.0) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.gate.set()
        self.sync_count = 0
        self.breaks = False
        self.cut_count = 0
        self.was_cut_during_a_sync = False
        self._sync_s = sync_s
        self._is_syncing = False

    def sync(self) -> None:
        self._is_syncing = True
        self.gate.wait(30)
        time.sleep(self._sync_s)
        self.sync_count += 1
        self._is_syncing = False
        if self.breaks:
            raise OSError(5, "the disk is broken")

    def truncate(self, truncation: Truncation) -> None:
        self.cut_count += 1
        self.was_cut_during_a_sync |= self._is_syncing
        super().truncate(truncation)


def fast_config(node_id: str, addresses: Mapping[str, str]) -> LedgerConfig:
    """Elections within two seconds, and patience for a machine that is busy."""
    config = LedgerConfig(node_id, addresses, leader_record=lambda: b"leads").with_fast_timings()
    return replace(config, acknowledge_timeout_ms=20_000)


def patient(config: LedgerConfig) -> LedgerConfig:
    """Quick to elect at the start, and slow to miss a leader: for tests in which nobody shall change."""
    return replace(config, heartbeat_interval_ms=4_000)


@asynccontextmanager
async def running(
    *node_ids: str,
    storages: Mapping[str, LedgerStorage] | None = None,
    addresses: Mapping[str, str] | None = None,
    listeners: Mapping[str, LedgerListeners] | None = None,
    configure: Callable[[LedgerConfig], LedgerConfig] = lambda config: config,
) -> AsyncIterator[dict[str, LedgerNode]]:
    """Some of a group's nodes, started; all of them if no other addresses are given."""
    known = dict(addresses or ledger_addresses(*node_ids))
    nodes: dict[str, LedgerNode] = {}
    try:
        for number, node_id in enumerate(node_ids):
            nodes[node_id] = LedgerNode(
                GROUP,
                configure(fast_config(node_id, known)),
                (storages or {}).get(node_id) or MemoryStorage(),
                (listeners or {}).get(node_id),
                random=Random(number),
            )
            await nodes[node_id].start()
        yield nodes
    finally:
        for node in nodes.values():
            await node.stop()


async def until(happened: Callable[[], bool], what: str = "", timeout_s: float = 30.0) -> None:
    """Look again and again until something has happened."""
    deadline = asyncio.get_running_loop().time() + timeout_s
    while not happened():
        assert asyncio.get_running_loop().time() < deadline, what or "it did not happen in time"
        await asyncio.sleep(0.01)


async def leader_of(nodes: Mapping[str, LedgerNode]) -> LedgerNode:
    """The leader that all of these nodes know, and which is one of them."""
    await until(lambda: _agreed(nodes) is not None, "no leader")
    leader = _agreed(nodes)
    assert leader is not None
    return nodes[leader]


def _agreed(nodes: Mapping[str, LedgerNode]) -> str | None:
    known = {node.leader_id for node in nodes.values()}
    leader = known.pop() if len(known) == 1 else None
    node = nodes.get(leader) if leader is not None else None
    return leader if node is not None and node.role is Role.LEADER else None


async def propose_all(node: LedgerNode, bodies: Sequence[bytes], producers: int = 16) -> list[AppendResponse]:
    """Propose every body, so many at a time; all must be committed. The answers in the order of the bodies."""
    answers: list[AppendResponse | None] = [None] * len(bodies)

    async def produce(first: int) -> None:
        for place in range(first, len(bodies), producers):
            answers[place] = await node.propose(bodies[place])

    await asyncio.gather(*(produce(first) for first in range(producers)))
    found = [answer for answer in answers if answer is not None]
    assert {answer.code for answer in found} <= {ResponseCode.SUCCESS}, {answer.code for answer in found}
    return found


def entries_of(storage: LedgerStorage) -> list[Entry]:
    """Everything in a node's log."""
    ledger = storage.log
    return [ledger.entry(index) for index in range(max(ledger.begin, 0), ledger.end + 1)]


def open_files(directory: Path, node_id: str, *, data_file_bytes: int = 64 * 1024) -> FileStorage:
    """A node's files in the place where Java has them, `<directory>/dledger-<id>`."""
    files = LedgerFiles(
        directory / f"dledger-{node_id}",
        LocalMedium(),
        data_file_bytes=data_file_bytes,
        index_file_bytes=32 * 512,
    )
    files.load()
    return FileStorage(files)


def data_files(directory: Path, node_id: str) -> dict[str, bytes]:
    """The data files of a node, without those that have nothing in them."""
    found = sorted((directory / f"dledger-{node_id}" / "data").iterdir())
    return {file.name: content for file in found if (content := file.read_bytes()).strip(b"\0")}


class ThreadedNode:
    """A node over its files in a thread of its own, for tests that wait for Java meanwhile."""

    def __init__(self, directory: Path, config: LedgerConfig) -> None:
        self._thread = LoopThread()
        self.storage = open_files(directory, config.self_id)
        self.node = LedgerNode(GROUP, config, self.storage)
        self._thread.call(self.node.start())

    def stop(self) -> None:
        """A clean stop."""
        self._thread.call(self.node.stop(), 30.0)
        self._thread.stop()
        self.storage.close()

    def append(self, bodies: Sequence[bytes], window: int = 64) -> list[AppendResponse]:
        """Append entries, so many at a time; the answers in the same order."""
        answers: list[AppendResponse] = []
        for start in range(0, len(bodies), window):
            waiting = [self.node.propose_from_thread(body) for body in bodies[start : start + window]]
            answers += [each.result(30.0) for each in waiting]
        return answers

    def transfer(self, successor: str) -> int:
        """Hand the leadership over; DLedger's code."""
        return int(self._thread.call(self.node.transfer_leadership(successor), 30.0))


def wait_until(happened: Callable[[], bool], what: str = "", timeout_s: float = 60.0) -> None:
    """Look again and again until something has happened."""
    deadline = time.monotonic() + timeout_s
    while not happened():
        assert time.monotonic() < deadline, what or "it did not happen in time"
        time.sleep(0.02)
