"""What the pipeline's tests share: one Spark session for all tests of a process, and small stores.

Each process of pytest-xdist has its own session, S3 server, Connect server and cluster, with ports and folders of
their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from flintlog import Message, StoreConfig, open_store
from flintlog.pipeline.session import get_session, is_running

from .cluster import Cluster, running_cluster
from .s3_server import S3Server, running_s3

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TIMEOUT_S = 400
COUNT = 300
SEGMENT_BYTES = 64 * 1024


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The first test waits for Spark to start, on a busy machine for minutes."""
    for item in items:
        if Path(__file__).parent in item.path.parents and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(TIMEOUT_S))


@pytest.fixture(scope="session")
def spark_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory in which Spark was started: relative paths begin here, for Java and for tasks."""
    return tmp_path_factory.mktemp("spark-home")


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    """An S3 server on loopback, which the environment names for this process and for those that it starts."""
    with running_s3() as server:
        yield server


@pytest.fixture(scope="session")
def spark(spark_home: Path, s3: S3Server) -> Iterator[SparkSession]:
    """Started after the S3 server, because its workers have the variables of the driver as it was then.

    Tables that a test creates, and what Spark spills, are below the directory in which it starts.
    """
    assert not is_running(), "a test without the fixture has started a session"
    with chdir(spark_home):
        settings = {"spark.sql.shuffle.partitions": "2", "spark.local.dir": str(spark_home / "local")}
        session = get_session("local[2]", settings)
    yield session
    session.stop()


def small_config(**changes: object) -> StoreConfig:
    return StoreConfig(
        flush="async",
        mapped_file_size_commit_log=SEGMENT_BYTES,
        mapped_file_size_consume_queue=20 * 50,
        max_hash_slot_num=100,
        max_index_num=200,
    ).with_changes(**changes)


def fill(path: Path, count: int = COUNT, **changes: object) -> Path:
    """A store of `count` messages in three queues of two topics; some without keys or tags, some compressed."""
    with open_store(path, small_config(**changes)) as store:
        for number in range(count):
            message = Message(
                "orders" if number % 3 else "payments",
                f"body {number} ".encode() * (number % 60),
                queue_id=number % 2,
                keys=[f"k{number}", "all"] if number % 4 else [],
                tags="paid" if number % 5 else None,
                properties={"number": str(number)},
                compress="zlib" if number % 50 == 7 else None,
            )
            assert store.put(message)
    return path


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A standalone master with two workers."""
    with running_cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store on disk that nobody runs. Read only."""
    return fill(tmp_path_factory.mktemp("spark") / "store")
