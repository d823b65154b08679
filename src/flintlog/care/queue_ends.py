"""Where a queue ends, as its own files have it."""

from __future__ import annotations

from flintlog import kernel
from flintlog.care.store_files import StoreFiles
from flintlog.derive.derived_files import QueueFilesView
from flintlog.format.batch_queue_entry import ENTRY_SIZE as BATCH_ENTRY_SIZE
from flintlog.format.batch_queue_entry import parse_batch_queue_entry
from flintlog.format.queue_entry import ENTRY_SIZE


def queue_end(files: StoreFiles, queue: QueueFilesView) -> int:
    """The queue offset behind the last entry of a queue, as its files have it."""
    for file in reversed(queue.files):
        view = files.read(file.path, 0, file.size)
        if queue.is_batch:
            end = -(-kernel.written_end(view, 0, len(view)) // BATCH_ENTRY_SIZE) * BATCH_ENTRY_SIZE
            if 0 < end <= len(view):
                return parse_batch_queue_entry(view, end - BATCH_ENTRY_SIZE).end_offset
            continue
        end = kernel.count_entries(view, 0, len(view) - len(view) % ENTRY_SIZE)
        if end:
            return (file.base + end) // ENTRY_SIZE
    return queue.files[0].base // ENTRY_SIZE if queue.files else 0
