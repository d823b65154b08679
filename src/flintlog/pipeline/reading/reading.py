"""Reads a split as rows, without Spark: the work of one task of the source.

The kernel decodes records from the mapped file into Arrow's buffers, which are passed to Spark; no record becomes a
Python object on the way.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from flintlog.format.record import SCHEDULE_TOPIC
from flintlog.format.sys_flag import TRANSACTION_MASK, TransactionType
from flintlog.pipeline.reading.decoding import Decoding
from flintlog.pipeline.reading.filters import ALL, EVERYTHING, Range, Wanted
from flintlog.pipeline.reading.narrow import read_narrowed
from flintlog.pipeline.reading.partitions import LogSplit
from flintlog.pipeline.reading.rows import BODY, RowShape, decompressed
from flintlog.store.log.batch_markers import MARKER_TOPIC


@dataclass(frozen=True, slots=True)
class Reading:
    """How splits are read."""

    shape: RowShape
    topics: tuple[str, ...] | None = None
    starting_timestamp: int | None = None
    ending_timestamp: int | None = None
    decompress: bool = False
    verify_crc: bool = False
    fail_on_data_loss: bool = True
    wanted: Wanted = EVERYTHING
    """What a query's filters ask for, besides the options."""
    passed: list[int] = field(default_factory=list, compare=False)
    """The physical offsets of damaged places that were passed over, where data loss is allowed."""

    def read(self, planned: LogSplit) -> Iterator[pa.RecordBatch]:
        """The rows of the records that begin in a split."""
        decoding = Decoding(planned, self._chosen(), self._fields(), self.fail_on_data_loss, self.passed)
        for records in decoding.scan_checked() if self.verify_crc else read_narrowed(decoding):
            rows = self._finished(records, planned)
            if rows.num_rows:
                yield self.shape.batch(rows, planned.broker)

    def _finished(self, records: pa.RecordBatch, planned: LogSplit) -> pa.RecordBatch:
        if "tags_code" in records.schema.names:
            records = with_known_times(records, planned.levels.known)
        if self.topics is None:
            records = without_markers(records)
        return decompressed(records, lenient=not self.fail_on_data_loss) if self.decompress else records

    def _chosen(self) -> Wanted:
        """What the filters and the options ask for together."""
        named = None if self.topics is None else frozenset(self.topics)
        ranges = {}
        if self.starting_timestamp is not None or self.ending_timestamp is not None:
            first = ALL.first if self.starting_timestamp is None else self.starting_timestamp
            last = ALL.last if self.ending_timestamp is None else self.ending_timestamp - 1
            ranges["store_timestamp"] = Range(first, last)
        return self.wanted.both(Wanted(topics=named, ranges=ranges))

    def _fields(self) -> frozenset[str]:
        """The fields of a record that the rows are made from."""
        fields = set(self.shape.fields())
        if "tags_code" in fields:
            fields |= {"topic", "queue_id"}
        if self.topics is None:
            fields |= {"topic", "sys_flag"}
        if self.decompress and BODY in fields:
            fields |= {"sys_flag", "physical_offset"}
        return frozenset(fields)


def with_known_times(records: pa.RecordBatch, known_levels: frozenset[int]) -> pa.RecordBatch:
    """The records, with tags code 0 for delayed messages whose delivery time is not known."""
    is_waiting = pc.equal(records.column("topic"), SCHEDULE_TOPIC)
    if not pc.any(is_waiting).as_py():
        return records
    queues = pa.array([level - 1 for level in known_levels], pa.int32())
    is_unknown = pc.and_(is_waiting, pc.invert(pc.is_in(records.column("queue_id"), queues)))
    place = records.schema.get_field_index("tags_code")
    codes = pc.if_else(is_unknown, pa.scalar(0, pa.int64()), records.column(place))
    return records.set_column(place, records.schema.field(place), codes)


def without_markers(records: pa.RecordBatch) -> pa.RecordBatch:
    """The records without the markers that close batches: these are shown only if their topic is named."""
    flags = pc.bit_wise_and(records.column("sys_flag"), TRANSACTION_MASK)
    if not pc.any(pc.equal(flags, int(TransactionType.ROLLBACK))).as_py():
        return records
    return records.filter(pc.not_equal(records.column("topic"), MARKER_TOPIC))
