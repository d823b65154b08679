"""Batches that are stored whole or not at all: the note about them, and what an opening does with it.

    flintlog/batches.json       { "opened": the batch that is being appended, or null,
                                  "closed": { writer: its last closed batch },
                                  "serial": how often the note was changed,
                                  "is_part_left": whether a part of a batch is in the log and no batch follows it }

    log    … │ opening marker │ message │ message │ … │ closing marker │
             ^ opened.start     markers: writer and batch id; records that no queue shows

A batch is closed when its marker is in the log, after the records whose CRC the marker has. The note of an opened batch
is durable before its first message. Its messages and its marker are appended under the put lock, so no other writer's
record lies between them, and acknowledged records lie before the batch or after its marker. An opening that finds a
batch opened looks for the marker. With it the batch counts. Without it the log is cut where the batch began, unless
another process has run the store since. Only records that were not acknowledged as synced can follow a batch whose
marker was not synced.

A slave keeps the same note about the batches of the log that it copies (`store/read/copied_batches.py`).

Reasons and costs: docs/decisions/0011.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Final

import msgspec

from flintlog import kernel
from flintlog.disk.media.medium import Medium
from flintlog.disk.segments.segment_queue import SegmentQueue
from flintlog.errors import DamagedStore
from flintlog.format.checkpoint import Checkpoint
from flintlog.format.names import encode_abort
from flintlog.kernel import Scan, ScanStop
from flintlog.store.log.batch_markers import ClosingMarker, OpeningMarker, markers_of
from flintlog.store.log.checkpoint import CheckpointFile
from flintlog.store.log.log import Log
from flintlog.store.log.segment_bytes import held
from flintlog.store.log.set_aside import keep_aside
from flintlog.store.model.recovery_report import Finding
from flintlog.store.paths import StorePaths
from flintlog.store.runtime.note_file import NoteFile, Offset, Trust, parse_note

MAX_WRITERS: Final = 10_000
"""The last batches of this many writers are remembered; then the writer that wrote longest ago is forgotten."""


class OpenedBatch(msgspec.Struct, frozen=True):
    """A batch that is being appended, and what the checkpoint said before it."""

    writer_id: str
    batch_id: Offset
    start: Offset
    process_id: int
    """The process that appends it. The file `abort` names the process that has run the store last, Java included."""
    logics_physical_offset: Offset
    logics_msg_timestamp: int
    index_msg_timestamp: int
    is_remembered: bool = True
    """Whether its writer has an id, and may write it again."""
    abort_ms: int = 0
    """When its process wrote `abort`. In containers every process has the same id."""


def batch_at(start: int, marker: OpeningMarker, before: Checkpoint, abort: Path, medium: Medium) -> OpenedBatch:
    """The batch that begins here, appended by this process; `before` is what the checkpoint says before it."""
    written = medium.stat(abort)
    return OpenedBatch(
        marker.writer_id,
        marker.opens_batch,
        start,
        os.getpid(),
        before.logics_physical_offset,
        before.logics_msg_timestamp,
        before.index_msg_timestamp,
        is_remembered=marker.is_remembered,
        abort_ms=0 if written is None else written.mtime_ms,
    )


class BatchTable(msgspec.Struct):
    """The content of the note."""

    opened: OpenedBatch | None = None
    closed: dict[str, Offset] = {}
    serial: Offset = 0
    """One more with each change: while it is unchanged, no batch was begun or closed."""
    is_part_left: bool = False
    """Whether an opening left a part of a batch in the log, and no closed batch follows it yet."""


class BatchNotes:
    """`flintlog/batches.json` of a store. Belongs to the process that holds the store's lock."""

    def __init__(self, path: Path, medium: Medium) -> None:
        self._file = NoteFile(path, medium, BatchTable)
        self._notes = BatchTable()
        self.is_checked = True
        """Whether the note that was loaded has a checksum: only then a batch is cut because of it."""

    @property
    def opened(self) -> OpenedBatch | None:
        return self._notes.opened

    @property
    def is_part_left(self) -> bool:
        """Whether a part of a batch is in the log that nothing marks as abandoned yet."""
        return self._notes.is_part_left

    def load(self) -> None:
        advice = "move the file away; if a batch was being written, a part of it stays in the log"
        found = self._file.load_or_refuse("the note about batches", advice)
        self._notes = found.content or BatchTable()
        self.is_checked = found.trust is not Trust.UNCHECKED

    def last_closed(self, writer_id: str) -> int | None:
        """The last batch of a writer that is in the log."""
        return self._notes.closed.get(writer_id)

    def open(self, batch: OpenedBatch) -> None:
        self._save(batch, self._notes.closed, is_part_left=self.is_part_left)

    def close(self) -> None:
        """The opened batch is in the log."""
        opened = self._notes.opened
        if opened is not None and opened.is_remembered:
            self.close_as(opened.writer_id, opened.batch_id)
        else:
            self._save(None, self._notes.closed, is_part_left=False)

    def close_as(self, writer_id: str, batch_id: int) -> None:
        """This batch is in the log, whether or not it was noted as opened."""
        closed = self._notes.closed.copy()
        closed.pop(writer_id, None)
        closed[writer_id] = batch_id
        while len(closed) > MAX_WRITERS:
            del closed[next(iter(closed))]
        self._save(None, closed, is_part_left=False)

    def reopen(self, markers: Iterable[ClosingMarker]) -> None:
        """These batches are about to be cut off the log: their writers may write them again.

        A batch below the first one that is cut stays skipped, as it was before.
        """
        closed = self._notes.closed.copy()
        for marker in markers:
            if closed.get(marker.writer_id, -1) >= marker.batch_id:
                closed[marker.writer_id] = marker.batch_id - 1
        closed = {writer: batch for writer, batch in closed.items() if batch >= 0}
        if closed != self._notes.closed:
            self._save(self._notes.opened, closed, is_part_left=self.is_part_left)

    def forget(self) -> None:
        """The opened batch is not in the log, and leaves nothing there."""
        self._save(None, self._notes.closed, is_part_left=self.is_part_left)

    def leave(self) -> None:
        """A part of the opened batch stays in the log."""
        self._save(None, self._notes.closed, is_part_left=True)

    def _save(self, opened: OpenedBatch | None, closed: dict[str, Offset], *, is_part_left: bool) -> None:
        """Change the note in memory after the file: an interrupted change is made again as a whole."""
        notes = BatchTable(opened, closed, self._notes.serial + 1, is_part_left)
        self._file.save(notes)
        self._notes = notes


