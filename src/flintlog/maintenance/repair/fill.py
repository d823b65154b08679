"""Filling a stretch of the log that holds no record, so that RocketMQ reads over it and keeps what follows.

entries of queues that point into it     a stand-in for each, in its own place: queue offsets stay without a gap
queue offsets that no record has         a stand-in for each, somewhere between these
between them                             records that are in no queue
up to the end of the file                a blank, as at the end of every log file
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from flintlog import kernel
from flintlog.derive.offset_order import OffsetGap
from flintlog.format.queue_entry import QueueKey
from flintlog.format.record import END_RESERVE, encode_blank, parse_record
from flintlog.format.topics import LMQ_PREFIX
from flintlog.maintenance.inspect.store_files import StoreFiles
from flintlog.maintenance.repair.lost_messages import entries_in
from flintlog.maintenance.repair.lost_records import filler, least_size, stand_in_for_entry
from flintlog.maintenance.repair.repair_plan import LostMessage

Gaps = Mapping[QueueKey, Sequence[OffsetGap]]
Filled = tuple[QueueKey, int]
"""A queue, and an offset in it."""


@dataclass(slots=True)
class _Known:
    """A lost record whose place in the log a queue entry tells, with its entries in light queues."""

    message: LostMessage
    others: list[tuple[str, int]] = field(default_factory=list)

    @property
    def start(self) -> int:
        return self.message.physical_offset

    @property
    def end(self) -> int:
        return self.message.physical_offset + self.message.size

    @property
    def places(self) -> list[Filled]:
        message = self.message
        own = (message.topic or "", message.queue_id or 0), message.queue_offset or 0
        return [own, *(((topic, 0), offset) for topic, offset in self.others)]


def fill_range(files: StoreFiles, path: Path, start: int, size: int, gaps: Gaps, filled: set[Filled]) -> bytes | None:
    """The bytes for [start, start + size) of a log file; None when they cannot be filled.

    `gaps` are the queue offsets that the log's records leave out, `filled` those that stand-ins have by now.
    """
    file = next((each for each in files.log if each.path == str(path)), None)
    if file is None:
        return None
    begin, end = file.base + start, min(file.base + start + size, file.end)
    known = _disjoint(_together(_possible(entries_in(files, [(begin, end, "")]), gaps)), end)
    taken = filled | {place for each in known for place in each.places}
    unknown = _unknown_places(gaps, taken, begin, end)
    filling = _Filling(files, known, unknown, _time_before(files, path, start, file.base))
    data = filling.bytes_for(begin, end, is_end_of_file=end == file.end)
    if data is not None:
        filled |= taken | (set(unknown) - set(filling.unknown))
    return data


class _Filling:
    """The records that come into one stretch, from its begin to its end."""

    def __init__(self, files: StoreFiles, known: list[_Known], unknown: list[Filled], time: int) -> None:
        self._files = files
        self._known = known
        self.unknown = unknown
        self._time = time

    def bytes_for(self, begin: int, end: int, *, is_end_of_file: bool) -> bytes | None:
        parts: list[bytes] = []
        position = begin
        for known in self._known:
            record = self._stand_in(known)
            between = None if record is None else self._between(position, known.start)
            if record is not None and between is not None:
                parts += (between, record)
                position = known.end
        if not is_end_of_file:
            rest = self._between(position, end)
        elif end - position < END_RESERVE:
            rest = None
        else:
            records = self._places(position, end - END_RESERVE)
            rest = b"".join((*records, encode_blank(end - position - sum(map(len, records)))))
        return None if rest is None else b"".join((*parts, rest))

    def _stand_in(self, known: _Known) -> bytes | None:
        message = known.message
        if message.topic is None or message.queue_id is None or message.queue_offset is None:
            return None
        place = message.topic, message.queue_id, message.queue_offset, message.physical_offset
        count = message.message_count if message.topic in self._files.batch_topics else None
        record = stand_in_for_entry(*place, message.size, self._time, count, known.others)
        return record if record or not known.others else stand_in_for_entry(*place, message.size, self._time, count)

    def _between(self, start: int, stop: int) -> bytes | None:
        """Records for [start, stop): those of places whose record lay somewhere here, and one that is in no queue."""
        if start == stop:
            return b""
        records = self._places(start, stop)
        used = start + sum(map(len, records))
        rest = b"" if used == stop else filler(used, stop - used, self._time)
        if rest is None and records:  # too few bytes for a record of their own: the last one takes them
            last = parse_record(records.pop())
            place = last.topic, last.queue_id, last.queue_offset, last.physical_offset
            rest = stand_in_for_entry(*place, stop - last.physical_offset, self._time)
        return None if rest is None else b"".join((*records, rest))

    def _places(self, start: int, stop: int) -> list[bytes]:
        """As many of the unknown places as fit, each in the fewest bytes that can be. Offsets grow along the log."""
        records: list[bytes] = []
        waiting: list[Filled] = []
        held: set[QueueKey] = set()
        is_marked = sum(least_size(key[0], is_marked=True) for key, _ in self.unknown) <= stop - start
        for key, offset in self.unknown:
            size = least_size(key[0], is_marked=is_marked)
            record = None
            if key not in held and start + size <= stop and self._may_be_at(key, offset, start):
                record = stand_in_for_entry(*key, offset, start, size, self._time)
            if record is None:
                held.add(key)
                waiting.append((key, offset))
            else:
                records.append(record)
                start += size
        self.unknown = waiting
        return records

    def _may_be_at(self, key: QueueKey, offset: int, position: int) -> bool:
        """Whether the known records of the queue lie on the right sides of a position: lower offsets before it."""
        known = (each for each in self._known if (each.message.topic, each.message.queue_id) == key)
        return all((each.start < position) == ((each.message.queue_offset or 0) < offset) for each in known)


def _possible(entries: Iterable[LostMessage], gaps: Gaps) -> Iterator[LostMessage]:
    """Entries at offsets that no record has, there where it may have lain: queue files may be damaged as well."""
    for entry in entries:
        known = gaps.get((entry.topic or "", entry.queue_id or 0))
        offset, at = entry.queue_offset or 0, entry.physical_offset
        if known is None or any(gap.first <= offset < gap.stop and gap.after < at < gap.before for gap in known):
            yield entry


def _together(entries: Iterable[LostMessage]) -> list[_Known]:
    """Entries of one record as one, in the order of the log."""
    found: dict[tuple[int, int], list[LostMessage]] = {}
    for entry in entries:
        found.setdefault((entry.physical_offset, entry.size), []).append(entry)
    known: list[_Known] = []
    for place in sorted(found):
        own, *others = sorted(found[place], key=lambda entry: (entry.topic or "").startswith(LMQ_PREFIX))
        light = [(entry.topic or "", entry.queue_offset or 0) for entry in others]
        known.append(_Known(own, [each for each in light if each[0].startswith(LMQ_PREFIX)]))
    return known


def _unknown_places(gaps: Gaps, taken: set[Filled], begin: int, end: int) -> list[Filled]:
    """Places of which nothing but their queue offset is known, and whose records may have lain in a stretch."""
    return [
        (key, offset)
        for key in sorted(gaps)
        for gap in gaps[key]
        if not gap.is_open and gap.after < end and begin < gap.before
        for offset in range(gap.first, min(gap.stop, gap.first + (end - begin) // least_size(key[0])))
        if (key, offset) not in taken
    ]


def ends_with(files: StoreFiles, physical_offset: int) -> bool:
    """Whether no record begins at an offset of the log or behind it."""
    for file in files.log:
        if file.end > physical_offset:
            start = max(0, physical_offset - file.base)
            if kernel.find_record(files.read(file.path, 0, file.size), start, file.size, file.base) >= 0:
                return False
    return True


def _disjoint(entries: list[_Known], end: int) -> list[_Known]:
    """Entries that do not lie in each other; a damaged entry may say anything."""
    found: list[_Known] = []
    position = -1
    for entry in entries:
        if entry.start >= position and entry.end <= end:
            found.append(entry)
            position = entry.end
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
