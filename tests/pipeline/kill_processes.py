"""Processes for the tests that kill: what a driver does, without Spark's start, which takes longer than the work.

    test ──one JSON line──▶ server ──fork──▶ child: the sink's or the export's own code, until it is done or killed
         ◀──pid, status────

The server has imported everything and used nothing, so a child is at work at once and can be killed like any process.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NoReturn, cast
from unittest import mock

import deltalake  # noqa: F401 - before any child needs it
import pyarrow as pa
import pyarrow.parquet
import pyiceberg.catalog.sql
import pyiceberg.io.pyarrow  # noqa: F401
import pyspark.errors  # noqa: F401

from flintlog.pipeline import export as export_job
from flintlog.pipeline.sink.sink import StagingArea
from flintlog.pipeline.sink.sink_options import SinkOptions
from flintlog.pipeline.tables import delta_table, iceberg_table, parquet_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
BATCH_ROWS = 40
BATCH_BYTES = 20_000
TABLES = {
    "parquet": parquet_table.ParquetTable,
    "delta": delta_table.DeltaTable,
    "iceberg": iceberg_table.IcebergTable,
}


# ---------------------------------------------------------------------- what children do


def sink(store: str, conf: str, batches: int) -> None:
    """Batch after batch, as Spark does it: tasks stage (one of them twice), the driver appends, then notes it."""
    notes = Path(f"{store}.commits")
    area = StagingArea(SinkOptions(store, config=conf), "query")
    for number in range(batches_done(Path(store)), batches):
        parts = [area.write(iter([rows(number * BATCH_ROWS + first)])) for first in (0, BATCH_ROWS // 2)]
        area.write(iter([rows(number * BATCH_ROWS)]))  # a speculative copy that lost
        area.append(parts, "query", number)
        replace = notes.with_suffix(".new")
        replace.write_text(str(number + 1))
        replace.replace(notes)


def batches_done(store: Path) -> int:
    notes = Path(f"{store}.commits")
    return int(notes.read_text()) if notes.exists() else 0


def rows(first: int) -> pa.RecordBatch:
    numbers = range(first, first + BATCH_ROWS // 2)
    bodies = [f"{number} ".encode() * 20 for number in numbers]
    return pa.record_batch({"topic": ["orders"] * len(bodies), "body": bodies, "queue_id": [n % 2 for n in numbers]})


def export(store: str, table: str, form: str, die: Sequence[Any] | None = None, *, follow: bool = False) -> None:
    """The job with its tasks done here; `die`: a method of the table, before or after its how many-th call."""
    if die is not None:
        dying(TABLES[form], *die)
    options = export_job.ExportOptions(batch_bytes=BATCH_BYTES)
    if not follow:
        export_job.export(here(), store, table, form=form, options=options)
        return
    never = threading.Event()
    for _ in export_job.follow(here(), store, table, form=form, options=options, stop=never, interval_s=0.01):
        pass


def dying(table: type, method: str, moment: str, call: int) -> None:
    """Have a method kill its process."""
    original, seen = getattr(table, method), []

    def wrapped(*arguments: object, **named: object) -> object:
        seen.append(method)
        if moment == "before" and len(seen) == call:
            os.kill(os.getpid(), signal.SIGKILL)
        found = original(*arguments, **named)
        if len(seen) == call:
            os.kill(os.getpid(), signal.SIGKILL)
        return found

    setattr(table, method, wrapped)


def here() -> SparkSession:
    """In the place of a session: tasks are run one after the other, in the process that asks for them."""

    def run_tasks(
        _: object, function: Callable[[Any], Any], items: Sequence[Any], __: object = None, **___: object
    ) -> list[Any]:
        return [function(item) for item in items]

    mock.patch.object(export_job, "run_tasks", run_tasks).start()
    mock.patch.object(export_job, "parallelism", return_value=2).start()
    return cast("SparkSession", SimpleNamespace())


# ---------------------------------------------------------------------- the server, and the test's side of it


def serve() -> None:
    for line in sys.stdin:
        kind, arguments = json.loads(line)
        child = os.fork()
        if not child:
            work(kind, arguments)
        tell(child)
        tell(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


def work(kind: str, arguments: dict[str, Any]) -> NoReturn:
    code = 1
    try:
        (sink if kind == "sink" else export)(**arguments)
        code = 0
    except Exception:  # noqa: BLE001 - whatever it is, the parent's copy of the test must not see it
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def tell(number: int) -> None:
    sys.stdout.write(f"{number}\n")
    sys.stdout.flush()


class Child:
    """A process that was asked for."""

    def __init__(self, server: subprocess.Popen[str]) -> None:
        assert server.stdout is not None
        self._answers = server.stdout
        self.pid = int(self._answers.readline())

    def kill(self) -> int:
        """SIGKILL; the status that it ended with, which is 0 if it was done before."""
        os.kill(self.pid, signal.SIGKILL)
        return self.wait()

    def wait(self) -> int:
        return int(self._answers.readline())


class Server:
    """Starts one child at a time."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def start(self, kind: str, **arguments: object) -> Child:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([kind, arguments]) + "\n")
        self._process.stdin.flush()
        return Child(self._process)

    def run(self, kind: str, **arguments: object) -> int:
        return self.start(kind, **arguments).wait()


@contextmanager
def running_server() -> Iterator[Server]:
    paths = os.pathsep.join((str(ROOT / "src"), str(ROOT)))
    with subprocess.Popen(
        [sys.executable, "-m", "tests.pipeline.kill_processes"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": paths},
    ) as process:  # fmt: skip
        yield Server(process)
        assert process.stdin is not None
        process.stdin.close()


if __name__ == "__main__":
    serve()
