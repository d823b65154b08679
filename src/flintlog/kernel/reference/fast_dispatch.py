"""The fast path of dispatch: records into consume queues and the index, until one needs more than that.

It knows the growing end of each queue and the index file in use. It takes records in log order. It stops at the first
record that needs more than one more entry after the last (a new queue, a full file, a gap, a special record). The
caller, who owns the files, then does that step and runs it again.

    record ─▶ queue step ─▶ index step ─▶ done
                 │               │
                 ▼               ▼
               QUEUE           INDEX             the caller's turn

One thread at a time uses it: the dispatcher, which sets `is_owned` meanwhile, or a put. The log is dispatched up to
`log_offset`; with `stopped_at_index` the record at that offset already has its queue entry.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final, NamedTuple

from flintlog.errors import FormatError
from flintlog.format.index_file import ENTRY_SIZE as INDEX_ENTRY_SIZE
from flintlog.format.index_file import HEADER_SIZE, INDEX_ENTRY, INDEX_HEADER, INDEX_SLOT, SLOT_SIZE, time_difference_s
from flintlog.format.queue_entry import ENTRY_SIZE, QUEUE_ENTRY
from flintlog.format.sys_flag import takes_queue_offset
from flintlog.kernel.reference.scanning import Scan, check_range
from flintlog.kernel.reference.tails import QueueEnd
from flintlog.kernel.reference.walk import facts_of, place_after, record_at
from flintlog.kernel.types import INNER_BATCH, MULTI_DISPATCH, Buffer, DispatchStop, ScanStop

_MAX_INT32: Final = (1 << 31) - 1
_MOMENT_S: Final = 0.0001


class _Dispatched(NamedTuple):
    """The fields of a record that the queue step and the index step need."""

    physical_offset: int
    queue_offset: int
    tags_code: int
    store_timestamp: int
    size: int
    sys_flag: int
    marks: int
    hashes: Sequence[int]
    end: QueueEnd | None


class FastDispatch:
    """Applies records to the queue ends and the index file that it was given."""

    def __init__(self, *, delay_levels_ms: Sequence[int] = (), lmq: bool = False) -> None:
        self.delay_levels_ms = tuple(delay_levels_ms)
        self.lmq = lmq
        self.index_enabled = True
        self.all_slow = False
        self.log_offset = 0
        self.stopped_at_index = False
        self.is_owned = False
        self.position = 0
        self.row_index = 0
        self.hash_index = 0
        self.last_physical_offset = -1
        self.last_store_timestamp = -1
        self.done_count = 0
        self._ends: dict[tuple[str, int], QueueEnd] = {}
        self._index: memoryview | None = None
        self._slot_count = 0
        self._index_count = 0

    def own(self) -> None:
        """Take fast dispatch, after a short wait if a put is using it; the native kernel never has to wait.

        `is_owned = False` gives it back. Both are plain assignments, so a signal handler's exception cannot leave
        either half done.
        """
        while self.is_owned:
            time.sleep(_MOMENT_S)
        self.is_owned = True

    def try_to_own(self) -> bool:
        """Take fast dispatch if it is free. In the native kernel a put dispatches without losing the GIL instead."""
        if self.is_owned:
            return False
        self.is_owned = True
        return True

    def set_queue(self, topic: str, queue_id: int, end: QueueEnd | None) -> None:
        """Set the end of a queue; with None its next record stops fast dispatch."""
        if end is None:
            self._ends.pop((topic, queue_id), None)
        else:
            self._ends[topic, queue_id] = end

    def set_index(self, buffer: Buffer | None, slot_count: int = 0, index_count: int = 0) -> None:
        """Set the index file in use and release the one before; with None the next key stops fast dispatch."""
        view = None if buffer is None else _index_view(buffer, slot_count, index_count)
        if self._index is not None:
            self._index.release()
        self._index, self._slot_count, self._index_count = view, slot_count, index_count

    def run(self, buffer: Buffer, start: int, stop: int, base: int, at_index: bool = False) -> DispatchStop:
        """Apply the records of buffer[start:stop]; `position` is then that of the record it stopped at.

        `log_offset` and `stopped_at_index` move with each record, so no record is dispatched twice after an exception.
        """
        with memoryview(buffer).cast("B") as view:
            check_range(view, start, stop)
            self.position = start
            self.log_offset = base + start
            while not isinstance(found := record_at(view, self.position, stop, base), ScanStop):
                after = place_after(found, base)
                facts = facts_of(found, self.delay_levels_ms)
                end = self._ends.get((found.topic, found.queue_id))
                record = _Dispatched(
                    found.physical_offset,
                    found.queue_offset,
                    facts.tags_code,
                    found.store_timestamp,
                    found.size,
                    found.sys_flag,
                    facts.marks,
                    facts.hashes,
                    end,
                )
                if (stopped := self._dispatch(record, at_index)) is not DispatchStop.DONE:
                    return stopped
                # No call since the record was dispatched, so a signal handler cannot raise in between.
                self.position = after
                self.log_offset = base + after
                self.stopped_at_index = at_index = False
        self.hash_index = 0
        self.stopped_at_index = False
        return {ScanStop.LIMIT: DispatchStop.DONE, ScanStop.BLANK: DispatchStop.BLANK}.get(found, DispatchStop.BAD)

    def apply(self, scan: Scan, row: int = 0, at_index: bool = False) -> DispatchStop:
        """Apply the records of a scan from this row on; `row_index` is then that of the row it stopped at."""
        if not 0 <= row <= scan.count:
            raise IndexError(f"row {row} of a scan of {scan.count} rows")
        for self.row_index in range(row, scan.count):
            found = scan.row(self.row_index)
            record = _Dispatched(
                found.physical_offset,
                found.queue_offset,
                found.tags_code,
                found.store_timestamp,
                found.size,
                found.sys_flag,
                found.marks,
                scan.hashes[found.first_hash : found.first_hash + found.hash_count],
                self._ends.get(scan.queues[found.queue]),
            )
            if (stopped := self._dispatch(record, at_index and self.row_index == row)) is not DispatchStop.DONE:
                return stopped
        self.row_index = scan.count
        self.hash_index = 0
        return DispatchStop.DONE

    def _dispatch(self, record: _Dispatched, at_index: bool) -> DispatchStop:
        if not at_index:
            self.hash_index = 0
            self.stopped_at_index = False
            if takes_queue_offset(record.sys_flag) and not self._queue_step(record):
                return DispatchStop.QUEUE
        self.stopped_at_index = True
        if self.index_enabled and not self._index_step(record):
            return DispatchStop.INDEX
        self.hash_index = 0
        self.last_physical_offset = record.physical_offset
        self.last_store_timestamp = record.store_timestamp
        self.done_count += 1
        return DispatchStop.DONE

    def _queue_step(self, record: _Dispatched) -> bool:
        end = record.end
        if end is None or self.all_slow or record.marks & INNER_BATCH or (self.lmq and record.marks & MULTI_DISPATCH):
            return False
        record_end = record.physical_offset + record.size
        if record_end <= end.max_physical_offset:
            return True
        tail = end.tail
        view = None if tail is None else tail._room()
        if tail is None or view is None or record.queue_offset * ENTRY_SIZE != tail.end:
            return False
        if tail.allocated - tail.position < ENTRY_SIZE:
            return False
        QUEUE_ENTRY.pack_into(view, tail.position, record.physical_offset, record.size, record.tags_code)
        # Setting the position is the last call: a signal handler cannot raise before the lines that follow are done.
        tail.position += ENTRY_SIZE
        end.max_physical_offset = record_end
        end.record_bytes += record.size
        return True

    def _index_step(self, record: _Dispatched) -> bool:
        if self.hash_index >= len(record.hashes):
            return True
        if self._index is None:
            return False
        index = self._index
        if record.physical_offset < INDEX_HEADER.unpack_from(index)[3]:
            return True
        place = record.physical_offset, record.store_timestamp
        for value in record.hashes[self.hash_index :]:
            added = _add_entry(index, self._slot_count, self._index_count, value, *place)
            if added is None:
                return False
            slot_at, slot, header = added
            # No call from here on, so no exception can leave a key in the file but not counted.
            index[slot_at : slot_at + SLOT_SIZE] = slot
            index[:HEADER_SIZE] = header
            self.hash_index += 1
        return True


def index_insert(
    buffer: Buffer, slot_count: int, index_count: int, hash: int, physical_offset: int, store_timestamp: int
) -> bool:
    """Add one key to an index file; False when it is full. All state is in the file's header."""
    if not 0 <= hash <= _MAX_INT32:
        raise ValueError(f"not an index hash: {hash}")
    with _index_view(buffer, slot_count, index_count) as view:
        added = _add_entry(view, slot_count, index_count, hash, physical_offset, store_timestamp)
        if added is None:
            return False
        slot_at, slot, header = added
        view[slot_at : slot_at + SLOT_SIZE] = slot
        view[:HEADER_SIZE] = header
        return True


