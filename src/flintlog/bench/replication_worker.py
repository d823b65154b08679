"""One node of ours in a process of its own, for `flintlog bench replication`.

The first line of standard input describes the node; every further line is a command, answered with one line of JSON.
The node stops when standard input ends.

    {"kind": "ledger", "directory": …, "node_id": "n0", "addresses": {…}}     commands: status, measure
    {"kind": "ha", "directory": …, "role": "SYNC_MASTER"}                     commands: status, measure
"""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Final, Literal, Protocol

import msgspec

from flintlog.bench.tasks import run_in_threads
from flintlog.disk.media.local import LocalMedium
from flintlog.replication.ha.master import HaMaster
from flintlog.replication.ha.slave import HaSlave
from flintlog.replication.ledger.core.interface import LedgerConfig
from flintlog.replication.ledger.core.messages import ResponseCode
from flintlog.replication.ledger.node.file_storage import FileStorage
from flintlog.replication.ledger.node.node import LedgerNode
from flintlog.replication.loop_thread import LoopThread
from flintlog.store.ledger.ledger_files import LedgerFiles
from flintlog.store.model.message import Message
from flintlog.store.open_store import open_store
from flintlog.store.options.store_config import StoreConfig

GROUP: Final = "bench"
TOPIC: Final = "BenchTopic"
QUEUES: Final = 8
DATA_FILE_BYTES: Final = 256 * 1024 * 1024
LOOPBACK: Final = "127.0.0.1"


class Setup(msgspec.Struct, frozen=True):
    """The description of the node."""

    kind: str
    directory: str
    node_id: str = ""
    addresses: dict[str, str] = {}
    role: Literal["SYNC_MASTER", "SLAVE"] = "SYNC_MASTER"
    master: str = ""


class Status(msgspec.Struct, frozen=True):
    """The leader, or the port of the master; and the end of the log."""

    leader: str | None
    port: int
    end: int


class Load(msgspec.Struct, frozen=True):
    """How many producers send what for how long, each waiting for its own message."""

    producers: int
    body_bytes: int
    seconds: float
    as_tasks: bool = False
    """Whether our producers are coroutines; Java's are threads in any case."""


class Measured(msgspec.Struct, frozen=True):
    """How many were acknowledged in which time; the parent, which sees all processes, adds the CPU time."""

    count: int
    seconds: float
    cpu_seconds: float = 0.0


class Command(msgspec.Struct, frozen=True):
    """A line from the parent."""

    name: str
    load: Load | None = None


class Node(Protocol):
    """The methods of a node."""

    def status(self) -> Status: ...
    def measure(self, load: Load) -> Measured: ...
    def stop(self) -> None: ...


class LedgerMember:
    """A node of a ledger group, syncing before it acknowledges. Producers are tasks in its loop."""

    def __init__(self, setup: Setup) -> None:
        self._thread = LoopThread()
        files = LedgerFiles(Path(setup.directory), LocalMedium(), data_file_bytes=DATA_FILE_BYTES)
        files.load()
        self._storage = FileStorage(files)
        self._node = LedgerNode(GROUP, LedgerConfig(setup.node_id, setup.addresses), self._storage)
        self._thread.call(self._node.start())

    def status(self) -> Status:
        """The leader, and the end of the log."""
        return Status(self._node.leader_id, 0, self._storage.log.end)

    def measure(self, load: Load) -> Measured:
        """Propose through this node, which leads."""
        return self._thread.call(self._produce(load), load.seconds + 60)

    async def _produce(self, load: Load) -> Measured:
        body, counts = Random(1).randbytes(load.body_bytes), [0]
        began = time.perf_counter()
        end = began + load.seconds

        async def produce() -> None:
            while time.perf_counter() < end:
                answer = await self._node.propose(body)
                if answer.code == ResponseCode.SUCCESS:
                    counts[0] += 1
                else:
                    await asyncio.sleep(0.001)

        await asyncio.gather(*(produce() for _ in range(load.producers)))
        return Measured(counts[0], time.perf_counter() - began)

    def stop(self) -> None:
        """Leave the group."""
        self._thread.call(self._node.stop(), 60.0)
        self._thread.stop()
        self._storage.close()


class HaMember:
    """A master whose puts wait for its slave, or that slave. Producers are threads, or tasks in the master's loop."""

    def __init__(self, setup: Setup) -> None:
        config = StoreConfig(flush="async", broker_role=setup.role, in_sync_replicas=2, slave_timeout=10_000)
        self._store = open_store(Path(setup.directory), config)
        self._thread = LoopThread()
        self._port = 0
        self._shell: HaMaster | HaSlave
        if setup.role == "SLAVE":
            self._shell = HaSlave(self._store, setup.master, reconnect_s=0.05)
            self._thread.call(self._shell.start())
        else:
            self._shell = HaMaster(self._store)
            self._port = self._thread.call(self._shell.start(LOOPBACK, 0))

    def status(self) -> Status:
        """Where the log can be followed."""
        return Status(None, self._port, self._store.replication.raw_log.end)

    def measure(self, load: Load) -> Measured:
        """Put; each producer waits until the slave has its message."""
        counts = [0] * load.producers
        began = time.perf_counter()
        end = began + load.seconds
        if load.as_tasks:
            self._thread.call(self._produce_as_tasks(load, counts, end), load.seconds + 60)
        else:
            self._produce_in_threads(load, counts, end)
        return Measured(sum(counts), time.perf_counter() - began)

    def _produce_in_threads(self, load: Load, counts: list[int], end: float) -> None:
        numbers = itertools.count()

        def produce() -> None:
            number = next(numbers)
            messages = _messages(load, number)
            while time.perf_counter() < end:
                counts[number] += bool(self._store.put(next(messages), check=False))

        run_in_threads(load.producers, produce)

    async def _produce_as_tasks(self, load: Load, counts: list[int], end: float) -> None:
        async def produce(number: int) -> None:
            messages = _messages(load, number)
            while time.perf_counter() < end:
                counts[number] += bool(await self._store.aput(next(messages), check=False))

        await asyncio.gather(*(produce(number) for number in range(load.producers)))

    def stop(self) -> None:
        """Close sockets and store."""
        self._thread.call(self._shell.stop())
        self._thread.stop()
        self._store.shutdown()


def _messages(load: Load, number: int) -> Iterator[Message]:
    """The messages of one producer, each made anew."""
    body = Random(1).randbytes(load.body_bytes)
    for sent in itertools.count():
        yield Message(
            TOPIC,
            body,
            tags="TagA",
            keys=[f"key{number}-{sent}"],
            queue_id=(number + sent) % QUEUES,
            properties={"UNIQ_KEY": f"7F0000010001{number}-{sent}"},
        )


def main() -> None:
    """Serve one parent until it closes standard input."""
    setup = msgspec.json.decode(sys.stdin.buffer.readline(), type=Setup)
    node: Node = LedgerMember(setup) if setup.kind == "ledger" else HaMember(setup)
    for line in sys.stdin.buffer:
        command = msgspec.json.decode(line, type=Command)
        answer = node.status() if command.load is None else node.measure(command.load)
        os.write(1, msgspec.json.encode(answer) + b"\n")
    node.stop()


if __name__ == "__main__":
    main()
