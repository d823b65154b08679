"""Finding what is intact, or written at all, in bytes of which nothing is known."""

from __future__ import annotations

import re

from flintlog.format.ledger_entry import ENTRY_HEAD_SIZE
from flintlog.format.record import Record
from flintlog.kernel.reference.scanning import check_range
from flintlog.kernel.reference.walk import has_head, record_at
from flintlog.kernel.types import Buffer

_MAGIC = re.compile(rb"\xda\xa3\x20[\xa7\xab]")
_CHUNK_BYTES = 1 << 20


def find_record(buffer: Buffer, start: int, stop: int, base: int) -> int:
    """The first place in buffer[start:stop] where an intact record begins; -1 when there is none.

    Intact means: right magic, lengths that add up, right body CRC, and the record's own physical offset equals
    the place where it lies. The last rule tells a record from its copy inside a body or a stale block.
    A record with DLedger's head begins with it: when that lies before `start`, the next one is looked for.
    """
    with memoryview(buffer).cast("B") as view:
        check_range(view, start, stop)
        place = start
        while (match := _MAGIC.search(view, place + 4, stop)) is not None:
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
    """The place behind the last byte of buffer[start:stop] that is not zero; `start` when all are."""
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
