"""Where the files of queues lie and how large they are. `QueueMaker` makes queues from that.

consumequeue/<topic>/<queue id>/          20-byte entries (SimpleCQ)
consumequeue_ext/<topic>/<queue id>/      their extension, when that is on
batchconsumequeue/<topic>/<queue id>/     46-byte entries (BatchCQ)
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from flintlog.disk.media.medium import Medium
from flintlog.disk.segments.segment_queue import SegmentQueue
from flintlog.errors import InvalidConfig
from flintlog.format.names import BATCH_CONSUME_QUEUE, CONSUME_QUEUE, CONSUME_QUEUE_EXT, parse_queue_id
from flintlog.format.queue_entry import BATCH_ENTRY_SIZE, ENTRY_SIZE
from flintlog.store.queues.batch_consume_queue import BatchConsumeQueue
from flintlog.store.queues.consume_queue import ConsumeQueue
from flintlog.store.queues.consume_queue_ext import ConsumeQueueExt
from flintlog.store.queues.logical_queue import LogicalQueue, QueueType
from flintlog.store.queues.queue_tail import TailKeeper

DIRECTORIES: Final = {QueueType.SIMPLE: CONSUME_QUEUE, QueueType.BATCH: BATCH_CONSUME_QUEUE}


def find_batch_topics(root: Path, medium: Medium) -> dict[str, str]:
    """The topics that have batch queues on disk, each with that type. Stores without `topics.json` have them too."""
    folder = root / BATCH_CONSUME_QUEUE
    return {
        topic.name: QueueType.BATCH.value
        for topic in medium.listing(folder)
        if topic.is_directory
        and any(
            each.is_directory and parse_queue_id(each.name) is not None for each in medium.listing(folder / topic.name)
        )
    }


@dataclass(frozen=True, slots=True)
class QueueFiles:
    """The sizes of queue files, in bytes; a consume queue's is rounded up to whole entries, as Java does."""

    consume_queue: int = 300_000 * ENTRY_SIZE
    batch_consume_queue: int = 300_000 * BATCH_ENTRY_SIZE
    extension: int | None = None  # None: no extension is read or written

    def __post_init__(self) -> None:
        object.__setattr__(self, "consume_queue", -(-self.consume_queue // ENTRY_SIZE) * ENTRY_SIZE)
        if self.consume_queue <= 0 or self.batch_consume_queue <= 0:
            raise InvalidConfig("queue files must have room for an entry")
        if self.batch_consume_queue % BATCH_ENTRY_SIZE:
            raise InvalidConfig(f"batch queue files must have whole entries of {BATCH_ENTRY_SIZE} bytes")


class QueueMaker:
    """Makes the queues of one store; touches no file."""

    def __init__(self, root: Path, medium: Medium, files: QueueFiles, tails: TailKeeper) -> None:
        self.files = files
        self._root = root
        self._medium = medium
        self._tails = tails

    def topic_folder(self, topic: str, kind: QueueType) -> Path:
        return self._root / DIRECTORIES[kind] / topic

    def make(self, topic: str, queue_id: int, kind: QueueType, folder: Path | None = None) -> LogicalQueue:
        """A queue; `folder` is its topic's, for a caller that makes many."""
        folder = self.topic_folder(topic, kind) if folder is None else folder
        if kind is QueueType.BATCH:
            segments = self._segments(folder, queue_id, self.files.batch_consume_queue)
            return BatchConsumeQueue(topic, queue_id, segments, self._tails)
        ext = None
        if self.files.extension is not None:
            units = self._segments(self._root / CONSUME_QUEUE_EXT / topic, queue_id, self.files.extension)
            ext = ConsumeQueueExt(units, self._tails)
        segments = self._segments(folder, queue_id, self.files.consume_queue)
        return ConsumeQueue(topic, queue_id, segments, ext, self._tails)

    def remove_folders(self, topic: str) -> None:
        """Delete the folders of a topic with everything in them."""
        for folder in (CONSUME_QUEUE, CONSUME_QUEUE_EXT, BATCH_CONSUME_QUEUE):
            self._medium.remove_tree(self._root / folder / topic)

    def _segments(self, topic_folder: Path, queue_id: int, size: int) -> SegmentQueue:
        folder = topic_folder / str(queue_id)
        return SegmentQueue([folder], size, self._medium, is_derived=True)
