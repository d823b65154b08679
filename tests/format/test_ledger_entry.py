"""DLedger's entries, blanks and index records."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flintlog.errors import FormatError
from flintlog.format.ledger import (
    ENTRY_HEAD_SIZE,
    MAX_ENTRY_SIZE,
    EntryHead,
    IndexRecord,
    encode_entry_blank,
    encode_entry_head,
    encode_index_record,
    parse_entry_blank,
    parse_entry_head,
    parse_index_record,
)

_I32 = st.integers(-(2**31), 2**31 - 1)
_PLACE = st.integers(0, 2**63 - 1)
_BODY_SIZE = st.integers(0, MAX_ENTRY_SIZE - ENTRY_HEAD_SIZE)


def test_the_entry_vector() -> None:
    """The head that Java wrote before the first message of a log: a body of 200 bytes."""
    written = "00000001 000000f8 0000000000000000 0000000000000000 0000000000000000 00000000 00000000 00000000 000000c8"
    head = EntryHead(index=0, term=0, position=0, body_size=200)
    assert encode_entry_head(head) == bytes.fromhex(written)
    assert parse_entry_head(b".." + bytes.fromhex(written), 2) == head
    assert (head.size, head.end) == (248, 248)


def test_the_index_vector() -> None:
    """The second index record of the same log: an entry of 1,148 bytes after one of 248."""
    written = bytes.fromhex("00000001 00000000000000f8 0000047c 0000000000000001 0000000000000000")
    record = IndexRecord(position=248, size=1148, index=1, term=0)
    assert encode_index_record(record) == written
    assert parse_index_record(b"." + written, 1) == record


def test_a_blank_has_its_magic_first() -> None:
    assert encode_entry_blank(1000) == bytes.fromhex("ffffffff 000003e8")
    assert parse_entry_blank(b"." + encode_entry_blank(1000), 1) == 1000
    assert parse_entry_blank(bytes(8)) is None
    assert parse_entry_blank(bytes(7)) is None
    assert parse_entry_blank(b"\xff" * 8) is None, "no blank stands for less than itself"
    for remaining in (7, 2**31):
        with pytest.raises(FormatError):
            encode_entry_blank(remaining)


@given(st.builds(EntryHead, _PLACE, _PLACE, _PLACE, _BODY_SIZE, _I32, _I32, _I32))
def test_any_head_comes_back_and_its_index_record_too(head: EntryHead) -> None:
    assert parse_entry_head(encode_entry_head(head)) == head
    assert parse_index_record(encode_index_record(head.index_record)) == head.index_record


@pytest.mark.parametrize(
    "head",
    [
        EntryHead(0, 0, 0, -1),
        EntryHead(0, 0, 0, MAX_ENTRY_SIZE - ENTRY_HEAD_SIZE + 1),
        EntryHead(2**63, 0, 0, 0),
        EntryHead(0, 0, 0, 0, channel=2**31),
    ],
)
def test_a_head_that_does_not_fit_is_refused(head: EntryHead) -> None:
    with pytest.raises(FormatError):
        encode_entry_head(head)


@pytest.mark.parametrize(
    ("place", "value"),
    [(0, 0), (0, 2), (0, -1), (4, 249), (4, 247), (8, -1), (16, -1), (24, -1), (44, 201), (44, -48)],
)
def test_a_head_with_one_wrong_number_is_refused(place: int, value: int) -> None:
    changed = bytearray(encode_entry_head(EntryHead(0, 0, 0, 200)))
    changed[place : place + 4] = value.to_bytes(4, "big", signed=True)
    with pytest.raises(FormatError):
        parse_entry_head(bytes(changed))


@pytest.mark.parametrize(("place", "value"), [(0, 0), (0, -1), (4, -1), (12, 47), (16, -1), (24, -1)])
def test_an_index_record_with_one_wrong_number_is_refused(place: int, value: int) -> None:
    changed = bytearray(encode_index_record(IndexRecord(0, 48, 0, 0)))
    changed[place : place + 4] = value.to_bytes(4, "big", signed=True)
    with pytest.raises(FormatError):
        parse_index_record(bytes(changed))


def test_too_few_bytes_are_refused() -> None:
    with pytest.raises(FormatError):
        parse_entry_head(encode_entry_head(EntryHead(0, 0, 0, 0))[:-1])
    with pytest.raises(FormatError):
        parse_index_record(encode_index_record(IndexRecord(0, 48, 0, 0)), 1)
