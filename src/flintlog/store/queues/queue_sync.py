"""Making queues durable: their entries, the names of their files, and their deletion.

Invariant: a queue that was written since its last whole flush is in `TailKeeper.written`. A folder whose deleted names
may return after a power loss is in `TailKeeper.emptied` until it was synced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, TypeVar

from flintlog.disk.media.medium import Medium
from flintlog.store.queues.queue_data import QueueData
from flintlog.store.queues.queue_tail import TailKeeper

_PER_TASK: Final = 64
"""Queues that one task of a thread takes: handing over a single one takes longer than its work."""

_SYNCS_AT_ONCE: Final = 16
"""Concurrent syncs, where there are many: the disk then answers several with one flush of its cache."""

Item = TypeVar("Item")


class QueueSync:
    """Syncs the queues of one store. One thread flushes at a time; any may delete meanwhile."""

    def __init__(self, root: Path, medium: Medium, tails: TailKeeper) -> None:
        self._root = root
        self._medium = medium
        self._tails = tails

    def flush(self, least_pages: int) -> bool:
        """Make the queues durable that were written; True when nothing was left to do."""
        is_done = True
        for queue in list(self._tails.written):
            is_done = self._flush(queue, least_pages) and is_done
        return is_done

    def flush_all(self) -> None:
        """Make every queue durable to its end, and every deletion."""
        do_each(self._flush_whole, list(self._tails.written), _SYNCS_AT_ONCE)
        self._sync_deletions()

    def _flush_whole(self, queue: QueueData) -> None:
        while not self._flush(queue, 0):
            pass

    def _flush(self, queue: QueueData, least_pages: int) -> bool:
        """Flush one queue, and forget that it was written unless the kernel's fast dispatch may go on writing it."""
        written = self._tails.written
        written.discard(queue)
        is_settled = False
        try:
            is_done = queue.flush(least_pages)
            is_settled = is_done and least_pages == 0 and not queue.is_in_fast_dispatch
            return is_done
        finally:
            if not is_settled:
                written.add(queue)

    def _sync_deletions(self) -> None:
        """Deleted files must not return: the checkpoint's note is written next, and does not have them."""
        self._sync_folders(list(self._tails.emptied))

    def _sync_folders(self, folders: list[Path]) -> None:
        """Sync those folders that exist. If that fails, their deletions are still to be synced."""
        emptied = self._tails.emptied.intersection(folders)
        self._tails.emptied.difference_update(emptied)  # before the sync: another thread may delete more meanwhile
        try:
            do_each(self._medium.sync_directory, list(filter(self._medium.exists, folders)), _SYNCS_AT_ONCE)
        except BaseException:
            self._tails.emptied.update(emptied)
            raise

    def note_emptied(self, folders: Iterable[Path]) -> None:
        """Names in these folders were deleted: the next whole flush syncs them."""
        self._tails.emptied.update(folders)

    def forget_emptied(self) -> None:
        """All queues were deleted. They are built again, and made durable with their names."""
        self._tails.emptied.clear()

    def sync_names(self, queues: Iterable[QueueData]) -> None:
        """Make the names of all files durable: a killed process may have left new ones that are not."""
        folders = {segment.path.parent for queue in queues for segments in queue.parts for segment in segments.segments}
        # From the top: a directory whose own name is lost is lost with everything in it.
        above = {parent for folder in folders for parent in folder.parents if parent.is_relative_to(self._root)}
        self._sync_folders(sorted(folders | above))


def do_each(work: Callable[[Item], object], items: list[Item], threads: int) -> None:
    """Call `work` for each item; in threads where there are many."""

    def do_some(start: int) -> None:
        for item in items[start : start + _PER_TASK]:
            work(item)

    if len(items) <= _PER_TASK:
        do_some(0)
        return
    with ThreadPoolExecutor(threads, thread_name_prefix="flintlog-queues") as pool:
        for _ in pool.map(do_some, range(0, len(items), _PER_TASK)):
            pass
