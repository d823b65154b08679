"""Java's hashes, map orders and text decoding, against what Java 17 itself gave."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flintlog.errors import FormatError
from flintlog.format.java import (
    concurrent_map_order,
    decode_text,
    encode_text,
    hash_map_order,
    index_hash,
    parse_int,
    spread_hash,
    string_hash,
)

_VECTORS = Path(__file__).parent / "vectors"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("TagA", 2598919),
        ("TagD||x", 115197102),
        ("тег", 1081952),
        ("TopicA#k1", -1903240649),
        ("polygenelubricants", -(2**31)),
        ("😀", 0xD83D * 31 + 0xDE00),
        ("\ud800", 0xD800),
    ],
)
def test_string_hash(text: str, expected: int) -> None:
    assert string_hash(text) == expected


def test_index_hash_is_never_negative() -> None:
    assert index_hash("TopicA#AC1100") == 1409419219
    assert index_hash("TopicA#k1") == 1903240649
    assert index_hash("TopicA#T#TagA") == 1924910951
    assert index_hash("polygenelubricants") == 0


def test_orders_of_the_specification() -> None:
    names = ["KEYS", "TAGS", "WAIT", "UNIQ_KEY", "CLUSTER", "DELAY", "REAL_TOPIC", "REAL_QID"]
    small = ["REAL_TOPIC", "KEYS", "UNIQ_KEY", "CLUSTER", "WAIT", "DELAY", "TAGS", "REAL_QID"]
    assert hash_map_order(names) == small
    large = ["UNIQ_KEY", "CLUSTER", "DELAY", "TAGS", "KEYS", "WAIT", "REAL_TOPIC", "REAL_QID"]
    assert hash_map_order(names, 128) == large
    buckets = {"PGROUP": 29, "MIN_OFFSET": 48, "DELAY": 61, "TAGS": 62, "TRAN_MSG": 73, "KEYS": 87, "TRACE_ON": 100}
    assert {name: spread_hash(name) % 128 for name in buckets} == buckets


def test_orders_that_java_gave() -> None:
    lines = (_VECTORS / "java_maps.jsonl").read_text().splitlines()
    assert len(lines) == 70
    for case in map(json.loads, lines):
        assert hash_map_order(case["put"], case["capacity"] or 16) == case["hashMap"]
        assert concurrent_map_order(case["put"], case["capacity"]) == case["concurrentHashMap"]


def test_text_that_java_decoded() -> None:
    lines = (_VECTORS / "java_utf8.jsonl").read_text().splitlines()
    assert len(lines) == 250
    for case in map(json.loads, lines):
        text = decode_text(bytes.fromhex(case["bytes"]))
        assert text.encode("utf-16-be").hex() == case["units"]
        assert string_hash(text) == case["hash"]


def test_a_map_needs_a_capacity() -> None:
    for capacity in (0, -1, 2**30 + 1):
        with pytest.raises(FormatError):
            hash_map_order(["a"], capacity)


@given(st.lists(st.text(max_size=4), max_size=60), st.sampled_from([1, 3, 16, 128]))
def test_every_name_stands_in_the_order_once(names: list[str], capacity: int) -> None:
    for order in (hash_map_order(names, capacity), concurrent_map_order(names, capacity)):
        assert len(order) == len(set(names))
        assert set(order) == set(names)


@given(st.binary(max_size=40))
def test_any_bytes_decode(data: bytes) -> None:
    assert encode_text(decode_text(data), "it").decode() == decode_text(data)


def test_a_lone_surrogate_does_not_encode() -> None:
    with pytest.raises(FormatError, match="the topic"):
        encode_text("a\ud800", "the topic")


@pytest.mark.parametrize(
    ("text", "value"),
    [("0", 0), ("-5", -5), ("+7", 7), ("007", 7), ("٣", 3), ("2147483647", 2**31 - 1), ("-2147483648", -(2**31))],
)
def test_numbers_that_java_parses(text: str, value: int) -> None:
    assert parse_int(text) == value


@pytest.mark.parametrize(
    "text", ["", "-", "+", " 1", "1 ", "1_0", "0x1", "1.0", "2147483648", "-2147483649", "1\n", "-\U0001d7cf"]
)
def test_numbers_that_java_refuses(text: str) -> None:
    with pytest.raises(FormatError):
        parse_int(text)
