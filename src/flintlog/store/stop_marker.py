"""What a clean stop writes down for the next opening: the log's end, how many queues, queue and index files there were,
and how far the queues reached.

RocketMQ has no such file and ignores it (`flintlog/stop.json` in the store). It lets an opening tell an index that
never had a key from one that was deleted, and a log that lost its end from one that never was longer. It is removed as
soon as the store runs, and an opening without it believes the directory alone. RocketMQ, which does not remove it,
moves the checkpoint when it runs: a marker that knows another checkpoint says nothing any more.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec

from flintlog.disk.medium import Medium
from flintlog.format.checkpoint import Checkpoint


class _Stop(msgspec.Struct):
    log_end: int
    queue_count: int
    index_file_count: int
    queue_file_count: int | None = None
    checkpoint: Checkpoint | None = None
    queue_bytes: int | None = None


class StopMarker:
    """`flintlog/stop.json` of a store."""

    def __init__(self, path: Path, medium: Medium) -> None:
        self._path = path
        self._medium = medium
        self.log_end: int | None = None
        self.queue_count: int | None = None
        self.index_file_count: int | None = None
        self.queue_file_count: int | None = None
        self.queue_bytes: int | None = None

    def load(self, checkpoint: Checkpoint) -> None:
        """Read it; a file that is not one, or was written beside another checkpoint, says nothing."""
        if not self._medium.exists(self._path):
            return
        try:
            stop = msgspec.json.decode(self._medium.read(self._path, 65536), type=_Stop)
        except msgspec.MsgspecError:
            return
        if stop.checkpoint is not None and not _is_beside(stop.checkpoint, checkpoint):
            return
        self.log_end = stop.log_end
        self.queue_count = stop.queue_count
        self.index_file_count = stop.index_file_count
        self.queue_file_count = stop.queue_file_count
        self.queue_bytes = stop.queue_bytes

    def write(
        self,
        checkpoint: Checkpoint,
        *,
        log_end: int,
        queue_count: int,
        queue_file_count: int,
        index_file_count: int,
        queue_bytes: int | None = None,
    ) -> None:
        """Write it, beside a checkpoint that is on disk."""
        stop = _Stop(log_end, queue_count, index_file_count, queue_file_count, checkpoint, queue_bytes)
        self._medium.make_directories(self._path.parent)
        self._medium.replace(self._path, msgspec.json.encode(stop))

    def remove(self) -> None:
        self._medium.remove(self._path)


def _is_beside(checkpoint: Checkpoint, found: Checkpoint) -> bool:
    """Whether a checkpoint that was found is the one of the stop: an interrupted opening of ours may have let go of the
    queues since, and one that is missing was written by nobody."""
    without_queues = replace(checkpoint, logics_physical_offset=0, logics_msg_timestamp=0)
    return found in (checkpoint, without_queues, Checkpoint())
