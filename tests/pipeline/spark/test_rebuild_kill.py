"""A shuffling rebuild whose driver, executors or Python workers are killed: the same bytes, or the store as it was.

A killed driver leaves a store that opens, and that the next rebuild finishes; or, in a bucket, a place that no reader
takes.
"""

from __future__ import annotations

import random
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pyarrow.fs as pa_fs
import pytest
from tests.pipeline.cluster import Cluster, kill
from tests.pipeline.rebuild_script import CONFIG
from tests.pipeline.s3_server import S3Server
from tests.pipeline.spark.test_kill import files
from tests.pipeline.spark.test_kill_spark import WITH_RETRIES, Process

from flintlog import open_store
from flintlog.bench.ours import fill_log
from flintlog.errors import DamagedStore
from flintlog.pipeline.reading.logs import find_logs
from flintlog.pipeline.shuffling.published import BEGUN
from flintlog.pipeline.shuffling.targets import RemoteTarget

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


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("seed", range(6))
def test_a_rebuild_into_a_bucket_is_complete_or_refused_whatever_is_killed(
    cluster: Cluster, s3: S3Server, filled: tuple[Path, Bytes], tmp_path: Path, seed: int
) -> None:
    victim = ("driver", "executor", "driver", "worker", "driver", "driver")[seed]
    uri, chance = f"s3://{s3.make_bucket()}/rebuilt", random.Random(seed)
    target = RemoteTarget(uri)
    command = (str(SCRIPT), cluster.master, str(filled[0]), uri)
    driver = Process(tmp_path, *command, environment=cluster.environment())
    # Half of the drivers are killed while tasks publish.
    driver.wait_until(lambda: bool(target.names("consumequeue" if seed in (0, 4) else "flintlog")))
    time.sleep(chance.uniform(0, 0.2 if seed in (0, 4) else LONGEST_S))
    if victim != "driver":
        for process in (cluster.executors if victim == "executor" else cluster.python_workers)()[:1]:
            kill(process)
    elif driver.process.poll() is None:
        driver.kill()
        if BEGUN in target.names():
            with pytest.raises(DamagedStore, match="has not finished"):
                find_logs((uri,))
        else:
            assert downloaded(s3, uri, tmp_path / "left") in ({}, filled[1])
        driver = Process(tmp_path, *command, environment=cluster.environment())
    driver.end()
    assert downloaded(s3, uri, tmp_path / "new") == filled[1]
    assert {name.partition("/")[0] for name in target.names()} == set(DERIVED)


def downloaded(s3: S3Server, uri: str, folder: Path) -> Bytes:
    folder.mkdir()
    pa_fs.copy_files(uri.removeprefix("s3://"), str(folder), source_filesystem=s3.files)
    found = {name: files(folder, name) for name in DERIVED}
    return found if any(found.values()) else {}
