"""`flintlog pipeline …`: the jobs that run on Spark.

Each job's command is a module of its own, named in the table below. PySpark is imported only when a job runs.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

import click

from flintlog.cli.group import Entry, LazyGroup
from flintlog.cli.parameters import to_pairs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Command = TypeVar("Command", bound=Callable[..., object])
_TABLES = "spark.sql.warehouse.dir"

JOBS: Mapping[str, Entry] = {
    "compact": Entry("flintlog.cli.pipeline.compact", "compact", "Write the latest message of every key elsewhere."),
    "dispatch": Entry("flintlog.cli.pipeline.dispatch", "dispatch", "Build queues and index for a store that runs."),
    "export": Entry("flintlog.cli.pipeline.export", "export", "Add messages to a table: Parquet, Delta or Iceberg."),
    "rebuild": Entry("flintlog.cli.pipeline.rebuild", "rebuild", "Build queues and index again, from the log alone."),
    "replay": Entry("flintlog.cli.pipeline.replay", "replay", "Put messages of a table or store into a store again."),
    "report": Entry("flintlog.cli.pipeline.report", "report", "Say what is in a store: tables, and a page with plots."),
    "sql": Entry("flintlog.cli.pipeline.sql", "sql", "Ask a question about the messages of a store, in SQL."),
    "verify": Entry("flintlog.cli.pipeline.verify", "verify", "Prove a store, or say what is wrong with it and where."),
}

pipeline = LazyGroup("pipeline", JOBS, "Run a job on Spark: on all cores of this machine, or on a cluster.")


def session_options(command: Command) -> Command:
    """Give a command `--master` and `--conf`; it receives them as `master` and `conf`."""
    command = click.option(
        "--conf",
        multiple=True,
        metavar="NAME=VALUE",
        callback=to_pairs,
        help="A setting of Spark's, such as spark.ui.enabled=true; may be repeated.",
    )(command)
    return click.option("--master", help="Spark's master.  [the one that is configured, or local[*]]")(command)


@contextmanager
def session(master: str | None, conf: Mapping[str, str]) -> Iterator[SparkSession]:
    """A session for one command; a session that was already running is used and not stopped."""
    from flintlog.pipeline.session import find_remote, get_session, is_running
    from flintlog.pipeline.spark.configured import load_configured

    if is_running():
        yield get_session()
        return
    # Spark would make a directory for tables in the working directory, though no command here has tables.
    with tempfile.TemporaryDirectory(prefix="flintlog-tables-", ignore_cleanup_errors=True) as tables:
        is_set = find_remote(conf) is not None or _TABLES in load_configured()
        spark = get_session(master, {**({} if is_set else {_TABLES: tables}), **conf})
        try:
            yield spark
        finally:
            spark.stop()
