"""Checks a saved position against the log as it is now, before a reader continues there.

    |··A··|·B·|····C····|··D··|blank|      positions are where a record begins, where records end, or a file's boundary
          ^    here a reading stopped; the log may since have been cut, or be another one

A saved position is the beginning of a record, so a log in which no record begins there is not the one that was read.
A record holds its own physical offset, so moved bytes are not accepted. Another log may by chance have a record at the
same place; the CRC of the bytes before the position, if it was saved, tells them apart.
"""

from __future__ import annotations

import zlib
from typing import Final

from flintlog.derive.log_files import LogFile
from flintlog.derive.splits import Split, first_record
from flintlog.kernel import ScanStop
from flintlog.pipeline.reading.logs import Log, find_end, open_source
from flintlog.pipeline.reading.partitions import scan_record, window_of

CRC_BYTES: Final = 64 * 1024
"""How many bytes before a position the CRC covers: enough for the last records with their times and offsets."""

SEARCH_BYTES: Final = 1024 * 1024
"""How far a record is searched at first, so that the rest of a file need not be fetched."""


def crc_before(log: Log, position: int) -> int | None:
    """The CRC of the bytes before a position in its file; None if there are none, or they were deleted."""
    file = next((file for file in log.files if file.base < position <= file.end), None)
    if file is None:
        return None
    source, folder = open_source(log.uri)
    place = position - file.base
    return zlib.crc32(source.view(folder / file.name, max(0, place - CRC_BYTES), place))


def stands(log: Log, position: int) -> bool:
    """Whether a reader of this log may have stopped here: a record begins or ends here."""
    file = _file_of(log, position)
    if file is None:
        return position == (log.files[-1].end if log.files else 0) and find_end(log, search=False) >= position
    if _begins(log, file, position):
        return True
    if position == file.base:
        return find_end(log, search=False) >= position
    return _first_from(log, file, position, position + 1) == position


def next_record(log: Log, position: int) -> int:
    """Where the first record at or after a place begins; the file's end if the file has none."""
    file = _file_of(log, position)
    if file is None:
        return position
    size = SEARCH_BYTES
    while True:
        stop = min(file.end, position + size)
        found = _first_from(log, file, position, stop)
        if found < stop or stop == file.end:
            return found
        size *= 8


def _file_of(log: Log, position: int) -> LogFile | None:
    return next((file for file in log.files if file.base <= position < file.end), None)


def _begins(log: Log, file: LogFile, position: int) -> bool:
    source, folder = open_source(log.uri)
    seen = scan_record(source, folder / file.name, file, position - file.base)
    return seen.count > 0 or seen.reason is ScanStop.BLANK


def _first_from(log: Log, file: LogFile, position: int, stop: int) -> int:
    source, folder = open_source(log.uri)
    split = Split(file, position, stop)
    return first_record(window_of(source, folder, split), split)
