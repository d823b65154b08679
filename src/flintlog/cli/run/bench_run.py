"""Runs `flintlog bench`: chooses tasks and contenders, measures, shows. It imports the store and its peers."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import click
import msgspec

from flintlog.bench.java import Java, need_java
from flintlog.bench.ours import Ours
from flintlog.bench.peers import lmdb_peer, rocksdict_peer, sqlite_peer
from flintlog.bench.raw_file import FileByHand
from flintlog.bench.report import FIGURE_COLUMNS, Report, cells, make_report
from flintlog.bench.run import Contender, run_tasks
from flintlog.bench.tasks import QUICK, TASKS, Task, Window
from flintlog.cli.exit_codes import ExitCode
from flintlog.cli.output import CsvOutput, Output, TableOutput
from flintlog.cli.run.bench import OTHERS
from flintlog.errors import MissingExtra

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


def measure(
    suite: str,
    compare: str,
    only: tuple[str, ...],
    quick: bool,
    seconds: float | None,
    rounds: int | None,
    level: bool,
    rebuild_mib: int | None,
    directory: Path | None,
    output: Output,
    java: Java | None,
) -> ExitCode:
    """Run one suite and show its figures; `java` runs RocketMQ's own store, where that is possible."""
    if suite == "services":
        return _bench_services(directory, quick, output)
    if suite == "replication":
        beside = need_java(java) if "java" in _names(compare) else None
        return _bench_replication(directory, quick, seconds, rounds, beside, output)
    window = _window(quick, seconds, rounds, level, rebuild_mib)
    tasks, names = _tasks(only), _names(compare)
    room = directory or Path(tempfile.gettempdir())
    room.mkdir(parents=True, exist_ok=True)
    if suite == "pipeline":
        beside = need_java(java) if "java" in names else None
        _show_pipeline(room, QUICK_PIPELINE_MIB if quick else rebuild_mib or PIPELINE_MIB, beside, output)
        return ExitCode.FINE
    report, is_whole = _measure(names, java, tasks, window, room)
    _show(report, output)
    if not is_whole:
        output.note("Interrupted: the tasks that were not finished are missing.")
        return ExitCode.PARTIAL
    return ExitCode.FINE


def _bench_services(directory: Path | None, quick: bool, output: Output) -> ExitCode:
    from rich.console import Console

    from flintlog.bench.scale import SCALE_COLUMNS, measure_scale

    with (
        tempfile.TemporaryDirectory(prefix="flintlog-bench-", dir=directory) as room,
        Console(stderr=True).status("") as status,
    ):
        figures = measure_scale(Path(room), quick=quick, progress=status.update)
    output.rows([msgspec.to_builtins(figure) for figure in figures], SCALE_COLUMNS, "what many queues and timers cost")
    return ExitCode.FINE


def _bench_replication(
    directory: Path | None, quick: bool, seconds: float | None, rounds: int | None, java: Java | None, output: Output
) -> ExitCode:
    from rich.console import Console

    from flintlog.bench.replication import (
        QUICK_REPLICATION,
        REPLICATION_COLUMNS,
        ReplicationWindow,
        measure_replication,
    )

    asked = {"seconds": seconds, "rounds": rounds}
    base = QUICK_REPLICATION if quick else ReplicationWindow()
    window = msgspec.structs.replace(base, **{name: value for name, value in asked.items() if value is not None})
    load = os.getloadavg()[0]
    with (
        tempfile.TemporaryDirectory(prefix="flintlog-bench-", dir=directory) as room,
        Console(stderr=True).status("") as status,
    ):
        figures = measure_replication(Path(room), window, java=java, progress=status.update)
    title = "acknowledged messages of 1 KiB a second; ratio: how many times as many ours are"
    output.rows([msgspec.to_builtins(figure) for figure in figures], REPLICATION_COLUMNS, title)
    if load > BUSY_LOAD_PER_CORE * (os.cpu_count() or 1):
        output.note(f"The machine was busy before (load average {load:.2f}): do not quote this.")
    return ExitCode.FINE


def _show_pipeline(room: Path, mib: int, java: Java | None, output: Output) -> None:
    from rich.console import Console

    from flintlog.bench.pipeline import PipelineFigure, measure_pipeline

    with (
        tempfile.TemporaryDirectory(dir=room, prefix="flintlog-pipeline-") as directory,
        Console(stderr=True).status("") as status,
    ):
        figures = measure_pipeline(Path(directory), mib=mib, java=java, progress=status.update)
    rows = [msgspec.to_builtins(figure) for figure in figures]
    output.rows(rows, PipelineFigure.__struct_fields__, f"{mib} MiB of 1 KiB messages, local[2]")


def _show(report: Report, output: Output) -> None:
    if isinstance(output, TableOutput):
        columns = ["task", *report.versions]
        output.rows(cells(report.outcomes, columns[1:]), columns, TITLE)
    elif isinstance(output, CsvOutput):
        output.rows(report.figures, FIGURE_COLUMNS)
    else:
        output.record(msgspec.to_builtins(report))
    for sentence in _remarks(report):
        output.note(sentence)


def _measure(names: list[str], java: Java | None, tasks: list[Task], window: Window, room: Path) -> tuple[Report, bool]:
    from rich.console import Console

    load_before = os.getloadavg()
    contenders: list[Contender] = [Ours()]
    left_out: list[str] = []
    with ExitStack() as closing, Console(stderr=True).status("") as status:
        for name in names:
            try:
                contenders.append(need_java(java).store() if name == "java" else PEERS[name]())
                closing.callback(contenders[-1].close)
            except MissingExtra as missing:
                left_out.append(f"{name} is left out: {missing}")
        outcomes = run_tasks(tasks, contenders, window, room, status.update)
    versions = {contender.name: contender.version for contender in contenders}
    report = make_report(
        outcomes.measured, load_before=load_before, versions=versions, window=window, left_out=left_out, directory=room
    )
    return report, outcomes.is_whole


def _window(quick: bool, seconds: float | None, rounds: int | None, level: bool, rebuild_mib: int | None) -> Window:
    base = QUICK if quick else Window()
    asked = {"seconds": seconds, "rounds": rounds, "level_all": level, "rebuild_mib": rebuild_mib}
    return msgspec.structs.replace(base, **{name: value for name, value in asked.items() if value is not None})


def _tasks(only: tuple[str, ...]) -> list[Task]:
    chosen = [task for task in TASKS if not only or any(part in task.name for part in only)]
    if not chosen:
        raise click.UsageError(f"no task is named like that; there are: {', '.join(task.name for task in TASKS)}")
    return chosen


def _names(compare: str) -> list[str]:
    names = [name.strip() for name in compare.split(",") if name.strip()]
    for name in names:
        if name not in OTHERS:
            raise click.UsageError(f"nothing to compare with is called {name}; there are: {', '.join(OTHERS)}")
    return names


def _remarks(report: Report) -> list[str]:
    machine = report.machine
    remarks = [
        f"{machine.processor}, {machine.cores} cores, {machine.file_system}; {machine.python}, {machine.kernel} kernel"
    ]
    remarks += [f"{name}: {version}" for name, version in report.versions.items()]
    remarks += report.left_out
    if report.load_average_before[0] > BUSY_LOAD_PER_CORE * machine.cores:
        remarks.append(
            f"The machine was busy before (load average {report.load_average_before[0]:.2f}): do not quote this."
        )
    return remarks
