"""Where the queues of deleted topics ended: a topic of the same name goes on behind that.

    flintlog/deleted.json     [ { "topic": "orders", "queueId": 0, "nextOffset": 5, "logEnd": 81920 } ]

Deleting a topic takes its queues away and leaves its records in the log. Would a topic that is made anew count from
zero, the log would hold two records for each offset, and whoever builds the queue from it again (an opening after a
crash, a repair, Spark) could show only one of them. So offsets are never handed out twice: the note is durable before
the queue goes, and counts as long as the log may have one of the old records, and no queue is there that says more.

A queue that expired has no record in the log. Its note stays for good: groups that have consumed it know its end, and
would take the first messages of one that begins anew for read.

With a damaged note nobody knows where deleted queues ended. The opening then builds all queues from the log, so that
queues of deleted topics whose records are there come back and go on, and writes an empty note (`settle`).
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Final

import msgspec
from msgspec.structs import replace

from flintlog.derive.entries import can_be_topic
from flintlog.disk.media.medium import Medium
from flintlog.store.runtime.note_file import Loaded, NoteFile, Offset, Trust

FOR_EVER: Final = (1 << 63) - 1
"""As `log_end`: the note is never dropped."""


class DeletedQueue(msgspec.Struct, frozen=True, rename="camel"):
    """A queue that is gone: the next offset it would have given, and how far the log was dispatched then."""

    topic: str
    queue_id: Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)]
    next_offset: Offset
    log_end: Offset


class DeletedQueues:
    """The file. Written by whoever deletes queues, which one thread does at a time."""

    def __init__(self, path: Path, medium: Medium) -> None:
        self._file = NoteFile(path, medium, list[DeletedQueue])
        self._found: Loaded[list[DeletedQueue]] = Loaded(None, Trust.MISSING)
        self._known: dict[tuple[str, int], DeletedQueue] = {}

    def load(self) -> None:
        """Read the file."""
        self._found = self._file.load()
        self._known = {(each.topic, each.queue_id): each for each in self._found.content or ()}

    @property
    def problem(self) -> str | None:
        """Why nothing is known of deleted queues; None when what is known is complete."""
        return self._found.problem if self._found.trust is Trust.DAMAGED else None

    def settle(self) -> None:
        """All queues were built from the log: a damaged note is replaced by one that says so."""
        if self.problem is not None:
            self._write()
            self._found = Loaded([], Trust.CHECKED)

    def has(self, topic: str, queue_id: int) -> bool:
        """Whether a queue of this name was deleted."""
        return (topic, queue_id) in self._known

    def holds(self, topic: str, queue_id: int, physical_offset: int) -> bool:
        """Whether the record there was in a queue that was deleted: it belongs to no queue any more."""
        gone = self._known.get((topic, queue_id))
        return gone is not None and physical_offset < gone.log_end < FOR_EVER

    def forget_before(self, log_begin: int) -> None:
        """Of these the log has no record any more."""
        self._known = {key: each for key, each in self._known.items() if each.log_end > log_begin}

    def end_at(self, log_end: int) -> None:
        """The log ends there now: what is put from there on is of no queue that was deleted before."""
        ended = [each for each in self._known.values() if log_end < each.log_end < FOR_EVER]
        if ended:
            self._write(replace(each, log_end=log_end) for each in ended)

    def all(self) -> list[DeletedQueue]:
        return list(self._known.values())

    def add(self, gone: Iterable[DeletedQueue]) -> None:
        """Write down queues that are about to go. Of one whose name is no topic's nothing will be put again."""
        found = [each for each in gone if each.next_offset and can_be_topic(each.topic)]
        if found:
            self._write(found)

    def _write(self, changed: Iterable[DeletedQueue] = ()) -> None:
        """Write the note with what has changed. That counts once it is written: a deletion that fails is none."""
        known = self._known | {(each.topic, each.queue_id): each for each in changed}
        self._file.save(list(known.values()))
        self._known = known
