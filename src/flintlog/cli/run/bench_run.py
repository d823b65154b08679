"""Runs `flintlog bench`: chooses tasks and contenders, measures, shows. It imports the store and its peers."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click
import msgspec

from flintlog.bench.ours import Ours
from flintlog.bench.peers import lmdb_peer, rocksdict_peer, sqlite_peer
from flintlog.bench.raw_file import FileByHand
from flintlog.bench.report import FIGURE_COLUMNS, PipelineFigure, Report, cells, make_report
from flintlog.bench.run import Contender, Java, need_java, run_tasks
from flintlog.bench.tasks import QUICK, TASKS, Task, Window
from flintlog.cli.exit_codes import ExitCode
from flintlog.cli.output import CsvOutput, Output, TableOutput
from flintlog.cli.run.bench import OTHERS
from flintlog.errors import MissingExtra

if TYPE_CHECKING:
    from flintlog.bench.replication import ReplicationWindow

PEERS: dict[str, Callable[[], Contender]] = {
    "rocksdict": rocksdict_peer,
    "sqlite": sqlite_peer,
    "lmdb": lmdb_peer,
    "file": FileByHand,
}
BUSY_LOAD_PER_CORE = 0.5
PIPELINE_MIB = 2048
QUICK_PIPELINE_MIB = 64
TITLE = (
    "messages a second, or µs from put to arrival (p50 / p99); in brackets CPU µs a message; × how much better ours is"
)

AnyWindow = TypeVar("AnyWindow", Window, "ReplicationWindow")


@dataclass(frozen=True, slots=True)
class Asked:
    """The options of the command."""

    suite: str
    compare: str
    only: tuple[str, ...]
    quick: bool
    seconds: float | None
    rounds: int | None
    level: bool
    rebuild_mib: int | None
    directory: Path | None

    @property
    def others(self) -> list[str]:
        """What to compare with, by name."""
        names = [name.strip() for name in self.compare.split(",") if name.strip()]
        for name in names:
            if name not in OTHERS:
                raise click.UsageError(f"nothing to compare with is called {name}; there are: {', '.join(OTHERS)}")
        return names

    @property
    def tasks(self) -> list[Task]:
        chosen = [task for task in TASKS if not self.only or any(part in task.name for part in self.only)]
        if not chosen:
            raise click.UsageError(f"no task is named like that; there are: {', '.join(task.name for task in TASKS)}")
        return chosen

    @property
    def window(self) -> Window:
        base = QUICK if self.quick else Window()
        return self.changed(base, level_all=self.level, rebuild_mib=self.rebuild_mib)

    def changed(self, window: AnyWindow, **others: int | None) -> AnyWindow:
        """A window with the values that were asked for."""
        asked = {"seconds": self.seconds, "rounds": self.rounds, **others}
        return msgspec.structs.replace(window, **{name: value for name, value in asked.items() if value is not None})


def measure(asked: Asked, output: Output, java: Java | None) -> ExitCode:
    """Run one suite and show its figures; `java` runs RocketMQ's own store, where that is possible."""
    if asked.suite == "store":
        return _bench_store(asked, output, java)
    if asked.suite == "services":
        return _bench_services(asked, output)
    beside = need_java(java) if "java" in asked.others else None
    bench = _bench_pipeline if asked.suite == "pipeline" else _bench_replication
    return bench(asked, output, beside)


@contextmanager
def _working(directory: Path | None) -> Iterator[tuple[Path, Callable[[str], None]]]:
    """An empty directory that is removed at the end, and a function that shows the current step."""
    from rich.console import Console

    if directory is not None:
        directory.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix="flintlog-bench-", dir=directory) as room,
        Console(stderr=True).status("") as status,
    ):
        yield Path(room), status.update


def _bench_store(asked: Asked, output: Output, java: Java | None) -> ExitCode:
    tasks, names, window = asked.tasks, asked.others, asked.window
    load_before = os.getloadavg()
    contenders: list[Contender] = [Ours()]
    left_out: list[str] = []
    with ExitStack() as closing, _working(asked.directory) as (room, progress):
        for name in names:
            try:
                contenders.append(need_java(java).store() if name == "java" else PEERS[name]())
                closing.callback(contenders[-1].close)
            except MissingExtra as missing:
                left_out.append(f"{name} is left out: {missing}")
        outcomes = run_tasks(tasks, contenders, window, room, progress)
        versions = {contender.name: contender.version for contender in contenders}
        report = make_report(
            outcomes.measured,
            load_before=load_before,
            versions=versions,
            window=window,
            left_out=left_out,
            directory=room,
        )
    _show(report, output)
    if not outcomes.is_whole:
        output.note("Interrupted: the tasks that were not finished are missing.")
        return ExitCode.PARTIAL
    return ExitCode.FINE


def _bench_services(asked: Asked, output: Output) -> ExitCode:
    from flintlog.bench.services import Figure, measure_services

    with _working(asked.directory) as (room, progress):
        figures = measure_services(room, quick=asked.quick, progress=progress)
    rows = [msgspec.to_builtins(figure) for figure in figures]
    output.rows(rows, Figure.__struct_fields__, "what many queues and timers cost")
    return ExitCode.FINE


def _bench_replication(asked: Asked, output: Output, java: Java | None) -> ExitCode:
    from flintlog.bench.replication import QUICK_REPLICATION, ReplicationFigure, ReplicationWindow, measure_replication

    window = asked.changed(QUICK_REPLICATION if asked.quick else ReplicationWindow())
    load = os.getloadavg()[0]
    with _working(asked.directory) as (room, progress):
        figures = measure_replication(room, window, java=java, progress=progress)
    title = "acknowledged messages of 1 KiB a second; ratio: how many times as many ours are"
    output.rows([msgspec.to_builtins(figure) for figure in figures], ReplicationFigure.__struct_fields__, title)
    for sentence in _busy(load, os.cpu_count() or 1):
        output.note(sentence)
    return ExitCode.FINE


def _bench_pipeline(asked: Asked, output: Output, java: Java | None) -> ExitCode:
    from flintlog.bench.pipeline import measure_pipeline

    mib = QUICK_PIPELINE_MIB if asked.quick else asked.rebuild_mib or PIPELINE_MIB
    with _working(asked.directory) as (room, progress):
        figures = measure_pipeline(room, mib=mib, java=java, progress=progress)
    rows = [msgspec.to_builtins(figure) for figure in figures]
    output.rows(rows, PipelineFigure.__struct_fields__, f"{mib} MiB of 1 KiB messages, local[2]")
    return ExitCode.FINE


def _show(report: Report, output: Output) -> None:
    if isinstance(output, TableOutput):
        columns = ["task", *report.versions]
        output.rows(cells(report.outcomes, columns[1:]), columns, TITLE)
    elif isinstance(output, CsvOutput):
        output.rows(report.figures, FIGURE_COLUMNS)
    else:
        output.record(msgspec.to_builtins(report))
    machine = report.machine
    output.note(
        f"{machine.processor}, {machine.cores} cores, {machine.file_system}; {machine.python}, {machine.kernel} kernel"
    )
    for name, version in report.versions.items():
        output.note(f"{name}: {version}")
    for sentence in (*report.left_out, *_busy(report.load_average_before[0], machine.cores)):
        output.note(sentence)


def _busy(load: float, cores: int) -> Iterator[str]:
    if load > BUSY_LOAD_PER_CORE * cores:
        yield f"The machine was busy before (load average {load:.2f}): do not quote this."
