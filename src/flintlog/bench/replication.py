"""Measures replication: a master with its slave, and a group of three, ours beside Java's, in turns on one machine.

    HA pair     puts wait until the slave has them; neither side syncs to disk before it answers, as is Java's default
    group       three nodes; ours sync on a majority before a send is acknowledged, DLedger's do not

All nodes are processes of their own on loopback. Producers run in the master's or leader's process, the same number on
both sides, and each waits for its own message; Java's are threads, ours threads, or coroutines in the node's own loop,
as the task says.
Every side is warmed up before its first round; the median counts. The CPU time a message is that of all nodes and
producers together: it compares the sides for a machine that has other work too.
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
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from flintlog.bench.process_tree import ProcessWatch
from flintlog.bench.replication_worker import Command, Load, Measured, Setup, Status
from flintlog.errors import FlintlogError
from flintlog.testing.free_ports import ledger_addresses

if TYPE_CHECKING:
    from flintlog.bench.run import Java

OURS: Final = "flintlog"
JAVA: Final = "java"
NODES: Final = ("n0", "n1", "n2")
BODY_BYTES: Final = 1024
_PATIENCE_S: Final = 60.0


class ReplicationFigure(msgspec.Struct, frozen=True):
    """Acknowledged messages a second of both, their ratio, and the CPU time of each message."""

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
    room: Path, window: ReplicationWindow, *, java: Java | None, progress: Callable[[str], None]
) -> list[ReplicationFigure]:
    """Both tasks, in a directory of their own; `progress` is called with the name of each step."""
    threads = Load(window.ha_threads, BODY_BYTES, window.seconds)
    few = msgspec.structs.replace(threads, as_tasks=True)
    tasks = Load(window.producers, BODY_BYTES, window.seconds, as_tasks=True)
    pairs: dict[str, Opener] = {OURS: _our_pair, **({JAVA: java.pair} if java else {})}
    groups: dict[str, Opener] = {OURS: _our_group, **({JAVA: java.group} if java else {})}
    return [
        _figure(name, room, window, load, sides, progress)
        for name, load, sides in (
            (f"HA sync pair, {threads.producers} threads", threads, pairs),
            (f"HA sync pair, {few.producers} asyncio", few, pairs),
            (f"HA sync pair, {tasks.producers} asyncio", tasks, pairs),
            (f"group of three, {tasks.producers} asyncio", tasks, groups),
        )
    ]


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
            with ProcessWatch() as seen:
                measured = side.measure(load)
            return msgspec.structs.replace(measured, cpu_seconds=seen.cpu_seconds)
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
        """Close its standard input; the node stops by itself, or is killed after a while."""
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
        wait_for(lambda: master.measure(Load(1, 16, 0.05)).count > 0, "the slave to follow")
        yield master


@contextlib.contextmanager
def _our_group(directory: Path) -> Iterator[Side]:
    addresses = ledger_addresses(*NODES)
    with contextlib.ExitStack() as ending:
        workers: dict[str, Worker] = {}
        for node_id in NODES:
            workers[node_id] = Worker(Setup("ledger", str(directory / node_id), node_id, addresses))
            ending.callback(workers[node_id].end)
        yield workers[agreed(lambda: [worker.status().leader for worker in workers.values()])]


def agreed(leaders: Callable[[], Sequence[str | None]]) -> str:
    """Wait until all nodes name the same leader."""
    found: list[str] = []

    def agree() -> bool:
        known = set(leaders())
        found[:] = [each for each in known if each is not None]
        return len(known) == 1 and len(found) == 1

    wait_for(agree, "a leader")
    return found[0]


def wait_for(happened: Callable[[], bool], what: str) -> None:
    """Look again and again, for a minute at most."""
    deadline = time.monotonic() + _PATIENCE_S
    while not happened():
        if time.monotonic() > deadline:
            raise FlintlogError(f"the benchmark waited for {what} in vain")
        time.sleep(0.05)
