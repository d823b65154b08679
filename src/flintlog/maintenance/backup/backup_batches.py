"""Closed batches in backups: a backup never ends inside a batch, and remembers which batches it has.

The note of a store (`flintlog/batches.json`) says where a batch begins that is being appended, and each
writer's last closed batch. It is read before and after the log's end was found. While it stays the same no batch was
begun or closed: the end lies in no batch but the one that the note names, and every batch below it is in the note.

A restore to an earlier point ends before the batch that the point lies in. The writers of the batches that it leaves
out may write them again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from flintlog.disk.media.medium import Medium
from flintlog.errors import DamagedStore
from flintlog.maintenance.backup.backup_files import BackupFile, Manifest, stored_path
from flintlog.store.log.batch_markers import ClosingMarker, find_markers
from flintlog.store.recovery.batch_notes import BatchNotes, BatchTable
from flintlog.store.runtime.note_file import encode_note, parse_note

NAME: Final = "flintlog/batches.json"
"""The note's name in a store and in a manifest."""


def parse_table(data: bytes | None) -> BatchTable:
    """What a store's note says; a store without one has no batches."""
    if data is None:
        return BatchTable()
    found = parse_note(data, BatchTable)
    if found.content is None:
        raise DamagedStore(
            f"what was noted about batches cannot be read: {found.problem}", advice="open the store, which says more"
        )
    return found.content


def encode_table(table: BatchTable) -> bytes:
    """The note for a backup that ends where no batch is open."""
    return encode_note(BatchTable(closed=table.closed, serial=table.serial))


class BackupBatches:
    """The batches in the log files of a backup."""

    def __init__(self, target: Path, manifest: Manifest, medium: Medium) -> None:
        self._target = target
        self._log: Sequence[BackupFile] = manifest.log
        self._medium = medium

    def end_outside(self, end: int) -> int:
        """The end, or the beginning of the batch that it lies in."""
        after = next(self._markers(end), None)
        if after is None or after.start is None:
            return end
        return min(end, after.start)

    def note_kept(self, root: Path, end: int) -> None:
        """Let the note of a store that was restored up to here name the batches that it has."""
        notes = BatchNotes(root / NAME, self._medium)
        notes.load()
        notes.reopen(self._markers(end))

    def _markers(self, start: int) -> Iterator[ClosingMarker]:
        """The closing markers in the log from here on."""
        for file in self._log:
            base = file.base or 0
            if not file.length or base + file.length <= start:
                continue
            raw = self._medium.open(stored_path(self._target, file))
            try:
                for found in find_markers(raw.buffer, base, start):
                    if isinstance(found.marker, ClosingMarker):
                        yield found.marker
            finally:
                raw.close()
