"""`spark.read.format("flintlog")` and `spark.readStream.format("flintlog")`: the messages of store directories as rows.

The driver lists the log's files, finds its end and plans splits; tasks map their file and read their split. Nothing is
written and no lock is taken, so the store may be running meanwhile; messages put after the planning are not read.

Spark refuses a reader that takes filters where `spark.sql.python.filterPushdown.enabled` is off, and does not tell a
source whether it is. But it asks for filters in a process of its own, so only a reader that is made there takes them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, MutableMapping, Sequence
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    Filter,
    InputPartition,
)
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from flintlog.errors import InvalidConfig
from flintlog.pipeline.reading import imports
from flintlog.pipeline.reading.filters import EVERYTHING, parse_filter
from flintlog.pipeline.reading.known_topics import check_topics
from flintlog.pipeline.reading.logs import Log, find_end, find_logs, is_glob
from flintlog.pipeline.reading.options import (
    EARLIEST,
    LATEST,
    MESSAGES,
    SPLIT_BYTES,
    SourceOptions,
    check_kind,
    parse_source_options,
    resolve,
)
from flintlog.pipeline.reading.partitions import plan, start_at_time, stop_at_time
from flintlog.pipeline.reading.rows import RowShape
from flintlog.pipeline.reading.split_partition import SplitPartition, check_start, read_declared, reading_of, wanted_by
from flintlog.pipeline.sink.sink_options import parse_sink_options
from flintlog.pipeline.views.view_reader import ViewReader

NAME = "flintlog"
NARROW_SPLIT_BYTES: Final = 512 * 1024 * 1024
_PUSHING: Final = "pyspark.sql.worker.data_source_pushdown_filters"
"""The program that Spark runs to ask a reader which filters it takes."""


class FlintlogSource(DataSource):
    """The format `flintlog`."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._asked: SourceOptions | None = None

    @classmethod
    def name(cls) -> str:
        return NAME

    @property
    def asked(self) -> SourceOptions:
        """The options of a reader; a writer has others."""
        if self._asked is None:
            self._asked = parse_source_options(self.options)
        return self._asked

    @property
    def shape(self) -> RowShape:
        asked = self.asked
        return RowShape(asked.schema, asked.include_body, is_glob(asked.paths), asked.columns, asked.are_times_numbers)

    def schema(self) -> StructType:
        """Called by `load`, for batches and streams: a store that cannot be read is reported there."""
        imports.exclude()
        find_logs(self.asked.paths, strict=self.asked.view == MESSAGES and self.asked.fail_on_data_loss)
        columns = self.shape.declared() if self.asked.view == MESSAGES else ViewReader(self.asked).columns
        return from_arrow_schema(columns, prefer_timestamp_ntz=False)

    def reader(self, schema: StructType) -> DataSourceReader:
        imports.exclude()
        if self.asked.view != MESSAGES:
            return self._view_reader(schema)
        check_kind(self.asked, is_streaming=False)
        kind = PushdownReader if self.asked.pushdown and is_pushing() else BatchReader
        return kind(self.asked, self._shape_of(schema), _arrow(schema))

    def _view_reader(self, schema: StructType) -> ViewReader:
        reader = ViewReader(self.asked)
        if schema.fieldNames() != reader.columns.names:
            raise InvalidConfig(f"a schema does not choose columns of the view {self.asked.view}", advice="select them")
        return reader

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        from flintlog.pipeline.reading.stream import make_stream_reader

        check_kind(self.asked, is_streaming=True)
        return make_stream_reader(self.asked, self._shape_of(schema), _arrow(schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from flintlog.pipeline.sink.sink import BatchWriter, check_sink

        asked = parse_sink_options(self.options, is_streaming=False)
        check_sink(asked, schema, overwrite=overwrite)
        return BatchWriter(asked)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 - Spark's name
        from flintlog.pipeline.sink.sink import StreamWriter, check_sink

        asked = parse_sink_options(self.options, is_streaming=True)
        check_sink(asked, schema, overwrite=overwrite)
        return StreamWriter(asked)

    def _shape_of(self, schema: StructType) -> RowShape:
        """The columns of a schema: ours, or one of the user's that names some of them."""
        return self.shape.of_schema((field.name, field.dataType.simpleString()) for field in schema)


def _arrow(schema: StructType) -> pa.Schema:
    """The schema as Spark expects it of batches."""
    return to_arrow_schema(schema, timezone="UTC")


def is_pushing() -> bool:
    """Whether this process was started, or forked, to ask a reader which filters it takes."""
    started = getattr(sys.modules.get("__main__"), "__spec__", None)
    return _PUSHING in sys.modules or getattr(started, "name", None) == _PUSHING


class BatchReader(DataSourceReader):
    """Reads the logs up to their present ends."""

    def __init__(self, asked: SourceOptions, shape: RowShape, declared: pa.Schema | None = None) -> None:
        self.asked = asked
        self.shape = shape
        self.declared = shape.declared() if declared is None else declared
        self.wanted = EVERYTHING

    def partitions(self) -> Sequence[InputPartition]:
        logs = find_logs(self.asked.paths, strict=self.asked.fail_on_data_loss)
        if self.asked.fail_on_data_loss:
            check_topics(self.asked.topics or (), logs)
        brokers = [log.broker for log in logs]
        ranges = [self._range(log, brokers) for log in logs]
        planned = plan(ranges, split_bytes=self._split_bytes(), least_count=self.asked.min_partitions)
        return [SplitPartition(each) for each in planned] or [InputPartition(None)]

    def _split_bytes(self) -> int:
        """How much a task gets; more if it reads little of it, because a task costs as much as reading some MiB."""
        asked, wanted = self.asked, wanted_by(self.asked).both(self.wanted)
        is_narrow = asked.topics is not None or wanted.chooses_topics or wanted.all_keys is not None
        return NARROW_SPLIT_BYTES if is_narrow and asked.split_bytes == SPLIT_BYTES else asked.split_bytes

    def _range(self, log: Log, brokers: list[str]) -> tuple[Log, int, int]:
        asked = self.asked
        end = find_end(log)
        start = resolve(asked.starting_offsets or EARLIEST, log.broker, log.first, end, "startingOffsets", brokers)
        stop = resolve(asked.ending_offsets or LATEST, log.broker, log.first, end, "endingOffsets", brokers)
        check_start(start, log, asked.fail_on_data_loss)
        if start > stop and asked.ending_offsets is not None:
            raise InvalidConfig(
                f"option startingOffsets = {start} is after endingOffsets = {stop}",
                advice="a range begins before it ends",
            )
        if asked.starting_timestamp is not None:
            start = max(start, start_at_time(log, asked.starting_timestamp))
        if asked.ending_timestamp is not None:
            stop = min(stop, stop_at_time(log, asked.ending_timestamp, end))
        places = self.wanted.range_of("physical_offset")
        return log, max(start, log.first, places.first), min(stop, end, places.last + 1)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        imports.exclude()  # in a session of somebody else's its daemon does not
        if isinstance(partition, SplitPartition):
            yield from read_declared(reading_of(self.asked, self.shape, self.wanted), partition.value, self.declared)


class PushdownReader(BatchReader):
    """The same, but reads only what the filters of a query ask for."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Take filters, and return those that Spark has to apply (again)."""
        for each in filters:
            found = parse_filter(each, self.shape)
            if found is None:
                yield each
                continue
            wanted, is_exact = found
            self.wanted = self.wanted.both(wanted)
            if not is_exact:
                yield each
