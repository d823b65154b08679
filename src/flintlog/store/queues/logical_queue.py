"""The interface of every kind of queue.

A queue is derived from the commit log: the dispatcher alone writes it, in the log's order, and readers take ranges of
entries that lie in one file. Two kinds exist. `SimpleCQ` has an entry for each message, at a place that follows from
the queue offset; `BatchCQ` has an entry for each batch, one after another.

Invariant: in [min offset, max offset) every entry is valid, and the entries' physical offsets grow.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from enum import Enum
from typing import ClassVar

from flintlog.disk.segments.segment_queue import SegmentQueue
from flintlog.format.config_json import BATCH_TYPE, SIMPLE_TYPE
from flintlog.store.queues.covered_queues import QueueClaim
from flintlog.store.queues.entries import CqUnit, EntryRange
from flintlog.store.queues.queue_data import QueueData
from flintlog.store.queues.queue_tail import TailKeeper

StoreTimeOf = Callable[[int, int], int]
"""(physical offset, size) → the record's store timestamp, -1 when the log no longer has it."""


class QueueType(Enum):
    """RocketMQ's CQType; the value is how `topics.json` spells it."""

    SIMPLE = SIMPLE_TYPE
    BATCH = BATCH_TYPE


class Boundary(Enum):
    """Which of several candidates a search by time answers with."""

    LOWER = "lower"
    UPPER = "upper"


class LogicalQueue(QueueData):
    """One queue of one topic: what readers and the dispatcher call.

    Written by the dispatching thread alone. Readers see an entry once the write position has passed it.
    """

    type: ClassVar[QueueType]

    def __init__(self, topic: str, queue_id: int, segments: SegmentQueue, tails: TailKeeper | None = None) -> None:
        super().__init__(segments, tails)
        self.topic = topic
        self.topic_bytes = topic.encode(errors="replace")  # no record has a topic that cannot be encoded
        self.queue_id = queue_id

    @property
    @abstractmethod
    def min_offset(self) -> int:
        """The first queue offset whose record the log still has."""

    @property
    @abstractmethod
    def max_offset(self) -> int:
        """The queue offset after the last message."""

    @property
    def log_end(self) -> int:
        """As `max_physical_offset`, but always after the last record's beginning: below it the log has no other one."""
        return self.max_physical_offset

    @property
    @abstractmethod
    def record_bytes(self) -> int:
        """The size of all records whose entries were appended since the queue was loaded."""

    def claim(self) -> QueueClaim | None:
        """Where the queue ends; None when it has no entry."""
        end = self.end_byte
        return QueueClaim(self.topic, self.queue_id, self.max_offset, end, self.log_end) if end else None

    @abstractmethod
    def put(
        self,
        physical_offset: int,
        size: int,
        tags_code: int,
        queue_offset: int,
        store_timestamp: int,
        bitmap: bytes | None = None,
        batch_count: int = 1,
        *,
        is_extended: bool = True,
    ) -> bool:
        """Append the entry of one record unless it is there; False when no file could be made.

        Without `is_extended` the entry keeps its tags code even if the queue has an extension.
        """

    @abstractmethod
    def entries_from(self, queue_offset: int) -> EntryRange | None:
        """The entries from here to the end of that file; None when there are none."""

    def entry(self, queue_offset: int) -> CqUnit | None:
        """One entry."""
        entries = self.entries_from(queue_offset)
        if entries is None:
            return None
        with entries:
            return next(iter(entries), None)

    def after(self, unit: CqUnit | None, queue_offset: int) -> int:
        """Where a reader goes on if the entry at an offset, or its record, is damaged or missing."""
        return queue_offset + 1

    @abstractmethod
    def roll_next(self, queue_offset: int) -> int:
        """Where to go on when a file has nothing at this offset."""

    @abstractmethod
    def offset_by_time(
        self, timestamp: int, boundary: Boundary, store_time_of: StoreTimeOf, commit_log_min: int
    ) -> int:
        """The queue offset for a point in time, within [min offset, max offset]."""
