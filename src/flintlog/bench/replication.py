"""What replication costs: a master with its slave, and a group of three, ours beside Java's, in turns on one machine.

    HA pair     puts wait until the slave has them; neither side syncs to disk before it answers, as is Java's default
    group       three nodes; ours sync on a majority before a send is acknowledged, DLedger's do not

All nodes are processes of their own on loopback. Producers run in the master's or leader's process, the same number on
both sides, and each waits for its own message; Java's are threads, ours threads, or coroutines in the node's own loop,
as the task says.
Every side is warmed up before its first round; the median counts. The CPU time is that of all nodes and the producers
together, for a message: it says how the sides compare on a machine that has other work too.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, Protocol

import msgspec

from flintlog.bench.process_tree import cpu_seconds
from flintlog.bench.replication_worker import DATA_FILE_BYTES, GROUP, Command, Load, Measured, Setup, Status
from flintlog.errors import FlintlogError
from interop.java_ledger import JavaLedger, ledger_addresses
from interop.java_store import JavaStore

REPLICATION_COLUMNS = ("task", "flintlog", "java", "ratio", "cpu_us", "java_cpu_us")
OURS: Final = "flintlog"
JAVA: Final = "java"
NODES: Final = ("n0", "n1", "n2")
BODY_BYTES: Final = 1024
# Three of them share a small machine.
_JVM: Final = ("-Xms256m", "-Xmx768m", "-XX:+UseG1GC", "-XX:MaxDirectMemorySize=1g")
_PATIENCE_S: Final = 60.0


class ReplicationFigure(msgspec.Struct, frozen=True):
    """Messages a second that were acknowledged, how many times as many ours are, and what each cost."""

    task: str
    flintlog: float
    java: float | None
    ratio: float | None
    cpu_us: float
    java_cpu_us: float | None


class ReplicationWindow(msgspec.Struct, frozen=True):
    """How long and how often is measured."""

    seconds: float = 5.0
    rounds: int = 3
    warm_up_seconds: float = 5.0
    ha_threads: int = 16
    producers: int = 64


QUICK_REPLICATION = ReplicationWindow(seconds=0.5, rounds=1, warm_up_seconds=0.3)


class Side(Protocol):
    """A pair or a group that runs."""

    def measure(self, load: Load) -> Measured: ...


def measure_replication(
    room: Path, window: ReplicationWindow, *, with_java: bool, progress: Callable[[str], None]
) -> list[ReplicationFigure]:
    """Both tasks, in a directory of their own; `progress` is told each step."""
    threads = Load(window.ha_threads, BODY_BYTES, window.seconds)
    few = msgspec.structs.replace(threads, as_tasks=True)
    tasks = Load(window.producers, BODY_BYTES, window.seconds, as_tasks=True)
    figures: list[ReplicationFigure] = []
    for name, load, sides in (
        (f"HA sync pair, {threads.producers} threads", threads, _HA),
        (f"HA sync pair, {few.producers} asyncio", few, _HA),
        (f"HA sync pair, {tasks.producers} asyncio", tasks, _HA),
        (f"group of three, {tasks.producers} asyncio", tasks, _LEDGER),
    ):
        chosen = {side: opener for side, opener in sides.items() if with_java or side == OURS}
        figures.append(_figure(name, room, window, load, chosen, progress))
    return figures


Opener = Callable[[Path], contextlib.AbstractContextManager[Side]]


def _figure(
    task: str,
    room: Path,
    window: ReplicationWindow,
    load: Load,
    sides: dict[str, Opener],
    progress: Callable[[str], None],
) -> ReplicationFigure:
    runs: dict[str, list[Measured]] = {name: [] for name in sides}
    for number in range(window.rounds):
        for name in sides if number % 2 == 0 else reversed(sides):
            progress(f"{task}: {name}, round {number + 1} of {window.rounds}")
            runs[name].append(_one_run(sides[name], room / name, window, load))
    ours, cpu_us = _medians(runs[OURS])
    if JAVA not in runs:
        return ReplicationFigure(task, round(ours), None, None, cpu_us, None)
    theirs, java_cpu_us = _medians(runs[JAVA])
    ratio = round(ours / theirs, 2) if theirs else None
    return ReplicationFigure(task, round(ours), round(theirs), ratio, cpu_us, java_cpu_us)


def _medians(runs: list[Measured]) -> tuple[float, float]:
    """Messages a second, and microseconds of CPU time a message."""
    rate = statistics.median(run.count / run.seconds for run in runs)
    cpu_s = statistics.median(run.cpu_seconds / max(1, run.count) for run in runs)
    return rate, round(cpu_s * 1e6, 1)


def _one_run(opener: Opener, directory: Path, window: ReplicationWindow, load: Load) -> Measured:
    directory.mkdir()
    try:
        with opener(directory) as side:
            side.measure(msgspec.structs.replace(load, seconds=window.warm_up_seconds))
            os.sync()
            cpu = cpu_seconds()
            measured = side.measure(load)
            return msgspec.structs.replace(measured, cpu_seconds=cpu_seconds() - cpu)
    finally:
        shutil.rmtree(directory)
        os.sync()


# ---------------------------------------------------------------------- ours


class Worker:
    """A process of ours (`flintlog.bench.replication_worker`)."""

    def __init__(self, setup: Setup) -> None:
        arguments = [sys.executable, "-m", "flintlog.bench.replication_worker"]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(part for part in sys.path if part)}
        self._process = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
        self._send(msgspec.json.encode(setup))

    def status(self) -> Status:
        """Its state now."""
        self._send(msgspec.json.encode(Command("status")))
        return msgspec.json.decode(self._answer(), type=Status)

    def measure(self, load: Load) -> Measured:
        """Let it produce."""
        self._send(msgspec.json.encode(Command("measure", load)))
        return msgspec.json.decode(self._answer(), type=Measured)

    def end(self) -> None:
        """Close the line; the node stops by itself, or is killed."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def _send(self, line: bytes) -> None:
        if self._process.stdin is None:
            raise FlintlogError("the process of the benchmark has no standard input")
        self._process.stdin.write(line + b"\n")
        self._process.stdin.flush()

    def _answer(self) -> bytes:
        line = b"" if self._process.stdout is None else self._process.stdout.readline()
        if not line:
            raise FlintlogError("a process of the benchmark ended")
        return line


