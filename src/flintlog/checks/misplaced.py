"""Mends a record with one wrong bit in its topic, queue id or queue offset, if its queue still has its place.

    records     … 29 | names another place | 31 …        the queue has no record for 30, and this one lies between
    entries     … 29 | points at that one  | 31 …        and its entry for 30 points at exactly this record

The gap and the entry agree on the record's place, and the record differs from it by one bit. The entry says which bit.
Mending it in the log keeps every message at its place.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace

from flintlog import kernel
from flintlog.derive.offset_order import OffsetGap
from flintlog.errors import FormatError
from flintlog.format.record import encode_record, parse_record


def mend_place(record: bytes, physical_offset: int, topic: str, queue_id: int, queue_offset: int) -> bytes | None:
    """The record with the place that its queue entry gives it; None unless it is intact and differs in one bit."""
    seen = kernel.scan(record, 0, len(record), physical_offset, check_crc=True, max_count=1)
    if seen.count != 1 or seen.row(0).size != len(record):
        return None
    try:
        old = parse_record(record)
        new = encode_record(replace(old, topic_bytes=topic.encode(), queue_id=queue_id, queue_offset=queue_offset))
    except FormatError:
        return None
    if len(new) != len(record):
        return None
    bits = int.from_bytes(record, "big") ^ int.from_bytes(new, "big")
    return new if bits.bit_count() == 1 else None


def find_gap(gaps: Sequence[OffsetGap], queue_offset: int, physical_offset: int) -> OffsetGap | None:
    """The gap of a queue that an offset lies in, if the record at that place lies between its neighbours.

    The gaps are in the order of their queue offsets, as `find_gaps` returns them.
    """
    number = bisect_right(gaps, queue_offset, key=lambda gap: gap.first) - 1
    gap = gaps[number] if number >= 0 else None
    if gap is None or gap.is_open or queue_offset >= gap.stop:
        return None
    return gap if gap.after < physical_offset < gap.before else None
