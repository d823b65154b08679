"""A request to end the log at an earlier place, made durable before a byte is changed.

    ask (`flintlog/cut.json`, synced) ─▶ open: bytes set aside, cleared ─▶ recovery ─▶ the request is removed

A slave whose log continues where its master's has ended asks for this. Clearing takes many steps, and a crash in
between leaves records after cleared ones, which would look like a damaged place. With the request on disk the next
opening begins again.

A request of an earlier version has no checksum. It is dropped: one wrong bit would delete acknowledged messages, and a
slave whose log still differs asks again.
"""

from __future__ import annotations

import logging
from pathlib import Path

import msgspec

from flintlog import kernel
from flintlog.disk.media.medium import Medium
from flintlog.disk.segments.segment_queue import SegmentQueue
from flintlog.store.log.checkpoint import CheckpointFile
from flintlog.store.log.segment_bytes import held
from flintlog.store.log.set_aside import keep_aside
from flintlog.store.paths import StorePaths
from flintlog.store.runtime.note_file import NoteFile, Offset, Trust

log = logging.getLogger(__name__)


class _Request(msgspec.Struct):
    end: Offset


class PendingCut:
    """`flintlog/cut.json` of a store that no other process has open."""

    def __init__(self, paths: StorePaths, medium: Medium) -> None:
        self._paths = paths
        self._medium = medium
        self._file = NoteFile(paths.cut_request, medium, _Request)

    def ask(self, end: int) -> None:
        """The next opening shall end the log at `end`, where a record begins."""
        self._file.save(_Request(end))

    def wanted(self) -> int | None:
        """Where the log shall end; None when nothing was asked for."""
        advice = "remove the file; a slave whose log differs from its master's asks for the cut again"
        found = self._file.load_or_refuse("the note of where the log shall be cut", advice)
        if found.trust is Trust.UNCHECKED:
            log.warning("%s has no checksum: the log is not cut", self._file.path)
        return None if found.checked is None else found.checked.end

    def lower(self, end: int, segments: SegmentQueue, checkpoint: CheckpointFile) -> None:
        """Let the checkpoint vouch for nothing after `end`: queues and index files there are built again.

        Otherwise a crash while they are cut would leave files with old and new entries, which would be believed.
        """
        offset, stored_ms = _last_record(end, segments)
        values = checkpoint.values
        checkpoint.set(
            physic_msg_timestamp=min(values.physic_msg_timestamp, stored_ms),
            logics_msg_timestamp=min(values.logics_msg_timestamp, stored_ms),
            index_msg_timestamp=min(values.index_msg_timestamp, stored_ms - 1 if stored_ms else 0),
            logics_physical_offset=min(values.logics_physical_offset, offset),
        )
        checkpoint.flush()

    def clear_after(self, end: int, segments: SegmentQueue) -> list[Path]:
        """Set the bytes after `end` aside, then clear them. Returns where they were kept."""
        kept = keep_aside(segments, end, self._paths.cut, self._medium)
        log.warning("the log is cut at %d; the bytes after that are kept in %s", end, ", ".join(map(str, kept)) or "-")
        return kept

    def done(self) -> None:
        """Log, queues and index end there now: remove the request."""
        self._file.remove()


def _last_record(end: int, segments: SegmentQueue) -> tuple[int, int]:
    """Offset and store time of the last record before `end` that can be found from its file's beginning."""
    segment = segments.find(end - 1)
    if segment is None:
        return 0, 0
    with held(segment) as view:
        seen = kernel.scan(view, 0, end - segment.base, segment.base)
        if not seen.count:
            return 0, 0
        row = seen.row(seen.count - 1)
        return row.physical_offset, row.store_timestamp
