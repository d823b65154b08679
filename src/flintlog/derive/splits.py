"""Splits: stretches of the log that can be read separately, and together yield each record once.

    file   |····A·····|··B··|·········C·········|··D··|
    splits [----------------)[----------------)[------)        cut anywhere
    reads   A B                C                  D            a record belongs to the split it *begins* in

A split that starts inside a file has to find its first record. A place that holds an intact record (magic, lengths,
body CRC, its own physical offset) is a good guess, but a body may hold such bytes on purpose. So the search begins
`LOOK_BACK_BYTES` earlier. A forged record lies inside the body of a real one, and a chain of forged records ends at
the latest where that real record ends; from there on the chain is the real one. A record longer than
`LOOK_BACK_BYTES` can still mislead the search if its body is forged, so a rebuild also checks that every split ends
where the next begins.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from flintlog import kernel
from flintlog.derive.log_files import LogFile
from flintlog.derive.wholeness import keeps_its_place
from flintlog.format.ledger import size_at
from flintlog.kernel import Crc, Scan, ScanStop

LOOK_BACK_BYTES = 6 * 1024 * 1024
"""More than RocketMQ's largest message (4 MiB and its properties)."""

SPLIT_BYTES = 256 * 1024 * 1024
LEAST_SPLIT_BYTES = 1024 * 1024
SCAN_ROWS = 262_144


@dataclass(frozen=True, slots=True)
class Split:
    """The records that begin in [start, stop), physical offsets within one file."""

    file: LogFile
    start: int
    stop: int

    @property
    def size(self) -> int:
        return self.stop - self.start


def plan_splits(
    files: Sequence[LogFile], start: int, stop: int, *, split_bytes: int = SPLIT_BYTES, least_count: int = 1
) -> list[Split]:
    """Splits of at most `split_bytes` that cover [start, stop), smaller if there would be fewer than `least_count`."""
    covered = [(file, max(start, file.base), min(stop, file.end)) for file in files]
    total = sum(max(0, end - begin) for _, begin, end in covered)
    wished = min(split_bytes, max(-(-total // max(1, least_count)), LEAST_SPLIT_BYTES))
    splits: list[Split] = []
    for file, begin, end in covered:
        pieces = -(-max(0, end - begin) // wished)
        cuts = [begin + (end - begin) * piece // pieces for piece in range(pieces)] if pieces else []
        splits += [Split(file, cut, after) for cut, after in zip(cuts, [*cuts[1:], end], strict=False)]
    return splits


@dataclass(frozen=True, slots=True)
class Window:
    """Bytes around a split: `view` begins at the physical offset `base`; the file ends with it if `is_whole`."""

    view: memoryview
    base: int
    is_whole: bool = True


def first_record(window: Window, split: Split) -> int:
    """Where the first record of a split begins, as a physical offset; the split's stop when there is none."""
    view, base = window.view, window.base
    if split.start == split.file.base:
        return split.start
    start, stop = split.start - base, min(split.stop - base, len(view))
    place = max(0, start - LOOK_BACK_BYTES)
    if base + place > split.file.base:
        place = _search(window, place, stop)
    while place < start:
        seen = _scan(window, place, start, check_crc=True)
        # A blank may be forged too: only a real one has no record after it.
        place = seen.end if seen.count else _search(window, place + 1, stop)
    return min(base + place, split.stop)


def _scan(
    window: Window, place: int, stop: int, *, check_crc: int = Crc.NONE, delay_levels_ms: Sequence[int] = ()
) -> Scan:
    """The records that end before `stop`; if there is none, the one that begins before it and ends after it."""
    view, base = window.view, window.base
    seen = kernel.scan(
        view, place, stop, base, check_crc=check_crc, delay_levels_ms=delay_levels_ms, max_count=SCAN_ROWS
    )
    if seen.count or seen.reason is not ScanStop.SHORT:
        return seen
    return kernel.scan(view, place, len(view), base, check_crc=check_crc, delay_levels_ms=delay_levels_ms, max_count=1)


def _search(window: Window, place: int, stop: int) -> int:
    """The next intact record that begins before `stop`, or `stop`."""
    view, base = window.view, window.base
    if place >= stop:
        return stop
    near = min(len(view), stop + LOOK_BACK_BYTES)
    found = kernel.find_record(view, place, near, base)
    if found < 0 and near < len(view) and kernel.written_end(view, place, stop) > place:
        # A record longer than LOOK_BACK_BYTES may begin here. Skip this search where nothing was written: it would read
        # the whole unused rest of the file.
        found = kernel.find_record(view, place, len(view), base)
    return stop if found < 0 else min(found, stop)


@dataclass(frozen=True, slots=True)
class Gap:
    """Bytes [start, stop) of a split that hold no intact record, and why none begins at `start`.

    `record` is the record there if its body alone is damaged; None otherwise, and unless that was asked for.
    """

    start: int
    stop: int
    reason: ScanStop
    record: Scan | None = None


def scan_split(
    window: Window,
    split: Split,
    *,
    check_crc: int = Crc.NONE,
    delay_levels_ms: Sequence[int] = (),
    start: int | None = None,
    keep_damaged: bool = False,
) -> Iterator[Scan | Gap]:
    """The records that begin in a split, in pieces, and the gaps between them.

    Positions in a scan count from the window's base. A blank ends the split without a gap. `start` is where the first
    record begins, if that is known. With `keep_damaged`, a record whose body alone is damaged is a gap of its own.
    """
    view, base = window.view, window.base
    place = (first_record(window, split) if start is None else start) - base
    stop = split.stop - base
    while place < stop:
        seen = _scan(window, place, stop, check_crc=check_crc, delay_levels_ms=delay_levels_ms)
        if seen.count:
            yield seen
            place = seen.end
        elif seen.reason is ScanStop.BLANK:
            return
        elif keep_damaged and seen.reason is ScanStop.BAD_CRC and keeps_its_place(view, base, place):
            following = place + size_at(view, place)
            record = kernel.scan(view, place, following, base, delay_levels_ms=delay_levels_ms)
            yield Gap(base + place, base + following, seen.reason, record)
            place = following
        else:
            following = _search(window, place + 1, stop)
            yield Gap(base + place, base + following, seen.reason)
            place = following