@contextlib.contextmanager
def _our_pair(directory: Path) -> Iterator[Side]:
    with contextlib.ExitStack() as ending:
        master = Worker(Setup("ha", str(directory / "master"), role="SYNC_MASTER"))
        ending.callback(master.end)
        address = f"127.0.0.1:{master.status().port}"
        slave = Worker(Setup("ha", str(directory / "slave"), role="SLAVE", master=address))
        ending.callback(slave.end)
        _wait(lambda: master.measure(Load(1, 16, 0.05)).count > 0, "the slave to follow")
        yield master


@contextlib.contextmanager
def _our_group(directory: Path) -> Iterator[Side]:
    addresses = ledger_addresses(*NODES)
    with contextlib.ExitStack() as ending:
        workers: dict[str, Worker] = {}
        for node_id in NODES:
            workers[node_id] = Worker(Setup("ledger", str(directory / node_id), node_id, addresses))
            ending.callback(workers[node_id].end)
        yield workers[_agreed(lambda: [worker.status().leader for worker in workers.values()])]


# ---------------------------------------------------------------------- Java's


class _JavaPair:
    def __init__(self, master: JavaStore) -> None:
        self._master = master

    def measure(self, load: Load) -> Measured:
        told = self._master.measure_puts(producers=load.producers, body_bytes=load.body_bytes, seconds=load.seconds)
        return Measured(told.count, told.seconds)


class _JavaGroup:
    def __init__(self, leader: JavaLedger, node_id: str) -> None:
        self._leader, self._node_id = leader, node_id

    def measure(self, load: Load) -> Measured:
        told = self._leader.measure(
            self._node_id, producers=load.producers, body_bytes=load.body_bytes, seconds=load.seconds
        )
        return Measured(told.count, told.seconds)


@contextlib.contextmanager
def _java_pair(directory: Path) -> Iterator[Side]:
    (address,) = ledger_addresses("master").values()
    options = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": "2", "totalReplicas": "2", "slaveTimeout": "10000"}
    port = {"haListenPort": address.rpartition(":")[2]}
    with (
        JavaStore(directory / "master", {**options, **port}, jvm_options=_JVM) as master,
        JavaStore(directory / "slave", {"brokerRole": "SLAVE", "haListenPort": "0"}, jvm_options=_JVM) as slave,
    ):
        slave.follow(address)
        pair = _JavaPair(master)
        _wait(lambda: pair.measure(Load(1, 16, 0.2)).count > 0, "Java's slave to follow")
        yield pair


@contextlib.contextmanager
def _java_group(directory: Path) -> Iterator[Side]:
    addresses = ledger_addresses(*NODES)
    options = {"mappedFileSizeForEntryData": DATA_FILE_BYTES}
    with contextlib.ExitStack() as ending:
        nodes: dict[str, JavaLedger] = {}
        for node_id in NODES:
            nodes[node_id] = ending.enter_context(JavaLedger(GROUP, addresses, options, jvm_options=_JVM))
            nodes[node_id].start(node_id, directory)
        leader = _agreed(lambda: [java.info(node_id).leader_id for node_id, java in nodes.items()])
        yield _JavaGroup(nodes[leader], leader)


def _agreed(leaders: Callable[[], Sequence[str | None]]) -> str:
    found: list[str] = []

    def agree() -> bool:
        known = set(leaders())
        found[:] = [each for each in known if each is not None]
        return len(known) == 1 and len(found) == 1

    _wait(agree, "a leader")
    return found[0]


def _wait(happened: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while not happened():
        if time.monotonic() > deadline:
            raise FlintlogError(f"the benchmark waited for {what} in vain")
        time.sleep(0.05)


_HA: Final[dict[str, Opener]] = {OURS: _our_pair, JAVA: _java_pair}
_LEDGER: Final[dict[str, Opener]] = {OURS: _our_group, JAVA: _java_group}
