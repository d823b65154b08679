"""The rows of each view: what they are made from, and how the files are shared among tasks.

    view             a row for each                                 a task reads
    queue_entries    entry of a consume queue, a batch's as one     queue files of about 32 MiB together
    index            key in an index file                           one index file
    groups           consumer group and queue                       a store
    files            file of the store's directory                  a store
    findings         finding of `flintlog verify`                   a store

Rows are what the files hold, whether it is right or not: `findings` judges. Places that were never written, and those
that only fill the beginning of a queue, are no rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import astuple, dataclass
from itertools import islice
from pathlib import Path, PurePath
from typing import Final

import pyarrow as pa

from flintlog import kernel
from flintlog.checks.derived_files import DataFile
from flintlog.format import names
from flintlog.format.index_file import HEADER_SIZE, INDEX_ENTRY, IndexLayout, parse_index_header
from flintlog.format.queue_entry import (
    BATCH_ENTRY_SIZE,
    ENTRY_SIZE,
    PREFILL_ENTRY,
    parse_batch_queue_entries,
    parse_queue_entries,
)
from flintlog.maintenance.inspect.overview import all_files, groups
from flintlog.maintenance.inspect.store_files import StoreFiles, look_at
from flintlog.maintenance.verify.verify import verify
from flintlog.pipeline.reading.rows import to_timestamps
from flintlog.pipeline.views.store_place import place_of

TASK_BYTES: Final = 32 * 1024 * 1024
TASK_FILES: Final = 1000
BATCH_ROWS: Final = 16_384
TIMESTAMP: Final = "timestamp"

Values = tuple[object, ...]
FINDING_COLUMNS: Final = (
    *(("id", "string"), ("severity", "string"), ("file", "string"), ("offset", "bigint")),
    *(("physical_offset", "bigint"), ("size", "bigint"), ("evidence", "string"), ("remedy", "string")),
)
COLUMNS: Final[Mapping[str, tuple[tuple[str, str], ...]]] = {
    "queue_entries": (
        *(("topic", "string"), ("queue_id", "int"), ("queue_offset", "bigint"), ("physical_offset", "bigint")),
        *(("size", "int"), ("tags_code", "bigint"), ("batch_size", "int"), ("file", "string")),
    ),
    "index": (
        *(("file", "string"), ("entry", "int"), ("slot", "int"), ("key_hash", "int"), ("physical_offset", "bigint")),
        *(("time", TIMESTAMP), ("previous_entry", "int")),
    ),
    "groups": (
        *(("group", "string"), ("topic", "string"), ("queue_id", "int"), ("offset", "bigint")),
        *(("max_offset", "bigint"), ("lag", "bigint")),
    ),
    "files": (("name", "string"), ("kind", "string"), ("base", "bigint"), ("size", "bigint"), ("modified", TIMESTAMP)),
    "findings": FINDING_COLUMNS,
}
_ARROW_TYPES: Final = {
    "string": pa.utf8(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    TIMESTAMP: pa.timestamp("us", tz="UTC"),
}


@dataclass(frozen=True, slots=True)
class QueueFile:
    """One file of a consume queue."""

    topic: str
    queue_id: int
    is_batch: bool
    file: DataFile


@dataclass(frozen=True, slots=True)
class IndexFile:
    """One index file."""

    path: str
    layout: IndexLayout


@dataclass(frozen=True, slots=True)
class Share:
    """One task's part of a store; without files, all of it."""

    broker: str
    store: str
    files: tuple[QueueFile | IndexFile, ...] = ()


# ---------------------------------------------------------------------- planning


def plan_shares(view: str, broker: str, store: str) -> list[Share]:
    """The parts of a store that tasks read."""
    if view not in ("queue_entries", "index"):
        return [Share(broker, store)]
    root, medium, _ = place_of(store)
    found = look_at(root, medium=medium)
    if view == "index":
        return [Share(broker, store, (IndexFile(path, found.layout),)) for path in found.index]
    return [Share(broker, store, part) for part in _parts(_queue_files(found))]


def _queue_files(found: StoreFiles) -> Iterator[QueueFile]:
    for _, queue in sorted(found.queues.items()):
        for file in queue.files:
            yield QueueFile(queue.topic, queue.queue_id, queue.is_batch, file)


