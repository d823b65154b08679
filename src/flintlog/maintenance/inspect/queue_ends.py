"""Where a queue begins and ends, by its own files. No function here reads a whole queue."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from functools import partial

from flintlog import kernel
from flintlog.checks.derived_files import DataFile, QueueFilesView
from flintlog.format.names import FAR
from flintlog.format.queue_entry import (
    BATCH_ENTRY_SIZE,
    ENTRY_SIZE,
    OFFSET_AND_SIZE,
    PREFILL_ENTRY,
    BatchQueueEntry,
    parse_batch_queue_entry,
)
from flintlog.maintenance.inspect.store_files import StoreFiles
from flintlog.store.dispatch.external.dispatch_journal import DispatchJournal

MOST = PREFILL_ENTRY.size
"""A size that no record has."""


def queue_end(files: StoreFiles, queue: QueueFilesView) -> int:
    """The queue offset after the last entry of a queue."""
    last = _last_entry(files, queue)
    if last is None:
        return queue.files[0].base // ENTRY_SIZE if queue.files else 0
    file, view, place = last
    if queue.is_batch:
        return parse_batch_queue_entry(view, place).end_offset
    return (file.base + place) // ENTRY_SIZE + 1


def log_end_of_queues(files: StoreFiles) -> int:
    """Where the log ends by the last entries of all queues; 0 when there are none."""
    return max((at + size for at, size in _last_entries(files) if at >= 0 and 0 < size < MOST), default=0)


def dispatched_to(files: StoreFiles) -> int:
    """Where the last record with a queue entry begins: in-order dispatch has written the entries of all before it.

    An external dispatcher writes in any order; its journal says how far it has finished.
    """
    published = DispatchJournal(files.paths.dispatch, files.medium).load()
    if published is not None:
        return published.end
    return max((at for at, size in _last_entries(files) if 0 <= at < FAR and 0 < size < MOST), default=0)


def _last_entries(files: StoreFiles) -> Iterator[tuple[int, int]]:
    """Physical offset and size that the last entry of each queue names."""
    for queue in files.queues.values():
        last = _last_entry(files, queue)
        if last is not None:
            _, view, place = last
            yield OFFSET_AND_SIZE.unpack_from(view, place)


def _last_entry(files: StoreFiles, queue: QueueFilesView) -> tuple[DataFile, memoryview, int] | None:
    """The last written entry of a queue: its file, the file's bytes, and the entry's place in them."""
    for file in reversed(queue.files):
        view = files.view(file)
        if queue.is_batch:
            place = (_batch_count(view) - 1) * BATCH_ENTRY_SIZE
        else:
            place = kernel.count_entries(view, 0, len(view) - len(view) % ENTRY_SIZE) - ENTRY_SIZE
        if place >= 0:
            return file, view, place
    return None


def queue_begin(files: StoreFiles, queue: QueueFilesView, log_min: int, end: int) -> int:
    """The first queue offset below `end` whose record is at `log_min` or later, by bisection; else `end`."""
    for file in queue.files:
        view = files.view(file)
        if queue.is_batch:
            begin = _first_kept(_batch_count(view), partial(_is_batch_kept, view, log_min))
            if begin is not None:
                return parse_batch_queue_entry(view, begin * BATCH_ENTRY_SIZE).base_offset
        else:
            first = file.base // ENTRY_SIZE
            count = min(file.size // ENTRY_SIZE, end - first)
            begin = _first_kept(count, partial(_is_kept, view, log_min))
            if begin is not None:
                return first + begin
    return end


def _first_kept(count: int, is_kept: Callable[[int], bool]) -> int | None:
    found = bisect_left(range(max(0, count)), True, key=is_kept)
    return found if found < count else None


def _is_kept(view: memoryview, log_min: int, number: int) -> bool:
    physical_offset, size = OFFSET_AND_SIZE.unpack_from(view, number * ENTRY_SIZE)
    return bool(physical_offset >= log_min and size != PREFILL_ENTRY.size)


def _is_batch_kept(view: memoryview, log_min: int, number: int) -> bool:
    return parse_batch_queue_entry(view, number * BATCH_ENTRY_SIZE).physical_offset >= log_min


def batch_entries(files: StoreFiles, queue: QueueFilesView) -> Iterator[tuple[DataFile, int, BatchQueueEntry]]:
    """The valid entries of a batch queue, each with its file and its place in it."""
    for file in queue.files:
        view = files.view(file)
        for place in range(0, _batch_count(view) * BATCH_ENTRY_SIZE, BATCH_ENTRY_SIZE):
            entry = parse_batch_queue_entry(view, place)
            if entry.is_valid:
                yield file, place, entry


def _batch_count(view: memoryview) -> int:
    """How many entries of a batch queue's file are written; the last one may be incomplete."""
    count = -(-kernel.written_end(view, 0, len(view)) // BATCH_ENTRY_SIZE)
    return count if count * BATCH_ENTRY_SIZE <= len(view) else 0
