"""Which records of a queue are believed to have the offset that they name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar, overload

import pytest

from flintlog.checks.misplaced import find_gap
from flintlog.derive.offset_order import OffsetGap, find_doubtful, find_gaps, is_believed
from flintlog.derive.stretches import Stretch, Stretches
from flintlog.format.names import FAR

Item = TypeVar("Item")


def in_order(*offsets: int) -> list[Stretch]:
    """Records with these queue offsets, a hundred bytes each."""
    stretches = Stretches()
    for number, offset in enumerate(offsets):
        stretches.add(Stretch(offset, offset + 1, number * 100, number * 100))
    return stretches.items


@pytest.mark.parametrize(
    ("expected", "offset", "following", "believed"),
    [
        (8, 8, [], True),
        (8, 7, [], False),
        (8, 10, [11, 12], True),
        (8, 42, [9, 10, 11], False),
        (8, 10, [9, 10, 11, 12], False),
        (8, 9, [9, 10], False),
        (8, 10, [], True),
        (8, 1 << 40, [], False),
        (8, 10, [3, 11, 12], True),
        (None, 500, [501], True),
        (None, 500, [], True),
        (None, 500, [7, 8], False),
        (None, 0, [1], True),
    ],
)
def test_a_record_is_believed_unless_those_after_it_contradict(
    expected: int | None, offset: int, following: list[int], believed: bool
) -> None:
    assert is_believed(expected, offset, following) is believed


def test_a_wrong_offset_is_doubtful_and_leaves_a_gap() -> None:
    records = in_order(5, 6, 7, 42, 9, 10)
    ((stretch, stop),) = find_doubtful(records)
    assert (stretch.first, stop, stretch.first_physical_offset) == (42, 43, 300)
    gaps = find_gaps(records)
    assert gaps == [OffsetGap(0, 5, -1, 0, True), OffsetGap(8, 9, 200, 400), OffsetGap(11, FAR, 500, FAR, True)]


def test_a_repeated_offset_is_doubtful_and_leaves_no_gap() -> None:
    records = in_order(0, 1, 2, 1, 3, 4)
    assert [(stretch.first, stop) for stretch, stop in find_doubtful(records)] == [(1, 2)]
    assert [gap for gap in find_gaps(records) if not gap.is_open] == []


class Counted(Sequence[Item]):
    """Counts how often an item is read."""

    def __init__(self, items: Sequence[Item]) -> None:
        self.items = items
        self.reads = 0

    def __len__(self) -> int:
        return len(self.items)

    @overload
    def __getitem__(self, number: int) -> Item: ...
    @overload
    def __getitem__(self, number: slice) -> Sequence[Item]: ...
    def __getitem__(self, number: int | slice) -> Item | Sequence[Item]:
        self.reads += 1
        return self.items[number]


def test_many_gaps_are_found_with_a_few_looks_at_each_record() -> None:
    records = Counted(in_order(*range(0, 2000, 2)))
    gaps = Counted(find_gaps(records))
    assert len(gaps) == 1000
    assert records.reads < 20 * len(records)
    found = find_gap(gaps, 1001, 500 * 100 + 50)
    assert found == OffsetGap(1001, 1002, 500 * 100, 501 * 100)
    assert find_gap(gaps, 1000, 500 * 100 + 50) is None
    assert find_gap(gaps, 1001, 500 * 100) is None
    assert find_gap(gaps, 5000, 500 * 100) is None
    assert gaps.reads < 100
