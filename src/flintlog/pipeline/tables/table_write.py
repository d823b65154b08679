"""The task of an export: reads a split, and writes its rows as Parquet files by topic and day.

    batch of rows ─▶ by (topic, day), log order kept ─▶ buffered ─▶ row groups of one file for each (topic, day)

Days are those of the store time, in UTC. Memory is bounded: buffered rows are written when they reach `BUFFER_BYTES`,
and at most `MAX_OPEN_FILES` files are open.
"""

from __future__ import annotations

import hashlib
import re
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import quote

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from flintlog.disk.media.parquet_file import ParquetFile
from flintlog.errors import InvalidConfig
from flintlog.pipeline.reading.partitions import LogSplit
from flintlog.pipeline.reading.reading import Reading
from flintlog.pipeline.reading.rows import BODY, RowShape
from flintlog.pipeline.spark.tasks import attempt_name

BUFFER_BYTES: Final = 128 * 1024 * 1024
MAX_OPEN_FILES: Final = 64
DAY_MS: Final = 86_400_000
VALUE: Final = "value"
_EPOCH: Final = date(1970, 1, 1)
MAX_NAME_BYTES: Final = 255
SHORT_NAME_BYTES: Final = 200
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_-]")

PartitionKey = tuple[str, int]
"""Topic, and days since 1970."""


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A Parquet file that a task made: where it is now, and the rows of which topic and day it holds."""

    staged: str
    topic: str
    day: str
    rows: int
    bytes: int
    unparsed: int = 0

    @property
    def sizes(self) -> tuple[int, int]:
        """Rows and bytes."""
        return self.rows, self.bytes

    @property
    def folder(self) -> str:
        """The directory in the table, as Hive names it.

        >>> WrittenFile("x", "%RETRY%g", "2026-11-16", 1, 1).folder
        'topic=%25RETRY%25g/day=2026-11-16'
        """
        return f"{_hive_folder(self.topic)}/day={self.day}"


class WrittenSplit(NamedTuple):
    """What a task made of a split."""

    files: list[WrittenFile]
    damaged_count: int
    """Damaged places that were passed over."""


@dataclass(frozen=True, slots=True)
class ExportTask:
    """How a split becomes files; `value_type` is what bodies are parsed as."""

    folder: str
    topics: tuple[str, ...] | None = None
    with_broker: bool = False
    include_body: bool = True
    decompress: bool = True
    value_type: pa.DataType | None = None
    fail_on_data_loss: bool = True
    compression: str = "snappy"
    keep_partitions: bool = False
    by_partition: bool = False

    def write(self, planned: LogSplit) -> WrittenSplit:
        """Write the files of one split. A second attempt writes others, and those of the first are not used."""
        reading = self.reading()
        files = self.write_rows(reading.read(planned))
        return WrittenSplit(files, len(reading.passed))

    def reading(self) -> Reading:
        """How a split is read for this table."""
        reads_body = self.include_body or self.value_type is not None
        return Reading(
            RowShape("record", reads_body, self.with_broker),
            topics=self.topics,
            decompress=self.decompress and reads_body,
            fail_on_data_loss=self.fail_on_data_loss,
        )

    def write_rows(self, batches: Iterable[pa.RecordBatch]) -> list[WrittenFile]:
        """Write files of rows that were read with `reading`, or of some of them."""
        parts = _Parts(self)
        for batch in batches:
            for key, rows in by_topic_and_day(batch):
                parts.add(key, *self._shape(rows, key))
        return parts.close()

    def _shape(self, rows: pa.RecordBatch, key: PartitionKey) -> tuple[pa.RecordBatch, int]:
        """The columns of the table, and how many bodies did not fit the schema."""
        unparsed = 0
        if self.value_type is not None:
            values, unparsed = parse_values(rows.column(BODY), self.value_type)
            rows = rows.append_column(VALUE, values)
        left_out = []
        if self.keep_partitions:
            day = pa.scalar(key[1], pa.int32()).cast(pa.date32())
            rows = rows.append_column("day", pa.repeat(day, rows.num_rows))
        else:
            left_out.append("topic")
        if not self.include_body and BODY in rows.schema.names:
            left_out.append(BODY)
        return rows.drop_columns(left_out), unparsed


def by_topic_and_day(batch: pa.RecordBatch) -> Iterator[tuple[PartitionKey, pa.RecordBatch]]:
    """The rows of each topic and day, in the order they came in."""
    if not batch.num_rows:
        return
    days = pc.divide(batch.column("store_timestamp"), DAY_MS)
    topics = batch.column("topic").dictionary_encode()
    first_day, last_day = (bound.as_py() for bound in pc.min_max(days).values())
    span = last_day - first_day + 1
    if span == 1 and len(topics.dictionary) == 1:
        yield (topics.dictionary[0].as_py(), first_day), batch
        return
    codes = pc.add(pc.multiply(topics.indices.cast(pa.int64()), span), pc.subtract(days, first_day))
    counts = pc.value_counts(codes)
    order = pc.sort_indices(codes)  # stable: log order is kept
    sorted_rows = batch.take(order)
    start = 0
    for code, count in sorted((each["values"].as_py(), each["counts"].as_py()) for each in counts):
        topic, day = divmod(code, span)
        yield (topics.dictionary[topic].as_py(), first_day + day), sorted_rows.slice(start, count)
        start += count


def parse_values(bodies: pa.Array, kind: pa.DataType) -> tuple[pa.Array, int]:
    """JSON bodies as values of a type, with null for those that are no JSON or do not fit; and how many these are.

    >>> values, unparsed = parse_values(pa.array([b'{"n": 1}', b"no"]), pa.struct([("n", pa.int64())]))
    >>> values.to_pylist(), unparsed
    ([{'n': 1}, None], 1)
    """
    decoder = msgspec.json.Decoder()
    found = [_decoded(decoder, body) for body in bodies.to_pylist()]
    try:
        values = pa.array(found, kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        values = pa.array([each if _fits(each, kind) else None for each in found], kind)
    return values, values.null_count - bodies.null_count


def _decoded(decoder: msgspec.json.Decoder[object], body: bytes | None) -> object:
    if body is None:
        return None
    try:
        found = decoder.decode(body)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _fits(value: object, kind: pa.DataType) -> bool:
    try:
        pa.array([value], kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        return False
    return True


def day_name(day: int) -> str:
    """
    >>> day_name(0)
    '1970-01-01'
    """
    return (_EPOCH + timedelta(days=day)).isoformat()


class _Parts:
    """The files that one task writes, and the rows that are buffered for them."""

    def __init__(self, task: ExportTask) -> None:
        self._task = task
        self._attempt = attempt_name()
        self._waiting: dict[PartitionKey, list[pa.RecordBatch]] = {}
        self._waiting_bytes = 0
        self._open: OrderedDict[PartitionKey, ParquetFile] = OrderedDict()
        self._unparsed: dict[PartitionKey, int] = {}
        self._written: list[WrittenFile] = []
        self._file_count = 0

    def add(self, key: PartitionKey, rows: pa.RecordBatch, unparsed: int) -> None:
        self._waiting.setdefault(key, []).append(rows)
        self._unparsed[key] = self._unparsed.get(key, 0) + unparsed
        self._waiting_bytes += rows.nbytes
        if self._waiting_bytes >= BUFFER_BYTES:
            self._flush()

    def close(self) -> list[WrittenFile]:
        self._flush()
        while self._open:
            self._close_oldest()
        return self._written

    def _flush(self) -> None:
        for key, batches in self._waiting.items():
            table = pa.Table.from_batches(batches)
            self._file(key, table.schema).write(table)
        self._waiting.clear()
        self._waiting_bytes = 0

    def _file(self, key: PartitionKey, schema: pa.Schema) -> ParquetFile:
        file = self._open.get(key)
        if file is None:
            if len(self._open) >= MAX_OPEN_FILES:
                self._close_oldest()
            self._file_count += 1
            name = f"{self._attempt}-{self._file_count:05d}.parquet"
            folder = Path(self._task.folder)
            if self._task.by_partition:
                folder = folder / _plain_folder(key[0]) / f"day={day_name(key[1])}"
            elif not self._task.keep_partitions:
                _check_folder(key[0])
            file = self._open[key] = ParquetFile(folder / name, schema, self._task.compression)
        return file

    def _close_oldest(self) -> None:
        (topic, day), file = self._open.popitem(last=False)
        file.close()
        unparsed = self._unparsed.pop((topic, day), 0)
        self._written.append(WrittenFile(str(file.path), topic, day_name(day), file.row_count, file.size, unparsed))


def _plain_folder(topic: str) -> str:
    """The folder of a topic in a table that has topics in its own log.

    Readers differ in how they unescape paths, so nothing is escaped; a name that is too long for a file system ends in
    a digest of the topic.
    """
    name = f"topic={_UNSAFE.sub('_', topic)}"
    if len(name) <= MAX_NAME_BYTES:
        return name
    return f"{name[:SHORT_NAME_BYTES]}-{hashlib.sha256(topic.encode()).hexdigest()[:16]}"


def can_name_folder(topic: str) -> bool:
    """Whether a topic fits into the name of a folder, as Hive writes it.

    >>> can_name_folder("t" * 249), can_name_folder("t" * 250)
    (True, False)
    """
    return len(_hive_folder(topic)) <= MAX_NAME_BYTES


def _hive_folder(topic: str) -> str:
    return f"topic={quote(topic, safe='')}"


def _check_folder(topic: str) -> None:
    """In such a table of Parquet the name of the folder is the topic, so it cannot be shortened."""
    if not can_name_folder(topic):
        raise InvalidConfig(
            f"the topic {topic[:80]}… is too long for the name of a folder, and this table has one for each topic",
            advice="export into a new table: it has no folders if the store has queues of such a topic",
        )
