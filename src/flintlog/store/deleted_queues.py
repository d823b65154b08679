"""Where the queues of deleted topics ended: a topic of the same name goes on behind that.

    flintlog/deleted.json     [ { "topic": "orders", "queueId": 0, "nextOffset": 5, "logEnd": 81920 } ]

Deleting a topic takes its queues away and leaves its records in the log. Would a topic that is made anew count from
zero, the log would hold two records for each offset, and whoever builds the queue from it again (an opening after a
crash, a repair, Spark) could show only one of them. So offsets are never handed out twice: the note is durable before
the queue goes, and counts as long as the log may have one of the old records, and no queue is there that says more.

A queue that expired has no record in the log. Its note stays for good: groups that have consumed it know its end, and
would take the first messages of one that begins anew for read.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace

from flintlog.disk.medium import Medium

log = logging.getLogger(__name__)

_MAX_BYTES: Final = 64 * 1024 * 1024

FOR_EVER: Final = (1 << 63) - 1
"""As `log_end`: the note is never dropped."""


class DeletedQueue(msgspec.Struct, frozen=True, rename="camel"):
    """A queue that is gone: the next offset it would have given, and how far the log was dispatched then."""

    topic: str
    queue_id: int
    next_offset: int
    log_end: int


class DeletedQueues:
    """The file. Written by whoever deletes queues, which one thread does at a time."""

    def __init__(self, path: Path, medium: Medium) -> None:
        self._path = path
        self._medium = medium
        self._known: dict[tuple[str, int], DeletedQueue] = {}

    def load(self) -> None:
        """Read the file; one that does not parse is of no use, and is said."""
        if not self._medium.exists(self._path):
            return
        try:
            found = msgspec.json.decode(self._medium.read(self._path, _MAX_BYTES), type=list[DeletedQueue])
        except msgspec.MsgspecError as error:
            log.warning("%s is of no use: topics that were deleted count from 0 again: %s", self._path, error)
            return
        self._known = {(each.topic, each.queue_id): each for each in found}

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
            self._known |= {(each.topic, each.queue_id): replace(each, log_end=log_end) for each in ended}
            self._write()

    def all(self) -> list[DeletedQueue]:
        return list(self._known.values())

    def add(self, gone: Iterable[DeletedQueue]) -> None:
        """Write down queues that are about to go."""
        found = {(each.topic, each.queue_id): each for each in gone if each.next_offset}
        if not found:
            return
        self._known |= found
        self._write()

    def _write(self) -> None:
        self._medium.make_directories(self._path.parent)
        self._medium.replace(self._path, msgspec.json.encode(self.all()))
