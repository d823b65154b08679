"""Cuts a stretch of the log into batches that can be parsed separately.

A batch begins at a record and ends after one. The cut is made near the wished size, at the first place that looks
like an intact record: right magic, right lengths, right CRC, and *its own physical offset equals its place*.
A body may hold such bytes on purpose, so the parser of a batch checks that it ends where the next one begins. If it
does not, the cut was false, and the batch is parsed again up to the next cut.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from flintlog import kernel

BATCH_BYTES = 4 * 1024 * 1024
LOOK_BYTES = 64 * 1024
MOST_LOOK_BYTES = 32 * 1024 * 1024

Fetch = Callable[[int, int], memoryview]
"""(start, stop) → a view as long as the file that has these bytes, and may have zeros instead of others."""


def cut_batches(
    view: memoryview, start: int, stop: int, base: int, batch_bytes: int = BATCH_BYTES
) -> Iterator[tuple[int, int]]:
    """Batches that cover view[start:stop], where view[0] has the physical offset `base`."""
    begin = start
    while stop - begin > batch_bytes:
        place = begin + batch_bytes
        if kernel.written_end(view, place, min(place + LOOK_BYTES, stop)) == place:
            break  # most likely the unused rest of a file: not worth searching
        cut = kernel.find_record(view, place, stop, base)
        if cut < 0:
            break
        yield begin, cut
        begin = cut
    if begin < stop:
        yield begin, stop


def cut_fetched(fetch: Fetch, stop: int, base: int, batch_bytes: int = BATCH_BYTES) -> Iterator[tuple[int, int]]:
    """The same for the bytes [0, stop) of a file of which only ranges can be read: little is read at each cut."""
    begin = 0
    while stop - begin > batch_bytes:
        cut = _find_cut(fetch, begin + batch_bytes, stop, base)
        if cut < 0:
            break
        yield begin, cut
        begin = cut
    if begin < stop:
        yield begin, stop


def _find_cut(fetch: Fetch, place: int, stop: int, base: int) -> int:
    """The first intact record after a place, in windows that grow; -1 if there is none, or only zeros follow."""
    size = LOOK_BYTES
    while True:
        end = min(stop, place + size)
        view = fetch(place, end)
        if kernel.written_end(view, place, min(place + LOOK_BYTES, stop)) == place:
            return -1
        found = kernel.find_record(view, place, end, base)
        if found >= 0 or end == stop or size >= MOST_LOOK_BYTES:
            return found
        size *= 8
