"""The last index file after power was lost: slots that are newer than the entries are built again."""

from __future__ import annotations

from pathlib import Path

import pytest

from flintlog.disk.faulty.faulty_disk import FaultyMedium
from flintlog.format.index_file import ENTRY_SIZE, IndexLayout
from flintlog.store.index.index_service import IndexService
from flintlog.store.index.tail_repair import mend_tail

LAYOUT = IndexLayout(20, 60)
PUBLISHED = 21
"""The index count that was published: 20 keys."""


def store_time(offset: int) -> int:
    return 1_000_000 + offset * 10


def filled() -> tuple[IndexService, bytes]:
    """An index with twice the keys that were published, and what its file was at the publication."""
    index = IndexService(Path("/index"), FaultyMedium(), LAYOUT, now_ms=lambda: 1_700_000_000_000)
    published = b""
    for number in range(2 * (PUBLISHED - 1)):
        assert index.put([number * 7919], number * 100, store_time(number * 100))
        if index.files[-1].header.next_entry == PUBLISHED:
            index.flush()
            published = bytes(index.files[-1].buffer)
    return index, published


def settle(index: IndexService) -> bool:
    index.roll_back(index.files[-1].name, PUBLISHED, store_time)
    return mend_tail(index, PUBLISHED, store_time)


def test_a_file_that_was_only_ahead_is_rolled_back_and_needs_no_mending() -> None:
    index, published = filled()
    assert not settle(index)
    assert bytes(index.files[-1].buffer) == published


@pytest.mark.parametrize("lost", [range(PUBLISHED, 41), range(30, 41), range(PUBLISHED, 30), range(25, 26)], ids=str)
def test_slots_that_name_lost_entries_are_built_again(lost: range) -> None:
    index, published = filled()
    for number in lost:
        place = LAYOUT.entry_position(number)
        index.files[-1].buffer[place : place + ENTRY_SIZE] = bytes(ENTRY_SIZE)
    settle(index)
    assert bytes(index.files[-1].buffer) == published


def test_entries_that_are_there_although_neither_header_nor_slots_know_them_are_cleared() -> None:
    index, published = filled()
    end = LAYOUT.entry_position(PUBLISHED)
    index.files[-1].buffer[:end] = published[:end]
    assert settle(index)
    assert bytes(index.files[-1].buffer) == published
