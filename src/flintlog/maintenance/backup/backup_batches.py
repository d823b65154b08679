"""Closed batches in backups: a backup never ends inside a batch, and remembers which batches it has.

A store's note `flintlog/batches.json` has the start of the batch that is being appended, and each writer's last closed
batch. It is read before and after the log's end is found. If both readings agree, no batch was begun or closed between:
the end can lie only in the batch that the note names, and the note has every batch before it.

A restore to an earlier point ends before the batch that holds the point. The writers of the batches that it leaves out
may write them again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from flintlog.disk.media.medium import Medium
from flintlog.errors import DamagedStore
from flintlog.maintenance.backup.backup_files import BackupFile, Manifest, stored_path
from flintlog.store.log.batch_markers import ClosingMarker, find_markers
from flintlog.store.recovery.batch_notes import BatchNotes, BatchTable
from flintlog.store.runtime.note_file import encode_note, parse_note

NAME: Final = "flintlog/batches.json"
"""The note's name in a store and in a manifest."""


def parse_table(data: bytes | None) -> BatchTable:
    """The content of a store's note; a store without one has no batches."""
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
    return encode_note(replace(table, opened=None))


class BackupBatches:
    """The batches in the log files of a backup."""

    def __init__(self, target: Path, manifest: Manifest, medium: Medium) -> None:
        self._target = target
        self._log: Sequence[BackupFile] = manifest.log
        self._medium = medium

    def end_outside(self, end: int) -> int:
        """The end, or the start of the batch that holds it."""
        after = next(self._markers(end), None)
        if after is None or after.start is None:
            return end
        return min(end, after.start)

    def note_kept(self, root: Path, end: int) -> None:
        """Reduce the note of a store that was restored up to `end` to the batches that it has."""
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
