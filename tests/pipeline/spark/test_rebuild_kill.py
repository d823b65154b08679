"""A shuffling rebuild whose driver, executors or Python workers are killed: the same bytes, or the store as it was.

A killed driver leaves a store that opens, and that the next rebuild finishes.
"""

from __future__ import annotations

import random
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from tests.pipeline.cluster import Cluster, kill
from tests.pipeline.rebuild_script import CONFIG
from tests.pipeline.spark.test_kill import files
from tests.pipeline.spark.test_kill_spark import WITH_RETRIES, Process

from flintlog import open_store
from flintlog.bench.ours import fill_log

SCRIPT = Path(__file__).parents[1] / "rebuild_script.py"
DERIVED = ("consumequeue", "index")
LONGEST_S = 6.0

Bytes = dict[str, dict[str, bytes]]


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Bytes]:
    """A store with many queue files, and its derived files as the dispatcher wrote them."""
    store = tmp_path_factory.mktemp("filled") / "store"
    fill_log(store, 24)
    for folder in DERIVED:
        shutil.rmtree(store / folder)
    with open_store(store, CONFIG) as opened:
        opened.wait_dispatched()
    return store, {folder: files(store, folder) for folder in DERIVED}


def fresh(filled: tuple[Path, Bytes], folder: Path) -> Path:
    """A copy of the store without its queues and index."""
    store = folder / "store"
    subprocess.run(["cp", "-r", "--sparse=always", str(filled[0]), str(store)], check=True)
    for derived in DERIVED:
        shutil.rmtree(store / derived)
    return store


def kill_in_the_middle(
    filled: tuple[Path, Bytes],
    work: Path,
    master: str,
    environment: Mapping[str, str] | None,
    victim: str,
    find: Callable[[Process], list[int]],
    chance: random.Random,
) -> None:
    store = fresh(filled, work)
    room = store / "flintlog" / "rebuild"
    driver = Process(work, str(SCRIPT), master, str(store), environment=environment)
    driver.wait_until(room.exists)
    time.sleep(chance.uniform(0, LONGEST_S))
    if victim != "driver":
        for process in find(driver)[:1]:
            kill(process)
        driver.end()
    elif driver.process.poll() is None:
        driver.kill()
        left = {folder: files(store, folder) for folder in DERIVED}
        assert left in ({folder: {} for folder in DERIVED}, filled[1]) or (store / "flintlog" / "swap.json").exists()
        driver = Process(work, str(SCRIPT), master, str(store), environment=environment)
        driver.end()
    assert {folder: files(store, folder) for folder in DERIVED} == filled[1]
    assert not room.exists()
    with open_store(store, CONFIG) as opened:
        assert opened.recovery.clean and not opened.recovery


def test_a_rebuild_outlives_a_killed_worker(filled: tuple[Path, Bytes], tmp_path: Path) -> None:
    kill_in_the_middle(filled, tmp_path, WITH_RETRIES, None, "worker", Process.workers, random.Random(1))


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("seed", range(10))
def test_a_rebuild_on_a_cluster_outlives_any_kill(
    cluster: Cluster, filled: tuple[Path, Bytes], tmp_path: Path, seed: int
) -> None:
    victim = ("executor", "driver", "worker")[seed % 3]
    find = {"executor": cluster.executors, "worker": cluster.python_workers, "driver": list[int]}[victim]
    environment = cluster.environment()
    kill_in_the_middle(filled, tmp_path, cluster.master, environment, victim, lambda _: find(), random.Random(seed))
