"""Which records of a range of the log are named by queue entries and index entries.

    log      |··A··|··B··|··C··|··D··|      A, B and D are claimed: a bit is flipped where each begins and where it ends
    marks     ^           ^     ^     ^     flipped twice between A and B, so C is what is left between two marks

A stretch that an even number of records cover is not claimed: no entry names it, or two do and one of them is wrong.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterator

from flintlog.format.index_file import ENTRY_SIZE, INDEX_ENTRY
from flintlog.format.queue_entry import OFFSET_AND_SIZE, PREFILL_ENTRY
from flintlog.kernel.types import Buffer

_MAX_PLACE = 0x3FFF_FFFF_FFFF_FFFF


def claim(marks: bytearray, start: int, stop: int, entries: Buffer, stride: int) -> int:
    """Flip a bit of the marks (a bit for each byte of [start, stop)) where each record that queue entries name begins,
    and where it ends. The sum of the bytes of [start, stop) that each of them covers."""
    _check_marks(marks, start, stop)
    total = 0
    for begin, size, _ in _named(entries, stride):
        if begin < stop and begin + size > start:
            _flip(marks, max(begin, start) - start)
            if begin + size < stop:
                _flip(marks, begin + size - start)
            total += min(begin + size, stop) - max(begin, start)
    return total


def unclaimed(marks: bytearray, start: int, stop: int) -> list[tuple[int, int]]:
    """The stretches of [start, stop) that an even number of the claimed records cover: none, or several."""
    _check_marks(marks, start, stop)
    found: list[tuple[int, int]] = []
    since, is_claimed = start, False
    for place in (start + bit for bit in range(stop - start) if marks[bit >> 3] >> (bit & 7) & 1):
        if not is_claimed and place > since:
            found.append((since, place))
        since, is_claimed = place, not is_claimed
    if not is_claimed and since < stop:
        found.append((since, stop))
    return found


def named_records(
    entries: Buffer,
    stride: int,
    start: int,
    stop: int,
    *,
    beside: bytearray | None = None,
    without: bytearray | None = None,
) -> array[int]:
    """Of the entries whose record begins in [start, stop): physical offset, size and number of each, in an array.

    With `beside` (marks) only those whose begin or end is marked; with `without` those whose begin is not marked.
    """
    for marks in (beside, without):
        if marks is not None:
            _check_marks(marks, start, stop)
    found = array("q")
    for begin, size, number in _named(entries, stride):
        if not start <= begin < stop or (without is not None and _is_marked(without, begin - start)):
            continue
        ends = [place - start for place in (begin, begin + size) if place < stop]
        if beside is None or any(_is_marked(beside, place) for place in ends):
            found.extend((begin, size, number))
    return found


def find_keys(entries: Buffer, start: int, stop: int, hashes: Collection[int], marks: bytearray) -> array[int]:
    """The physical offsets in [start, stop) of index entries with one of these hashes, in an array.

    The marks get a bit where a record begins that any entry names.
    """
    _check_marks(marks, start, stop)
    found = array("q")
    with memoryview(entries).cast("B") as view:
        for place in range(0, len(view) // ENTRY_SIZE * ENTRY_SIZE, ENTRY_SIZE):
            key_hash, begin, _, _ = INDEX_ENTRY.unpack_from(view, place)
            if start <= begin < stop:
                marks[begin - start >> 3] |= 1 << (begin - start & 7)
                if key_hash in hashes:
                    found.append(begin)
    return found


def _named(entries: Buffer, stride: int) -> Iterator[tuple[int, int, int]]:
    """Physical offset, size and number of the entries that name a record."""
    if stride < OFFSET_AND_SIZE.size:
        raise ValueError("an entry has an offset and a size")
    with memoryview(entries).cast("B") as view:
        for number in range(len(view) // stride):
            begin, size = OFFSET_AND_SIZE.unpack_from(view, number * stride)
            if 0 <= begin <= _MAX_PLACE and 0 < size < PREFILL_ENTRY.size:
                yield begin, size, number


def _check_marks(marks: bytearray, start: int, stop: int) -> None:
    if not 0 <= start <= stop or len(marks) < (stop - start + 7) // 8:
        raise ValueError("marks need a bit for each byte")


def _flip(marks: bytearray, place: int) -> None:
    marks[place >> 3] ^= 1 << (place & 7)


def _is_marked(marks: bytearray, place: int) -> bool:
    return bool(marks[place >> 3] >> (place & 7) & 1)
