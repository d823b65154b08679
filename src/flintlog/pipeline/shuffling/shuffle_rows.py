"""The rows that a shuffling rebuild exchanges: packed entries and keys of one split.

    kind      topic    queue_id  file   split  number  first   data
    summary                             0                      a pickled `SplitResult`, or the error of a split
    entries   orders   1         7      0      3       700     consecutive entries of 20 bytes, of one queue file
    damaged   orders   1         7      0      4       732     the same of records whose bodies are damaged
    dense     orders   2         -1     0      0       0       entries of a queue that is built as a whole, see `DENSE`
    keys                                0      1       6553    index keys

`number` is the order of a queue's rows, or of the keys, within a split; `first` is the queue offset of the first entry,
or how many keys of the split are before. A row has at most `ROW_BYTES`, so that a batch of rows is small.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

import pyarrow as pa

from flintlog.derive.chains import Reach
from flintlog.derive.splits import Split, Window, first_record
from flintlog.disk.media.local import LocalMedium
from flintlog.errors import FlintlogError
from flintlog.format.queue_entry import ENTRY_SIZE, QUEUE_ENTRY, QueueKey
from flintlog.kernel import KEY, QueueEnd, Row, Scan, Tail
from flintlog.pipeline.building.rebuild_scan import (
    DENSE,
    IS_INTACT,
    BuildPlan,
    Spilled,
    SplitQueue,
    SplitReader,
    SplitResult,
    make_log_durable,
)
from flintlog.pipeline.reading.partitions import LogSplit, load_window
from flintlog.pipeline.spark.tasks import Refusal

ROW_BYTES: Final = 128 * 1024
ROWS_AT_ONCE: Final = 256
_FIRST_ENTRIES: Final = 32
WHOLE: Final = -1
"""As a file: the queue is built as a whole."""

SCHEMA: Final = "kind int, topic string, queue_id int, file long, split int, number int, first long, data binary"
_ARROW: Final = pa.schema(
    [
        ("kind", pa.int32()),
        ("topic", pa.string()),
        ("queue_id", pa.int32()),
        ("file", pa.int64()),
        ("split", pa.int32()),
        ("number", pa.int32()),
        ("first", pa.int64()),
        ("data", pa.binary()),
    ]
)
RESULT_SCHEMA: Final = "result binary"

MapBatches = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


class Kind(IntEnum):
    """What a row holds."""

    SUMMARY = 0
    ENTRIES = 1
    DAMAGED = 2
    DENSE = 3
    KEYS = 4


class PackedRow(NamedTuple):
    """One row; see the module."""

    kind: int
    topic: str | None
    queue_id: int | None
    file: int | None
    split: int
    number: int
    first: int
    data: bytes | memoryview


def pack_splits(plan: BuildPlan, planned: Sequence[LogSplit], *, sync_log: bool) -> MapBatches:
    """The function that gives the rows of the splits whose numbers come in."""

    def pack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from _batches(_rows_of(plan, number, planned[number], sync_log))

    return pack


def _rows_of(plan: BuildPlan, number: int, planned: LogSplit, sync_log: bool) -> Iterator[PackedRow]:
    """The rows of one split. An error of flintlog's is a row, so that Spark does not retry it."""
    medium = LocalMedium()
    reader = PackingReader(plan, number, medium)
    try:
        if sync_log:
            make_log_durable(planned, medium)
        result: SplitResult | Refusal = reader.read(load_window(planned), planned.split)
    except FlintlogError as error:
        result = Refusal(type(error), error.what, error.path, error.offset, error.advice)
    yield PackedRow(Kind.SUMMARY, None, None, None, number, 0, 0, pickle.dumps(result))
    if not isinstance(result, Refusal):
        yield from reader.rows()


def _batches(rows: Iterator[PackedRow]) -> Iterator[pa.RecordBatch]:
    held: list[PackedRow] = []
    for row in rows:
        held.append(row)
        if len(held) == ROWS_AT_ONCE:
            yield _batch(held)
            held = []
    if held:
        yield _batch(held)


