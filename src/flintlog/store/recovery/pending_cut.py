"""The wish to end the log at an earlier place, written down before a byte is touched.

    ask (`flintlog/cut.json`, synced) ─▶ open: bytes kept aside, cleared ─▶ recovery ─▶ the wish is removed

A slave whose log goes on where its master's does not asks for this. Clearing takes many steps, and records that were
left behind cleared ones would count as a log with a damaged place; with the wish on disk a crash at any step only means
that the next opening begins again.

A wish of an earlier version has no checksum. It is dropped: one wrong bit would take acknowledged messages away, and a
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


class _Wish(msgspec.Struct):
    end: Offset


class PendingCut:
    """`flintlog/cut.json` of a store that nobody else has open."""

    def __init__(self, paths: StorePaths, medium: Medium) -> None:
        self._paths = paths
        self._medium = medium
        self._file = NoteFile(paths.cut_wish, medium, _Wish)

    def ask(self, end: int) -> None:
        """The next opening shall end the log at `end`, where a record begins."""
        self._file.save(_Wish(end))

    def wanted(self) -> int | None:
        """Where the log shall end; None when nothing was asked for."""
        advice = "remove the file; a slave whose log differs from its master's asks for the cut again"
        found = self._file.load_or_refuse("the note of where the log shall be cut", advice)
        if found.trust is Trust.UNCHECKED:
            log.warning("%s has no checksum: the log is not cut", self._file.path)
        return None if found.checked is None else found.checked.end

    def lower(self, end: int, segments: SegmentQueue, checkpoint: CheckpointFile) -> None:
        """Let the checkpoint vouch for nothing behind `end`: queues and index files there are built again.

        A crash while they are cut would else leave files in which old and new are mixed, and which are believed.
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

    def clear_behind(self, end: int, segments: SegmentQueue) -> list[Path]:
        """Keep aside what lies behind `end`, then clear it; where it is kept."""
        kept = keep_aside(segments, end, self._paths.cut, self._medium)
        log.warning("the log is cut at %d; what it held behind is kept in %s", end, ", ".join(map(str, kept)) or "-")
        return kept

    def done(self) -> None:
        """The log ends there, and queues and index with it."""
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