def parse_opened_start(notes: bytes) -> int | None:
    """Where the opened batch begins, for a reader; None if there is none, or the note cannot be read."""
    found = parse_note(notes, BatchTable).content
    return None if found is None or found.opened is None else found.opened.start


def parse_closed(notes: bytes) -> dict[str, int]:
    """The last closed batch of each writer, for a reader."""
    found = parse_note(notes, BatchTable)
    if found.content is None:
        raise DamagedStore(f"the notes about batches cannot be read: {found.problem}")
    return found.content.closed


def is_closed(segments: SegmentQueue, batch: OpenedBatch) -> bool:
    """Whether the marker of a batch follows its beginning, with nothing but the batch's records between."""
    position, crc = batch.start, 0
    while (segment := segments.find(position)) is not None:
        with held(segment) as view:
            begin = position - segment.base
            seen = kernel.scan(view, begin, segment.size, segment.base, check_crc=True)
            for found in markers_of(view, segment.base, seen):
                marker = found.marker
                if isinstance(marker, OpeningMarker):
                    continue
                if (marker.writer_id, marker.batch_id) == (batch.writer_id, batch.batch_id):
                    return marker.records_crc in (None, zlib.crc32(view[begin : found.offset - segment.base], crc))
            crc = zlib.crc32(view[begin : _records_end(seen, begin, segment.base)], crc)
        if seen.reason not in (ScanStop.BLANK, ScanStop.LIMIT):
            return False
        position = segment.base + segment.size
    return False


def _records_end(seen: Scan, begin: int, base: int) -> int:
    """Where the last record of a scan ends; a blank that follows it is not counted."""
    if not seen.count:
        return begin
    last = seen.row(seen.count - 1)
    return last.physical_offset + last.size - base


def settle_opened_batch(
    notes: BatchNotes,
    log: Log,
    checkpoint: CheckpointFile,
    *,
    paths: StorePaths,
    medium: Medium,
) -> Finding | None:
    """Close the batch that a crash left opened, or cut it out of the log; what was found.

    The log is cut only if no other process has run the store since: it may have appended messages after the batch.
    Queues and index may show messages that are cut, so the checkpoint is set back to what it vouched for before them.
    After a crash at any step the next opening does all of it again.
    """
    batch, segments = notes.opened, log.segments
    if batch is None:
        return None
    if is_closed(segments, batch):
        notes.close()
        return None
    if log.batch_refusal is not None:  # an earlier version opened it
        notes.forget()
        return _finding(batch, log.batch_refusal, "what was written of it stays in the log")
    if batch.start < segments.min_offset:
        notes.forget()
        return _finding(batch, "the log begins after it", "nothing is cut")
    if not _is_last_run(batch, paths.abort, medium):
        notes.leave()
        return _finding(batch, "another program has run the store since", "what it left stays in the log")
    if not notes.is_checked:
        notes.leave()
        return _finding(batch, "the note about it has no checksum", "what was written of it stays in the log")
    now = checkpoint.values
    checkpoint.set(
        logics_physical_offset=min(now.logics_physical_offset, batch.logics_physical_offset),
        logics_msg_timestamp=min(now.logics_msg_timestamp, batch.logics_msg_timestamp),
        # Less by one: the last index file may have got keys of the batch in the same millisecond.
        index_msg_timestamp=min(now.index_msg_timestamp, max(0, batch.index_msg_timestamp - 1)),
    )
    checkpoint.flush()
    kept = keep_aside(segments, batch.start, paths.cut, medium)
    notes.forget()
    found = _finding(batch, "its writer was stopped", "the log ends before it; its writer may write it again")
    return replace(found, kept_in=", ".join(map(str, kept)) or None)


def _is_last_run(batch: OpenedBatch, abort: Path, medium: Medium) -> bool:
    """Whether no other process has run the store since: each writes `abort` when it opens the store."""
    info = medium.stat(abort)
    if info is None or info.mtime_ms != batch.abort_ms:
        return False
    return medium.read(abort) == encode_abort(batch.process_id)


def _finding(batch: OpenedBatch, why: str, remedy: str) -> Finding:
    evidence = f"batch {batch.batch_id} of {batch.writer_id} was not closed: {why}"
    return Finding("unclosed-batch", "warning", evidence, remedy, physical_offset=batch.start)
