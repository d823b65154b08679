"""The log as the kernel's columns, and their values without Arrow.

One range is in memory at a time. Records that do not match their sums and other damaged places are stepped over:
`flintlog verify` says where they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from flintlog import kernel
from flintlog.disk.segments.segment import Segment
from flintlog.disk.segments.segment_queue import SegmentQueue
from flintlog.errors import StoreClosed
from flintlog.kernel import Column, Decoded, ScanStop
from flintlog.store.log.damage import DamageMap
from flintlog.store.log.record_crc import crc_to_check
from flintlog.store.log.segment_bytes import held
from flintlog.store.options.store_config import StoreConfig

MAX_BATCH_ROWS = 65536
MAX_BATCH_BYTES = 64 * 1024 * 1024


def scan_columns(
    segments: SegmentQueue,
    damage: DamageMap,
    config: StoreConfig,
    *,
    topics: Sequence[str] | None,
    start: int | None = None,
    end: int | None = None,
    include_body: bool = True,
) -> Iterator[Decoded]:
    """Columns of the records that begin in [start, end): neighbouring ranges give each record once."""
    wanted = None if topics is None else frozenset(topic.encode() for topic in topics)
    position, stop_at = max(segments.min_offset, 0), segments.max_offset
    if end is not None and end < stop_at:
        stop_at = min(stop_at, _first_record_from(segments, end))
    if start is not None and start > position:
        position = _first_record_from(segments, start)
    while position < stop_at:
        segment = _hold_between(segments, position, stop_at)
        if segment is None:
            return
        position = max(position, segment.base)
        try:
            decoded = kernel.decode(
                segment.raw().buffer,
                position - segment.base,
                min(segment.read_position, stop_at - segment.base),
                segment.base,
                include_body=include_body,
                topics=wanted,
                max_rows=MAX_BATCH_ROWS,
                max_bytes=MAX_BATCH_BYTES,
                delay_levels_ms=config.delay_levels_ms,
                check_crc=crc_to_check(config),
            )
            following = segment.base + _place_after(segment, decoded, stop_at - segment.base)
        finally:
            segment.release()
        if decoded.count:
            yield decoded
        if decoded.reason not in (ScanStop.BLANK, ScanStop.LIMIT):
            following = max(following, damage.end_of(segment.base + decoded.end) or 0)
        if following <= position:
            return
        position = following


def column_values(column: Column) -> Sequence[int | str | None]:
    """The values of a column of numbers or texts."""
    if column.data is None or not column.length:
        return [None] * column.length
    if column.kind == "int32":
        return memoryview(column.data).cast("B").cast("i")[: column.length]
    if column.kind == "int64":
        return memoryview(column.data).cast("B").cast("q")[: column.length]
    offsets, text = memoryview(column.offsets or b"").cast("B").cast("i"), bytes(column.data)
    values = [text[offsets[row] : offsets[row + 1]].decode() for row in range(column.length)]
    if column.validity is None:
        return values
    present = bytes(column.validity)
    return [value if present[row >> 3] >> (row & 7) & 1 else None for row, value in enumerate(values)]


def _place_after(segment: Segment, decoded: Decoded, stop: int) -> int:
    """Where to continue in a segment: after the decoded records, after damage, or at its end."""
    if decoded.reason is ScanStop.LIMIT:
        return decoded.end
    stop = min(segment.read_position, stop)
    if decoded.reason is ScanStop.BLANK or decoded.end + 1 >= stop:
        return segment.size
    found = kernel.find_record(segment.raw().buffer, decoded.end + 1, stop, segment.base)
    return segment.size if found < 0 else found


def _hold_between(segments: SegmentQueue, start: int, stop: int) -> Segment | None:
    """The segment at `start`, held; or the next one that begins before `stop`, if that was deleted since."""
    for segment in segments.segments:
        if segment.end > start and segment.base < stop and segment.hold():
            return segment
    last = segments.last
    if last is not None and not last.available:
        raise StoreClosed("the store was shut down while it was scanned", path=last.path)
    return None


def _first_record_from(segments: SegmentQueue, start: int) -> int:
    """Where the first intact record at or after an offset begins, or the next segment."""
    segment = segments.find(start)
    if segment is None:
        return start
    if start >= segment.base + segment.read_position:
        return start  # after the end: nothing begins there
    with held(segment) as view:
        place = kernel.find_record(view, start - segment.base, segment.read_position, segment.base)
    return segment.base + (segment.size if place < 0 else place)
