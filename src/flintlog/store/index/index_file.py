"""One mapped index file, from keys to physical offsets. `format/index_file.py` describes the bytes.

Invariant: all state is in the file's own header and slots, so the kernel's fast dispatch, `put` and a reader of the
bytes always agree. An entry is reachable only after it is complete.

The header and the slots have space on the disk from the beginning, the entries get theirs in steps (`make_room`).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from flintlog.derive.index_plan import starting_header
from flintlog.disk.media.medium import Medium, RawFile
from flintlog.format.index_file import (
    ENTRY_SIZE,
    HEADER_SIZE,
    SLOT_SIZE,
    IndexHeader,
    IndexLayout,
    encode_index_header,
    encode_slot,
    parse_index_entry,
    parse_index_header,
    parse_slot,
)
from flintlog.kernel import index_insert

_MS_PER_S = 1000
_FIRST_STEP, _MOST_STEP = 200, 50_000
"""How many entries get space at once: as many as there are, within these limits."""


class IndexFile:
    """One file of the index. The dispatching thread writes it; any thread may read it."""

    def __init__(self, path: Path, layout: IndexLayout, medium: Medium, *, is_new: bool = False) -> None:
        """A new file is created. Another one is opened at the first access."""
        self.path = path
        self.layout = layout
        self._medium = medium
        self._raw: RawFile | None = None
        self._is_writable = is_new
        self._with_space = 0
        self.is_deleted = False
        if is_new:
            self._with_space = min(1 + _FIRST_STEP, layout.index_count)
            self._raw = medium.create(path, layout.file_size, layout.entry_position(self._with_space))

    @property
    def name(self) -> str:
        """The time of creation, yyyyMMddHHmmssSSS."""
        return self.path.name

    @property
    def header(self) -> IndexHeader:
        """The current header."""
        return parse_index_header(self._file().buffer)

    @property
    def is_full(self) -> bool:
        return self.header.next_entry >= self.layout.index_count

    @property
    def buffer(self) -> memoryview:
        """The whole file, for writing."""
        return self._file(writable=True).buffer

    def _file(self, writable: bool = False) -> RawFile:
        raw = self._raw
        if raw is None or (writable and not self._is_writable):
            # The old map is not closed, because a query may be reading it. It is freed with its last user.
            raw = self._medium.open(self.path, writable, in_steps=True)
            if writable:
                self._with_space = min(max(1, parse_index_header(raw.buffer).next_entry), self.layout.index_count)
                raw.allocate(0, self.layout.entry_position(self._with_space))
            self._raw, self._is_writable = raw, writable
        return raw

    @property
    def writable_count(self) -> int:
        """How many entries, the unused first one included, may be written now; `make_room` gets space for more."""
        self._file(writable=True)
        return self._with_space

    def make_room(self) -> None:
        """Get space for the next entry, if the file has room for it; raises `DiskFull`."""
        raw, count = self._file(writable=True), max(1, self.header.next_entry)
        if count < self._with_space or count >= self.layout.index_count:
            return
        goal = min(count + min(max(count, _FIRST_STEP), _MOST_STEP), self.layout.index_count)
        raw.allocate(self.layout.entry_position(count), self.layout.entry_position(goal))
        self._with_space = goal

    def clear_after(self, count: int) -> None:
        """Set everything to zero after the entries up to `count`."""
        raw, end = self._file(writable=True), self.layout.entry_position(max(count, 1))
        raw.clear(end, max(end, raw.data_end(end)))

    def start_after(self, previous: IndexHeader) -> None:
        """Begin where the previous file ended. The first key's time is relative to that, then replaces it."""
        self._set_header(_after(previous))

    def _set_header(self, header: IndexHeader) -> None:
        self.buffer[:HEADER_SIZE] = encode_index_header(header)

    def put(self, key_hash: int, physical_offset: int, store_timestamp: int) -> bool:
        """Add one key; False when the file is full. Raises `DiskFull`."""
        self.make_room()
        slots, count = self.layout.slot_count, self._with_space
        return index_insert(self.buffer, slots, count, key_hash, physical_offset, store_timestamp)

    def collect(
        self,
        found: list[int],
        key_hash: int,
        max_count: int,
        begin: int,
        end: int,
        below: int | None = None,
        accepts: Callable[[int], bool] | None = None,
    ) -> None:
        """Append the offsets of a key hash and time, newest first, until there are `max_count`.

        With `below`, only offsets before that; with `accepts`, only those for which it returns True.
        """
        buffer = self._file().buffer
        header = parse_index_header(buffer)
        # A damaged store time can put the begin before 1970. Then the times of all entries are unknown.
        is_timed = header.begin_timestamp >= 0
        if is_timed and not _overlaps(header, begin, end):
            return
        count = header.next_entry
        number = parse_slot(buffer, self.layout, self.layout.slot_of(key_hash))
        for _ in range(count):  # a damaged chain may be a cycle
            if not 0 < number <= count or count <= 1 or len(found) >= max_count or number >= self.layout.index_count:
                return
            entry = parse_index_entry(buffer, self.layout, number)
            if entry.time_difference_s < 0:
                return
            time = header.begin_timestamp + entry.time_difference_s * _MS_PER_S if is_timed else begin
            offset = entry.physical_offset
            is_match = entry.key_hash == key_hash and begin <= time <= end and (below is None or offset < below)
            if is_match and (accepts is None or accepts(offset)):
                found.append(offset)
            if entry.previous_entry == number or time < begin:
                return
            number = entry.previous_entry

    def count_below(self, physical_offset: int) -> int:
        """The index count from before the record at this offset was indexed."""
        buffer = self._file().buffer
        count = min(parse_index_header(buffer).next_entry, self.layout.index_count)
        while count > 1 and parse_index_entry(buffer, self.layout, count - 1).physical_offset >= physical_offset:
            count -= 1
        return count

    def last_offset_at(self, count: int) -> int | None:
        """The physical offset of the newest key when the file has this index count."""
        if count <= 1:
            return None
        return parse_index_entry(self._file().buffer, self.layout, count - 1).physical_offset

    def roll_back(self, count: int, end_timestamp: int, previous: IndexHeader | None) -> None:
        """Remove the newest keys until the index count is `count`. The bytes are then as if they had not been added.

        `end_timestamp` is the store time of the newest record that stays (an entry has only seconds); `previous` is the
        header of the previous file, with whose end this file began.
        """
        buffer = self.buffer
        header = parse_index_header(buffer)
        used = header.used_slot_count
        for number in range(min(header.next_entry, self.layout.index_count) - 1, max(count, 1) - 1, -1):
            entry = parse_index_entry(buffer, self.layout, number)
            slot = self.layout.slot_position(self.layout.slot_of(entry.key_hash))
            # In this order, so that the file can be read, and rolled back further, after any step.
            buffer[slot : slot + SLOT_SIZE] = encode_slot(entry.previous_entry)
            used -= entry.previous_entry == 0
            buffer[HEADER_SIZE - SLOT_SIZE : HEADER_SIZE] = encode_slot(number)
            position = self.layout.entry_position(number)
            buffer[position : position + ENTRY_SIZE] = bytes(ENTRY_SIZE)
        last = self.last_offset_at(count)
        if last is None:
            self._set_header(IndexHeader() if previous is None else _after(previous))
            return
        begin = (header.begin_timestamp, end_timestamp, header.begin_physical_offset, last)
        self._set_header(IndexHeader(*begin, used, count))

    def flush(self) -> None:
        """Make the file durable. As in RocketMQ, the header of a file without keys gets the count 1."""
        if not self._is_writable:
            return
        header = self.header
        if header.index_count == 0:
            begin = (header.begin_timestamp, header.end_timestamp)
            places = (header.begin_physical_offset, header.end_physical_offset)
            self._set_header(IndexHeader(*begin, *places, header.used_slot_count, 1))
        self._file(writable=True).sync()

    def close(self) -> None:
        """Unmap the file. The next access maps it again."""
        raw, self._raw, self._is_writable = self._raw, None, False
        if raw is not None:
            raw.close()

    def delete(self) -> None:
        """Delete the file. Queries that are reading it keep its map."""
        self.is_deleted = True
        self._medium.remove(self.path)


def _after(previous: IndexHeader) -> IndexHeader:
    return starting_header(previous.end_timestamp, previous.end_physical_offset)


def _overlaps(header: IndexHeader, begin: int, end: int) -> bool:
    """Whether the file may have messages of this time."""
    first, last = header.begin_timestamp, header.end_timestamp
    return (begin < first and end > last) or first <= begin <= last or first <= end <= last