def _parts(files: Iterable[QueueFile]) -> Iterator[tuple[QueueFile, ...]]:
    part: list[QueueFile] = []
    size = 0
    for each in files:
        part.append(each)
        size += each.file.size
        if size >= TASK_BYTES or len(part) >= TASK_FILES:
            yield tuple(part)
            part, size = [], 0
    if part:
        yield tuple(part)


# ---------------------------------------------------------------------- what tasks read


def schema_of(view: str, *, with_broker: bool, are_times_numbers: bool) -> pa.Schema:
    """The columns of a view; with several stores the first one is the broker."""
    columns = [*([("broker", "string")] if with_broker else []), *COLUMNS[view]]
    number = {TIMESTAMP: "bigint"} if are_times_numbers else {}
    return pa.schema([(name, _ARROW_TYPES[number.get(kind, kind)]) for name, kind in columns])


def read_share(view: str, share: Share, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of one task."""
    rows = _ROWS[view](share)
    while part := list(islice(rows, BATCH_ROWS)):
        if schema.names[0] == "broker":
            part = [(share.broker, *row) for row in part]
        columns = zip(*part, strict=True)
        yield pa.record_batch([_array(values, field) for values, field in zip(columns, schema, strict=True)], schema)


def _array(values: Values, field: pa.Field) -> pa.Array:
    if pa.types.is_timestamp(field.type):
        return to_timestamps(pa.array(values, pa.int64()))
    return pa.array(values, field.type)


def _queue_entries(share: Share) -> Iterator[Values]:
    root, medium, _ = place_of(share.store)
    for each in share.files:
        assert isinstance(each, QueueFile)
        whole = medium.open(Path(each.file.path)).buffer
        name = _name(each.file.path, root)
        unit = BATCH_ENTRY_SIZE if each.is_batch else ENTRY_SIZE
        used = -(-kernel.written_end(whole, 0, len(whole)) // unit) * unit
        view = whole[: min(used, len(whole) - len(whole) % unit)]
        if each.is_batch:
            for batch in parse_batch_queue_entries(view):
                place = (batch.base_offset, batch.physical_offset, batch.size, batch.tags_code, batch.batch_size)
                yield each.topic, each.queue_id, *place, name
            continue
        first = each.file.base // ENTRY_SIZE
        for number, entry in enumerate(parse_queue_entries(view)):
            if entry != PREFILL_ENTRY and entry.is_valid:
                place = (first + number, entry.physical_offset, entry.size, entry.tags_code, 1)
                yield each.topic, each.queue_id, *place, name


def _index(share: Share) -> Iterator[Values]:
    root, medium, _ = place_of(share.store)
    for each in share.files:
        assert isinstance(each, IndexFile)
        view, layout, name = medium.open(Path(each.path)).buffer, each.layout, _name(each.path, root)
        if len(view) < HEADER_SIZE:
            continue
        header = parse_index_header(view)
        start = layout.entry_position(1)
        stop = min(layout.entry_position(header.next_entry), len(view) - (len(view) - start) % INDEX_ENTRY.size)
        for number, entry in enumerate(INDEX_ENTRY.iter_unpack(view[start : max(start, stop)]), 1):
            key_hash, physical_offset, seconds, previous = entry
            # The difference of the first entry counts from the file before; the header begins at its time.
            time_ms = header.begin_timestamp + (0 if number == 1 else seconds * 1000)
            yield name, number, layout.slot_of(key_hash), key_hash, physical_offset, time_ms, previous


def _groups(share: Share) -> Iterator[Values]:
    root, medium, _ = place_of(share.store)
    for each in groups(look_at(root, medium=medium)):
        yield astuple(each)


def _files(share: Share) -> Iterator[Values]:
    root, medium, _ = place_of(share.store)
    for path, kind, size, modified_ms in all_files(look_at(root, medium=medium)):
        yield str(path), kind, int(path.name) if names.is_segment_name(path.name) else None, size, modified_ms


def _findings(share: Share) -> Iterator[Values]:
    root, medium, _ = place_of(share.store)
    for each in verify(root, medium=medium, threads=1).findings:
        yield tuple(getattr(each, name) for name, _ in FINDING_COLUMNS)


def _name(path: str, root: PurePath) -> str:
    return str(PurePath(path).relative_to(root))


_ROWS: Final[Mapping[str, Callable[[Share], Iterator[Values]]]] = {
    "queue_entries": _queue_entries,
    "index": _index,
    "groups": _groups,
    "files": _files,
    "findings": _findings,
}
