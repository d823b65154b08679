"""A split as Spark's partition, and the functions that batch and stream readers share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from flintlog.errors import InvalidConfig
from flintlog.pipeline.reading.filters import EVERYTHING, Wanted
from flintlog.pipeline.reading.logs import Log
from flintlog.pipeline.reading.options import SourceOptions
from flintlog.pipeline.reading.partitions import LogSplit
from flintlog.pipeline.reading.reading import Reading
from flintlog.pipeline.reading.rows import RowShape


@dataclass
class SplitPartition(InputPartition):
    """One task's share. (Spark's class wants a `value`.)"""

    value: LogSplit


def wanted_by(asked: SourceOptions) -> Wanted:
    """What the options ask for that filters may ask for, too."""
    return Wanted(topic_pattern=asked.topic_pattern, keys=None if asked.keys is None else frozenset(asked.keys))


def reading_of(asked: SourceOptions, shape: RowShape, wanted: Wanted = EVERYTHING) -> Reading:
    """How tasks read, by the options and the filters of a query."""
    return Reading(
        shape,
        topics=asked.topics,
        starting_timestamp=asked.starting_timestamp,
        ending_timestamp=asked.ending_timestamp,
        decompress=asked.decompress,
        verify_crc=asked.verify_crc,
        fail_on_data_loss=asked.fail_on_data_loss,
        wanted=wanted_by(asked).both(wanted),
    )


def read_declared(reading: Reading, planned: LogSplit, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of a split, with the schema that was declared to Spark; nothing is copied."""
    return (batch.select(schema.names).cast(schema) for batch in reading.read(planned))


def check_start(start: int, log: Log, fail_on_data_loss: bool) -> None:
    """Raise an error if the log's files at the requested start were deleted, unless data loss is allowed."""
    if start < log.first and fail_on_data_loss:
        raise InvalidConfig(
            f"the log of {log.broker} begins at {log.first}, and {start} was asked for",
            path=log.uri,
            advice="its older files were deleted; option failOnDataLoss=false reads what is left",
        )
