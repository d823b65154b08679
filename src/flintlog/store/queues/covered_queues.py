"""Where each queue ended at the checkpoint: the evidence that an opening after an unclean stop compares queues with.

    flintlog/queues.json     { "covered": 98304, "queues": [ ["orders", 0, 262, 5240, 98304], … ], "log_end": 98512 }
                                                              topic, id, next offset, end in its files, end in the log

`covered` is the last record that was dispatched when the ends were taken, and the log was dispatched up to `log_end`.
Log and queues are synced up to there before the file is written, and the checkpoint moves to that record after it. So
the file is true as long as the checkpoint is at its record or later, whatever else the checkpoint says. An earlier
checkpoint was set back because the log was cut; the file then proves nothing.

Before an opening deletes all queues to build them again, it writes into the file which offsets were given and how far
the log reached (`before_rebuild`). No checkpoint reaches the record that such a file names, so its queues are not
believed. It stays until the next checkpoint is written, so a crash during or after the rebuild loses none of this.

A deletion does not make the file wrong: a deleted topic has its own note (`deleted_queues.py`), and the log no longer
has the records of expired queues.

RocketMQ has no such file. An opening without it believes the checkpoint as far as the queues bear it out; one that
finds it damaged believes nothing but the log.

Reasons and costs: docs/decisions/0008.
"""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace

from flintlog.disk.media.medium import Medium
from flintlog.errors import DiskError, DiskFull
from flintlog.store.runtime.note_file import NoteFile, Offset, Trust

log = logging.getLogger(__name__)


class QueueClaim(msgspec.Struct, array_like=True, frozen=True):
    """Where a queue ended: its next offset, the byte of its files after its last entry, and how far into the log."""

    topic: str
    queue_id: int
    next_offset: Offset
    end_byte: Offset
    log_end: Offset


NEVER_COVERED: Final = (1 << 63) - 1
"""As `covered`: no checkpoint is at this record or later."""


class CoveredNote(msgspec.Struct, frozen=True):
    """The last record whose entries are known to be durable, and where all queues ended with it."""

    covered: Offset
    queues: list[QueueClaim]
    log_end: Offset = 0
    """How far the log is known to have reached; 0 if that is not known."""
    vouched: Offset | None = None
    """Only in a note from before a rebuild: the record up to which the queues' ends in the log were believed."""


def before_rebuild(queues: list[QueueClaim], log_end: int, vouched: int) -> CoveredNote:
    """The note to write before all queues are deleted: their next offsets and how far the log reached."""
    return CoveredNote(NEVER_COVERED, queues, log_end, vouched)


class CoveredQueues:
    """The file. Written by the thread that flushes the queues; deleted before they are built again."""

    def __init__(self, root: Path, medium: Medium) -> None:
        self._file = NoteFile(root / "flintlog" / "queues.json", medium, CoveredNote)
        self._lock = threading.Lock()
        self.note: CoveredNote | None = None
        self.is_damaged = False
        """Whether there is a file that is not believed: it is damaged, or an earlier version wrote it."""

    def load(self) -> None:
        """Read the file."""
        with self._lock:
            self.note, self.is_damaged = None, False
            try:
                found = self._file.load()
            except DiskError:
                return  # another process writes the store, and has just deleted the file
            self.note = found.checked
            self.is_damaged = found.trust in (Trust.DAMAGED, Trust.UNCHECKED)

    @property
    def before_rebuild(self) -> CoveredNote | None:
        """Where the queues ended before they were deleted, if no checkpoint was written since."""
        return self.note if self.note is not None and self.note.vouched is not None else None

    def keep(self, note: CoveredNote) -> None:
        """Note where the queues end before they are deleted. If this raises, the caller must not delete them."""
        with self._lock:
            if note != self.note:
                self._file.save(note)
                self.note, self.is_damaged = note, False

    def cut(self, log_end: int) -> None:
        """The log is cut there on purpose: the records after that place are not lost, and their offsets are free."""
        with self._lock:
            if self.note is not None and self.note.vouched is not None:
                self._remove()
            elif self.note is not None and self.note.log_end > log_end:
                self.note = replace(self.note, log_end=log_end)
                self._file.save(self.note)

    def write(self, note: CoveredNote) -> None:
        """Note what the next checkpoint covers; the log and the queues are synced up to there."""
        with self._lock:
            if note == self.note:
                return
            try:
                self._file.save(note)
            except DiskFull as failure:
                log.warning("the note of where the queues end was not written: %s", failure)
                self._remove()  # the old one may be of a log that was cut since, and the checkpoint will pass it
            else:
                self.note, self.is_damaged = note, False

    def forget(self) -> None:
        """Delete the note: its queues are replaced. A note from before a rebuild stays."""
        with self._lock:
            if self.note is None or self.note.vouched is None:
                self._remove()

    def _remove(self) -> None:
        self._file.remove()
        self.note, self.is_damaged = None, False
