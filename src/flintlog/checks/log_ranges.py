"""Cutting the log into ranges that can be looked at apart.

A range begins at the begin of its file or at an intact record (see `ranges.cut_batches`), so neighbours meet. A body
may hold bytes that look like such a record at their own place: then the range before ends inside a record and says so
(`cut_inside_record_at`), and both are looked at again as one.
"""

from __future__ import annotations

from collections.abc import Iterator

from flintlog.checks.derived_files import DataFile
from flintlog.checks.range_check import LogRange
from flintlog.derive.ranges import cut_batches

END_SLACK_BYTES = 4096


def plan_ranges(view: memoryview, file: DataFile, data_end: int, range_bytes: int) -> Iterator[LogRange]:
    """The ranges of one log file; from `data_end` on nothing was ever written."""
    # A record may end in zeros (no properties), which lie behind what was written.
    stop = min(file.size, data_end + END_SLACK_BYTES)
    pending: LogRange | None = None
    for start, end in cut_batches(view, 0, stop, file.base, range_bytes):
        if pending is not None:
            yield pending
        pending = LogRange(file, start, end, False)
    if pending is not None:
        yield LogRange(file, pending.start, pending.stop, True)


def join_ranges(first: LogRange, second: LogRange) -> LogRange:
    """Two neighbours of one file as one range."""
    return LogRange(first.file, first.start, second.stop, second.is_last, second.is_cut)
