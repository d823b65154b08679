"""Bloom filters of consumer groups, with values taken from RocketMQ's BloomFilter."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flintlog.errors import InvalidConfig
from flintlog.store.filters.bloom import BloomFilter, GroupFilter, filter_bitmap
from flintlog.store.filters.sql92 import Sql92
from flintlog.store.filters.tags import MessageFilter


@dataclass
class Unit:
    store_timestamp: int
    bitmap: bytes


def group_filter(group: str = "g1", expression: str = "a > 5") -> GroupFilter:
    return GroupFilter.of(group, "T", Sql92(expression), BloomFilter(20, 64), born_timestamp=1000)


@pytest.mark.parametrize(
    ("rate", "groups", "bits_per_key", "bit_count"),
    [
        (20, 32, 3, 112),
        (20, 64, 3, 216),
        (1, 1, 7, 16),
        (1, 32, 7, 312),
        (50, 10, 1, 16),
        (99, 5, 1, 8),
        (10, 100, 4, 480),
        (20, 100000, 3, 334984),
    ],
)
def test_sizes(rate: int, groups: int, bits_per_key: int, bit_count: int) -> None:
    bloom = BloomFilter(rate, groups)
    assert (bloom.bits_per_key, bloom.bit_count) == (bits_per_key, bit_count)


@pytest.mark.parametrize(
    ("key", "positions"),
    [
        ("g1#T", (61, 89, 117)),
        ("", (0, 0, 0)),
        ("a", (86, 171, 175)),
        ("group_consumer#TopicTest", (145, 139, 133)),
        ("中文#t", (154, 168, 1)),
        ("0123456789abcdef", (99, 175, 148)),
        ("0123456789abcdef0", (4, 67, 130)),
        ("\U0001f600", (174, 1, 44)),
        ("x" * 100, (83, 33, 199)),
    ],
)
def test_positions(key: str, positions: tuple[int, ...]) -> None:
    assert BloomFilter(20, 64).positions(key) == positions


@pytest.mark.parametrize(("rate", "groups"), [(0, 1), (100, 1), (20, 0)])
def test_settings_out_of_bounds(rate: int, groups: int) -> None:
    with pytest.raises(InvalidConfig):
        BloomFilter(rate, groups)


def test_bits_of_the_groups_that_pass() -> None:
    bloom = BloomFilter(20, 64)
    bitmap = filter_bitmap(bloom, [group_filter()], {"a": "7"})
    assert bitmap.hex() == "000000000000002000000002000020000000000000000000000000"
    assert filter_bitmap(bloom, [group_filter()], {"a": "5"}) == bytes(27)
    assert filter_bitmap(bloom, [group_filter()], {"a": "many"}) == bytes(27)
    assert filter_bitmap(BloomFilter(20, 32), [group_filter()], {"a": "7"}) == bytes(14)


# The situations and answers of RocketMQ's ExpressionMessageFilter
HIT = bytes.fromhex("000000000000002000000002000020000000000000000000000000")
MISS = bytes(27)


@pytest.mark.parametrize(
    ("unit", "expected"),
    [
        (Unit(2000, HIT), True),
        (Unit(2000, MISS), False),
        (Unit(2000, HIT[:8] + bytes(19)), False),  # some of the bits
        (Unit(500, MISS), True),  # stored before the filter was there
        (Unit(1000, MISS), True),
        (Unit(2000, MISS[:-1]), True),  # another size
        (Unit(2000, b""), True),
        (None, True),
    ],
)
def test_an_entry_is_skipped_only_if_its_message_was_tried(unit: Unit | None, expected: bool) -> None:
    wanted = group_filter()
    assert isinstance(wanted, MessageFilter)
    assert wanted.matches_entry(5, unit) is expected
    assert wanted.matches_entry(None, unit) is expected


@given(st.dictionaries(st.text(max_size=10), st.integers(0, 9), min_size=1, max_size=20), st.integers(0, 9))
def test_no_message_that_passes_is_skipped(bounds: dict[str, int], value: int) -> None:
    filters = [group_filter(group, f"a > {bound}") for group, bound in bounds.items()]
    properties = {"a": str(value)}
    unit = Unit(2000, filter_bitmap(BloomFilter(20, 64), filters, properties))
    for wanted in filters:
        assert wanted.matches_entry(0, unit) or wanted.condition.evaluate(properties) is False
