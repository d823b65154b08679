"""Fills a damaged stretch of the log with valid records, so that RocketMQ reads past it and keeps what follows.

queue entries that point into it     a stand-in for each, at its own offset: queue offsets stay without a gap
queue offsets that no record has     a stand-in for each, somewhere between these
between them                         records that are in no queue
up to the end of the file            a blank, as at the end of every log file
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
from flintlog.maintenance.inspect.overview import last_store_time
from flintlog.maintenance.inspect.store_files import StoreFiles
from flintlog.maintenance.repair.lost_messages import entries_in
from flintlog.maintenance.repair.lost_records import filler, least_size, stand_in_for_entry
from flintlog.maintenance.repair.repair_plan import LostMessage

Gaps = Mapping[QueueKey, Sequence[OffsetGap]]
Filled = tuple[QueueKey, int]
"""A queue and an offset in it."""


@dataclass(slots=True)
class _Known:
    """A lost record whose place in the log is known from its queue entry, with its entries in light queues."""

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
    """The bytes for [start, start + size) of a log file; None when no records fit there.

    `gaps` are the queue offsets that no record of the log has. `filled` are those that stand-ins have; it is extended.
    """
    file = next((each for each in files.log if each.path == str(path)), None)
    if file is None:
        return None
    begin, end = file.base + start, min(file.base + start + size, file.end)
    known = _disjoint(_together(_possible(entries_in(files, [(begin, end, "")]), gaps)), end)
    taken = filled | {place for each in known for place in each.places}
    unknown = _unknown_places(gaps, taken, begin, end)
    time = last_store_time(files.read(file.path, 0, start), file.base) or 0
    filling = _Filling(files, known, unknown, time)
    data = filling.bytes_for(begin, end, is_end_of_file=end == file.end)
    if data is not None:
        filled |= taken | (set(unknown) - set(filling.unknown))
    return data


class _Filling:
    """The records that fill one stretch, from its begin to its end."""

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
        """Records for [start, stop): stand-ins for unknown places that may have lain here, and one in no queue."""
        if start == stop:
            return b""
        records = self._places(start, stop)
        used = start + sum(map(len, records))
        rest = b"" if used == stop else filler(used, stop - used, self._time)
        if rest is None and records:  # too few bytes for another record: enlarge the last one
            last = parse_record(records.pop())
            place = last.topic, last.queue_id, last.queue_offset, last.physical_offset
            rest = stand_in_for_entry(*place, stop - last.physical_offset, self._time)
        return None if rest is None else b"".join((*records, rest))

    def _places(self, start: int, stop: int) -> list[bytes]:
        """Stand-ins for as many unknown places as fit, each as short as possible. Offsets must grow along the log."""
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
        """Whether a record at this position keeps its queue's order: lower offsets before it, higher ones after."""
        known = (each for each in self._known if (each.message.topic, each.message.queue_id) == key)
        return all((each.start < position) == ((each.message.queue_offset or 0) < offset) for each in known)


def _possible(entries: Iterable[LostMessage], gaps: Gaps) -> Iterator[LostMessage]:
    """Entries that fill a gap of their queue and point between its neighbours: queue files may be damaged as well."""
    for entry in entries:
        known = gaps.get((entry.topic or "", entry.queue_id or 0))
        offset, at = entry.queue_offset or 0, entry.physical_offset
        if known is None or any(gap.first <= offset < gap.stop and gap.after < at < gap.before for gap in known):
            yield entry


def _together(entries: Iterable[LostMessage]) -> list[_Known]:
    """All entries of one record as one, in log order."""
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
    """Queue offsets without a record or an entry, whose records may have lain in this stretch."""
    return [
        (key, offset)
        for key in sorted(gaps)
        for gap in gaps[key]
        if not gap.is_open and gap.after < end and begin < gap.before
        for offset in range(gap.first, min(gap.stop, gap.first + (end - begin) // least_size(key[0])))
        if (key, offset) not in taken
    ]


def ends_with(files: StoreFiles, physical_offset: int) -> bool:
    """Whether no record begins at an offset of the log or after it."""
    for file in files.log:
        if file.end > physical_offset:
            start = max(0, physical_offset - file.base)
            if kernel.find_record(files.view(file), start, file.size, file.base) >= 0:
                return False
    return True


def _disjoint(entries: list[_Known], end: int) -> list[_Known]:
    """Entries that do not overlap; a damaged entry may name any place."""
    found: list[_Known] = []
    position = -1
    for entry in entries:
        if entry.start >= position and entry.end <= end:
            found.append(entry)
            position = entry.end
    return found
