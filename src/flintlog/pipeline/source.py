"""`spark.read.format("flintlog")` and `spark.readStream.format("flintlog")`: the messages of store directories as rows.

The driver lists the log's files, finds its end and plans splits; tasks map their file and read their split. Nothing is
written and no lock is taken, so the store may be running meanwhile; messages put after the planning are not read.
Push-down is offered only with the option `pushdown`: with Spark's default settings a reader that offers it fails.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableMapping, Sequence
from dataclasses import replace

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
)
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from flintlog.errors import InvalidConfig
from flintlog.pipeline.reading.known_topics import check_topics
from flintlog.pipeline.reading.logs import Log, find_end, find_logs, is_glob
from flintlog.pipeline.reading.options import EARLIEST, LATEST, SourceOptions, check_kind, parse_source_options, resolve
from flintlog.pipeline.reading.partitions import plan, start_at_time
from flintlog.pipeline.reading.rows import RowShape
from flintlog.pipeline.reading.split_partition import SplitPartition, check_start, read_declared
from flintlog.pipeline.sink.sink_options import parse_sink_options

NAME = "flintlog"


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
        return RowShape(asked.schema, asked.include_body, is_glob(asked.paths), asked.columns)

    def schema(self) -> StructType:
        """Called by `load`, for batches and streams: a store that cannot be read is reported there."""
        find_logs(self.asked.paths, strict=self.asked.fail_on_data_loss)
        return from_arrow_schema(self.shape.declared(), prefer_timestamp_ntz=False)

    def reader(self, schema: StructType) -> DataSourceReader:
        self._check_schema(schema)
        check_kind(self.asked, is_streaming=False)
        kind = PushdownReader if self.asked.pushdown else BatchReader
        return kind(self.asked, self.shape)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        from flintlog.pipeline.reading.stream import make_stream_reader

        self._check_schema(schema)
        check_kind(self.asked, is_streaming=True)
        return make_stream_reader(self.asked, self.shape)

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

    def _check_schema(self, schema: StructType) -> None:
        if schema.fieldNames() != [name for name, _ in self.shape.columns()]:
            raise InvalidConfig("the columns of a store cannot be chosen by a schema", advice="select them afterwards")


class BatchReader(DataSourceReader):
    """Reads the logs up to their present ends."""

    def __init__(self, asked: SourceOptions, shape: RowShape) -> None:
        self.asked = asked
        self.shape = shape
        self._named = asked.topics or ()
        """The topics that the user named, other than those of a filter; they must exist."""

    def partitions(self) -> Sequence[InputPartition]:
        logs = find_logs(self.asked.paths, strict=self.asked.fail_on_data_loss)
        if self.asked.fail_on_data_loss:
            check_topics(self._named, logs)
        brokers = [log.broker for log in logs]
        ranges = [self._range(log, brokers) for log in logs]
        planned = plan(ranges, split_bytes=self.asked.split_bytes, least_count=self.asked.min_partitions)
        return [SplitPartition(each) for each in planned] or [InputPartition(None)]

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
        return log, max(start, log.first), min(stop, end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, SplitPartition):
            yield from read_declared(self.asked, self.shape, partition.value)


class PushdownReader(BatchReader):
    """The same, but reads less for queries on topics, or on messages from a time or an offset on."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        for each in filters:
            if not self._take(each):
                yield each

    def _take(self, given: Filter) -> bool:
        """Whether a filter is applied completely here; one that only narrows the range is applied again by Spark."""
        if isinstance(given, (EqualTo, In)) and given.attribute == ("topic",):
            values = given.value if isinstance(given, In) else (given.value,)
            known = self.asked.topics
            topics = tuple(str(value) for value in values if value is not None and (known is None or value in known))
            self.asked = replace(self.asked, topics=topics)
            return True
        if isinstance(given, (GreaterThan, GreaterThanOrEqual)) and given.attribute == ("store_timestamp",):
            since = max(int(given.value), self.asked.starting_timestamp or 0)
            self.asked = replace(self.asked, starting_timestamp=since)
        return False
