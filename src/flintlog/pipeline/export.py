"""The job `export`: the messages of stores as a table, partitioned by topic and day, each message exactly once.

    driver   hold the table, see how far it is, find the log's end, plan splits of the next batch
    tasks    read a split, write Parquet with pyarrow                                       tables/table_write.py
    driver   commit files and new positions as one                                          tables/table.py

The table's own commits are the only state: an export that is started again, after a crash or for new messages,
continues from them. `follow` is a loop of such batches, not a streaming query, so it needs no checkpoint beside the
table. A batch is about `batch_bytes` of log; files of a killed batch are not part of the table and are removed.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from flintlog.derive.splits import SPLIT_BYTES
from flintlog.disk.places import local_path
from flintlog.errors import DamagedStore, InvalidConfig
from flintlog.pipeline.reading.ends import EndFinder
from flintlog.pipeline.reading.known_topics import no_messages_of, topics_of
from flintlog.pipeline.reading.logs import Log, as_paths, find_end, find_logs, is_glob
from flintlog.pipeline.reading.partitions import plan
from flintlog.pipeline.reading.positions import next_record, stands
from flintlog.pipeline.reading.split_partition import check_start
from flintlog.pipeline.spark.failures import plain_errors
from flintlog.pipeline.spark.new_directory import new_directory
from flintlog.pipeline.spark.tasks import count_of, parallelism, run_tasks
from flintlog.pipeline.tables.parquet_table import TableSpec, version_for
from flintlog.pipeline.tables.table import Table, make_table
from flintlog.pipeline.tables.table_write import ExportTask, WrittenFile
from flintlog.store.runtime.jobs import Progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from flintlog.pipeline.tables.iceberg_table import IcebergName

BATCH_BYTES = 4 * 1024 * 1024 * 1024
MIN_TASK_BYTES = 32 * 1024 * 1024

warnings = logging.getLogger(__name__)


@dataclass(slots=True)
class ExportReport:
    """The figures of an export."""

    table: str
    form: str
    rows: int = 0
    files: int = 0
    bytes: int = 0
    batches: int = 0
    unparsed: int = 0
    """Bodies that did not fit the schema."""

    damaged: int = 0
    """Damaged places of the log that were passed over, because data loss is allowed."""

    positions: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """How messages become rows. `value_schema` ("id bigint, sum double", as Spark writes it) parses JSON bodies."""

    topics: tuple[str, ...] | None = None
    include_body: bool = True
    decompress: bool = True
    value_schema: str | None = None
    fail_on_data_loss: bool = True
    compression: str = "snappy"
    batch_bytes: int = BATCH_BYTES
    split_bytes: int = SPLIT_BYTES


def export(
    spark: SparkSession,
    store: str | Path | Sequence[str],
    into: str | Path,
    *,
    form: str | None = None,
    name: IcebergName | None = None,
    options: ExportOptions | None = None,
    progress: Progress | None = None,
) -> ExportReport:
    """Add the messages to a table that it does not hold yet. A new table is of Parquet unless `form` names another.

    An Iceberg table may have a `name` in a catalog; else a catalog is made beside its files.
    """
    root = local_path(into).absolute()
    job = _Export(spark, store, make_table(form, root, name), options or ExportOptions(), progress)
    with new_directory(root, lambda: job.report.rows > 0), job.opened():
        is_new = job.is_new()
        job.catch_up()
        if is_new and options is not None and options.topics is not None and not job.report.rows:
            raise no_messages_of(options.topics, job.paths)
    return job.report


def follow(
    spark: SparkSession,
    store: str | Path | Sequence[str],
    into: str | Path,
    *,
    form: str | None = None,
    name: IcebergName | None = None,
    options: ExportOptions | None = None,
    stop: threading.Event,
    interval_s: float = 10.0,
    progress: Progress | None = None,
) -> Iterator[ExportReport]:
    """Add new messages to a table until `stop` is set; yields a report after every round that added some."""
    table = make_table(form, local_path(into).absolute(), name)
    job = _Export(spark, store, table, options or ExportOptions(), progress)
    with job.opened():
        while not stop.is_set():
            before = job.report.batches
            job.catch_up(stop)
            if job.report.batches > before:
                yield job.report
            stop.wait(interval_s)


class _Export:
    """One run of the job."""

    def __init__(
        self,
        spark: SparkSession,
        store: str | Path | Sequence[str],
        table: Table,
        options: ExportOptions,
        progress: Progress | None,
    ) -> None:
        self._spark = spark
        self.paths = as_paths(store)
        self._is_glob = is_glob(self.paths)
        self._options = options
        self._progress = progress
        self._ends = EndFinder()
        self._table = table
        self._task = self._make_task()
        self.report = ExportReport(str(table.root), table.form)

    def opened(self) -> AbstractContextManager[None]:
        logs = find_logs(self.paths)  # raises before a table is made for a store that does not exist
        options = self._options
        spec = TableSpec(
            format_version=version_for(self._table.form, topics_of(logs, options.topics)),
            topics=None if options.topics is None else sorted(options.topics),
            include_body=options.include_body,
            decompress=options.decompress,
            value_schema=options.value_schema,
            is_glob=self._is_glob,
        )
        return self._table.opened(spec)

    def is_new(self) -> bool:
        """Whether the table has no position for any of these stores yet."""
        return all(self._table.position(self._key(log)) is None for log in find_logs(self.paths, strict=False))

    def _make_task(self) -> ExportTask:
        options = self._options
        return ExportTask(
            str(self._table.staged),
            topics=options.topics,
            with_broker=self._is_glob,
            include_body=options.include_body,
            decompress=options.decompress,
            value_type=None if options.value_schema is None else parse_value_schema(options.value_schema),
            fail_on_data_loss=options.fail_on_data_loss,
            compression=options.compression,
            by_partition=self._table.is_staged_in_place,
        )

    # ------------------------------------------------------------------ batches

    def catch_up(self, stop: threading.Event | None = None) -> None:
        """Add batches until the table holds everything that the logs held when this began."""
        began = time.perf_counter()
        logs = find_logs(self.paths, strict=self._options.fail_on_data_loss)
        starts = {log.broker: self._start(log) for log in logs}
        ends = {log.broker: max(starts[log.broker], self._ends.find(log, known=starts[log.broker])) for log in logs}
        total = sum(ends[log.broker] - starts[log.broker] for log in logs)
        done = 0
        while any(starts[broker] < ends[broker] for broker in starts) and not (stop is not None and stop.is_set()):
            stops = _limited(starts, ends, self._options.batch_bytes)
            for log in logs:
                # A batch ends where a record begins, so that the position can be checked against the log later.
                if starts[log.broker] < stops[log.broker] < ends[log.broker]:
                    stops[log.broker] = min(ends[log.broker], next_record(log, stops[log.broker]))
            self._run_batch([(log, starts[log.broker], stops[log.broker]) for log in logs], done, total)
            done += sum(stops[broker] - starts[broker] for broker in starts)
            starts = stops
        self.report.positions = starts
        self.report.seconds += time.perf_counter() - began

    def _start(self, log: Log) -> int:
        position = self._table.position(self._key(log))
        if position is None:
            return log.first
        check_start(position, log, self._options.fail_on_data_loss)
        start = max(position, log.first)
        if start == log.first or stands(log, start):
            return start
        end = find_end(log)
        if position > end or self._options.fail_on_data_loss:
            what = f"it now ends at {end}" if position > end else "no record begins there now"
            raise DamagedStore(
                f"the table holds the log up to {position}, and {what}",
                path=log.uri,
                advice="it was cut or replaced; export it into a new table",
            )
        warnings.warning(
            "%s: no record begins at %d, where the table ends; the export continues after it", log.uri, position
        )
        return min(end, next_record(log, start))

    def _key(self, log: Log) -> str:
        """The name of a log's position; a single store's directory may be renamed, so it is not part of the name."""
        return log.broker if self._is_glob else ""

    def _run_batch(self, ranges: list[tuple[Log, int, int]], done: int, total: int) -> None:
        size = sum(stop - start for _, start, stop in ranges)
        least = min(parallelism(self._spark) * 2, -(-size // MIN_TASK_BYTES))
        splits = plan(ranges, split_bytes=self._options.split_bytes, least_count=max(1, least))

        def report_progress(tasks: int, of: int) -> None:
            if self._progress is not None:
                self._progress(done + size * tasks // max(1, of), total)

        with plain_errors("the export"):
            doing = f"export: write {count_of(len(splits), 'split')} of {', '.join(self.paths)}"
            task = replace(self._task, keep_partitions=self._table.keeps_partitions)
            written = run_tasks(self._spark, task.write, splits, report_progress, doing=doing)
        files = [file for each in written for file in each.files]
        self._table.commit(files, {self._key(log): stop for log, _, stop in ranges})
        self._count(files)
        self.report.damaged += sum(each.damaged_count for each in written)

    def _count(self, files: Sequence[WrittenFile]) -> None:
        report = self.report
        report.batches += 1
        report.files += len(files)
        report.rows += sum(file.rows for file in files)
        report.bytes += sum(file.bytes for file in files)
        report.unparsed += sum(file.unparsed for file in files)


def _limited(starts: Mapping[str, int], ends: Mapping[str, int], most: int) -> dict[str, int]:
    """No more than `most` bytes from the starts on, one log after the other.

    >>> _limited({"a": 0, "b": 0}, {"a": 10, "b": 10}, 15)
    {'a': 10, 'b': 5}
    """
    stops = {}
    for broker, start in starts.items():
        stops[broker] = min(ends[broker], start + most)
        most -= stops[broker] - start
    return stops


def parse_value_schema(text: str) -> pa.DataType:
    """Spark's way to write columns, as Arrow's type of a struct."""
    from pyspark.sql.pandas.types import to_arrow_type
    from pyspark.sql.types import DataType, StructType

    with plain_errors("the schema"):
        found = DataType.fromDDL(text)
    if not isinstance(found, StructType):
        raise InvalidConfig(f"the schema {text!r} is not one of columns", advice='such as "id bigint, sum double"')
    return to_arrow_type(found, timezone="UTC")
