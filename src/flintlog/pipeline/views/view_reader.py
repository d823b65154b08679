"""A view of stores as Spark's reader: the driver lists the files, tasks read them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from flintlog.pipeline.reading.logs import find_logs, is_glob
from flintlog.pipeline.reading.options import SourceOptions
from flintlog.pipeline.views.store_place import store_of
from flintlog.pipeline.views.view_rows import Share, plan_shares, read_share, schema_of


@dataclass
class SharePartition(InputPartition):
    """One task's share. (Spark's class wants a `value`.)"""

    value: Share


class ViewReader(DataSourceReader):
    """Reads a view of stores, as their files are when the tasks read them."""

    def __init__(self, asked: SourceOptions) -> None:
        self.asked = asked

    @property
    def columns(self) -> pa.Schema:
        asked = self.asked
        return schema_of(asked.view, with_broker=is_glob(asked.paths), are_times_numbers=asked.are_times_numbers)

    def partitions(self) -> Sequence[InputPartition]:
        logs = find_logs(self.asked.paths, strict=False)
        shares = [share for log in logs for share in plan_shares(self.asked.view, log.broker, store_of(log))]
        return [SharePartition(share) for share in shares] or [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, SharePartition):
            yield from read_share(self.asked.view, partition.value, self.columns)
