"""The second half of a shuffling rebuild: tasks that get all rows of a file, in order, and write it as a whole.

queue file      its entries at their places; fillers before the queue's first one
whole queue     built by the store's own classes, then put file by file        rebuild_build.py
index file      filled from its keys                                           rebuild_index.py
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from flintlog.derive.index_plan import starting_header
from flintlog.disk.media.local import LocalMedium
from flintlog.errors import DamagedStore, FlintlogError
from flintlog.format.index_file import IndexHeader
from flintlog.format.names import CONSUME_QUEUE, INDEX, segment_name
from flintlog.format.queue_entry import ENTRY_SIZE, PREFILL, QueueKey
from flintlog.format.record import SCHEDULE_TOPIC
from flintlog.kernel import KEY
from flintlog.pipeline.building.rebuild_build import QUEUE_FOLDERS, BuiltQueue, LogFacts, fill_queue, load_bitmaps
from flintlog.pipeline.building.rebuild_index import fill_index_file
from flintlog.pipeline.building.rebuild_scan import BuildPlan
from flintlog.pipeline.reading.logs import medium_of
from flintlog.pipeline.shuffling.shuffle_rows import WHOLE, MapBatches, PackedRow, as_dense, results, unpack
from flintlog.pipeline.shuffling.targets import Target, open_target
from flintlog.pipeline.spark.tasks import Refusal
from flintlog.store.queues.deleted_queues import DeletedQueue


@dataclass(frozen=True, slots=True)
class WriteJob:
    """What all writing tasks share."""

    plan: BuildPlan
    target: str
    root: str
    """The store, whose extension files hold the bitmaps to keep."""

    log: LogFacts
    notes: Mapping[QueueKey, tuple[DeletedQueue, ...]]
    """The offsets that queues are known to have given."""

    doubtful_levels: frozenset[int]
    thread_count: int = 1


class IndexFile(NamedTuple):
    """One index file: its keys are those from `first` to `stop` of the whole log."""

    name: str
    first: int
    stop: int
    previous: tuple[int, int] | None
    """Store time and physical offset of the last key before."""


class QueueFile(NamedTuple):
    """A queue file that was written: the queue offsets [first, next) of it."""

    key: QueueKey
    first: int
    next: int


class WrittenIndex(NamedTuple):
    """An index file that was written."""

    name: str
    key_count: int


def write_queues(job: WriteJob) -> MapBatches:
    """The function that writes the queues whose rows come in, sorted by queue, file, split and number."""

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        target = open_target(job.target)
        rows = groupby(unpack(batches), key=lambda row: (row.topic, row.queue_id, row.file))
        yield from results(_to_the_end(target, (_write_group(job, target, *key, group) for key, group in rows)))

    return write


def write_index(job: WriteJob, files: Mapping[int, IndexFile], starts: tuple[int, ...]) -> MapBatches:
    """The same for index files, by their numbers; `starts` is how many keys are before each split."""

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        target = open_target(job.target)
        rows = groupby(unpack(batches), key=lambda row: row.file)
        found = (_write_index(job, target, files[int(number or 0)], starts, group) for number, group in rows)
        yield from results(_to_the_end(target, found))

    return write


def _to_the_end(target: Target, found: Iterator[object]) -> Iterator[object]:
    """The results, once all files are durable; an error of flintlog's is a result, so that Spark does not retry it."""
    try:
        written = list(found)
        target.finish()
    except FlintlogError as error:
        written = [Refusal(type(error), error.what, error.path, error.offset, error.advice)]
    yield from written


def _write_group(
    job: WriteJob, target: Target, topic: str, queue_id: int, file: int, rows: Iterator[PackedRow]
) -> QueueFile | BuiltQueue:
    if file == WHOLE:
        return _write_whole(job, target, (topic, queue_id), [as_dense(row) for row in rows])
    return _write_file(job, target, (topic, queue_id), file, rows)


