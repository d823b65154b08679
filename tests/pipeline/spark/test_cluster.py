"""Jobs on a standalone cluster whose executors, Python workers and drivers are killed in the middle.

Speculation is on, so tasks also run twice without any kill. Whatever happens, the rebuilt files have the bytes that
the store's own dispatcher wrote, nothing is found wrong, and the table has every message once.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow.dataset as ds
import pytest
from tests.pipeline.cluster import DEADLINE_S, Cluster, descendants, kill
from tests.pipeline.spark.test_kill import files

from flintlog import open_store
from flintlog.bench.ours import fill_log
from flintlog.store.options.store_config import StoreConfig

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]
MIB = 64
SCRIPT = Path(__file__).parents[1] / "cluster_script.py"
DERIVED = ("consumequeue", "index")

Bytes = dict[str, dict[str, bytes]]


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Bytes, list[int]]:
    """A store, its derived files as the dispatcher wrote them, and where its messages are."""
    store = tmp_path_factory.mktemp("filled") / "store"
    fill_log(store, MIB)
    with open_store(store, StoreConfig(flush="async"), read_only=True) as opened:
        places = [place for batch in opened.scan(include_body=False) for place in batch["physical_offset"].to_pylist()]
    return store, {folder: files(store, folder) for folder in DERIVED}, places


class Driver:
    """One run of the script, and what is killed meanwhile."""

    def __init__(self, cluster: Cluster, store: Path, table: Path) -> None:
        self.store, self.table = store, table
        self.process = subprocess.Popen(
            [sys.executable, str(SCRIPT), cluster.master, str(store), str(table)],
            env=cluster.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            start_new_session=True,
        )  # fmt: skip

    def is_rebuilding(self) -> bool:
        return (self.store / "flintlog" / "rebuild").exists()

    def is_exporting(self) -> bool:
        staged = self.table / "_flintlog" / "staged"
        return staged.exists() and any(staged.iterdir())

    def wait_until(self, is_so: Callable[[], bool]) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not is_so():
            assert self.process.poll() is None, f"it ended before: {self.process.communicate()[1][-3000:]}"
            assert time.monotonic() < deadline
            time.sleep(0.005)

    def result(self) -> dict[str, object]:
        out, err = self.process.communicate(timeout=2 * DEADLINE_S)
        assert self.process.returncode == 0, err[-5000:]
        found: dict[str, object] = json.loads(out.splitlines()[-1])
        return found

    def kill(self) -> None:
        """The driver and its JVM, at once."""
        for process in descendants(self.process.pid):
            kill(process)
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate()


def kill_one(find: Callable[[], list[int]], deadline_s: float = DEADLINE_S) -> None:
    """Kill the first that is seen."""
    deadline = time.monotonic() + deadline_s
    while not any(kill(process) for process in find()[:1]):
        assert time.monotonic() < deadline, "nothing to kill"
        time.sleep(0.005)


def check(filled: tuple[Path, Bytes, list[int]], driver: Driver) -> None:
    _, expected, places = filled
    assert {folder: files(driver.store, folder) for folder in DERIVED} == expected
    assert not (driver.store / "flintlog" / "rebuild").exists()
    table = ds.dataset(driver.table, format="parquet", partitioning="hive").to_table(columns=["physical_offset"])
    assert sorted(table["physical_offset"].to_pylist()) == places
    with open_store(driver.store, StoreConfig(flush="async")) as opened:
        assert opened.recovery.clean


def fresh(filled: tuple[Path, Bytes, list[int]], folder: Path) -> Path:
    """A copy of the store without what is derived from its log."""
    store = folder / "store"
    subprocess.run(["cp", "-r", "--sparse=always", str(filled[0]), str(store)], check=True)  # a file of 1 GiB
    for derived in DERIVED:
        shutil.rmtree(store / derived)
    return store


@pytest.mark.parametrize("victim", ["nobody", "executors", "python workers"])
def test_what_is_lost_in_the_middle_is_done_again(
    cluster: Cluster, filled: tuple[Path, Bytes, list[int]], tmp_path: Path, victim: str
) -> None:
    driver = Driver(cluster, fresh(filled, tmp_path), tmp_path / "table")
    if victim != "nobody":
        find = cluster.executors if victim == "executors" else cluster.python_workers
        for is_so in (driver.is_rebuilding, driver.is_exporting):
            driver.wait_until(is_so)
            kill_one(find)
    assert driver.result() == {"serial": [], "findings": [], "rows": len(filled[2])}
    check(filled, driver)


def test_a_driver_that_is_killed_again_and_again_gets_there(
    cluster: Cluster, filled: tuple[Path, Bytes, list[int]], tmp_path: Path
) -> None:
    store, table = fresh(filled, tmp_path), tmp_path / "table"
    for moment in ("is_rebuilding", "is_exporting"):
        driver = Driver(cluster, store, table)
        driver.wait_until(getattr(driver, moment))
        driver.kill()
        if moment == "is_rebuilding":
            with open_store(store, StoreConfig(flush="async")) as opened:  # whatever was left, a store opens
                opened.wait_dispatched()
    driver = Driver(cluster, store, table)
    assert driver.result()["findings"] == []
    check(filled, driver)
