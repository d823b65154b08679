"""Filling a stretch of the log that holds no record, so that RocketMQ reads over it and keeps what follows.

entries of queues that point into it     a stand-in for each, in its own place: queue offsets stay without a gap
between them                             records that are in no queue
up to the end of the file                a blank, as at the end of every log file
"""

from __future__ import annotations

from pathlib import Path

from flintlog import kernel
from flintlog.care.lost_messages import entries_in
from flintlog.care.lost_records import filler, stand_in_for_entry
from flintlog.care.repair_plan import LostMessage
from flintlog.care.store_files import StoreFiles
from flintlog.format.record import END_RESERVE, encode_blank


def fill_range(files: StoreFiles, path: Path, start: int, size: int) -> bytes | None:
    """The bytes for [start, start + size) of a log file; None when they cannot be filled."""
    file = next((each for each in files.log if each.path == str(path)), None)
    if file is None:
        return None
    begin, end = file.base + start, min(file.base + start + size, file.end)
    known = _disjoint(sorted(entries_in(files, [(begin, end, "")]), key=lambda m: m.physical_offset), end)
    timestamp = _time_before(files, path, start, file.base)
    parts: list[bytes] = []
    position = begin
    for message in known:
        between = _between(position, message.physical_offset, timestamp)
        record = _stand_in(files, message, timestamp)
        if between is None or record is None:
            continue
        parts += (between, record)
        position = message.physical_offset + message.size
    if end == file.end:
        rest = encode_blank(end - position) if end - position >= END_RESERVE else None
    else:
        rest = _between(position, end, timestamp)
    return None if rest is None else b"".join((*parts, rest))


def ends_with(files: StoreFiles, physical_offset: int) -> bool:
    """Whether no record begins at an offset of the log or behind it."""
    for file in files.log:
        if file.end > physical_offset:
            start = max(0, physical_offset - file.base)
            if kernel.find_record(files.read(file.path, 0, file.size), start, file.size, file.base) >= 0:
                return False
    return True


def _stand_in(files: StoreFiles, message: LostMessage, timestamp: int) -> bytes | None:
    if message.topic is None or message.queue_id is None or message.queue_offset is None:
        return None
    place = message.topic, message.queue_id, message.queue_offset, message.physical_offset
    is_batch = message.topic in files.batch_topics
    return stand_in_for_entry(*place, message.size, timestamp, message.message_count if is_batch else None)


def _between(start: int, stop: int, timestamp: int) -> bytes | None:
    return b"" if start == stop else filler(start, stop - start, timestamp)


def _disjoint(messages: list[LostMessage], end: int) -> list[LostMessage]:
    """Entries that do not lie in each other; a damaged entry may say anything."""
    found: list[LostMessage] = []
    position = -1
    for message in messages:
        if message.physical_offset >= position and message.physical_offset + message.size <= end:
            found.append(message)
            position = message.physical_offset + message.size
    return found


def _time_before(files: StoreFiles, path: Path, start: int, base: int) -> int:
    """The store time of the last record before the stretch, or of the first behind it: times grow along the log."""
    view = files.read(str(path), 0, start)
    place, time = 0, 0
    while place < start:
        seen = kernel.scan(view, place, start, base, max_count=65536)
        if not seen.count:
            break
        time, place = seen.row(seen.count - 1).store_timestamp, seen.end
    return time