def _write_file(job: WriteJob, target: Target, key: QueueKey, file: int, rows: Iterator[PackedRow]) -> QueueFile:
    size = job.plan.consume_queue_bytes
    data = bytearray(size)
    first = stop = -1
    for row in rows:
        place = row.first * ENTRY_SIZE - file * size
        if stop < 0:
            first = place
        elif place != stop:
            raise DamagedStore(
                f"an entry of queue {key[0]}/{key[1]} is missing", path=job.target, advice="run it again"
            )
        stop = place + len(row.data)
        data[place:stop] = row.data
    data[:first] = PREFILL * (first // ENTRY_SIZE)
    name = f"{CONSUME_QUEUE}/{key[0]}/{key[1]}/{segment_name(file * size)}"
    if _is_doubtful(job, key):
        _keep_times(job, name, data)
    target.put(name, data)
    start = file * size // ENTRY_SIZE
    return QueueFile(key, start + first // ENTRY_SIZE, start + stop // ENTRY_SIZE)


def _is_doubtful(job: WriteJob, key: QueueKey) -> bool:
    return key[0] == SCHEDULE_TOPIC and key[1] + 1 in job.doubtful_levels


def _keep_times(job: WriteJob, name: str, data: bytearray) -> None:
    """Give the entries of a delay level of unknown length the delivery times that the store's own queue has."""
    medium, root = medium_of(job.root)
    before = medium.stat(root / name)
    if before is None or before.size != len(data):
        return
    old = medium.open(root / name).buffer
    for place in range(0, len(data), ENTRY_SIZE):
        if old[place : place + 12] == data[place : place + 12]:
            data[place : place + ENTRY_SIZE] = old[place : place + ENTRY_SIZE]


def _write_whole(job: WriteJob, target: Target, key: QueueKey, pieces: list[memoryview]) -> BuiltQueue:
    local, (topic, queue_id) = LocalMedium(), key
    medium, root = medium_of(job.root)
    bitmaps = load_bitmaps(job.plan, root, key, medium)
    with target.scratch() as working:
        built = fill_queue(job.plan, key, pieces, working, bitmaps, job.log, job.notes.get(key, ()), local)
        for folder in QUEUE_FOLDERS:
            made = f"{folder}/{topic}/{queue_id}"
            for info in local.listing(working / made):
                _put_made(job, target, key, f"{made}/{info.name}", working)
    return built


def _put_made(job: WriteJob, target: Target, key: QueueKey, name: str, working: Path) -> None:
    if name.startswith(f"{CONSUME_QUEUE}/") and _is_doubtful(job, key):
        data = bytearray(LocalMedium().open(working / name).buffer)
        _keep_times(job, name, data)
        target.put(name, data)
    else:
        target.put_file(name, working / name)


def _write_index(
    job: WriteJob, target: Target, file: IndexFile, starts: tuple[int, ...], rows: Iterator[PackedRow]
) -> WrittenIndex:
    layout = job.plan.index
    assert layout is not None
    header = IndexHeader() if file.previous is None else starting_header(*file.previous)
    with target.scratch() as working:
        raw = LocalMedium().create(working / file.name, layout.file_size)
        count = fill_index_file(raw, layout, header, _keys_of(file, starts, rows), job.thread_count)
        raw.close()
        target.put_file(f"{INDEX}/{file.name}", working / file.name)
    if count != file.stop - file.first:
        raise DamagedStore("keys of the rebuilt index are missing", path=job.target, advice="run it again")
    return WrittenIndex(file.name, count)


def _keys_of(file: IndexFile, starts: tuple[int, ...], rows: Iterator[PackedRow]) -> Iterator[memoryview]:
    """The file's own keys: the first and the last row may have some of its neighbours'."""
    for row in rows:
        first, data = starts[row.split] + row.first, memoryview(row.data)
        start, stop = max(0, file.first - first), min(data.nbytes // KEY.size, file.stop - first)
        yield data[start * KEY.size : stop * KEY.size]
