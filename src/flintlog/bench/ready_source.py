"""A source that reads next to nothing: for each split of a log it returns the first batch to Spark, again and again.

It has as many rows as the log, within a percent, if the messages are of one size; asked for a topic, as many as the
benchmark's rare one; asked for a key, none. Filters are pushed down as to the real one. Its cost is the cost of Spark
for these rows from any source in Python: Arrow's stream through a socket, and two conversions of each row in the JVM. A
real source costs about this plus its own reading.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from flintlog.bench.tasks import RARE_EVERY
from flintlog.pipeline.reading.options import SourceOptions
from flintlog.pipeline.reading.partitions import LogSplit
from flintlog.pipeline.reading.reading import Reading
from flintlog.pipeline.reading.rows import RowShape
from flintlog.pipeline.reading.split_partition import SplitPartition, read_declared, reading_of
from flintlog.pipeline.source import BatchReader, FlintlogSource, PushdownReader, is_pushing

NAME = "flintlog-ready"


class ReadySource(FlintlogSource):
    """The format `flintlog-ready`, with the options of `flintlog`."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def reader(self, schema: StructType) -> DataSourceReader:
        kind = ReadyPushdownReader if is_pushing() else ReadyReader
        return kind(self.asked, self.shape)


class ReadyReader(BatchReader):
    """Splits as the real one plans them, of which only the beginning is read."""

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, SplitPartition)
        left = self._row_count(partition.value)
        if left == 0:
            return
        first = next(read_declared(reading_of(SourceOptions(()), self.shape), partition.value, self.declared))
        while left > 0:
            yield first.slice(0, left)
            left -= first.num_rows

    def _row_count(self, planned: LogSplit) -> int:
        """How many rows a split has if all its records are as large as the first ones."""
        if self.asked.keys is not None:
            return 0
        sizes: list[int] = next(Reading(RowShape(chosen=("size",))).read(planned)).column("size").to_pylist()
        count = planned.split.size * len(sizes) // sum(sizes)
        return count // RARE_EVERY if self.wanted.chooses_topics else count


class ReadyPushdownReader(ReadyReader, PushdownReader):
    """The same with filters."""
