"""Finds intact records, and the end of the written bytes, in bytes of unknown content."""

from __future__ import annotations

from flintlog.format.ledger import ENTRY_HEAD_SIZE
from flintlog.format.record import MAGIC_AT, MAGIC_BYTES, Record
from flintlog.kernel.reference.scanning import check_range
from flintlog.kernel.reference.walk import has_head, record_at
from flintlog.kernel.types import Buffer

_CHUNK_BYTES = 1 << 20


def find_record(buffer: Buffer, start: int, stop: int, base: int) -> int:
    """The first place in buffer[start:stop] where an intact record begins; -1 when there is none.

    Intact means: right magic, lengths that add up, right body CRC, and the record's own physical offset equals
    its place. The last rule tells a record from its copy inside a body or a stale block. A record with DLedger's head
    begins at its head; if the head lies before `start`, the search goes on after the record.
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
