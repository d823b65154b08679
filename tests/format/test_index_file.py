"""The index file: the published vector, its edges, and bytes that are no index."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flintlog.errors import FormatError
from flintlog.format.index_file import (
    IndexEntry,
    IndexHeader,
    IndexImage,
    IndexLayout,
    encode_index_entry,
    encode_index_file,
    encode_index_header,
    encode_slot,
    index_key,
    index_keys,
    parse_index_entry,
    parse_index_file,
    parse_index_header,
    parse_slot,
    time_difference_s,
)
from flintlog.format.java import index_hash

_TINY = IndexLayout(slot_count=16, index_count=8)
_TEXTS = ("TopicA#AC1100", "TopicA#k1", "TopicA#k2", "TopicA#T#TagA", "SCHEDULE_TOPIC_XXXX#T#TagA", "TopicA#P1")
_I32 = st.integers(-(2**31), 2**31 - 1)
_I64 = st.integers(-(2**63), 2**63 - 1)
_ENTRIES = st.builds(IndexEntry, _I32, _I64, _I32, _I32)


def test_the_default_file_has_420_million_bytes() -> None:
    assert IndexLayout().file_size == 420_000_040
    assert _TINY.file_size == 40 + 4 * 16 + 20 * 8
    assert (_TINY.slot_position(1), _TINY.entry_position(1)) == (44, 124)


def test_the_slots_of_the_published_vector() -> None:
    hashes = [index_hash(text) for text in _TEXTS]
    assert (hashes[0], hashes[1], hashes[3]) == (1409419219, 1903240649, 1924910951)
    assert [_TINY.slot_of(key_hash) for key_hash in hashes] == [3, 9, 8, 7, 15, 14]
    assert _TINY.slot_of(index_hash("TopicA#T#TagB")) == 8


def test_keys_of_a_message_in_the_order_they_are_put() -> None:
    properties = {"TAGS": "TagA", "KEYS": "k1  k2 ", "UNIQ_KEY": "AC1100"}
    assert index_keys("TopicA", properties) == ["TopicA#AC1100", "TopicA#k1", "TopicA#k2", "TopicA#T#TagA"]
    assert index_keys("TopicA", {"KEYS": " "}) == []
    assert index_key("t", "k") == "t#k"
    assert index_key("t", "k", "T") == "t#T#k"


@pytest.mark.parametrize(
    ("stored", "begin", "expected"),
    [
        (1999, 1000, 0),
        (2000, 1000, 1),
        (500, 1000, 0),
        (-5000, 1000, 0),
        (5000, 0, 0),
        (5000, -1, 0),
        (2**31 * 1000 + 1, 1, 2**31 - 1),
        (2**62, 1, 2**31 - 1),
    ],
)
def test_time_differences_are_whole_seconds_within_bounds(stored: int, begin: int, expected: int) -> None:
    assert time_difference_s(stored, begin) == expected


def test_bytes_of_the_parts() -> None:
    header = IndexHeader(1, 2, 3, 4, 5, 6)
    assert encode_index_header(header).hex() == "".join(f"{n:016x}" for n in (1, 2, 3, 4)) + "0000000500000006"
    entry = IndexEntry(7, 8, 9, 10)
    assert encode_index_entry(entry).hex() == "000000070000000000000008000000090000000a"
    assert encode_slot(3).hex() == "00000003"
    assert (IndexHeader().next_entry, header.next_entry) == (1, 6)


@given(st.lists(_ENTRIES, max_size=8), st.lists(_I32, min_size=16, max_size=16))
def test_any_image_comes_back(entries: list[IndexEntry], slots: list[int]) -> None:
    image = IndexImage(_TINY, IndexHeader(index_count=len(entries)), tuple(slots), tuple(entries))
    data = encode_index_file(image)
    assert len(data) == _TINY.file_size
    assert parse_index_file(data, _TINY) == image
    assert [parse_slot(data, _TINY, slot) for slot in range(16)] == slots
    assert [parse_index_entry(data, _TINY, number) for number in range(len(entries))] == entries


@pytest.mark.parametrize(
    "write",
    [
        lambda: IndexLayout(0, 1),
        lambda: IndexLayout(1, 2**31),
        lambda: encode_slot(2**31),
        lambda: encode_index_entry(IndexEntry(2**31, 0, 0, 0)),
        lambda: encode_index_header(IndexHeader(index_count=2**31)),
        lambda: encode_index_file(IndexImage(_TINY, IndexHeader(), (0,) * 15, ())),
        lambda: encode_index_file(IndexImage(_TINY, IndexHeader(), (0,) * 16, (IndexEntry(0, 0, 0, 0),) * 9)),
        lambda: encode_index_file(IndexImage(_TINY, IndexHeader(), (2**31,) * 16, ())),
    ],
)
def test_values_that_do_not_fit_are_refused(write: Callable[[], object]) -> None:
    with pytest.raises(FormatError):
        write()


@pytest.mark.parametrize("number", [-1, 16, 2**40])
def test_slots_and_entries_outside_the_file_are_refused(number: int) -> None:
    data = bytes(_TINY.file_size)
    with pytest.raises(FormatError):
        parse_slot(data, _TINY, number)
    with pytest.raises(FormatError):
        parse_index_entry(data, _TINY, number)


def test_a_cut_file_is_refused() -> None:
    data = bytes(_TINY.file_size)
    with pytest.raises(FormatError):
        parse_index_file(data[:-1], _TINY)
    with pytest.raises(FormatError):
        parse_index_entry(data[:-1], _TINY, 7)
    with pytest.raises(FormatError):
        parse_slot(data[:41], _TINY, 0)
    with pytest.raises(FormatError):
        parse_index_header(data[:39])


@pytest.mark.parametrize("count", [9, 2**31 - 1, -1])
def test_a_count_that_the_file_cannot_hold_is_refused(count: int) -> None:
    data = encode_index_header(IndexHeader(index_count=count)).ljust(_TINY.file_size, b"\x00")
    with pytest.raises(FormatError, match="counts"):
        parse_index_file(data, _TINY)


@given(st.binary(min_size=264, max_size=264))
def test_random_bytes_are_read_or_refused(data: bytes) -> None:
    with suppress(FormatError):
        parse_index_file(data, _TINY)
