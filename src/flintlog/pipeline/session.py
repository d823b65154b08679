"""A Spark session with nothing to set up.

Jobs work in any session: one that the user started (a notebook, `spark-submit`) is used unchanged. A session that we
start runs on this machine by default, uses this Python for its workers, keeps Java's frames out of error messages,
starts tasks faster (`daemon.py`), and takes rows from Python with fewer checks.
"""

from __future__ import annotations

import os
import re
import sys
import sysconfig
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from flintlog.errors import InvalidConfig, MissingExtra

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL_MASTER = "local[*]"
_LOOPBACK = "127.0.0.1"
_MASTERS = re.compile(r"local(\[(\d+|\*)(\s*,\s*\d+)?\])?|local-cluster\[.+\]|spark://.+|k8s://.+|yarn")

ARROW_OPTIONS = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
"""Arrow in Java checks each value's place and null bit again, after Spark: a sixth of a row's cost."""

SETTINGS: Mapping[str, str] = {
    "spark.app.name": "flintlog",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.python.daemon.module": "flintlog.pipeline.spark.daemon",
    "spark.sql.execution.pyspark.udf.hideTraceback.enabled": "true",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.executor.extraJavaOptions": ARROW_OPTIONS,
}


def is_running() -> bool:
    """Whether this process has a session already."""
    pyspark = sys.modules.get("pyspark.sql")
    return pyspark is not None and pyspark.SparkSession.getActiveSession() is not None


def get_session(master: str | None = None, settings: Mapping[str, str] | None = None) -> SparkSession:
    """The session that is running, or one of our own on `master` (all cores of this machine unless given)."""
    try:
        from pyspark.sql import SparkSession
    except ModuleNotFoundError as error:
        raise MissingExtra("the pipeline needs PySpark", advice="pip install 'flintlog[spark]'") from error
    running = SparkSession.getActiveSession()
    if running is not None:
        return running
    return _start(master or LOCAL_MASTER, settings or {})


def _start(master: str, settings: Mapping[str, str]) -> SparkSession:
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    if _MASTERS.fullmatch(master) is None:  # Spark's own error has Java's frames, and looks as if there were no Java
        raise InvalidConfig(
            f"{master!r} is no master that Spark knows",
            advice="local[*], local[2], spark://HOST:PORT, k8s://HOST:PORT or yarn",
        )
    _prepare_environment(master)
    builder = SparkSession.builder.master(master)
    for name, value in {**SETTINGS, **_local_settings(master), **settings}.items():
        builder = builder.config(name, value)
    try:
        return builder.getOrCreate()
    except PySparkRuntimeError as error:
        if error.getCondition() != "JAVA_GATEWAY_EXITED":
            raise
        raise MissingExtra("Spark could not start Java", advice="install Java 17 or newer, or set JAVA_HOME") from error


def _local_settings(master: str) -> dict[str, str]:
    """Settings of the driver: on one machine only the loopback address, and a short log of the JVM."""
    options = f"{ARROW_OPTIONS} -Dlog4j2.configurationFile=file:{_log_settings()}"
    found = {"spark.driver.extraJavaOptions": options}
    if master.startswith("local"):
        found |= {"spark.driver.host": _LOOPBACK, "spark.driver.bindAddress": _LOOPBACK}
    return found


def _log_settings() -> str:
    return os.fspath(Path(str(resources.files("flintlog.pipeline").joinpath("log4j2.properties"))).resolve())


def _prepare_environment(master: str) -> None:
    """Set the environment that Spark reads: the workers' Python, and where they find this package."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", _LOOPBACK)
    home = os.fspath(Path(__file__).resolve().parents[2])
    known = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if home not in (*known, sysconfig.get_path("purelib"), sysconfig.get_path("platlib")):
        # From a source tree: the workers must find the package that this process found by its own search path.
        os.environ["PYTHONPATH"] = os.pathsep.join(entry for entry in (home, *known) if entry)
