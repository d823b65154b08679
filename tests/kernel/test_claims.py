"""Which records of a range queue entries and index entries name."""

from __future__ import annotations

from types import ModuleType

import pytest

from flintlog.format.index_file import INDEX_ENTRY
from flintlog.format.queue_entry import PREFILL, QUEUE_ENTRY


def entries_of(*places: tuple[int, int]) -> bytes:
    return b"".join(QUEUE_ENTRY.pack(begin, size, 0) for begin, size in places)


def left(kernel: ModuleType, start: int, stop: int, *entries: bytes) -> list[tuple[int, int]]:
    marks = bytearray((stop - start + 7) // 8)
    for each in entries:
        kernel.claim(marks, start, stop, each, 20)
    found: list[tuple[int, int]] = kernel.unclaimed(marks, start, stop)
    return found


def test_records_of_several_queues_that_meet_leave_nothing(kernel: ModuleType) -> None:
    assert left(kernel, 0, 100, entries_of((0, 30), (50, 50)), entries_of((30, 20))) == []


def test_a_record_that_no_entry_names_is_left(kernel: ModuleType) -> None:
    assert left(kernel, 0, 100, entries_of((0, 30), (50, 40))) == [(30, 50), (90, 100)]
    assert left(kernel, 0, 100) == [(0, 100)]
    assert left(kernel, 10, 10) == []


def test_records_that_cross_the_ends_of_the_range_count_where_they_lie(kernel: ModuleType) -> None:
    assert left(kernel, 20, 60, entries_of((0, 30), (40, 500))) == [(30, 40)]
    assert left(kernel, 20, 60, entries_of((0, 100))) == []
    assert left(kernel, 20, 60, entries_of((0, 20), (60, 5))) == [(20, 60)]


def test_a_record_that_two_entries_name_is_left_too(kernel: ModuleType) -> None:
    assert left(kernel, 0, 90, entries_of((0, 30), (30, 30), (60, 30)), entries_of((30, 30))) == [(30, 60)]
    assert left(kernel, 0, 90, entries_of((0, 30), (30, 30), (60, 30)), entries_of((30, 40))) == [(30, 70)]


def test_entries_that_name_nothing_claim_nothing(kernel: ModuleType) -> None:
    nothing = PREFILL + bytes(20) + entries_of((-1, 5), (5, -1), ((1 << 63) - 1, 5))
    assert left(kernel, 0, 10, nothing) == [(0, 10)]
    assert list(kernel.named_records(nothing, 20, 0, 10)) == []


def test_named_records_are_those_that_begin_in_the_range(kernel: ModuleType) -> None:
    entries = PREFILL + entries_of((5, 10), (15, 5), (20, 5), (30, 5))
    assert list(kernel.named_records(entries, 20, 15, 30)) == [15, 5, 2, 20, 5, 3]
    marks = bytearray([1 << 5, 0])
    assert list(kernel.named_records(entries, 20, 15, 30, without=marks)) == [15, 5, 2]


def test_records_beside_a_mark_are_those_that_begin_or_end_there(kernel: ModuleType) -> None:
    entries = entries_of((0, 5), (5, 5), (10, 5), (15, 5), (20, 60))
    marks = bytearray([0, 1 << 2, 0])
    assert list(kernel.named_records(entries, 20, 0, 24, beside=marks)) == [5, 5, 1, 10, 5, 2]


def test_a_claim_says_how_many_bytes_it_covers(kernel: ModuleType) -> None:
    assert kernel.claim(bytearray(3), 2, 22, entries_of((0, 5), (5, 5), (20, 9)), 20) == 3 + 5 + 2


def test_keys_are_found_by_their_hash_and_indexed_records_are_marked(kernel: ModuleType) -> None:
    entries = b"".join(INDEX_ENTRY.pack(key, place, 0, 0) for key, place in ((7, 1), (9, 9), (7 + 65536, 10), (7, 99)))
    marks = bytearray(2)
    assert list(kernel.find_keys(entries, 1, 11, {7}, marks)) == [1]
    assert marks == bytearray([1, 0b11])


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("claim", (bytearray(1), 0, 9, b"", 20)),
        ("unclaimed", (bytearray(1), 0, 9)),
        ("find_keys", (b"", 0, 9, set(), bytearray(1))),
        ("claim", (bytearray(1), 5, 4, b"", 20)),
        ("claim", (bytearray(1), 0, 8, b"x" * 20, 8)),
    ],
)
def test_arguments_that_do_not_fit_are_refused(kernel: ModuleType, name: str, arguments: tuple[object, ...]) -> None:
    with pytest.raises(ValueError, match=r"a bit for each byte|an offset and a size"):
        getattr(kernel, name)(*arguments)
    with pytest.raises(ValueError, match="a bit for each byte"):
        kernel.named_records(b"", 20, 0, 9, beside=bytearray(1))
