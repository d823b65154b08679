"""A Spark session with nothing to set up.

Jobs work in any session, and a session that runs (a notebook's, a vendor's) is used unchanged. One that we start keeps
what somebody set before: `spark-submit` with its options, `spark-defaults.conf`, PYSPARK_SUBMIT_ARGS. Where a server of
Spark Connect is named (`spark.remote`, SPARK_REMOTE), it is one of that server, and we set nothing. Where nobody has
set anything, it runs on all cores of this machine, without a UI, uses this Python for its workers, keeps Java's frames
out of error messages, starts tasks faster (`daemon.py`), and takes rows from Python with fewer checks.
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
from flintlog.pipeline.spark.configured import is_submitted, load_configured

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL_MASTER = "local[*]"
MASTER = "spark.master"
REMOTE = "spark.remote"
_LOOPBACK = "127.0.0.1"
_MASTERS = re.compile(r"local(\[(\d+|\*)(\s*,\s*\d+)?\])?|local-cluster\[.+\]|spark://.+|k8s://.+|yarn")

ARROW_OPTIONS = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
"""Arrow in Java checks each value's place and null bit again, after Spark: a sixth of a row's cost."""

SETTINGS: Mapping[str, str] = {
    "spark.sql.execution.pyspark.udf.hideTraceback.enabled": "true",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
}
OWN_SETTINGS: Mapping[str, str] = {
    "spark.app.name": "flintlog",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.python.daemon.module": "flintlog.pipeline.spark.daemon",
}
"""Not for a session that `spark-submit` starts: it has a name, a UI, and executors that may get their packages later
than their Python daemon starts."""


def is_running() -> bool:
    """Whether this process has a session already."""
    pyspark = sys.modules.get("pyspark")
    if pyspark is None:
        return False
    return pyspark.SparkContext._active_spark_context is not None or _active_session() is not None


def find_remote(settings: Mapping[str, str]) -> str | None:
    """The server of Spark Connect that somebody has set, here or in the environment; None if nobody has."""
    if REMOTE in settings:
        return settings[REMOTE]
    return os.environ.get("SPARK_REMOTE") or load_configured().get(REMOTE)


def get_session(master: str | None = None, settings: Mapping[str, str] | None = None) -> SparkSession:
    """The session that is running, or one of our own.

    A new session has the given settings, then those that somebody configured, then ours. Without a `master` it is the
    configured one, or all cores of this machine. Java options are added to those that are set.
    """
    try:
        from pyspark.sql import SparkSession
    except ModuleNotFoundError as error:
        raise MissingExtra("the pipeline needs PySpark", advice="pip install 'flintlog[spark]'") from error
    running = _active_session()
    if running is not None:
        return running
    if is_running():  # in another thread; the builder would change it if it were given settings
        return SparkSession.builder.getOrCreate()
    given = dict(settings or {})
    if master is not None:
        given[MASTER] = master
    remote = find_remote(given)
    if MASTER in given:
        if remote is not None:
            raise InvalidConfig(f"master {given[MASTER]!r} and server {remote!r} are both set", advice="leave one out")
        _check_master(given[MASTER])
    return _start(given) if remote is None else _connect(remote, given)


def _active_session() -> SparkSession | None:
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession
    from pyspark.sql.utils import is_remote

    if not is_remote():
        return SparkSession.getActiveSession()
    try:
        return SparkSession.active()  # or that of another thread
    except PySparkRuntimeError:
        return None


def _connect(remote: str, given: Mapping[str, str]) -> SparkSession:
    from pyspark.errors import PySparkImportError
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.remote(remote)
    for name, value in given.items():
        builder = builder.config(name, value)
    try:
        return builder.getOrCreate()
    except PySparkImportError as error:
        raise MissingExtra(str(error), advice="pip install 'flintlog[connect]'") from error


def _check_master(master: str) -> None:
    if _MASTERS.fullmatch(master) is None:  # Spark's own error has Java's frames, and looks as if there were no Java
        raise InvalidConfig(
            f"{master!r} is no master that Spark knows",
            advice="local[*], local[2], spark://HOST:PORT, k8s://HOST:PORT or yarn",
        )


def _start(given: Mapping[str, str]) -> SparkSession:
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    builder = SparkSession.builder
    configured = load_configured()
    if not is_submitted():
        _prepare_environment({**configured, **given})
    for name, value in choose_settings(given, configured, is_submitted=is_submitted()).items():
        builder = builder.config(name, value)
    try:
        return builder.getOrCreate()
    except PySparkRuntimeError as error:
        if error.getCondition() != "JAVA_GATEWAY_EXITED":
            raise
        raise MissingExtra("Spark could not start Java", advice="install Java 17 or newer, or set JAVA_HOME") from error


def choose_settings(
    given: Mapping[str, str], configured: Mapping[str, str], *, is_submitted: bool = False
) -> dict[str, str]:
    """What a new session is started with: what was given, and ours where nobody has set another.

    >>> chosen = choose_settings({}, {"spark.master": "yarn", "spark.ui.enabled": "true"})
    >>> [name in chosen for name in ("spark.master", "spark.ui.enabled", "spark.app.name")]
    [False, False, True]
    """
    known = {**configured, **given}
    ours = {**SETTINGS, **({} if is_submitted else {MASTER: LOCAL_MASTER, **OWN_SETTINGS})}
    if not is_submitted and known.get(MASTER, LOCAL_MASTER).startswith("local"):
        ours |= {"spark.driver.host": _LOOPBACK, "spark.driver.bindAddress": _LOOPBACK}
    chosen = {name: value for name, value in ours.items() if name not in known} | dict(given)
    chosen["spark.executor.extraJavaOptions"] = _with_options(
        known.get("spark.executor.extraJavaOptions", ""), ARROW_OPTIONS
    )
    if not is_submitted:  # the driver's Java runs already
        chosen["spark.driver.extraJavaOptions"] = _with_options(
            known.get("spark.driver.extraJavaOptions", ""),
            f"{ARROW_OPTIONS} -Dlog4j2.configurationFile=file:{_log_settings()}",
        )
    return chosen


def _with_options(theirs: str, ours: str) -> str:
    """Java options, with ours after them where they do not set the same property.

    >>> _with_options("-Xss4m -Da=1", "-Da=2 -Db=3")
    '-Xss4m -Da=1 -Db=3'
    """
    added = [option for option in ours.split() if f"{option.partition('=')[0]}=" not in theirs]
    return " ".join([*([theirs] if theirs else []), *added])


def _log_settings() -> str:
    return os.fspath(Path(str(resources.files("flintlog.pipeline").joinpath("log4j2.properties"))).resolve())


def _prepare_environment(settings: Mapping[str, str]) -> None:
    """Set the environment that Spark reads: the workers' Python, and where they find this package."""
    python = settings.get("spark.pyspark.python", sys.executable)
    os.environ.setdefault("PYSPARK_PYTHON", python)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if settings.get(MASTER, LOCAL_MASTER).startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", _LOOPBACK)
    home = os.fspath(Path(__file__).resolve().parents[2])
    known = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if home not in (*known, sysconfig.get_path("purelib"), sysconfig.get_path("platlib")):
        # From a source tree: the workers must find the package that this process found by its own search path.
        os.environ["PYTHONPATH"] = os.pathsep.join(entry for entry in (home, *known) if entry)
