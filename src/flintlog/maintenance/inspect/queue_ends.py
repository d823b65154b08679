"""Where a queue begins and ends, as its own files have it; none of it reads the queue through."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from functools import partial

from flintlog import kernel
from flintlog.checks.derived_files import QueueFilesView
from flintlog.format.batch_queue_entry import ENTRY_SIZE as BATCH_ENTRY_SIZE
from flintlog.format.batch_queue_entry import parse_batch_queue_entry
from flintlog.format.names import FAR
from flintlog.format.queue_entry import ENTRY_SIZE, OFFSET_AND_SIZE, PREFILL_ENTRY
from flintlog.maintenance.inspect.store_files import StoreFiles
from flintlog.store.dispatch.external.dispatch_journal import DispatchJournal

MOST = PREFILL_ENTRY.size
"""A size that no record has."""


def queue_end(files: StoreFiles, queue: QueueFilesView) -> int:
    """The queue offset behind the last entry of a queue, as its files have it."""
    for file in reversed(queue.files):
        view = files.read(file.path, 0, file.size)
        if queue.is_batch:
            count = _batch_count(view)
            if count:
                return parse_batch_queue_entry(view, (count - 1) * BATCH_ENTRY_SIZE).end_offset
            continue
        end = kernel.count_entries(view, 0, len(view) - len(view) % ENTRY_SIZE)
        if end:
            return (file.base + end) // ENTRY_SIZE
    return queue.files[0].base // ENTRY_SIZE if queue.files else 0


def log_end_of_queues(files: StoreFiles) -> int:
    """How far the log goes, as the last entries of all queues say; 0 when there are none."""
    return max((at + size for at, size in _last_entries(files) if at >= 0 and 0 < size < MOST), default=0)


def dispatched_to(files: StoreFiles) -> int:
    """Where the last record begins that has a queue entry: with dispatch in log order, all before it have theirs.

    A dispatcher outside the store writes in any order, and its journal says what it has finished.
    """
    published = DispatchJournal(files.paths.dispatch, files.medium).load()
    if published is not None:
        return published.end
    return max((at for at, size in _last_entries(files) if 0 <= at < FAR and 0 < size < MOST), default=0)


def _last_entries(files: StoreFiles) -> Iterator[tuple[int, int]]:
    """Physical offset and size that the last entry of each queue names."""
    for queue in files.queues.values():
        for file in reversed(queue.files):
            view = files.read(file.path, 0, file.size)
            size = BATCH_ENTRY_SIZE if queue.is_batch else ENTRY_SIZE
            count = (
                _batch_count(view)
                if queue.is_batch
                else kernel.count_entries(view, 0, len(view) - len(view) % size) // size
            )
            if count:
                yield OFFSET_AND_SIZE.unpack_from(view, (count - 1) * size)
                break


def queue_begin(files: StoreFiles, queue: QueueFilesView, log_min: int, end: int) -> int:
    """The first queue offset below `end` whose record the log still has, found by halving; `end` when there is none."""
    for file in queue.files:
        view = files.read(file.path, 0, file.size)
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


def _batch_count(view: memoryview) -> int:
    """How many entries of a batch queue's file are written, the last one in part perhaps."""
    count = -(-kernel.written_end(view, 0, len(view)) // BATCH_ENTRY_SIZE)
    return count if count * BATCH_ENTRY_SIZE <= len(view) else 0
