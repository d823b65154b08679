"""Properties: Java's rules for what is a pair, and for what is written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flintlog.errors import FormatError
from flintlog.format.properties import drop_property, encode_properties, join_properties, parse_properties

_TEXT = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), min_size=1, max_size=8)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", {}),
        (b"a\x01b\x02", {"a": "b"}),
        (b"a\x01b", {"a": "b"}),
        (b"a\x01b\x02c\x01d", {"a": "b", "c": "d"}),
        (b"a\x01\x02c\x01d\x02", {"c": "d"}),
        (b"\x01b\x02c\x01d\x02", {"c": "d"}),
        (b"\x01b\x01c\x02", {}),
        (b"ab\x02c\x01d\x02", {"c": "d"}),
        (b"a\x01b\x01c\x02", {"a": "b\x01c"}),
        (b"a\x01\x01\x02", {"a": "\x01"}),
        (b"a\x01b\x02a\x01c\x02", {"a": "c"}),
        (b"\x02\x02a\x01b\x02\x02", {"a": "b"}),
        ("ключ\x01可\x02".encode(), {"ключ": "可"}),
    ],
)
def test_pairs_that_a_reader_sees(data: bytes, expected: dict[str, str]) -> None:
    assert parse_properties(data) == expected


def test_a_repeated_name_keeps_its_first_place() -> None:
    assert list(parse_properties(b"a\x011\x02b\x012\x02a\x013\x02").items()) == [("a", "3"), ("b", "2")]


def test_every_pair_is_closed() -> None:
    assert encode_properties({}) == b""
    assert encode_properties({"TAGS": "TagB", "WAIT": "true"}) == b"WAIT\x01true\x02TAGS\x01TagB\x02"
    assert join_properties({"TAGS": "TagB", "WAIT": "true"}) == b"TAGS\x01TagB\x02WAIT\x01true\x02"


@pytest.mark.parametrize("pair", [("a\x01", "b"), ("a", "b\x02"), ("a", "\x01"), ("a", "\ud800")])
def test_pairs_that_cannot_be_written_are_refused(pair: tuple[str, str]) -> None:
    with pytest.raises(FormatError):
        encode_properties(dict([pair]))


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"x\x011\x02n\x012\x02y\x013\x02", b"x\x011\x02y\x013\x02"),
        (b"n\x011\x02n\x012", b""),
        (b"x\x011\x02n\x012", b"x\x011\x02"),
        (b"x\x011", b"x\x011"),
        (b"xn\x011\x02x\x01n\x02n", b"xn\x011\x02x\x01n\x02n"),
        (b"n\x01\x02\xff\x01\xfe\x02", b"\xff\x01\xfe\x02"),
    ],
)
def test_a_dropped_property_leaves_the_rest_as_it_is(data: bytes, expected: bytes) -> None:
    assert drop_property(data, "n") == expected


@given(st.dictionaries(_TEXT, _TEXT, max_size=30), st.sampled_from([16, 128]))
def test_any_properties_come_back(properties: dict[str, str], capacity: int) -> None:
    assert parse_properties(encode_properties(properties, capacity)) == properties
    assert list(parse_properties(join_properties(properties))) == list(properties)


@given(st.binary(max_size=60) | st.text("an\x01\x02é", max_size=30).map(str.encode))
def test_any_bytes_are_read_and_a_dropped_name_is_gone(data: bytes) -> None:
    seen = parse_properties(data)
    seen.pop("n", None)
    assert parse_properties(drop_property(data, "n")) == seen
