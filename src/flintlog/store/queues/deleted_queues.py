"""The offsets that were given although neither the queue nor the log shows it: they are never reused.

    flintlog/deleted.json     [ { "topic": "orders", "queueId": 0, "nextOffset": 5, "logEnd": 81920 } ]

    logEnd     nextOffset is the least next offset of the queue, because
    81920      its topic was deleted when the log was dispatched up to there
    2^63 - 1   it has expired as a whole, or the log lost its last records, or (with `skippedFrom`) it goes on there
               after a gap: it has no file for offsets in between

Deleting a topic deletes its queues and leaves its records in the log. If the topic is made again and counted from zero,
the log would hold two records for each offset, and a queue that is built from it (by an opening after a crash, a repair
or Spark) could show only one of them. So the note is durable before the queue is deleted. It counts as long as the log
may have one of the old records, unless a queue has a later offset.

A queue that expired has no record in the log. Its note stays for good: groups that have consumed it know its end, and
would take the first messages of a queue that begins at 0 for consumed. The same holds for a queue whose last records
the log has lost.

If the note is damaged, it is not known where deleted queues ended. The opening then builds all queues from the log, so
queues of deleted topics whose records are there return and go on, and writes an empty note (`settle`).

Reasons and costs: docs/decisions/0009.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Final

import msgspec
from msgspec.structs import replace

from flintlog.disk.media.medium import Medium
from flintlog.format.queue_entry import QueueKey
from flintlog.format.topics import can_be_topic
from flintlog.store.runtime.note_file import Loaded, NoteFile, Offset, Trust

FOR_EVER: Final = (1 << 63) - 1
"""As `log_end`: the note stays for good."""


class DeletedQueue(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The least next offset of a queue that was deleted or lost its end, and how far the log was dispatched then."""

    topic: str
    queue_id: Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)]
    next_offset: Offset
    log_end: Offset
    skipped_from: Offset | None = None
    """Where the gap begins, if the queue goes on after one."""

    @property
    def is_deletion(self) -> bool:
        """Whether the queue was deleted while the log had its records: these belong to no queue any more."""
        return self.log_end < FOR_EVER

    def holds(self, physical_offset: int) -> bool:
        """Whether the queue's record there was deleted with it. Everything that builds queues uses this rule."""
        return self.is_deletion and physical_offset < self.log_end


_NoteKey = tuple[str, int, bool, int | None]


class DeletedQueues:
    """The file. One thread at a time deletes queues or fills a gap, and writes it."""

    def __init__(self, path: Path, medium: Medium) -> None:
        self._file = NoteFile(path, medium, list[DeletedQueue])
        self._found: Loaded[list[DeletedQueue]] = Loaded(None, Trust.MISSING)
        self._known: dict[_NoteKey, DeletedQueue] = {}
        self._by_queue: dict[QueueKey, list[DeletedQueue]] = {}

    def load(self) -> None:
        """Read the file."""
        self._found = self._file.load()
        self._know({_key(each): each for each in self._found.content or ()})

    def _know(self, known: dict[_NoteKey, DeletedQueue]) -> None:
        self._known, self._by_queue = known, {}
        for each in known.values():
            self._by_queue.setdefault((each.topic, each.queue_id), []).append(each)

    @property
    def problem(self) -> str | None:
        """Why it is not known which queues were deleted; None when the note is whole."""
        return self._found.damage

    def settle(self) -> None:
        """All queues were built from the log: replace a damaged note by an empty one."""
        if self.problem is not None:
            self._write()
            self._found = Loaded([], Trust.CHECKED)

    def of(self, topic: str, queue_id: int) -> list[DeletedQueue]:
        """The notes of one queue."""
        return self._by_queue.get((topic, queue_id), [])

    def holds(self, topic: str, queue_id: int, physical_offset: int) -> bool:
        """Whether a record was deleted with its queue. It stays in the log, and gets no entry again."""
        return any(each.holds(physical_offset) for each in self.of(topic, queue_id))

    def forget_before(self, log_begin: int) -> None:
        """Drop the notes of queues that the log has no record of any more."""
        self._know({key: each for key, each in self._known.items() if each.log_end > log_begin})

    def end_at(self, log_end: int) -> None:
        """The log ends there now: records that are put from there on were not deleted.

        A log that ends at 0 has no deleted record, and a place alone could not distinguish later records from those.
        """
        ended = [each for each in self._known.values() if each.is_deletion and log_end < each.log_end]
        if ended:
            self._write([replace(each, log_end=log_end or FOR_EVER) for each in ended], instead_of=ended)

    def all(self) -> list[DeletedQueue]:
        return list(self._known.values())

    def dispatched_end(self, log_end: int) -> int:
        """How far into a log that ends there deleted queues were built; -1 when there were none."""
        ends = (each.log_end for each in self._known.values() if each.is_deletion and each.log_end <= log_end)
        return max(ends, default=-1)

    def next_offset(self, topic: str, queue_id: int) -> int:
        """The least next offset of a queue; 0 when nothing is noted."""
        return max((note.next_offset for note in self.of(topic, queue_id)), default=0)

    def next_offsets(self) -> dict[QueueKey, int]:
        """The least next offset of each queue that is noted."""
        return {key: self.next_offset(*key) for key in self._by_queue}

    def add(self, gone: Iterable[DeletedQueue]) -> None:
        """Note queues before they are deleted; not those whose name cannot be a topic's, because no put names them."""
        found = [each for each in gone if each.next_offset and can_be_topic(each.topic)]
        if any(self._known.get(_key(each)) != each for each in found):
            self._write(found)

    def _write(self, changed: Iterable[DeletedQueue] = (), instead_of: Iterable[DeletedQueue] = ()) -> None:
        """Write the note with these changes. They count once it is written: a failed write deletes nothing."""
        known = self._known.copy()
        for each in instead_of:
            del known[_key(each)]
        known.update({_key(each): each for each in changed})
        self._file.save(list(known.values()))
        self._know(known)


def _key(note: DeletedQueue) -> _NoteKey:
    """One queue may have several notes: it was deleted, made again, lost its end since, and has gaps."""
    return note.topic, note.queue_id, note.is_deletion, note.skipped_from


def load_deleted(path: Path, medium: Medium) -> DeletedQueues:
    """The deleted queues of a store."""
    deleted = DeletedQueues(path, medium)
    deleted.load()
    return deleted
