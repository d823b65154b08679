"""Streams and a sink on a standalone cluster whose executors, Python workers and drivers are killed in the middle.

Speculation is on, and the driver's own tasks die, fail or dawdle after they have staged rows (`kill_driver.py`).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.pipeline.cluster import Cluster
from tests.pipeline.kill_driver import staged_files
from tests.pipeline.spark.test_cluster import kill_one
from tests.pipeline.spark.test_kill_spark import Driver, check, prepare

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]


@pytest.mark.parametrize("victim", ["nobody", "executors", "python workers", "drivers"])
def test_every_message_is_there_once_whichever_process_was_killed(
    cluster: Cluster, spark: SparkSession, tmp_path: Path, victim: str
) -> None:
    work = prepare(tmp_path, 300)
    driver = Driver(work, cluster.master, cluster.environment())
    moments = (lambda: driver.commits() > 2, lambda: bool(staged_files(work)))
    for is_so in moments if victim != "nobody" else ():
        driver.wait_until(is_so)
        if victim == "drivers":
            driver.kill()
            driver = Driver(work, cluster.master, cluster.environment())
        else:
            kill_one(cluster.executors if victim == "executors" else cluster.python_workers)
    driver.end()
    check(spark, work)
