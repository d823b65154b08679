"""Drivers with their JVM, and Python workers, killed in the middle of streams and of a sink: every message once."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.pipeline.cluster import DEADLINE_S, PYTHON_DAEMON, command, descendants, kill, parent
from tests.pipeline.conftest import fill, small_config
from tests.pipeline.kill_driver import PARTITIONS, ROWS, staged_files
from tests.pipeline.sink.test_sink_rows import CONFIG
from tests.pipeline.spark.test_kill_commits import FORMS, exported, messages, places, written_to

from flintlog import StoreConfig, open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCRIPT = Path(__file__).parents[1] / "kill_driver.py"
SOURCE = Path(__file__).parents[3]
WITH_RETRIES = "local[2,4]"
LARGE = small_config(mapped_file_size_commit_log=16 * 1024 * 1024)
"""Room for the rows of the third store."""


class Process:
    """A driver in a process of its own. What it says goes to a file, so that nothing has to be read while it runs."""

    def __init__(self, work: Path, *command_line: str, environment: Mapping[str, str] | None = None) -> None:
        self.work = work
        paths = os.pathsep.join((str(SOURCE / "src"), str(SOURCE)))
        self._log = work / "driver.log"
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, *command_line],
                env={**os.environ, "PYTHONPATH": paths, **(environment or {})},
                stdout=log, stderr=log, start_new_session=True, cwd=work,
            )  # fmt: skip

    def wait_until(self, is_so: Callable[[], bool]) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not is_so():
            assert self.process.poll() is None, f"it ended before: {self.reported()}"
            assert time.monotonic() < deadline
            time.sleep(0.005)

    def workers(self) -> list[int]:
        """The processes that run tasks: forked by a daemon, so they look like it, but are its children."""
        daemons = [process for process in descendants(self.process.pid) if PYTHON_DAEMON in command(process)]
        return [process for process in daemons if parent(process) in daemons]

    def kill(self) -> None:
        """The driver, its JVM and its workers."""
        for process in descendants(self.process.pid):
            kill(process)
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def end(self) -> None:
        assert self.process.wait(2 * DEADLINE_S) == 0, self.reported()

    def reported(self) -> str:
        return self._log.read_text("utf-8", "replace")[-5000:]


class Driver(Process):
    """One run of the script."""

    def __init__(self, work: Path, master: str = WITH_RETRIES, environment: Mapping[str, str] | None = None) -> None:
        super().__init__(work, str(SCRIPT), master, str(work), environment=environment)

    def commits(self) -> int:
        """How many batches both streams have noted as done."""
        return sum(
            len(list((self.work / f"{name}.checkpoint" / "commits").glob("[0-9]*"))) for name in ("copy", "rows")
        )


def prepare(work: Path, count: int) -> Path:
    (work / "broker.conf").write_text(CONFIG.replace("65536", str(16 * 1024 * 1024)))
    fill(work / "source", count)
    return work


def check(spark: SparkSession, work: Path) -> None:
    """Every message of the source once in the copy and in the table; every row once in the third store, in order."""
    assert {path.name for path in work.glob("grief-*")} >= {"grief-0", "grief-1"}  # both had staged something
    rows = spark.read.parquet(str(work / "rows"))  # by the log of Spark's sink, which does not name what a kill left
    assert sorted(row.physical_offset for row in rows.collect()) == places(work / "source")
    assert content(work / "copy", LARGE) == content(work / "source", small_config())
    with open_store(work / "written", LARGE) as written:
        assert written.recovery.clean
        for queue in range(PARTITIONS):
            found = [int(each.body.split()[0]) for each in messages(written, "orders", queue)]
            assert found == list(range(queue * ROWS, (queue + 1) * ROWS))
    # What the killed driver of a batch has staged stays for a day; a stream's goes with its next batch.
    assert not list((work / "copy" / "flintlog" / "staged").glob("*"))


def content(path: Path, config: StoreConfig) -> dict[tuple[str, int], list[tuple[int, bytes, str]]]:
    """The messages of every queue, in order."""
    with open_store(path, config, read_only=True) as store:
        return {
            (topic, queue): [(m.queue_offset, m.body, m.properties["number"]) for m in messages(store, topic, queue)]
            for topic in ("orders", "payments")
            for queue in (0, 1)
        }


def test_a_driver_killed_amid_its_streams_continues_and_tasks_that_die_write_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    work = prepare(tmp_path, 150)
    driver = Driver(work)
    driver.wait_until(lambda: driver.commits() > 1)
    driver.kill()
    before = driver.commits()
    driver = Driver(work)
    driver.end()
    assert 1 < before < driver.commits()
    check(spark, work)
    assert not staged_files(work)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_drivers_and_workers_killed_many_times(spark: SparkSession, tmp_path: Path) -> None:
    work, chance = prepare(tmp_path, 3000), random.Random()
    for number in range(8):
        driver = Driver(work)
        before = driver.commits()
        driver.wait_until(lambda driver=driver, before=before: driver.commits() > before)  # type: ignore[misc]
        for _ in range(number % 3):
            time.sleep(chance.random())
            for worker in driver.workers()[:1]:
                kill(worker)
        time.sleep(chance.random() * 2)
        driver.kill()
    Driver(work).end()
    check(spark, work)


COMMITS = {"parquet": "_flintlog/commits/*.json", "delta": "_delta_log/*.json", "iceberg": "metadata/*.metadata.json"}


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("form", FORMS)
def test_the_command_that_follows_killed_with_its_jvm(tmp_path: Path, form: str) -> None:
    store, table, chance = fill(tmp_path / "store", 300), tmp_path / "table", random.Random()
    job = ["-m", "flintlog.cli.main", "pipeline", "export", str(store), str(table), "--format", form]
    job += ["--master", WITH_RETRIES]

    def commits() -> int:
        return len(list(table.glob(COMMITS[form])))

    with written_to(store, 0.1):
        for _ in range(4):
            before, follower = commits(), Process(tmp_path, *job, "--follow", "--interval", "0.1")
            follower.wait_until(lambda before=before: commits() > before + 1)  # type: ignore[misc]
            time.sleep(chance.random())
            follower.kill()
    Process(tmp_path, *job).end()
    assert exported(table, form) == places(store)
