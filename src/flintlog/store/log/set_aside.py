"""Ending the log before bytes that are no part of it, without losing them.

The bytes are copied to a file of their own and synced before they are cleared in the log, so after a crash between any
two steps the cut is made again. They must be cleared: a stale record would count again if a later crash left the log's
end right before it.
"""

from __future__ import annotations

import itertools
from pathlib import Path

from flintlog.disk.media.medium import Medium
from flintlog.disk.segments.segment import Segment
from flintlog.disk.segments.segment_queue import SegmentQueue
from flintlog.store.log.segment_bytes import held, written_end


def keep_aside(
    segments: SegmentQueue, end: int, directory: Path, medium: Medium, *, later_files_only: bool = False
) -> list[Path]:
    """Copy the bytes after the log's end into `directory`, then clear them in the log. Returns the copies' paths.

    With `later_files_only` the rest of the file in which the log ends is known to be empty, and is not read.
    """
    begin = end if later_files_only else 0
    after = [
        (segment, max(0, end - segment.base))
        for segment in segments.segments
        if segment.end > end and segment.base >= begin
    ]
    stray = [(segment, start, stop) for segment, start in after if (stop := written_end(segment, start)) > start]
    kept = [_keep(segment, start, stop, directory, medium) for segment, start, stop in stray]
    for segment, start, stop in stray:
        _clear(segment, start, stop)
    return kept


def _keep(segment: Segment, start: int, stop: int, directory: Path, medium: Medium) -> Path:
    medium.make_directories(directory)
    with held(segment) as view:
        data = bytes(view[start:stop])
    for number in itertools.count():
        # A crash while they were cleared leaves some of the bytes: those must not replace the whole ones.
        path = directory / (f"{segment.base + start:020d}" + (f".{number}" if number else ""))
        there = medium.stat(path)
        if there is None:
            medium.replace(path, data)
            return path
        if there.size == len(data) and medium.read(path, len(data)) == data:
            medium.sync_directory(directory)  # a process that was killed may have left the name unsynced
            return path
    raise AssertionError("counting does not end")


def _clear(segment: Segment, start: int, stop: int) -> None:
    segment.hold()
    try:
        raw = segment.raw(writable=True)
        raw.clear(start, stop)
        raw.sync(start, stop)
    finally:
        segment.release()
