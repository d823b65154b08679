"""What a clean stop notes for the next opening: the log's end, the numbers of queues, queue files and index files, and
how far the queues reached.

With it an opening can distinguish an index that never had a key from one that was deleted, and a log that lost its end
from one that never was longer. RocketMQ ignores the file (`flintlog/stop.json` in the store). It is removed as soon as
the store runs, and an opening without it believes the directory. RocketMQ does not remove it, but moves the checkpoint
when it runs: a marker with another checkpoint is ignored. With a damaged marker the stop counts as an unclean one.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec

from flintlog.disk.media.medium import Medium
from flintlog.format.checkpoint import Checkpoint
from flintlog.format.names import encode_abort
from flintlog.store.log.checkpoint import CheckpointFile
from flintlog.store.paths import StorePaths
from flintlog.store.queues.covered_queues import CoveredQueues
from flintlog.store.runtime.note_file import Loaded, NoteFile, Offset, Trust


class _Stop(msgspec.Struct):
    log_end: Offset
    queue_count: Offset
    index_file_count: Offset
    queue_file_count: Offset | None = None
    checkpoint: Checkpoint | None = None
    queue_bytes: Offset | None = None


class StopMarker:
    """`flintlog/stop.json` of a store."""

    def __init__(self, path: Path, medium: Medium) -> None:
        self.path = path
        self._file = NoteFile(path, medium, _Stop)
        self._found: Loaded[_Stop] = Loaded(None, Trust.MISSING)
        self.log_end: int | None = None
        self.queue_count: int | None = None
        self.index_file_count: int | None = None
        self.queue_file_count: int | None = None
        self.queue_bytes: int | None = None

    def load(self, checkpoint: Checkpoint) -> None:
        """Read it; one that was written with another checkpoint is ignored."""
        self._found = self._file.load()
        stop = self._found.content
        if stop is None or (stop.checkpoint is not None and not _is_unmoved(stop.checkpoint, checkpoint)):
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
        """Write it; the checkpoint is on disk."""
        stop = _Stop(log_end, queue_count, index_file_count, queue_file_count, checkpoint, queue_bytes)
        self._file.save(stop)

    @property
    def is_checked(self) -> bool:
        """Whether the marker that was loaded has the right checksum."""
        return self._found.trust is Trust.CHECKED

    @property
    def problem(self) -> str | None:
        """Why the marker that was loaded is not believed; None when it is, or when there was none."""
        return self._found.damage

    def remove(self) -> None:
        self._file.remove()


def _is_unmoved(checkpoint: Checkpoint, found: Checkpoint) -> bool:
    """Whether no other program has moved the checkpoint since the stop.

    An interrupted opening of ours may have set its fields about queues to 0, and one that is missing was not moved.
    """
    without_queues = replace(checkpoint, logics_physical_offset=0, logics_msg_timestamp=0)
    return found in (checkpoint, without_queues, Checkpoint())


def stop_vouching(paths: StorePaths, medium: Medium) -> None:
    """Queues and index are about to be replaced: until that is done, every opening builds them again from the log."""
    if not medium.exists(paths.abort):
        medium.write(paths.abort, encode_abort(0))
    checkpoint = CheckpointFile(paths.checkpoint, medium)
    checkpoint.load()
    if checkpoint.existed:
        checkpoint.set(logics_physical_offset=0, logics_msg_timestamp=0, index_msg_timestamp=0)
        checkpoint.flush()
        checkpoint.close()
    StopMarker(paths.stop_marker, medium).remove()
    # RocketMQ moves the checkpoint past the note, which would then be compared with queues that RocketMQ has made.
    covered = CoveredQueues(paths.root, medium)
    covered.load()
    covered.forget()
