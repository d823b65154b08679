"""A range of the log as rows, the valid entries of a consume queue, and the search for intact records."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from flintlog.format.java import decode_text
from flintlog.format.ledger import ENTRY_HEAD_SIZE
from flintlog.format.queue_entry import ENTRY_SIZE, OFFSET_AND_SIZE
from flintlog.format.record import MAGIC_AT, MAGIC_BYTES, Record
from flintlog.kernel.reference.walk import facts_of, has_head, place_after, record_at
from flintlog.kernel.types import ROW, Buffer, Crc, Row, ScanStop

_CHUNK_BYTES = 1 << 20


class Scan:
    """The result of a scan: one row for each record, in log order."""

    __slots__ = ("_hashes", "_rows", "count", "end", "queues", "reason")

    def __init__(
        self, rows: bytes, hashes: array[int], queues: list[tuple[str, int]], end: int, reason: ScanStop
    ) -> None:
        self._rows = rows
        self._hashes = hashes
        self.count = len(rows) // ROW.size
        self.queues = queues
        self.end = end
        self.reason = reason

    @property
    def rows(self) -> memoryview:
        """The rows, packed as `types.ROW`."""
        return memoryview(self._rows)

    @property
    def hashes(self) -> memoryview:
        """All index hashes, 32 bits each; a row says which are its own."""
        return memoryview(self._hashes)

    def row(self, index: int) -> Row:
        """One row, unpacked."""
        if not 0 <= index < self.count:
            raise IndexError(f"row {index} of a scan of {self.count} rows")
        return Row._make(ROW.unpack_from(self._rows, index * ROW.size))


def scan(
    buffer: Buffer,
    start: int,
    stop: int,
    base: int,
    *,
    check_crc: int = Crc.NONE,
    delay_levels_ms: Sequence[int] = (),
    max_count: int | None = None,
) -> Scan:
    """The records of buffer[start:stop], where buffer[0] has the physical offset `base`.

    With `max_count` the scan ends with LIMIT after that many records. `check_crc` is a `types.Crc`.
    """
    rows = bytearray()
    hashes = array("I")
    queues: dict[tuple[bytes, int], int] = {}
    with memoryview(buffer).cast("B") as view:
        check_range(view, start, stop)
        position = start
        while not isinstance(record := record_at(view, position, stop, base, check_crc), ScanStop):
            if max_count is not None and len(rows) >= max_count * ROW.size:
                return _result(rows, hashes, queues, position, ScanStop.LIMIT)
            facts = facts_of(record, delay_levels_ms)
            queue = queues.setdefault((record.topic_bytes, record.queue_id), len(queues))
            rows += ROW.pack(
                record.physical_offset,
                record.queue_offset,
                facts.tags_code,
                record.store_timestamp,
                record.size,
                queue,
                record.sys_flag,
                len(hashes),
                len(facts.hashes),
                facts.marks,
            )
            hashes.extend(facts.hashes)
            position = place_after(record, base)
    return _result(rows, hashes, queues, position, record)


def _result(
    rows: bytearray, hashes: array[int], queues: dict[tuple[bytes, int], int], end: int, reason: ScanStop
) -> Scan:
    names = [(decode_text(topic), queue_id) for topic, queue_id in queues]
    return Scan(bytes(rows), hashes, names, end, reason)


def count_entries(buffer: Buffer, start: int, stop: int) -> int:
    """The position after the last valid consume queue entry of buffer[start:stop]."""
    with memoryview(buffer).cast("B") as view:
        check_range(view, start, stop)
        position = start
        while stop - position >= ENTRY_SIZE:
            offset, size = OFFSET_AND_SIZE.unpack_from(view, position)
            if offset < 0 or size <= 0:
                break
            position += ENTRY_SIZE
        return position


def find_record(buffer: Buffer, start: int, stop: int, base: int) -> int:
    """The first place in buffer[start:stop] where an intact record begins; -1 when there is none.

    Intact means: right magic, lengths that add up, right body CRC, and the record's own physical offset equals its
    place. The last rule distinguishes a record from its copy inside a body or a stale block. A record with DLedger's
    head begins at its head; if the head lies before `start`, the search goes on after the record.
    """
    with memoryview(buffer).cast("B") as view:
        check_range(view, start, stop)
        place = start
        while (match := MAGIC_BYTES.search(view, place + MAGIC_AT, stop)) is not None:
            place = match.start() - 4
            record = record_at(view, place, stop, base, True)
            if isinstance(record, Record):
                head = place - ENTRY_HEAD_SIZE
                if head < 0 or not has_head(view, head, stop, base):
                    return place
                if head >= start:
                    return head
                place += record.size
            else:
                place += 1
    return -1


def written_end(buffer: Buffer, start: int, stop: int) -> int:
    """The place after the last non-zero byte of buffer[start:stop]; `start` when all are zero."""
    with memoryview(buffer).cast("B") as view:
        check_range(view, start, stop)
        end = stop
        while end > start:
            begin = max(start, end - _CHUNK_BYTES)
            written = bytes(view[begin:end]).rstrip(b"\x00")
            if written:
                return begin + len(written)
            end = begin
    return start


def check_range(view: memoryview, start: int, stop: int) -> None:
    """Raise for a range outside of the buffer: that is the caller's mistake, not damage."""
    if not 0 <= start <= stop <= view.nbytes:
        raise ValueError(f"the range {start} to {stop} is not inside of a buffer of {view.nbytes} bytes")
