"""Runs the contenders in turns: task by task and round by round, each in a fresh directory, next to the others.

Between two runs the machine writes dirty pages back, so that no run pays for the writes of the one before. Tasks that
read (`get`, `rebuild`) read what was written just before, from the page cache. Every other round has the reverse order.

A hypervisor takes free memory back, and a page that it has to supply again costs ten times as much; the faster writer
would pay that more often. So before each run as much memory is touched and freed as the run may write, and each writer
does the same work once without being measured, which Java's compiler needs anyway. `level_all` touches nearly all free
memory, because the kernel does not reuse the pages first that were freed last.
"""

from __future__ import annotations

import mmap
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import msgspec

from flintlog.bench.ours import fill_log
from flintlog.bench.tasks import MIB, Measurement, Task, Window, median
from flintlog.disk.media.libc import MADV_POPULATE_WRITE, MemoryMap
from flintlog.errors import MissingExtra

if TYPE_CHECKING:
    from flintlog.bench.replication import Side

WRITING = frozenset({"put", "batch"})
_MEMORY_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
_DERIVED = ("consumequeue", "index", "checkpoint", "abort", "abort.bak", "dispatch")


class Contender(Protocol):
    """A store or database that can be measured; `measure` returns None for a task that it cannot do."""

    name: str
    version: str

    def prepare(self, task: Task, window: Window, directory: Path) -> None: ...
    def measure(self, task: Task, window: Window, directory: Path) -> Measurement | None: ...
    def close(self) -> None: ...


class Java(Protocol):
    """RocketMQ's own store, and its pair and group for replication, each in a directory of its own.

    Running it takes a JDK, Maven and classes in Java, which the installed package has not. `make bench` in a clone of
    the project hands in `benchmarks/java.py`.
    """

    def store(self) -> Contender: ...
    def pair(self, directory: Path) -> AbstractContextManager[Side]: ...
    def group(self, directory: Path) -> AbstractContextManager[Side]: ...


def need_java(java: Java | None) -> Java:
    """Java, or an error that says where the comparison can be run."""
    if java is None:
        advice = "in a clone of the project, run: make bench ARGS='--compare java'"
        raise MissingExtra("the installed package cannot run RocketMQ's own store", advice=advice)
    return java


class Outcome(msgspec.Struct, frozen=True):
    """All rounds of one contender at one task, and their median."""

    task: Task
    contender: str
    rounds: list[Measurement]
    median: Measurement


class Outcomes(msgspec.Struct, frozen=True):
    """The outcomes so far, and whether all tasks were measured."""

    measured: list[Outcome]
    is_whole: bool


def run_tasks(
    tasks: Iterable[Task],
    contenders: Sequence[Contender],
    window: Window,
    directory: Path,
    progress: Callable[[str], None],
) -> Outcomes:
    """Measure everything; `progress` is called with each step. After an interrupt it returns the outcomes so far."""
    outcomes: list[Outcome] = []
    try:
        for task in tasks:
            with tempfile.TemporaryDirectory(prefix="flintlog-bench-", dir=directory) as name:
                taken = _take_turns(task, contenders, window, Path(name), progress)
            outcomes += [Outcome(task, who, rounds, median(rounds)) for who, rounds in taken.items() if rounds]
    except KeyboardInterrupt:
        return Outcomes(outcomes, is_whole=False)
    return Outcomes(outcomes, is_whole=True)


def _take_turns(
    task: Task, contenders: Sequence[Contender], window: Window, room: Path, progress: Callable[[str], None]
) -> dict[str, list[Measurement]]:
    taken: dict[str, list[Measurement]] = {contender.name: [] for contender in contenders}
    if task.kind == "rebuild":
        progress(f"{task.name}: writing a log of {window.rebuild_mib} MiB")
        fill_log(room / "log", window.rebuild_mib)
    for number in range(window.rounds):
        for contender in contenders if number % 2 == 0 else contenders[::-1]:
            progress(f"{task.name}: {contender.name}, round {number + 1} of {window.rounds}")
            measured = _one_run(task, contender, window, room)
            if measured is not None:
                taken[contender.name].append(measured)
    return taken


def _one_run(task: Task, contender: Contender, window: Window, room: Path) -> Measurement | None:
    if task.kind == "rebuild":
        strip(room / "log")
        os.sync()
        return contender.measure(task, window, room / "log")
    directory = room / contender.name
    shutil.rmtree(directory, ignore_errors=True)
    contender.prepare(task, window, directory)
    os.sync()
    _level_ground(window)
    _warm_up(task, contender, window, room / "warm")
    try:
        return contender.measure(task, window, directory)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _warm_up(task: Task, contender: Contender, window: Window, directory: Path) -> None:
    if task.kind not in WRITING or contender.name == "java" or not window.warm_up_seconds:
        return  # Java does this by itself, in the process that is measured
    contender.prepare(task, window, directory)
    contender.measure(task, msgspec.structs.replace(window, seconds=window.warm_up_seconds), directory)
    shutil.rmtree(directory, ignore_errors=True)


def _level_ground(window: Window) -> None:
    """Touch and free memory, so that every run finds the same free pages."""
    free_bytes = free_memory()
    wished_bytes = int(window.ground_mib_a_second * window.seconds) * MIB
    size = int(free_bytes * 0.95) if window.level_all else min(wished_bytes, free_bytes // 2)
    memory = MemoryMap(size, None, writable=True)
    if not memory.advise(MADV_POPULATE_WRITE, 0, size):  # before Linux 5.14, or not Linux
        memory.clear()


def free_memory(limits: Sequence[Path] = _MEMORY_LIMITS) -> int:
    """Free bytes, but at most half of a container's limit, since other processes share it."""
    free_bytes = os.sysconf("SC_AVPHYS_PAGES") * mmap.PAGESIZE
    for path in limits:
        limit = path.read_text().strip() if path.exists() else ""
        if limit.isdecimal():
            free_bytes = min(free_bytes, int(limit) // 2)
    return free_bytes


def strip(store: Path) -> None:
    """Delete everything but the log, and mark the store as not shut down: the rest must be built again."""
    for name in _DERIVED:
        path = store / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    (store / "abort").write_bytes(b"")
