"""A Spark cluster of processes on this machine: a master and two workers, from the PySpark that is installed.

Executors are children of the workers, Python workers children of the executors' daemons: real processes, to be killed.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyspark

from flintlog.testing.free_ports import free_ports

SPARK = Path(pyspark.__file__).parent
SOURCE = Path(__file__).parents[2]
DEADLINE_S = 240
EXECUTOR = "CoarseGrainedExecutorBackend"
PYTHON_DAEMON = "flintlog.pipeline.spark.daemon"

SETTINGS = """
spark.executor.memory                     600m
spark.driver.memory                       600m
spark.executor.cores                      1
spark.speculation                         true
spark.speculation.interval                50ms
spark.speculation.multiplier              1.01
spark.speculation.quantile                0.1
spark.speculation.minTaskRuntime          0ms
spark.task.maxFailures                    20
spark.ui.enabled                          false
spark.sql.shuffle.partitions              4
spark.driver.host                         127.0.0.1
spark.driver.bindAddress                  127.0.0.1
"""


@dataclass(frozen=True, slots=True)
class Cluster:
    """Where the cluster is, and the processes that belong to it."""

    master: str
    folder: Path
    workers: tuple[int, ...]

    def environment(self) -> dict[str, str]:
        """For drivers and workers alike."""
        return _environment(self.folder)

    def executors(self) -> list[int]:
        return [process for worker in self.workers for process in descendants(worker) if EXECUTOR in command(process)]

    def python_workers(self) -> list[int]:
        """The processes that run tasks: forked by a daemon, so they look like it, but are its children."""
        found = []
        for executor in self.executors():
            daemons = [process for process in descendants(executor) if PYTHON_DAEMON in command(process)]
            found += [process for process in daemons if parent(process) in daemons]
        return found


@contextmanager
def running_cluster(folder: Path) -> Iterator[Cluster]:
    """A master and two workers of one core each."""
    (folder / "conf").mkdir(parents=True)
    (folder / "conf" / "spark-defaults.conf").write_text(SETTINGS)
    port = free_ports(1)[0]
    master = f"spark://127.0.0.1:{port}"
    started: list[subprocess.Popen[bytes]] = []
    try:
        started.append(_start(folder, "master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"))
        _wait_for(port)
        for number in range(2):
            options = ("--cores", "1", "--memory", "1g", "--host", "127.0.0.1", "--webui-port", "0")
            started.append(_start(folder, "worker.Worker", *options, "--work-dir", str(folder / f"w{number}"), master))
        yield Cluster(master, folder, tuple(each.pid for each in started[1:]))
    finally:
        for each in reversed(started):
            for process in [*descendants(each.pid), each.pid]:
                kill(process)
            each.wait()


def _start(folder: Path, name: str, *arguments: str) -> subprocess.Popen[bytes]:
    command_line = [str(SPARK / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *arguments]
    with (folder / f"{name}.log").open("ab") as log:
        return subprocess.Popen(command_line, env=_environment(folder), stdout=log, stderr=log, start_new_session=True)


def _environment(folder: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    return {
        **kept,
        "SPARK_CONF_DIR": str(folder / "conf"),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(folder / "local"),
        "SPARK_DAEMON_MEMORY": "300m",
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join((str(SOURCE / "src"), str(SOURCE))),
    }


def _wait_for(port: int) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            assert time.monotonic() < deadline, "the master does not start"
            time.sleep(0.2)
        else:
            return


# ---------------------------------------------------------------------- processes


def descendants(root: int) -> list[int]:
    """The children of a process, theirs, and so on."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            children.setdefault(parent(int(entry.name)), []).append(int(entry.name))
    found, waiting = [], [root]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


def parent(process: int) -> int:
    """The process that started another; 0 if that is gone."""
    try:
        return int(Path(f"/proc/{process}/stat").read_text().rpartition(") ")[2].split()[1])
    except (OSError, ValueError):
        return 0


def command(process: int) -> str:
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def kill(process: int) -> bool:
    """SIGKILL; whether there was such a process."""
    try:
        os.kill(process, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True
