"""The growing end of a queue's files: how an entry is written there, and when the map cache may unmap it.

The kernel's fast dispatch has a tail and writes entries through it at any time. So only the thread inside a `put` may
give a tail up: fast dispatch cannot be writing then.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from threading import get_ident
from typing import TYPE_CHECKING

from flintlog.disk.segments.segment import Segment
from flintlog.errors import StoreClosed
from flintlog.kernel import Buffer, QueueEnd, Tail

if TYPE_CHECKING:
    from flintlog.store.queues.queue_data import QueueData


class TailKeeper:
    """Decides when the map cache may take the tail of a queue, and lists the queues to flush. A store has one.

    The cache may ask in any thread, but only the thread inside a `put` knows that fast dispatch is not writing: the two
    run one at a time. In any other thread the answer is no, and the file stays mapped.
    """

    __slots__ = ("emptied", "writer", "written")

    def __init__(self) -> None:
        self.writer: int | None = None
        """The thread inside a `put`, which sets it."""
        self.written: set[QueueData] = set()
        """Queues that may have unsynced entries. A put adds its queue last; a flush removes it before it syncs."""
        self.emptied: set[Path] = set()
        """Folders whose deleted names may return after a power loss, until they are synced."""

    def may_take(self) -> bool:
        """Whether the calling thread is the one inside a put."""
        return self.writer == get_ident()

    def take(self, end: QueueEnd) -> bool:
        """Take a tail from fast dispatch, if the calling thread may."""
        if not self.may_take():
            return False
        end.tail = None
        return True


def write_at_end(segment: Segment, data: bytes, tails: TailKeeper) -> None:
    """Append to a segment that has room."""
    tail, stop = place_at_end(segment, data, tails)
    tail.position = stop


def place_at_end(segment: Segment, data: bytes, tails: TailKeeper, end: QueueEnd | None = None) -> tuple[Tail, int]:
    """Write bytes at the end of a segment that has room; its tail, and the position after them. Raises `DiskFull`.

    The caller sets that position last, together with all other state that counts the bytes, without a call in between:
    an exception of a signal handler then comes before all of it or after. The map cache may later take the tail from
    `end`, which fast dispatch has.
    """
    segment.give_up_tail = tails.may_take if end is None else partial(tails.take, end)
    tail = segment.tail
    tail.make_room(len(data))
    position = tail.position
    with memoryview(_held(tail)).cast("B") as view:
        view[position : position + len(data)] = data
    return tail, position + len(data)


def _held(tail: Tail) -> Buffer:
    if tail.buffer is None:
        raise StoreClosed("the queue's file was unmapped")
    return tail.buffer
