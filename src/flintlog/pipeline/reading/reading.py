"""Reads a split as rows, without Spark: the work of one task of the source.

The kernel decodes records from the mapped file into Arrow's buffers, which are passed to Spark; no record becomes a
Python object on the way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from flintlog import kernel
from flintlog.derive.columns import to_record_batch
from flintlog.derive.sealing import is_sealed
from flintlog.derive.splits import Gap, Window, first_record, scan_split
from flintlog.errors import DamagedRecord, DamagedStore
from flintlog.format.record import SCHEDULE_TOPIC
from flintlog.format.sys_flag import TRANSACTION_MASK, TransactionType
from flintlog.kernel import Crc, Decoded, ScanStop
from flintlog.pipeline.reading.partitions import LogSplit, load_window
from flintlog.pipeline.reading.rows import RowShape, decompressed
from flintlog.store.log.batch_markers import MARKER_TOPIC

BATCH_ROWS = 16_384
BATCH_BYTES = 16 * 1024 * 1024

_SEEN = {
    ScanStop.BAD_CRC: "a body does not match its CRC",
    ScanStop.BAD_LENGTH: "a record's lengths do not add up",
    ScanStop.BAD_OFFSET: "a record says that it belongs elsewhere",
    ScanStop.SHORT: "a record is longer than its file",
    ScanStop.BAD_RECORD_CRC: "a record does not match the CRC over all of it",
}


@dataclass(frozen=True, slots=True)
class Reading:
    """How splits are read."""

    shape: RowShape
    topics: tuple[str, ...] | None = None
    starting_timestamp: int | None = None
    decompress: bool = False
    verify_crc: bool = False
    fail_on_data_loss: bool = True
    passed: list[int] = field(default_factory=list, compare=False)
    """The physical offsets of damaged places that were passed over, where data loss is allowed."""

    def read(self, planned: LogSplit) -> Iterator[pa.RecordBatch]:
        """The rows of the records that begin in a split."""
        pieces = self._decode_checked(planned) if self.verify_crc else self._decode(planned)
        for decoded in pieces:
            records = with_known_times(to_record_batch(decoded), planned.levels.known)
            if self.topics is None:
                records = without_markers(records)
            if self.starting_timestamp is not None:
                records = records.filter(pc.greater_equal(records.column("store_timestamp"), self.starting_timestamp))
            if self.decompress:
                records = decompressed(records, lenient=not self.fail_on_data_loss)
            if records.num_rows:
                yield self.shape.batch(records, planned.broker)

    def _decode(self, planned: LogSplit) -> Iterator[Decoded]:
        window, split = load_window(planned), planned.split
        position = first_record(window, split)
        until = split.stop
        while position < split.stop:
            decoded = self._decode_piece(window, position, until, planned.levels.lengths_ms)
            if decoded.count:
                yield decoded
            position, until = window.base + decoded.end, split.stop
            if decoded.reason is ScanStop.BLANK:
                return
            if decoded.reason is ScanStop.LIMIT or position >= split.stop:
                continue
            until = position + _whole_size(window, position)  # the last record may end in the next split
            if until > position:
                continue
            if decoded.reason is ScanStop.SHORT and not window.is_whole:
                window, until = load_window(planned, to_end=True), split.stop
                continue
            position, until = self._pass_gap(window, planned, position, decoded.reason), split.stop

    def _decode_checked(self, planned: LogSplit) -> Iterator[Decoded]:
        """The same, after a check of the CRC of every body and, where records have one, of the whole record."""
        window = load_window(planned, to_end=True)
        first = first_record(window, planned.split)
        checked = Crc.RECORD if is_sealed(window.view, first - window.base, window.base) else Crc.BODY
        for piece in scan_split(window, planned.split, check_crc=checked, start=first):
            if isinstance(piece, Gap):
                self._refuse(planned, piece.start, piece.reason)
                continue
            position, stop = piece.row(0).physical_offset, window.base + piece.end
            while position < stop:
                decoded = self._decode_piece(window, position, stop, planned.levels.lengths_ms)
                if decoded.count:
                    yield decoded
                position = window.base + decoded.end

    def _decode_piece(self, window: Window, start: int, stop: int, levels_ms: Sequence[int]) -> Decoded:
        return kernel.decode(
            window.view,
            start - window.base,
            min(stop - window.base, len(window.view)),
            window.base,
            include_body=self.shape.needs_body,
            topics=None if self.topics is None else frozenset(topic.encode() for topic in self.topics),
            max_rows=BATCH_ROWS,
            max_bytes=BATCH_BYTES,
            delay_levels_ms=levels_ms,
        )

    def _pass_gap(self, window: Window, planned: LogSplit, position: int, reason: ScanStop) -> int:
        self._refuse(planned, position, reason)
        found = kernel.find_record(window.view, position + 1 - window.base, len(window.view), window.base)
        return planned.split.stop if found < 0 else window.base + found

    def _refuse(self, planned: LogSplit, position: int, reason: ScanStop) -> None:
        """Raise an error for a gap, unless data loss is allowed."""
        if not self.fail_on_data_loss:
            self.passed.append(position)
            return
        kind = DamagedRecord if reason in (ScanStop.BAD_CRC, ScanStop.BAD_RECORD_CRC) else DamagedStore
        raise kind(
            f"the log is damaged: {_SEEN.get(reason, 'no record begins here')}",
            path=f"{planned.uri}/{planned.split.file.name}",
            offset=position,
            advice="option failOnDataLoss=false reads what is around it; `flintlog verify` says what is lost",
        )


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


def _whole_size(window: Window, position: int) -> int:
    """The size of the record at a physical offset; 0 when none begins there."""
    place = position - window.base
    seen = kernel.scan(window.view, place, len(window.view), window.base, max_count=1)
    return seen.end - place if seen.count else 0
