"""Filters by tags: RocketMQ's rules for expressions, and the answers of its store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flintlog.errors import InvalidFilter
from flintlog.format.java import string_hash
from flintlog.store.filters.sql92 import Sql92
from flintlog.store.filters.tags import MATCH_ALL, Extension, HasProperties, MessageFilter, TagFilter, as_filter


@dataclass
class Stored:
    properties: Mapping[str, str] = field(default_factory=dict)


# Each pair was taken from FilterAPI.buildSubscriptionData of RocketMQ 5.5.0
@pytest.mark.parametrize(
    ("expression", "tags"),
    [
        ("a||b", {"a", "b"}),
        ("a || b", {"a", "b"}),
        (" a ||", {"a"}),
        ("||a", {"a"}),
        ("a||||b", {"a", "b"}),
        ("a || || b", {"a", "b"}),
        ("a|||b", {"a", "|b"}),
        ("a|b", {"a|b"}),
        ("|", {"|"}),
        ("a b || c", {"a b", "c"}),
        ("\ta\n||\u3000b", {"a", "\u3000b"}),
        ("\u00a0a||b", {"\u00a0a", "b"}),
        (" *", {"*"}),
        ("a||*", {"a", "*"}),
        (" ", set()),
        ("|| ||", set()),
    ],
)
def test_an_expression_names_its_tags(expression: str, tags: set[str]) -> None:
    parsed = TagFilter(expression)
    assert parsed.tags == tags
    assert parsed.codes == frozenset(map(string_hash, tags))


@pytest.mark.parametrize("expression", ["||", "||||"])
def test_separators_alone_are_an_error(expression: str) -> None:
    with pytest.raises(InvalidFilter):
        TagFilter(expression)


@pytest.mark.parametrize("expression", ["*", "", None])
def test_all_messages(expression: str | None) -> None:
    everything = TagFilter(expression)
    assert everything.codes is None
    assert everything.matches_entry(0, None) and everything.matches_entry(string_hash("x"), None)
    assert everything.matches_message(Stored({}))


def test_an_expression_of_blanks_matches_only_entries_without_a_code() -> None:
    nothing = TagFilter(" ")
    assert nothing.codes == frozenset()
    assert nothing.matches_entry(None, None) and not nothing.matches_entry(0, None)


def test_known_codes() -> None:
    assert TagFilter("paid || shipped").codes == frozenset({3433164, 2061557075})


def test_only_the_lower_32_bits_of_a_code_count() -> None:
    wanted = TagFilter("a")
    assert wanted.matches_entry(97 + (1 << 32), None) and wanted.matches_entry(97 - (1 << 63), None)
    assert not wanted.matches_entry(98, None)


@given(st.text(max_size=20), st.integers(-(2**31), 2**31 - 1))
def test_a_tag_matches_the_entry_of_its_own_hash(tag: str, high: int) -> None:
    code = string_hash(tag)
    wanted = TagFilter(f"other||{tag}")
    if tag.strip("".join(map(chr, range(33)))) == tag != "" and "||" not in tag and tag[0] != "|":
        assert wanted.matches_entry(code, None)
        assert wanted.matches_entry((code & 0xFFFFFFFF) + (high << 32), None)


def test_the_text_of_a_tag_decides_unless_the_raw_answer_is_wanted() -> None:
    # "Aa" and "BB" share a hash
    wanted, raw = TagFilter("Aa"), TagFilter("Aa", exact=False)
    assert wanted.matches_entry(string_hash("BB"), None) and raw.matches_entry(string_hash("BB"), None)
    messages = [Stored({"TAGS": "Aa"}), Stored({"TAGS": "BB"}), Stored({})]
    assert [wanted.matches_message(message) for message in messages] == [True, False, False]
    assert all(map(raw.matches_message, messages))
    assert wanted != raw == as_filter("Aa", exact=False)


def test_what_a_caller_means() -> None:
    condition = Sql92("a = 1")
    assert as_filter(None) is MATCH_ALL
    assert as_filter("a || b") == TagFilter("b||a")
    assert as_filter(condition) is condition


def test_any_object_with_the_two_questions_is_a_filter() -> None:
    class Own:
        def matches_entry(self, tags_code: int | None, ext: Extension | None) -> bool:
            return tags_code == 1

        def matches_message(self, stored: HasProperties) -> bool:
            return "x" in stored.properties

    own = Own()
    assert isinstance(own, MessageFilter) and as_filter(own) is own


def test_other_objects_are_refused() -> None:
    with pytest.raises(InvalidFilter, match="int is no filter"):
        as_filter(7)  # type: ignore[arg-type]
    with pytest.raises(InvalidFilter, match="not bytes"):
        TagFilter(b"a")  # type: ignore[arg-type]
