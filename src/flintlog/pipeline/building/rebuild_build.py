"""The second half of a rebuild: queues whose entries depend on all entries before, each built by one task.

A queue with an extension, or one with batches, is built by the store's own class from its spilled entries. A task works
in a directory of its own and renames its result at the end, so concurrent attempts do no harm.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from flintlog.disk.media.local import LocalMedium
from flintlog.disk.media.medium import Medium
from flintlog.errors import DiskFull
from flintlog.format.names import BATCH_CONSUME_QUEUE, CONSUME_QUEUE, CONSUME_QUEUE_EXT
from flintlog.format.queue_entry import QueueKey
from flintlog.pipeline.building.rebuild_scan import DENSE, BuildPlan, Spilled
from flintlog.pipeline.building.staging import give_name
from flintlog.pipeline.spark.tasks import attempt_name
from flintlog.store.queues.queue_files import QueueFiles
from flintlog.store.queues.queue_table import QueueTable

_QUEUE_FOLDERS = (CONSUME_QUEUE_EXT, BATCH_CONSUME_QUEUE, CONSUME_QUEUE)
"""The extension first: a queue that exists always has its extension."""


@dataclass(frozen=True, slots=True)
class QueueTask:
    """Build one queue from its spilled entries: (split, place in its spill), in order."""

    plan: BuildPlan
    key: QueueKey
    pieces: tuple[tuple[int, Spilled], ...]
    root: str
    """The store, whose extension files hold the bitmaps to keep."""


def build_queue(task: QueueTask) -> tuple[QueueKey, int, int]:
    """The task: returns the queue, how many entries it has, and how many of them Java would call out of step."""
    plan, (topic, queue_id) = task.plan, task.key
    medium = LocalMedium()
    working = Path(plan.spill) / attempt_name()
    table = make_table(plan, working, medium)
    bitmaps = load_bitmaps(plan, Path(task.root), task.key, medium)
    queue = table.get_or_create(topic, queue_id)
    count = 0
    for physical_offset, size, tags_code, queue_offset, store_timestamp, messages in _entries(
        plan, task.pieces, medium
    ):
        entry = (physical_offset, size, tags_code, queue_offset, store_timestamp)
        if not queue.put(*entry, bitmaps.get(physical_offset), messages):
            raise DiskFull(f"no room for a file of queue {topic}/{queue_id}", path=plan.staged)
        count += 1
    table.sync.flush_all()
    table.shut_down()
    for folder in _QUEUE_FOLDERS:
        made = working / folder / topic / str(queue_id)
        if medium.exists(made):
            give_name(medium, made, Path(plan.staged) / folder / topic / str(queue_id))
    medium.remove_tree(working)
    return task.key, count, getattr(queue, "out_of_step_count", 0)


def _entries(
    plan: BuildPlan, pieces: Sequence[tuple[int, Spilled]], medium: Medium
) -> Iterator[tuple[int, int, int, int, int, int]]:
    for split, place in pieces:
        view = medium.open(plan.dense_path(split)).buffer
        yield from DENSE.iter_unpack(view[place.first * DENSE.size : place.stop * DENSE.size])


def make_table(plan: BuildPlan, root: Path, medium: Medium) -> QueueTable:
    """The queues of a directory, with the sizes and kinds of this rebuild."""
    files = QueueFiles(plan.consume_queue_bytes, plan.batch_queue_bytes, plan.extension_bytes)
    return QueueTable(root, medium, files, topic_queue_types=plan.topic_queue_types, now_ms=lambda: 0)


def load_bitmaps(plan: BuildPlan, root: Path, key: QueueKey, medium: Medium) -> Mapping[int, bytes]:
    """The filter bitmaps that a queue's extension holds now, by physical offset: the log does not have them."""
    topic, queue_id = key
    if plan.extension_bytes is None or not medium.exists(root / CONSUME_QUEUE_EXT / topic / str(queue_id)):
        return {}
    table = make_table(plan, root, medium)
    queue = table.get_or_create(topic, queue_id)
    queue.load()
    queue.recover(was_clean=True)
    found: dict[int, bytes] = {}
    offset = queue.segments.min_offset // queue.entry_size
    while (entries := queue.entries_from(offset)) is not None:
        with entries:
            for unit in entries:
                offset = unit.queue_offset + 1
                if unit.extension is not None and unit.extension.bitmap:
                    found[unit.physical_offset] = unit.extension.bitmap
    return found
