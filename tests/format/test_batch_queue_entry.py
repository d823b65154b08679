"""Batch queue entries."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flintlog.errors import FormatError
from flintlog.format.queue_entry import (
    BatchQueueEntry,
    encode_batch_queue_entry,
    parse_batch_queue_entries,
    parse_batch_queue_entry,
)

_I16 = st.integers(-(2**15), 2**15 - 1)
_I32 = st.integers(-(2**31), 2**31 - 1)
_I64 = st.integers(-(2**63), 2**63 - 1)
_BATCH_ENTRIES = st.builds(BatchQueueEntry, _I64, _I32, _I64, _I64, _I64, _I16, _I32, _I32)


def test_the_batch_queue_entry_vector() -> None:
    entry = BatchQueueEntry(1, 2, 3, 4, 5, 6)
    assert encode_batch_queue_entry(entry).hex() == (
        "0000000000000001000000020000000000000003000000000000000400000000000000050006ffffffff00000000"
    )
    assert entry.end_offset == 11


@pytest.mark.parametrize("spoiled", [(-1, 2, 5, 6), (1, 0, 5, 6), (1, 2, -1, 6), (1, 2, 5, 0)])
def test_a_batch_entry_needs_an_offset_a_size_a_base_and_a_count(spoiled: tuple[int, int, int, int]) -> None:
    offset, size, base, count = spoiled
    assert BatchQueueEntry(0, 1, 3, 4, 0, 1).is_valid
    assert not BatchQueueEntry(offset, size, 3, 4, base, count).is_valid


@given(_BATCH_ENTRIES)
def test_any_batch_queue_entry_comes_back(entry: BatchQueueEntry) -> None:
    assert parse_batch_queue_entry(encode_batch_queue_entry(entry)) == entry
    assert list(parse_batch_queue_entries(encode_batch_queue_entry(entry) * 2)) == [entry] * 2


def test_a_batch_of_too_many_is_refused() -> None:
    with pytest.raises(FormatError):
        encode_batch_queue_entry(BatchQueueEntry(1, 2, 3, 4, 5, 32768))
