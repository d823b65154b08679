"""Which offsets of queues were given, where neither the queue nor the log shows it: they are not given again.

    flintlog/deleted.json     [ { "topic": "orders", "queueId": 0, "nextOffset": 5, "logEnd": 81920 } ]

    logEnd     nextOffset is the least next offset of the queue, because
    81920      its topic was deleted when the log was dispatched up to there
    2^63 - 1   it has expired as a whole, or the log lost its last records, or (with `skippedFrom`) it goes on there
               after a gap: it has no file for offsets in between

Deleting a topic takes its queues away and leaves its records in the log. Would a topic that is made anew count from
zero, the log would hold two records for each offset, and whoever builds the queue from it again (an opening after a
crash, a repair, Spark) could show only one of them. So offsets are never handed out twice: the note is durable before
the queue goes, and counts as long as the log may have one of the old records, and no queue is there that says more.

A queue that expired has no record in the log. Its note stays for good: groups that have consumed it know its end, and
would take the first messages of one that begins anew for read. The same holds for a queue whose last records the log
has lost.

With a damaged note nobody knows where deleted queues ended. The opening then builds all queues from the log, so that
queues of deleted topics whose records are there come back and go on, and writes an empty note (`settle`).

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
"""As `log_end`: the note is never dropped."""


class DeletedQueue(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A queue, or its end, that was deleted or lost: its least next offset, and how far the log was dispatched then."""

    topic: str
    queue_id: Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)]
    next_offset: Offset
    log_end: Offset
    skipped_from: Offset | None = None
    """Of a queue that goes on after a gap: the offset at which that begins."""

    @property
    def is_deletion(self) -> bool:
        """Whether the queue was deleted with records that the log has: these belong to no queue any more."""
        return self.log_end < FOR_EVER

    def holds(self, physical_offset: int) -> bool:
        """Whether the queue's record there was deleted with it. This is the one rule for all that build queues."""
        return self.is_deletion and physical_offset < self.log_end


_NoteKey = tuple[str, int, bool, int | None]


class DeletedQueues:
    """The file. Written by whoever deletes queues, or bridges a gap in one, which one thread does at a time."""

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
        """Why nothing is known of deleted queues; None when what is known is complete."""
        return self._found.damage

    def settle(self) -> None:
        """All queues were built from the log: a damaged note is replaced by one that says so."""
        if self.problem is not None:
            self._write()
            self._found = Loaded([], Trust.CHECKED)

    def of(self, topic: str, queue_id: int) -> list[DeletedQueue]:
        """What is noted of one queue."""
        return self._by_queue.get((topic, queue_id), [])

    def holds(self, topic: str, queue_id: int, physical_offset: int) -> bool:
        """Whether the record there was in a queue that was deleted: it belongs to no queue any more."""
        return any(each.holds(physical_offset) for each in self.of(topic, queue_id))

    def forget_before(self, log_begin: int) -> None:
        """Of these the log has no record any more."""
        self._know({key: each for key, each in self._known.items() if each.log_end > log_begin})

    def end_at(self, log_end: int) -> None:
        """The log ends there now: what is put from there on is of no queue that was deleted before.

        A log that ends at 0 has none of their records, and no later one will be told from them by its place.
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
        """Write down queues that are about to go. Of one whose name is no topic's nothing will be put again."""
        found = [each for each in gone if each.next_offset and can_be_topic(each.topic)]
        if any(self._known.get(_key(each)) != each for each in found):
            self._write(found)

    def _write(self, changed: Iterable[DeletedQueue] = (), instead_of: Iterable[DeletedQueue] = ()) -> None:
        """Write the note with what has changed. That counts once it is written: a deletion that fails is none."""
        known = self._known.copy()
        for each in instead_of:
            del known[_key(each)]
        known.update({_key(each): each for each in changed})
        self._file.save(list(known.values()))
        self._know(known)


def _key(note: DeletedQueue) -> _NoteKey:
    """A queue that was deleted and made again may have lost its end since, and may have gaps."""
    return note.topic, note.queue_id, note.is_deletion, note.skipped_from


def load_deleted(path: Path, medium: Medium) -> DeletedQueues:
    """The queues that a store's note names."""
    deleted = DeletedQueues(path, medium)
    deleted.load()
    return deleted
