"""Where the records of a file end: what a reader beside the writer may take.

The writer's own position is not in the file, so the chain of records is walked. It is walked by headers alone; only the
last record is checked whole, because it may still be being written. `late_record` spares readers of splits most of the
way; who must be sure whatever a body holds (a backup) walks all of it.
"""

from __future__ import annotations

from flintlog import kernel
from flintlog.derive.log_files import LogFile
from flintlog.derive.splits import LOOK_BACK_BYTES, Split, Window, first_record
from flintlog.format.record import parse_record
from flintlog.kernel import ROW, ScanStop

WALK_ROWS = 65_536
LONG_WALK_BYTES = 4 * LOOK_BACK_BYTES


def records_end(view: memoryview, base: int, start: int, stop: int | None = None, *, search: bool = True) -> int:
    """The physical offset behind the last record of a file whose first byte has the offset `base`.

    `start` is where a record begins, or begins next, and `stop` the place from which on nothing was ever written. With
    `search`, intact records behind a damaged place count; without, the first place where none begins is the end.
    A file that was filled up ends with itself.
    """
    place, last = start - base, -1
    limit = len(view) if stop is None else stop
    while True:
        place, last, reason = _walk(view, base, place, last)
        if reason in (ScanStop.LIMIT, ScanStop.BLANK):
            return base + len(view)
        found = kernel.find_record(view, place + 1, limit, base) if search and place + 1 < limit else -1
        if found < 0:
            break
        place, last = found, -1
    if last >= 0 and not is_whole(view, base, last):
        return base + last
    return base + place


def is_whole(view: memoryview, base: int, place: int) -> bool:
    """Whether there is a record from its first to its last byte: one that is being written, or was cut off, is not."""
    seen = kernel.scan(view, place, len(view), base, check_crc=True, max_count=1)
    if not seen.count:
        return False
    return not parse_record(view, seen.row(0).physical_offset - base, seen.end).lacks_its_end


def late_record(view: memoryview, base: int, start: int, stop: int) -> int:
    """Where a record begins near the last byte before the place `stop` that is not zero, so that a walk from there ends
    where one from `start` ends; `start` when that is near, or no intact record lies there.

    It is found as a split's first record is, and as sure as that.
    """
    written = base + kernel.written_end(view, start - base, stop)
    if written - start < LONG_WALK_BYTES:
        return start
    tail = Split(LogFile("", base, len(view)), written - LOOK_BACK_BYTES, written)
    found = first_record(Window(view, base), tail)
    return found if found < tail.stop else start


def _walk(view: memoryview, base: int, place: int, last: int) -> tuple[int, int, ScanStop]:
    """Where the chain ends, where its last record begins, and why it ends."""
    while True:
        seen = kernel.scan(view, place, len(view), base, max_count=WALK_ROWS)
        if seen.count:
            last = ROW.unpack_from(seen.rows, (seen.count - 1) * ROW.size)[0] - base
        place = seen.end
        if seen.count < WALK_ROWS or seen.reason is not ScanStop.LIMIT:
            return place, last, seen.reason
