"""File names and tiny files."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flintlog.errors import FormatError
from flintlog.format.names import (
    encode_abort,
    index_file_name,
    parse_abort,
    parse_index_file_name,
    parse_segment_name,
    segment_name,
)


@given(st.integers(0, 2**63 - 1))
def test_any_segment_name_comes_back(offset: int) -> None:
    assert len(segment_name(offset)) == 20
    assert parse_segment_name(segment_name(offset)) == offset


@pytest.mark.parametrize(
    "name", ["", "0", "0" * 19, "0" * 21, "9" * 20, "-" + "0" * 19, "x" * 20, "\u0660" * 20, "0" * 19 + "\n"]
)
def test_other_names_are_no_segment_names(name: str) -> None:
    with pytest.raises(FormatError):
        parse_segment_name(name)


def test_no_segment_starts_outside_of_64_bits() -> None:
    for offset in (-1, 2**63):
        with pytest.raises(FormatError):
            segment_name(offset)


def test_index_files_are_named_by_time() -> None:
    moment = datetime(2026, 11, 15, 23, 17, 28, 745_000, tzinfo=UTC)
    created_ms = (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
    assert index_file_name(created_ms, UTC) == "20261115231728745"
    assert index_file_name(created_ms, timezone(timedelta(hours=8))) == "20261116071728745"
    assert index_file_name(1, UTC) == "19700101000000001"
    assert parse_index_file_name("20261115231728745") == moment.replace(tzinfo=None)
    assert parse_index_file_name(index_file_name(created_ms)) == moment.astimezone().replace(tzinfo=None)
    with pytest.raises(FormatError):
        index_file_name(2**62)


@pytest.mark.parametrize("name", ["", "2026", "20261315231728745", "20260230000000000", "00000101000000000", "x" * 17])
def test_other_names_are_no_index_file_names(name: str) -> None:
    with pytest.raises(FormatError):
        parse_index_file_name(name)


def test_an_abort_file_may_be_empty() -> None:
    assert [parse_abort(encode_abort(process_id)) for process_id in (1, 4710, 10**10 - 1)] == [1, 4710, 10**10 - 1]
    assert [parse_abort(data) for data in (b"", b"x", b"1" * 11, b"-1", b"1\n")] == [None] * 5
    with pytest.raises(FormatError):
        encode_abort(-1)
