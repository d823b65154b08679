"""The growing end of a queue's files: how an entry is written there, and when the map cache may take it away.

A tail is handed to the kernel's lane, which writes entries without anyone hearing of it. So it is given up only by the
thread inside a put, when no lane can be writing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from threading import get_ident
from typing import TYPE_CHECKING

from flintlog.disk.segment import Segment
from flintlog.errors import StoreClosed
from flintlog.kernel import Buffer, QueueEnd, Tail

if TYPE_CHECKING:
    from flintlog.store.logical_queue import LogicalQueue


class TailKeeper:
    """Says when the map cache may take the tail of a queue, and which queues may have to be flushed; one for all
    queues of a store.

    The cache may ask in any thread, but only the thread inside a `put` knows that no lane is writing: puts
    and lanes run one at a time. All others are told no, and the file stays mapped.
    """

    __slots__ = ("_writer", "written")

    def __init__(self) -> None:
        self._writer: int | None = None
        self.written: set[LogicalQueue] = set()

    @contextmanager
    def writing(self, queue: LogicalQueue | None = None) -> Iterator[None]:
        """Around a put."""
        self._writer = get_ident()
        try:
            yield
        finally:
            self._writer = None
            if queue is not None:
                self.written.add(queue)  # after the write: whoever flushes now takes it out before looking

    def may_take(self) -> bool:
        """Whether the asking thread is the one inside a put."""
        return self._writer == get_ident()

    def take(self, end: QueueEnd) -> bool:
        """Take a tail from the lane, if the asking thread may."""
        if not self.may_take():
            return False
        end.tail = None
        return True


def write_at_end(segment: Segment, data: bytes, tails: TailKeeper, end: QueueEnd | None = None) -> Tail:
    """Append to a segment that has room; the map cache may later take its tail from `end`, which a lane has."""
    segment.give_up_tail = tails.may_take if end is None else partial(tails.take, end)
    tail = segment.tail
    position = tail.position
    with memoryview(_held(tail)).cast("B") as view:
        view[position : position + len(data)] = data
    tail.position = position + len(data)  # last: readers may look now
    return tail


def _held(tail: Tail) -> Buffer:
    if tail.buffer is None:
        raise StoreClosed("the queue's file was unmapped")
    return tail.buffer
