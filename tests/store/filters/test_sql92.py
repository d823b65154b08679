"""SQL92 filters against the answers of RocketMQ 5.5.0.

`sql92_corpus.jsonl` begins with property maps; each later line is an expression with RocketMQ's answer for each
map: T, F, N (unknown), X (raises), or "invalid" where it does not compile. Expressions were written by hand
and generated, a third of them with mistakes.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flintlog.errors import InvalidFilter
from flintlog.store.filters.sql92 import MAX_DEPTH, Sql92
from flintlog.store.filters.sql92_values import Incomparable, compare_fractions, parse_fraction, parse_whole
from flintlog.store.filters.tags import MessageFilter

PROPERTIES = {"a": "7", "b": "abc", "d": "true"}


@dataclass
class Stored:
    properties: Mapping[str, str] = field(default_factory=dict)


def answer(expression: str, maps: list[dict[str, str]]) -> str:
    try:
        condition = Sql92(expression)
    except InvalidFilter:
        return "invalid"
    return "".join(one_answer(condition, properties) for properties in maps)


def one_answer(condition: Sql92, properties: dict[str, str]) -> str:
    try:
        return {True: "T", False: "F", None: "N"}[condition.evaluate(properties)]
    except InvalidFilter:
        return "X"


def test_every_expression_of_the_corpus_is_answered_as_rocketmq_answers_it() -> None:
    lines = [json.loads(line) for line in (Path(__file__).parents[1] / "sql92_corpus.jsonl").read_text().splitlines()]
    maps = [line["properties"] for line in lines if "properties" in line]
    cases = [(line["expression"], line["answers"]) for line in lines if "expression" in line]
    assert len(cases) > 3000
    wrong = [(text, java, ours) for text, java in cases if (ours := answer(text, maps)) != java]
    assert wrong == []


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("a > 5", "T"),
        ("a = 5", "F"),
        ("b > 5", "X"),
        ("a between 1 and 9", "T"),
        ("c in ('x')", "N"),
        ("c is null", "T"),
        ("not (c = 1)", "N"),
        ("c <> 1", "N"),
        ("a > 5 or c = 1", "T"),
        ("d = true", "T"),
        ("d is true", "invalid"),
        ("a >= 5.0", "T"),
    ],
)
def test_examples_of_the_format_description(expression: str, expected: str) -> None:
    assert answer(expression, [PROPERTIES]) == expected


def test_only_exactly_true_passes() -> None:
    condition = Sql92("a > 5")
    assert condition.matches_message(Stored({"a": "7"}))
    assert not condition.matches_message(Stored({"a": "5"}))
    assert not condition.matches_message(Stored())  # unknown
    assert not condition.matches_message(Stored({"a": "many"}))  # cannot be compared


def test_a_queue_entry_never_rules_a_message_out() -> None:
    condition = Sql92("a > 5")
    assert isinstance(condition, MessageFilter)
    assert condition.matches_entry(None, None) and condition.matches_entry(17, None)


@pytest.mark.parametrize(
    ("expression", "position"),
    [
        ("", 0),
        ("a >", 3),
        ("a = 'x", 4),
        ("a != 7", 2),
        ("a in (7)", 6),
        ("d is true", 5),
        ("a = 1 and 'x'", 10),
        ("a between 9 and 1", 10),
        ("a > 'x'", 4),
        ("a = null", 4),
        ("(a = 1", 6),
        ("a > 9223372036854775808", 4),
        ("a > 0.0", 4),
        ("'x' in ('x')", 0),
    ],
)
def test_an_error_names_the_position(expression: str, position: int) -> None:
    with pytest.raises(InvalidFilter) as caught:
        Sql92(expression)
    assert caught.value.offset == position


def test_text_after_a_complete_condition_is_ignored_as_in_rocketmq_unless_strict() -> None:
    condition = Sql92("a > 5 then b #")
    assert condition.evaluate(PROPERTIES) is True
    assert condition.ignored == "then b #"
    assert Sql92("a > 5 ").ignored == ""
    with pytest.raises(InvalidFilter) as caught:
        Sql92("a > 5 then b", strict=True)
    assert caught.value.offset == 6
    assert Sql92("a > 5 -- done\n", strict=True).evaluate(PROPERTIES) is True


def test_a_whole_number_within_31_bits_compares_only_with_such() -> None:
    assert answer("v > 5", [{"v": "2147483647"}, {"v": "2147483648"}]) == "TX"
    assert answer("v > 2147483648", [{"v": "2147483649"}, {"v": "9223372036854775808"}]) == "TX"


@pytest.mark.parametrize(
    "text", ["(" * 5000, "not " * 5000 + "d", "-" * 5000 + "a = 1", "a" + " = a" * 5000, "a" + " is null" * 5000]
)
def test_deep_nesting_is_an_error_of_the_filter_and_no_recursion_error(text: str) -> None:
    with pytest.raises(InvalidFilter, match="deeper"):
        Sql92(text)


def test_nesting_up_to_the_bound_and_long_chains_are_fine() -> None:
    assert Sql92("(" * (MAX_DEPTH - 1) + "a = 7" + ")" * (MAX_DEPTH - 1)).evaluate(PROPERTIES) is True
    assert Sql92(" and ".join(["(a = 7 or a = 8)"] * 5000)).evaluate(PROPERTIES) is True
    assert Sql92(" or ".join(["a = 8"] * 5000)).evaluate(PROPERTIES) is False


def test_a_filter_is_a_text() -> None:
    with pytest.raises(InvalidFilter, match="not int"):
        Sql92(7)  # type: ignore[arg-type]


def test_filters_of_one_text_are_equal() -> None:
    assert Sql92("a = 1") == Sql92("a = 1") != Sql92("a = 2")
    assert len({Sql92("a = 1"), Sql92("a = 1")}) == 1
    assert repr(Sql92("a = 1")) == "Sql92('a = 1')"


@given(st.text(alphabet=st.sampled_from("ab7'() =<>-+.,/*\n\tNOTANDORINISNULLe$_#"), max_size=40))
def test_any_text_compiles_or_is_an_invalid_filter_with_a_position_in_it(text: str) -> None:
    try:
        condition = Sql92(text)
    except InvalidFilter as refusal:
        place = refusal.offset
    else:
        assert text.endswith(condition.ignored)
        assert one_answer(condition, {"a": "7"}) in "TFNX"
        return
    assert place is not None and 0 <= place <= len(text)


@given(
    st.dictionaries(st.sampled_from("abc"), st.text(max_size=8)),
    st.sampled_from(["=", "<>", "<", ">=", "in"]),
    st.text(max_size=5),
)
def test_a_condition_and_its_inverse_agree(properties: dict[str, str], operator: str, text: str) -> None:
    quoted = "'" + text.replace("'", "''") + "'"
    right = f"({quoted})" if operator == "in" else quoted if operator in ("=", "<>") else "5"
    plain = answer(f"a {operator} {right}", [properties])
    assert answer(f"NOT (a {operator} {right})", [properties]) == plain.translate(str.maketrans("TF", "FT"))


@given(st.integers(-(2**31), 2**31 - 1), st.integers(0, 2**31 - 1))
def test_numbers_in_properties_compare_as_numbers(value: int, literal: int) -> None:
    properties = {"v": str(value)}
    assert Sql92(f"v < {literal}").evaluate(properties) is (value < literal)
    assert Sql92(f"v >= -{literal}").evaluate(properties) is (value >= -literal)
    assert Sql92(f"v = {literal}").evaluate(properties) is (value == literal)


@given(st.text(max_size=30))
def test_any_text_survives_being_quoted(text: str) -> None:
    quoted = "'" + text.replace("'", "''") + "'"
    assert Sql92(f"v = {quoted}").evaluate({"v": text}) is True
    assert Sql92(f"v in ('x', {quoted})").evaluate({"v": text}) is True


@given(st.text(alphabet="0123456789.eE+-xXpPfFdDNaInity \t", max_size=12))
def test_a_fraction_is_a_float_or_incomparable(text: str) -> None:
    with contextlib.suppress(Incomparable):
        assert isinstance(parse_fraction(text), float)


def test_doubles_are_in_java_order() -> None:
    nan, infinity = float("nan"), float("inf")
    ascending = [-infinity, -1.0, -0.0, 0.0, 1.0, infinity, nan]
    for i, left in enumerate(ascending):
        for j, right in enumerate(ascending):
            assert compare_fractions(left, right) == (i > j) - (i < j)


def test_whole_numbers_of_a_length_that_python_refuses() -> None:
    with pytest.raises(Incomparable):
        parse_whole("1" * 10_000, 7)


def test_a_literal_of_a_length_that_python_refuses() -> None:
    with pytest.raises(InvalidFilter, match="64 bits"):
        Sql92("a > " + "9" * 10_000)


def test_hexadecimal_fractions_beyond_all_doubles_are_infinite() -> None:
    assert parse_fraction("0x1p2000") == float("inf")
    assert parse_fraction("-0x1p2000") == float("-inf")


@pytest.mark.parametrize(
    ("expression", "shown"),
    [
        ("a > 5 AND b ==", "  a > 5 AND b ==\n               ^"),
        ("a = 1 AND\n\tb = #", "   b = #\n       ^"),
        ("", "  \n  ^"),
        ("x" * 300 + " > ", "  " + "x" * 57 + " > \n  " + " " * 60 + "^"),
    ],
)
def test_an_error_shows_the_place(expression: str, shown: str) -> None:
    with pytest.raises(InvalidFilter) as caught:
        Sql92(expression)
    assert str(caught.value).endswith("\n" + shown)


def test_text_after_a_complete_condition_is_shown_too() -> None:
    with pytest.raises(InvalidFilter, match=r"a = 1 b\n        \^"):
        Sql92("a = 1 b", strict=True)