def _add_entry(
    view: memoryview, slot_count: int, index_count: int, hash: int, physical_offset: int, store_timestamp: int
) -> tuple[int, bytes, bytes] | None:
    """Write the entry of a key. Returns the place of its slot and the new bytes of slot and header; None when full.

    The entry is written before the slot that refers to it, so a concurrent reader never follows a slot to a missing
    entry.
    """
    begin_time, _, begin_offset, _, used_slots, count = INDEX_HEADER.unpack_from(view)
    count = max(count, 1)  # a file without keys may hold 0
    if count >= index_count:
        return None
    slot_at = HEADER_SIZE + SLOT_SIZE * (hash % slot_count)
    previous = INDEX_SLOT.unpack_from(view, slot_at)[0]
    if not 0 < previous <= count:
        previous = 0
    seconds = time_difference_s(store_timestamp, begin_time)
    entry_at = HEADER_SIZE + SLOT_SIZE * slot_count + INDEX_ENTRY_SIZE * count
    INDEX_ENTRY.pack_into(view, entry_at, hash, physical_offset, seconds, previous)
    if count == 1:
        begin_time, begin_offset = store_timestamp, physical_offset
    used_slots = _wrapped_int32(used_slots + (previous == 0))
    header = INDEX_HEADER.pack(begin_time, store_timestamp, begin_offset, physical_offset, used_slots, count + 1)
    return slot_at, INDEX_SLOT.pack(count), header


def _index_view(buffer: Buffer, slot_count: int, index_count: int) -> memoryview:
    view = memoryview(buffer).cast("B")
    needed = HEADER_SIZE + SLOT_SIZE * slot_count + INDEX_ENTRY_SIZE * index_count
    if slot_count < 1 or index_count < 1 or view.nbytes < needed or view.readonly:
        raise FormatError(
            f"an index file of {slot_count} slots and {index_count} entries needs {needed} writable bytes, "
            f"and there are {view.nbytes}"
        )
    return view


def _wrapped_int32(value: int) -> int:
    return (value + (1 << 31)) % (1 << 32) - (1 << 31)
