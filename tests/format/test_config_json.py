"""Config JSON: fastjson2's own output, what it tolerates, and what is no JSON."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flintlog.errors import FormatError
from flintlog.format.config_json import (
    MAX_DEPTH,
    JsonValue,
    encode_config_json,
    format_double,
    parse_config_json,
    parse_config_object,
)

_VECTORS = Path(__file__).parent / "vectors"
_OFFSETS_5_5 = (
    b'{\n\t"dataVersion":{\n\t\t"counter":0,\n\t\t"stateVersion":0,\n\t\t"timestamp":1700000000000\n\t},\n'
    b'\t"offsetTable":{\n\t\t1:5,\n\t\t3:12\n\t}\n}'
)
_OFFSETS_5_3 = (
    b'{\n\t"dataVersion":{\n\t\t"counter":0,\n\t\t"stateVersion":0,\n\t\t"timestamp":1700000000000\n\t},\n'
    b'\t"offsetTable":{1:5,3:12\n\t}\n}'
)

_SCALARS = (
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
) | st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
_KEYS = st.text(st.characters(exclude_categories=["Cs"]), max_size=5) | st.integers(-(2**63), 2**63)
_VALUES = st.recursive(
    _SCALARS | st.lists(st.integers(-9, 9), min_size=1, max_size=4).map(tuple),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(_KEYS, inner.filter(lambda it: it is not None), max_size=4)
    ),
    max_leaves=12,
)


@pytest.mark.parametrize(("file", "pretty"), [("fastjson2_pretty.json", True), ("fastjson2_compact.json", False)])
def test_texts_of_fastjson2_come_back(file: str, pretty: bool) -> None:
    data = (_VECTORS / file).read_bytes()
    assert encode_config_json(parse_config_object(data), pretty=pretty) == data


def test_the_old_form_is_read_and_the_new_one_written() -> None:
    value = parse_config_object(_OFFSETS_5_3)
    assert value["offsetTable"] == {1: 5, 3: 12}
    assert encode_config_json(value) == _OFFSETS_5_5
    assert parse_config_object(_OFFSETS_5_5) == value


def test_arrays_are_written_as_java_does() -> None:
    value: dict[str | int, JsonValue] = {"int[]": (1, 2), "list": [1, [2], {}, [], None], "empty": ()}
    listed = b"\n\t\t1,\n\t\t[\n\t\t\t2\n\t\t],\n\t\t{},\n\t\t[],\n\t\tnull\n\t"
    expected = b'{\n\t"int[]":[1,2],\n\t"list":[' + listed + b'],\n\t"empty":[]\n}'
    assert encode_config_json(value) == expected
    assert parse_config_json(expected) == {**value, "empty": []}


def test_null_members_are_left_out() -> None:
    assert encode_config_json({"a": None, "b": 1}, pretty=False) == b'{"b":1}'
    assert encode_config_json({"a": None}) == b"{}"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.0, "1.0"),
        (0.1, "0.1"),
        (1e21, "1.0E21"),
        (1e-7, "1.0E-7"),
        (100.0, "100.0"),
        (1.5e10, "1.5E10"),
        (123456789.125, "1.23456789125E8"),
        (1e7, "1.0E7"),
        (9999999.5, "9999999.5"),
        (1e6, "1000000.0"),
        (0.001, "0.001"),
        (0.0001, "1.0E-4"),
        (-0.0, "-0.0"),
        (0.0, "0.0"),
        (-12.75, "-12.75"),
        (5e-324, "4.9E-324"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (float("nan"), "null"),
        (float("-inf"), "null"),
    ],
)
def test_doubles_are_written_as_java_does(value: float, text: str) -> None:
    assert format_double(value) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{1:2}", {1: 2}),
        ('{"1":2}', {"1": 2}),
        ("{-1:2}", {-1: 2}),
        ("{'a':'b\"'}", {"a": 'b"'}),
        ('{"a":1,}', {"a": 1}),
        ('{"a":[1,2,]}', {"a": (1, 2)}),
        ('/*c*/{"a":1}// end', {"a": 1}),
        ('\ufeff {"a":1} \n', {"a": 1}),
        ('{"a":01}', {"a": 1}),
        ('{"a":+1,"b":.05,"c":1.,"d":2e3}', {"a": 1, "b": 0.05, "c": 1.0, "d": 2000.0}),
        ('{"a":1,"a":2}', {"a": 2}),
        ('{"a":"x\ny"}', {"a": "x\ny"}),
        ('{"a":"\\u0041\\ud83d\\ude00\\/\\n"}', {"a": "A😀/\n"}),
        ('{"\\ud83d":"\\ude00\\ud83d\\ude00\\ud83d"}', {"?": "?😀?"}),
        ("[true,false,null]", [True, False, None]),
        ("[[1],[ ],[\n1\n]]", [(1,), [], [1]]),
        ("1e400", float("inf")),
    ],
)
def test_texts_that_fastjson_accepts_are_accepted(text: str, expected: object) -> None:
    assert parse_config_json(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            " ",
            "{",
            "[",
            "{]",
            "[}",
            '"',
            "'a\"",
            '{"a"}',
            '{"a":}',
            '{"a":1',
            '{"a":1 "b":2}',
            "[1 2]",
            "{,}",
            "[,]",
        ),
        *(
            "{a:1}",
            "{true:1}",
            "{1.5:2}",
            '{"a":NaN}',
            '{"a":1}x',
            "tru",
            "-",
            "+",
            ".",
            "\\",
            '"\\x41"',
            '"\\u12"',
            '"\\',
        ),
        *("/*", "/* {}", "/", "1" * 61, "1" * 100_000, "[" * 100_000, '{"a":' * 100_000, "]" * 1000),
    ],
)
def test_text_that_is_no_json_is_refused(text: str) -> None:
    with pytest.raises(FormatError):
        parse_config_json(text)


def test_depth_is_bounded_both_ways() -> None:
    value: list[Any] = []
    for _ in range(MAX_DEPTH):
        value = [value]
    assert parse_config_json(encode_config_json(value)) == value
    for deeper in ([value], {"a": value}):
        with pytest.raises(FormatError, match="deeper"):
            encode_config_json(deeper)
    with pytest.raises(FormatError, match="deeper"):
        parse_config_json("[" * (MAX_DEPTH + 2) + "]" * (MAX_DEPTH + 2))


def test_a_config_file_is_an_object() -> None:
    with pytest.raises(FormatError):
        parse_config_object(b"[1]")


@pytest.mark.parametrize("value", [{1.5: 1}, {True: 1}, {None: 1}, {"a": object()}, {"a": b"bytes"}, {"a": {1, 2}}])
def test_values_that_json_cannot_hold_are_refused(value: JsonValue) -> None:
    with pytest.raises(FormatError):
        encode_config_json(value)


def test_malformed_text_is_replaced_as_java_does() -> None:
    assert parse_config_json(b'"a\xffb"') == "a\ufffdb"
    assert encode_config_json("\ud800x") == b'"?x"'


@given(_VALUES, st.booleans())
def test_any_value_comes_back(value: JsonValue, pretty: bool) -> None:
    encoded = encode_config_json(value, pretty=pretty)
    parsed = parse_config_json(encoded)
    assert encode_config_json(parsed, pretty=pretty) == encoded
    if pretty:
        assert parsed == value


@given(st.binary(max_size=60) | st.text("{}[]:,\"'\\/*0123456789.-+eEtrufalsn \n", max_size=60).map(str.encode))
def test_random_bytes_are_read_or_refused(data: bytes) -> None:
    with suppress(FormatError):
        encode_config_json(parse_config_json(data))


def test_called_from_deep_inside_another_program_it_raises_its_own_error() -> None:
    text = "[" * 150 + "]" * 150

    def parse(depth: int) -> str:
        if depth:
            return parse(depth - 1)
        try:
            return type(parse_config_json(text)).__name__
        except (FormatError, RecursionError) as error:
            return type(error).__name__

    found = {parse(depth) for depth in range(sys.getrecursionlimit() - 600, sys.getrecursionlimit() - 200, 10)}
    assert found == {"list", "FormatError"}
