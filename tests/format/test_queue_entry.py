"""Queue entries."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flintlog.errors import FormatError
from flintlog.format.queue_entry import (
    PREFILL_ENTRY,
    QueueEntry,
    encode_queue_entry,
    parse_queue_entries,
    parse_queue_entry,
)

_I32 = st.integers(-(2**31), 2**31 - 1)
_I64 = st.integers(-(2**63), 2**63 - 1)


def test_the_queue_entry_vector() -> None:
    entry = QueueEntry(416, 124, -2)
    assert encode_queue_entry(entry).hex() == "00000000000001a00000007cfffffffffffffffe"
    assert parse_queue_entry(b"." + encode_queue_entry(entry), 1) == entry


def test_zeros_are_no_entry_and_a_prefill_is_one() -> None:
    assert not parse_queue_entry(bytes(20)).is_valid
    assert not QueueEntry(-1, 5, 0).is_valid
    assert QueueEntry(0, 1, 0).is_valid
    assert PREFILL_ENTRY.is_valid
    assert encode_queue_entry(PREFILL_ENTRY).hex() == "00000000000000007fffffff0000000000000000"


@given(st.builds(QueueEntry, _I64, _I32, _I64))
def test_any_queue_entry_comes_back(entry: QueueEntry) -> None:
    assert parse_queue_entry(encode_queue_entry(entry)) == entry
    assert list(parse_queue_entries(encode_queue_entry(entry) * 3)) == [entry] * 3


@pytest.mark.parametrize("entry", [QueueEntry(2**63, 0, 0), QueueEntry(0, 2**31, 0), QueueEntry(0, 0, -(2**63) - 1)])
def test_a_queue_entry_that_does_not_fit_is_refused(entry: QueueEntry) -> None:
    with pytest.raises(FormatError):
        encode_queue_entry(entry)
