"""How far all queues reached when the checkpoint began to vouch for them: a count, against which an opening looks.

    flintlog/queues.json     [ { "covered": 81920, "queueBytes": 5240 },          the checkpoint that is on disk
                               { "covered": 98304, "queueBytes": 6120 } ]         the one that is about to be

After an unclean stop the queues are cut behind the last record that the checkpoint covers. An entry before it that was
lost, or that points behind it since a bit of it flipped, would go unnoticed: nothing tells a queue that lost its end
from one that never was longer, and its offsets would be given again. The ends of all queues, added up, tell.

RocketMQ has no such file. One that names another record than the checkpoint says nothing, and an opening without it
believes what the files say.

Invariant: a count is durable before the checkpoint that it belongs to, and is gone before a queue is deleted.
"""

from __future__ import annotations

import logging
import threading
from contextlib import suppress
from pathlib import Path

import msgspec

from flintlog.disk.medium import Medium
from flintlog.errors import DiskError, DiskFull
from flintlog.store.note_file import NoteFile, Offset

log = logging.getLogger(__name__)


class QueueCount(msgspec.Struct, frozen=True, rename="camel"):
    """The last record whose entries are counted, and the bytes of all queues then."""

    covered: Offset
    queue_bytes: Offset


class CoveredQueues:
    """The file. Written by whoever flushes the queues, forgotten by whoever deletes some; any thread may be either."""

    def __init__(self, root: Path, medium: Medium) -> None:
        self._path = root / "flintlog" / "queues.json"
        self._medium = medium
        self._file = NoteFile(self._path, medium, list[QueueCount])
        self._lock = threading.Lock()
        self._known: list[QueueCount] = []
        self._is_there = False
        self.deletions = 0
        """How often queues were about to be deleted: a count that was taken before the last time is of no use."""

    def load(self) -> None:
        """Read the file; a damaged one says nothing, so nothing was counted."""
        with self._lock:
            self._known, self._is_there = [], self._medium.exists(self._path)
            with suppress(DiskError):  # a writer beside this reader has just forgotten it
                # A wrong bit in an unchecked count makes the queues be built again; it hides nothing.
                self._known = self._file.load().content or []

    def bytes_at(self, covered: int) -> int | None:
        """How many bytes the queues had that a checkpoint of this record vouches for; None when that is not known."""
        return next((count.queue_bytes for count in self._known if count.covered == covered), None)

    def note(self, count: QueueCount, *, before: int, deletions: int) -> None:
        """Write down what the next checkpoint will vouch for, beside what the one `before` it does.

        A count that was taken `deletions` ago is not: queues of it are gone.
        """
        with self._lock:
            if deletions != self.deletions or count in self._known:
                return
            counts = [*(known for known in self._known if known.covered == before != count.covered), count]
            try:
                self._is_there = True  # also if this fails halfway
                self._file.save(counts)
            except DiskFull as failure:
                log.warning("how far the queues reach was not written down: %s", failure)
                self._drop()  # what is there may be of an earlier time at which the same record was the last
            else:
                self._known = counts

    def forget_at(self, covered: int) -> None:
        """The next checkpoint is of this record, and is not counted: what is known of it is of an earlier time."""
        with self._lock:
            if self.bytes_at(covered) is not None:
                self._drop()

    def forget(self) -> None:
        """Queues are about to be deleted: no count holds any more, whatever becomes of them."""
        with self._lock:
            self.deletions += 1
            self._drop()

    def _drop(self) -> None:
        if self._is_there:
            self._file.remove()
            self._known, self._is_there = [], False