def _batch(rows: list[PackedRow]) -> pa.RecordBatch:
    columns = [
        pa.array(list(column), field.type) for column, field in zip(zip(*rows, strict=True), _ARROW, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=_ARROW)


def unpack(batches: Iterable[pa.RecordBatch]) -> Iterator[PackedRow]:
    """The rows of batches; their data are views."""
    for batch in batches:
        *columns, data = batch.columns
        for number, values in enumerate(zip(*(column.to_pylist() for column in columns), strict=True)):
            yield PackedRow._make((*values, memoryview(data[number].as_buffer())))


def results(found: Iterable[object]) -> Iterator[pa.RecordBatch]:
    """Picklable results as rows."""
    for each in found:
        yield pa.RecordBatch.from_arrays([pa.array([pickle.dumps(each)], pa.binary())], names=["result"])


class _Run(NamedTuple):
    """Consecutive entries: where they begin in the queue, in bytes, and the buffer that takes them."""

    is_intact: bool
    tail: Tail
    buffer: bytearray

    @property
    def has_room(self) -> bool:
        return self.tail.position < self.tail.capacity


class PackedQueue:
    """The entries of one split in one queue, in memory; a run ends where entries do not follow, and with its file."""

    def __init__(self, file_bytes: int) -> None:
        self.end = QueueEnd(None)
        self.first = -1
        self.in_step = True
        self.runs: list[_Run] = []
        self._file_bytes = file_bytes

    @property
    def next(self) -> int:
        return self.runs[-1].tail.end // ENTRY_SIZE

    def put(self, row: Row, queue_offset: int, marks: int) -> None:
        if self.first < 0:
            self.first = queue_offset
        elif queue_offset != self.next:
            self.in_step = False
        self.end.tail = tail = self._tail_at(queue_offset * ENTRY_SIZE, bool(marks & IS_INTACT))
        buffer = self.runs[-1].buffer
        QUEUE_ENTRY.pack_into(buffer, tail.position, row.physical_offset, row.size, row.tags_code)
        tail.position += ENTRY_SIZE
        self.end.max_physical_offset = row.physical_offset + row.size

    def _tail_at(self, place: int, is_intact: bool) -> Tail:
        last = self.runs[-1] if self.runs else None
        if last is not None and (last.tail.end, last.is_intact) == (place, is_intact) and last.has_room:
            return last.tail
        wished = 2 * len(last.buffer) if last is not None else _FIRST_ENTRIES * ENTRY_SIZE
        most = ROW_BYTES - ROW_BYTES % ENTRY_SIZE
        buffer = bytearray(min(wished, most, self._file_bytes - place % self._file_bytes))
        self.runs.append(_Run(is_intact, Tail(buffer, place), buffer))
        return self.runs[-1].tail

    def rows(self, key: QueueKey, split: int) -> Iterator[PackedRow]:
        self.end.tail = None
        for number, run in enumerate(self.runs):
            kind = Kind.ENTRIES if run.is_intact else Kind.DAMAGED
            data = memoryview(run.buffer)[: run.tail.position]
            base = run.tail.base
            yield PackedRow(kind, *key, base // self._file_bytes, split, number, base // ENTRY_SIZE, data)


class PackingReader(SplitReader):
    """Reads a split into packed rows instead of files."""

    def read(self, window: Window, split: Split) -> SplitResult:
        reach: Reach = self._scan(window, split, first_record(window, split), keep_damaged=True)
        counts = {key: Spilled(0, len(entries) // DENSE.size) for key, entries in self._dense.items()}
        return self._result(reach, counts)

    def _new_queue(self, key: QueueKey) -> SplitQueue:
        return PackedQueue(self._plan.consume_queue_bytes)

    def _add_damaged(self, window: Window, start: int, record: Scan) -> None:
        """In a run of its own, so that it is known which entries are of damaged records."""
        self._interrupt()
        super()._add_damaged(window, start, record)
        self._interrupt()

    def _interrupt(self) -> None:
        """The next record of each queue comes to `put`."""
        for queue in self._queues.values():
            queue.end.tail = None

    def rows(self) -> Iterator[PackedRow]:
        """Everything that was read."""
        for key, queue in self._queues.items():
            assert isinstance(queue, PackedQueue)
            yield from queue.rows(key, self._number)
        for key, entries in self._dense.items():
            for number, data in enumerate(_cut(memoryview(entries), DENSE.size)):
                yield PackedRow(Kind.DENSE, *key, WHOLE, self._number, number, 0, data)
        first = 0
        pieces = (data for keys in self._tally.keys for data in _cut(keys, KEY.size))
        for number, data in enumerate(pieces):
            yield PackedRow(Kind.KEYS, None, None, None, self._number, number, first, data)
            first += data.nbytes // KEY.size


def _cut(data: memoryview, size: int) -> Iterator[memoryview]:
    step = ROW_BYTES - ROW_BYTES % size
    return (data[place : place + step] for place in range(0, data.nbytes, step))


def as_dense(row: PackedRow) -> memoryview:
    """The entries of a row, packed as those of a queue that is built as a whole."""
    if row.kind == Kind.DENSE:
        return memoryview(row.data)
    marks = IS_INTACT if row.kind == Kind.ENTRIES else 0
    entries = enumerate(QUEUE_ENTRY.iter_unpack(row.data), row.first)
    return memoryview(b"".join(DENSE.pack(*entry, offset, 0, 1, marks) for offset, entry in entries))
