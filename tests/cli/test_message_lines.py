"""The lines that are made from columns are those that JSON's encoder makes of each message."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.pages import Golden

from flintlog import Message, StoreConfig, open_store
from flintlog.cli.main import run
from flintlog.cli.message_lines import MessageLines
from flintlog.cli.messages import BODY_FORMS, to_row
from flintlog.cli.output import encode
from flintlog.maintenance.inspect.log_reader import LogReader, Wanted
from flintlog.maintenance.inspect.store_files import look_at

STORES = {
    "plain": "plain/store",
    "batch": "batch/store",
    "multi": "multi/store",
    "delay": "delay/store",
    "damaged": "torn/flip/before/store",
    "cut": "torn/truncated/before/store",
}


def both(store: Path, wanted: Wanted, body: str) -> tuple[list[str], list[str]]:
    """The lines, and what they should be; each damaged place is a line of its own."""
    found: tuple[list[str], list[str]] = ([], [])
    readers = [LogReader(look_at(store, None), lambda *place, lines=lines: lines.append(str(place))) for lines in found]
    found[0].extend(MessageLines(readers[0], body).lines(wanted))
    found[1].extend(encode(to_row(message, body)) for message in readers[1].messages(wanted))
    assert readers[0].position == readers[1].position
    return found


@pytest.mark.parametrize("body", BODY_FORMS)
@pytest.mark.parametrize("name", STORES)
def test_lines_are_those_of_the_encoder(golden: Golden, name: str, body: str) -> None:
    archive, _, inner = STORES[name].partition("/")
    lines, right = both(golden(archive) / inner, Wanted(), body)
    assert len(lines) > 20
    assert lines == right


def test_only_wanted_messages_make_lines(golden: Golden) -> None:
    store = golden("plain") / "store"
    everything = [json.loads(line) for line in both(store, Wanted(), "none")[0]]
    some = everything[len(everything) // 3]
    later = everything[len(everything) // 2]
    for wanted in (
        Wanted(topic="orders"),
        Wanted(queue_id=2),
        Wanted("orders", 1, some["store_timestamp"], later["store_timestamp"]),
        Wanted(start=some["physical_offset"], stop=later["physical_offset"]),
    ):
        lines, right = both(store, wanted, "none")
        assert lines == right
        assert 0 < len(lines) < len(everything)


def test_texts_that_need_escapes_or_are_no_utf8_are_told_apart(tmp_path: Path) -> None:
    odd = ['"', "\\", "\n", "\x7f", "é", "😀", "\ufffd", "", "plain"]
    with open_store(tmp_path / "store", StoreConfig()) as store:
        for text in odd:
            properties = {"name": text, f"of {text}": "value"}
            assert store.put(Message("orders", text.encode(), tags="t", keys=["a", "b"], properties=properties))
        assert store.put(Message("orders", b"\xff\x00", properties={}))
        assert store.put(Message("orders", b"x" * 5000, compress="zlib"))
    for body in BODY_FORMS:
        lines, right = both(tmp_path / "store", Wanted(), body)
        assert lines == right


def test_an_array_and_lines_hold_the_same(golden: Golden, capsys: pytest.CaptureFixture[str]) -> None:
    store = str(golden("transaction") / "store")
    assert run(["cat", store, "-o", "json", "--limit", "7"]) == 0
    array = json.loads(capsys.readouterr().out)
    assert run(["cat", store, "-o", "jsonl", "--limit", "7"]) == 0
    captured = capsys.readouterr()
    assert array == [json.loads(line) for line in captured.out.splitlines()]
    assert "cut after 7 messages" in captured.err
