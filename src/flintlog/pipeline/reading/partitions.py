"""The input of one Spark task: a split of one log, and the bytes around it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Final

from flintlog import kernel
from flintlog.derive.log_files import LogFile
from flintlog.derive.splits import LOOK_BACK_BYTES, Split, Window, plan_splits
from flintlog.disk.media.source import ByteSource, MappedSource
from flintlog.format.ledger import size_at
from flintlog.kernel import Scan, ScanStop
from flintlog.maintenance.inspect.delay_levels import DelayLevels
from flintlog.pipeline.reading.logs import Log, levels_of, open_source

LOOK_AHEAD_BYTES = LOOK_BACK_BYTES
LEAST_BYTES: Final = 8 * 1024 * 1024
"""A log is not cut into smaller pieces for the sake of cores: each piece looks back for its first record."""
FIRST_LOOK_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class LogSplit:
    """A split, and where its file is."""

    broker: str
    uri: str
    split: Split
    levels: DelayLevels = field(default_factory=DelayLevels)


def plan(logs: Sequence[tuple[Log, int, int]], *, split_bytes: int, least_count: int | None) -> list[LogSplit]:
    """Splits of each log's [start, stop): at least `least_count`, or one for each core where the log allows it."""
    levels = {log.uri: levels_of(log) for log, _, _ in logs}
    total = sum(max(0, stop - start) for _, start, stop in logs) or 1
    if least_count is None:
        least_count = max(1, min(len(os.sched_getaffinity(0)), total // LEAST_BYTES))
    return [
        LogSplit(log.broker, log.uri, split, levels[log.uri])
        for log, start, stop in logs
        for split in plan_splits(
            log.files,
            start,
            stop,
            split_bytes=split_bytes,
            least_count=-(-least_count * max(0, stop - start) // total),
        )
    ]


def load_window(planned: LogSplit, *, to_end: bool = False) -> Window:
    """The split's bytes, those before it to find its first record, and those after it that its last one may need."""
    source, path = open_source(planned.uri)
    return window_of(source, path, planned.split, to_end=to_end)


def window_of(source: ByteSource, folder: PurePath, split: Split, *, to_end: bool = False) -> Window:
    path = folder / split.file.name
    if isinstance(source, MappedSource) or to_end:
        return Window(source.view(path, 0, split.file.size), split.file.base)
    start = max(0, split.start - split.file.base - LOOK_BACK_BYTES)
    stop = min(split.file.size, split.stop - split.file.base + LOOK_AHEAD_BYTES)
    return Window(source.view(path, start, stop), split.file.base + start, stop == split.file.size)


def scan_record(source: ByteSource, path: PurePath, file: LogFile, place: int) -> Scan:
    """A scan of the one record at a place of a file; few bytes are read first, and the whole record if it is longer."""
    base, stop = file.base + place, min(file.size, place + FIRST_LOOK_BYTES)
    view = source.view(path, place, stop)
    seen = kernel.scan(view, 0, len(view), base, max_count=1)
    if seen.count or seen.reason is not ScanStop.SHORT or stop == file.size:
        return seen
    view = source.view(path, place, min(file.size, place + min(size_at(view, 0), LOOK_AHEAD_BYTES)))
    return kernel.scan(view, 0, len(view), base, max_count=1)


def start_at_time(log: Log, timestamp_ms: int) -> int:
    """Where to begin so that nothing stored at or after a time is missed: the last file that begins before it."""
    start = log.first
    for file in log.files[1:]:
        first = _first_time(log, file)
        if first is None or first >= timestamp_ms:
            break
        start = file.base
    return start


def stop_at_time(log: Log, timestamp_ms: int, end: int) -> int:
    """Where to end so that nothing stored before a time is missed: the first file that begins at it or later."""
    for file in reversed(log.files):
        first = _first_time(log, file) if file.base < end else None
        if first is not None and first < timestamp_ms:
            break
        end = min(end, file.base)
    return end


def _first_time(log: Log, file: LogFile) -> int | None:
    """The store time of a file's first record."""
    source, path = open_source(log.uri)
    seen = scan_record(source, path / file.name, file, 0)
    return seen.row(0).store_timestamp if seen.count else None
