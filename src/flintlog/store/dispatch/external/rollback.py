"""Setting queues and index back to what was published.

A journal names for each queue the byte after its last entry, and for the index its newest file and count. A dispatcher
wrote the bytes after that and did not publish them. They are cut, and dispatching again writes the same bytes. Files
that have less than was published were changed by another program, and are not believed.
"""

from __future__ import annotations

from collections.abc import Callable

from flintlog.errors import DamagedStore
from flintlog.store.dispatch.external.dispatch_journal import Published, QueueMark
from flintlog.store.index.index_service import IndexService
from flintlog.store.index.tail_repair import mend_tail
from flintlog.store.queues.logical_queue import LogicalQueue
from flintlog.store.queues.queue_table import QueueTable


def mark_of(queue: LogicalQueue) -> QueueMark:
    """Where a queue ends."""
    return QueueMark(queue.topic, queue.queue_id, queue.max_offset, queue.segments.max_offset)


def index_mark(index: IndexService | None) -> tuple[str, int]:
    """Where the index ends: its newest file, and that file's count."""
    files = () if index is None else index.files
    return (files[-1].name, files[-1].header.next_entry) if files else ("", 0)


def progress_of(queues: QueueTable, index: IndexService | None, *, epoch: int, sequence: int, end: int) -> Published:
    """The contents of the files, as a publication; every record below `end` is in them."""
    marks = (mark_of(queue) for queue in queues.all())
    return Published(epoch, sequence, end, {mark.key: mark for mark in marks if mark.end_byte}, *index_mark(index))


def set_back(
    progress: Published, queues: QueueTable, index: IndexService | None, store_time_of: Callable[[int], int]
) -> None:
    """Cut queues and index, which are loaded, to what was published. Raises, and changes nothing, if they have less."""
    _check_queues(progress, queues)
    if index is not None and progress.index_name:
        _check_index(progress, index)
    for queue in queues.all():
        mark = progress.queues.get((queue.topic, queue.queue_id))
        if mark is None or not mark.end_byte:
            queues.remove(queue.topic, queue.queue_id)
        else:
            queue.set_back(mark.end_byte)
    if index is not None:
        _set_index_back(progress, index, store_time_of)


def _check_queues(progress: Published, queues: QueueTable) -> None:
    for mark in progress.queues.values():
        queue = queues.get(mark.topic, mark.queue_id)
        if mark.end_byte and (queue is None or not queue.has_entry_before(mark.end_byte)):
            raise DamagedStore(f"the queue {mark.topic}/{mark.queue_id} has no entry before byte {mark.end_byte}")


def _check_index(progress: Published, index: IndexService) -> None:
    counts = {file.name: file.header.next_entry for file in index.files if file.name == progress.index_name}
    found = counts.get(progress.index_name, -1)
    if found < progress.index_count:
        raise DamagedStore(f"the index file {progress.index_name} has {found} instead of {progress.index_count}")


def _set_index_back(progress: Published, index: IndexService, store_time_of: Callable[[int], int]) -> None:
    if not progress.index_name:
        index.destroy()
        return
    index.roll_back(progress.index_name, progress.index_count, store_time_of)
    mend_tail(index, progress.index_count, store_time_of)
