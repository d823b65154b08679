"""Looking into a segment of which nothing is known but its size."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from flintlog import kernel
from flintlog.derive.wholeness import is_whole
from flintlog.disk.segments.segment import Segment
from flintlog.errors import StoreClosed


@contextmanager
def held(segment: Segment) -> Iterator[memoryview]:
    """The bytes of a segment, mapped for as long as the block lasts."""
    if not segment.hold():
        raise StoreClosed("the segment is being deleted", path=segment.path)
    try:
        yield segment.raw().buffer
    finally:
        segment.release()


def find_intact(segment: Segment, start: int) -> int:
    """The first place at or after `start` where an intact record begins; -1 when there is none."""
    with held(segment) as view:
        stop = segment.raw().data_end(start)
        while start < stop:
            found = kernel.find_record(view, start, stop, segment.base)
            if found < 0 or is_whole(view, segment.base, found):
                return found
            start = found + 1
    return -1


def written_end(segment: Segment, start: int) -> int:
    """The place after the last byte from `start` on that is not zero; `start` when all are."""
    with held(segment) as view:
        stop = segment.raw().data_end(start)
        return kernel.written_end(view, start, stop) if start < stop else start
