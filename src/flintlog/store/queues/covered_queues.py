"""Where each queue ended at the checkpoint: the evidence that an opening after an unclean stop compares queues with.

    flintlog/queues.json     { "covered": 98304, "queues": [ ["orders", 0, 262, 5240, 98304], … ] }
                                                              topic, id, next offset, end in its files, end in the log

`covered` is the last record that was dispatched when the ends were taken. Everything up to there was synced, log and
queues, before the file is written, and the checkpoint moves to that record after it. So the file is true as long as
the checkpoint is at its record or later, whatever else the checkpoint says; a checkpoint before it was set back
because the log was cut, and then the file says nothing.

What is deleted on purpose does not make it wrong: a deleted topic has its own note (`deleted_queues.py`), and the
records of what expired are no longer in the log.

RocketMQ has no such file. An opening without it believes the checkpoint as far as the queues bear it out; one that
finds it damaged believes nothing but the log.
"""

from __future__ import annotations

import logging
import threading
from pathlib import Path

import msgspec

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


class CoveredNote(msgspec.Struct, frozen=True):
    """The last record whose entries are known to be durable, and where all queues ended with it."""

    covered: Offset
    queues: list[QueueClaim]


class CoveredQueues:
    """The file. Written by the thread that flushes the queues; removed by whoever builds them again."""

    def __init__(self, root: Path, medium: Medium) -> None:
        self._file = NoteFile(root / "flintlog" / "queues.json", medium, CoveredNote)
        self._lock = threading.Lock()
        self.note: CoveredNote | None = None
        self.is_damaged = False
        """Whether there is a file that is not believed: a damaged one, or one that an earlier version wrote."""

    def load(self) -> None:
        """Read the file."""
        with self._lock:
            self.note, self.is_damaged = None, False
            try:
                found = self._file.load()
            except DiskError:
                return  # a writer beside this reader has just removed it
            self.note = found.checked
            self.is_damaged = found.trust in (Trust.DAMAGED, Trust.UNCHECKED)

    def write(self, note: CoveredNote) -> None:
        """Write down what the next checkpoint covers; the log and the queues are synced up to there."""
        with self._lock:
            if note == self.note:
                return
            try:
                self._file.save(note)
            except DiskFull as failure:
                log.warning("where the queues end was not written down: %s", failure)
                self._remove()  # it may be of a log that was cut since, and the checkpoint is about to pass it
            else:
                self.note, self.is_damaged = note, False

    def forget(self) -> None:
        """The queues are built again."""
        with self._lock:
            self._remove()

    def _remove(self) -> None:
        self._file.remove()
        self.note, self.is_damaged = None, False
