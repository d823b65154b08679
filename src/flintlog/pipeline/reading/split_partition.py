"""A split as Spark's partition, and the functions that batch and stream readers share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from flintlog.errors import InvalidConfig
from flintlog.pipeline.reading.logs import Log
from flintlog.pipeline.reading.options import SourceOptions
from flintlog.pipeline.reading.partitions import LogSplit
from flintlog.pipeline.reading.reading import Reading
from flintlog.pipeline.reading.rows import RowShape


@dataclass
class SplitPartition(InputPartition):
    """One task's share. (Spark's class wants a `value`.)"""

    value: LogSplit


def reading_of(asked: SourceOptions, shape: RowShape) -> Reading:
    """How tasks read, by the options."""
    return Reading(
        shape,
        topics=asked.topics,
        starting_timestamp=asked.starting_timestamp,
        decompress=asked.decompress,
        verify_crc=asked.verify_crc,
        fail_on_data_loss=asked.fail_on_data_loss,
    )


def read_declared(asked: SourceOptions, shape: RowShape, planned: LogSplit) -> Iterator[pa.RecordBatch]:
    """The rows of a split, with the schema that was declared to Spark; nothing is copied."""
    schema = shape.declared()
    return (batch.cast(schema) for batch in reading_of(asked, shape).read(planned))


def check_start(start: int, log: Log, fail_on_data_loss: bool) -> None:
    """Raise an error if the log's files at the requested start were deleted, unless data loss is allowed."""
    if start < log.first and fail_on_data_loss:
        raise InvalidConfig(
            f"the log of {log.broker} begins at {log.first}, and {start} was asked for",
            path=log.uri,
            advice="its older files were deleted; option failOnDataLoss=false reads what is left",
        )
