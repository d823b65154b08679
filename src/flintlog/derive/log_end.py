"""Where the records of a file end, for readers that run beside the writer.

The writer's position is not in the file, so a reader walks the chain of records. It reads headers only, and checks just
the last record whole, because that one may still be being written. Readers of splits skip most of the walk with
`late_record`. A body that holds a forged record can mislead it, so a backup walks the whole chain.

A file that is not mapped is read from its end backwards (`fetched_end`):

    |··record··|···|··record··|··record··|····zeros····|
        [ LOOK_BACK_BYTES  ][ the tail   ]^ the last byte that is not zero
                            ^ its first record is found as a split's, and the chain is walked to its end
"""

from __future__ import annotations

from flintlog import kernel
from flintlog.derive.log_files import LogFile
from flintlog.derive.ranges import Fetch
from flintlog.derive.splits import LOOK_BACK_BYTES, Split, Window, first_record
from flintlog.derive.wholeness import is_whole
from flintlog.format.ledger import size_at
from flintlog.kernel import ROW, ScanStop

WALK_ROWS = 65_536
LONG_WALK_BYTES = 4 * LOOK_BACK_BYTES
FETCH_BYTES = 1024 * 1024
HEAD_BYTES = 4096


def records_end(view: memoryview, base: int, start: int, stop: int | None = None, *, search: bool = True) -> int:
    """The physical offset after the last record of a file whose first byte has the offset `base`.

    `start` is where a record begins, or where the next one will. Nothing was ever written from `stop` on. With
    `search`, intact records after a damaged place count; without, the first place where no record begins is the end.
    The records of a full file end where the file ends.
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


def late_record(view: memoryview, base: int, start: int, stop: int) -> int:
    """Where a record begins shortly before the last written byte below the place `stop`.

    A walk from there ends where a walk from `start` ends. Returns `start` when that is close enough, or when no intact
    record lies there. The record is found as a split's first record is, with the same certainty.
    """
    written = base + kernel.written_end(view, start - base, stop)
    if written - start < LONG_WALK_BYTES:
        return start
    tail = Split(LogFile("", base, len(view)), written - LOOK_BACK_BYTES, written)
    found = first_record(Window(view, base), tail)
    return found if found < tail.stop else start


def fetched_end(fetch: Fetch, file: LogFile, start: int, written: int) -> int:
    """The physical offset after the last record of a file of which only ranges can be read.

    `start` is where a record begins, or where the next one will, and `written` is after the last byte that is known to
    be no zero; both are physical offsets. Little is read before that byte, and after it while the chain of records goes
    on. Records longer than `LOOK_BACK_BYTES` with forged ones in their bodies can mislead it, as they can a split.
    """
    for tail_bytes in (FETCH_BYTES, LOOK_BACK_BYTES):
        tail = Split(file, written - tail_bytes, written)
        late = tail.start - LOOK_BACK_BYTES
        if late <= start:
            break
        found = first_record(Window(fetch(late - file.base, written - file.base), file.base), tail)
        if found < written:
            return _follow(fetch, file, found, written, late)
    return _follow(fetch, file, start, written, start)


def _follow(fetch: Fetch, file: LogFile, start: int, written: int, fetched_from: int) -> int:
    """Walk from `start`, and on after places where no record begins; bytes are fetched ahead of the walk."""
    base, begin = file.base, fetched_from - file.base
    place, last, step = start - base, -1, FETCH_BYTES
    stop = min(file.size, max(written - base, place) + HEAD_BYTES)
    while True:
        view = fetch(begin, stop)
        place, last, reason = _walk(view, base, place, last)
        if reason in (ScanStop.LIMIT, ScanStop.BLANK):
            return file.end
        if stop < min(file.size, place + _known_size(view, place, stop, reason) + HEAD_BYTES):
            stop = min(file.size, max(stop + step, place + _known_size(view, place, stop, reason) + HEAD_BYTES))
            place, last, step = (last if last >= 0 else place), -1, min(2 * step, LOOK_BACK_BYTES)
            continue
        found = kernel.find_record(view, place + 1, stop, base) if place + 1 < stop else -1
        if found < 0:
            return base + (last if last >= 0 and not is_whole(view, base, last) else place)
        place, last = found, -1


def _known_size(view: memoryview, place: int, stop: int, reason: ScanStop) -> int:
    """The size of a record that begins at a place and may not have been fetched whole: its lengths do not add up."""
    if reason is not ScanStop.BAD_LENGTH or place + HEAD_BYTES > stop:
        return 0
    return max(0, min(size_at(view, place), len(view) - place))


def _walk(view: memoryview, base: int, place: int, last: int) -> tuple[int, int, ScanStop]:
    """Where the chain ends, where its last record begins, and why it ends."""
    while True:
        seen = kernel.scan(view, place, len(view), base, max_count=WALK_ROWS)
        if seen.count:
            last = ROW.unpack_from(seen.rows, (seen.count - 1) * ROW.size)[0] - base
        place = seen.end
        if seen.count < WALK_ROWS or seen.reason is not ScanStop.LIMIT:
            return place, last, seen.reason
