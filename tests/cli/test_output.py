"""One result in four forms."""

from __future__ import annotations

import csv
import io
import json

import pytest

from flintlog.cli.output import FORMATS, make_output

ROWS = [
    {"topic": "订单", "count": 3, "open": True, "keys": ["a", "b"], "body": b"\x00\xff", "extra": None},
    {"topic": 'quote " , and\nline', "count": -1, "open": False, "keys": [], "body": b"", "extra": {"k": "v"}},
]
COLUMNS = ("topic", "count", "open", "keys", "body", "extra")
PLAIN = [{**row, "body": row["body"].hex()} for row in ROWS]  # type: ignore[attr-defined]


def _write(form: str, rows: list[dict[str, object]], encoding: str = "utf-8") -> str:
    buffer = io.BytesIO()
    stream = io.TextIOWrapper(buffer, encoding=encoding)
    make_output(form, stream).rows(rows, COLUMNS)
    stream.flush()
    return buffer.getvalue().decode(encoding)


def test_json_is_an_array() -> None:
    text = _write("json", ROWS)
    assert json.loads(text) == PLAIN
    assert "订单" in text


def test_json_of_nothing_is_an_empty_array() -> None:
    assert json.loads(_write("json", [])) == []


def test_json_lines_are_one_object_each() -> None:
    assert [json.loads(line) for line in _write("jsonl", ROWS).splitlines()] == PLAIN
    assert _write("jsonl", []) == ""


def test_csv_has_a_header_and_every_value() -> None:
    lines = list(csv.reader(io.StringIO(_write("csv", ROWS))))
    assert lines[0] == list(COLUMNS)
    assert lines[1] == ["订单", "3", "true", '["a", "b"]', "00ff", ""]
    assert lines[2] == ['quote " , and\nline', "-1", "false", "[]", "", '{"k": "v"}']


def test_table_shows_every_value_on_its_row() -> None:
    lines = _write("table", ROWS).splitlines()
    row = next(line for line in lines if "订单" in line)
    assert row.split() == ["订单", "3", "yes", "a,", "b", "00ff"]


def test_table_keeps_control_characters_from_the_terminal() -> None:
    text = _write("table", [{"topic": "\x1b[31mred\x07", "count": 1}])
    assert "\x1b" not in text
    assert "\x07" not in text
    assert r"\x1b[31mred\x07" in text


def test_table_does_not_read_brackets_as_markup() -> None:
    assert "[bold]x[/bold]" in _write("table", [{"topic": "[bold]x[/bold]", "count": 1}])


def test_table_of_nothing_is_a_remark_and_not_a_result(capsys: pytest.CaptureFixture[str]) -> None:
    assert _write("table", []) == ""
    assert capsys.readouterr().err == "nothing to show\n"


@pytest.mark.parametrize("form", FORMATS)
def test_a_record_holds_all_its_parts(form: str) -> None:
    stream = io.StringIO()
    make_output(form, stream).record({"first_offset": 7, "clean": True})
    assert "7" in stream.getvalue()


def test_json_record_is_an_object() -> None:
    stream = io.StringIO()
    make_output("json", stream).record({"a": {"b": [1, 2.5, None]}, "tags": frozenset({"y", "x"})})
    assert json.loads(stream.getvalue()) == {"a": {"b": [1, 2.5, None]}, "tags": ["x", "y"]}


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_json_survives_a_terminal_that_cannot_show_it(encoding: str) -> None:
    assert json.loads(_write("json", ROWS, encoding)) == PLAIN


def test_json_survives_half_a_character() -> None:
    assert json.loads(_write("jsonl", [{"topic": "\ud83d"}])) == {"topic": "\ud83d"}


def test_json_rows_are_written_as_they_come() -> None:
    stream = io.StringIO()

    def rows() -> object:
        yield {"n": 1}
        assert '{"n": 1}' in stream.getvalue()
        yield {"n": 2}

    make_output("json", stream).rows(rows(), ("n",))  # type: ignore[arg-type]
    assert json.loads(stream.getvalue()) == [{"n": 1}, {"n": 2}]


def test_a_note_goes_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    stream = io.StringIO()
    make_output("json", stream).note("an unclean stop")
    assert (stream.getvalue(), capsys.readouterr().err) == ("", "an unclean stop\n")
