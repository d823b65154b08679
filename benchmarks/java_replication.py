"""A pair of RocketMQ's stores and a group of DLedger nodes, each node in a JVM of its own."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from flintlog.bench.replication import NODES, Side, agreed, wait_for
from flintlog.bench.replication_worker import DATA_FILE_BYTES, GROUP, Load, Measured
from flintlog.testing.free_ports import ledger_addresses
from interop.java_ledger import JavaLedger
from interop.java_store import JavaStore

# Three of them share a small machine.
_JVM: Final = ("-Xms256m", "-Xmx768m", "-XX:+UseG1GC", "-XX:MaxDirectMemorySize=1g")


class _JavaPair:
    def __init__(self, master: JavaStore) -> None:
        self._master = master

    def measure(self, load: Load) -> Measured:
        measured = self._master.measure_puts(producers=load.producers, body_bytes=load.body_bytes, seconds=load.seconds)
        return Measured(measured.count, measured.seconds)


class _JavaGroup:
    def __init__(self, leader: JavaLedger, node_id: str) -> None:
        self._leader, self._node_id = leader, node_id

    def measure(self, load: Load) -> Measured:
        measured = self._leader.measure(
            self._node_id, producers=load.producers, body_bytes=load.body_bytes, seconds=load.seconds
        )
        return Measured(measured.count, measured.seconds)


@contextlib.contextmanager
def java_pair(directory: Path) -> Iterator[Side]:
    """A master that waits for its slave."""
    (address,) = ledger_addresses("master").values()
    options = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": "2", "totalReplicas": "2", "slaveTimeout": "10000"}
    port = {"haListenPort": address.rpartition(":")[2]}
    with (
        JavaStore(directory / "master", {**options, **port}, jvm_options=_JVM) as master,
        JavaStore(directory / "slave", {"brokerRole": "SLAVE", "haListenPort": "0"}, jvm_options=_JVM) as slave,
    ):
        slave.follow(address)
        pair = _JavaPair(master)
        wait_for(lambda: pair.measure(Load(1, 16, 0.2)).count > 0, "Java's slave to follow")
        yield pair


@contextlib.contextmanager
def java_group(directory: Path) -> Iterator[Side]:
    """Three DLedger nodes, one of them elected."""
    addresses = ledger_addresses(*NODES)
    options = {"mappedFileSizeForEntryData": DATA_FILE_BYTES}
    with contextlib.ExitStack() as ending:
        nodes: dict[str, JavaLedger] = {}
        for node_id in NODES:
            nodes[node_id] = ending.enter_context(JavaLedger(GROUP, addresses, options, jvm_options=_JVM))
            nodes[node_id].start(node_id, directory)
        leader = agreed(lambda: [java.info(node_id).leader_id for node_id, java in nodes.items()])
        yield _JavaGroup(nodes[leader], leader)
