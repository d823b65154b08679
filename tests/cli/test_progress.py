"""Progress: JSON lines on demand, a bar on a terminal, nothing when piped; and what an interruption says."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path

import pytest
from tests.pages import Golden

from flintlog.cli import main
from flintlog.cli.exit_codes import ExitCode
from flintlog.cli.progress import JsonLine, Pace, Progress, TerminalLine

COMMANDS = {
    "verify": "verify {store}",
    "report": "report {store}",
    "backup": "backup {store} {room}/backup",
    "backup verify": "backup verify {room}/kept",
    "restore": "restore {room}/kept {room}/new",
    "repair plan": "repair {damaged} --plan",
    "repair": "repair {damaged} --apply",
    "diff": "diff {store} {store}",
    "forecast": "forecast {store} --config {room}/broker.conf",
    "dump": "dump {store}/commitlog/00000000000000000000 -o jsonl",
    "export": "export {store} {room}/lines",
    "import": "import {room}/imported {room}/exported --create",
}


@pytest.fixture
def places(golden: Golden, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    store = golden("transaction") / "store"
    shutil.copytree(golden("torn") / "flip" / "before" / "store", tmp_path / "damaged")
    (tmp_path / "broker.conf").write_text("fileReservedTime=48\n")
    assert main.run(["backup", str(store), str(tmp_path / "kept")]) == 0
    assert main.run(["export", str(store), str(tmp_path / "exported"), "--topic", "TxTopic"]) == 0
    capsys.readouterr()
    return {"store": str(store), "room": str(tmp_path), "damaged": str(tmp_path / "damaged")}


@pytest.mark.parametrize("name", COMMANDS)
def test_json_lines_end_when_the_work_is_done(
    name: str, places: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run([*COMMANDS[name].format(**places).split(), "--progress", "json"]) in (0, 1)
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines() if line.startswith("{")]
    assert lines[-1]["progress"].split(":")[0] == name.split(" plan", maxsplit=1)[0]
    assert lines[-1]["state"] == "done"
    assert any(line["done"] > 0 for line in lines)
    assert {line["unit"] for line in lines} == {"files" if name == "forecast" else "bytes"}
    assert [line["state"] for line in lines[:-1]] == ["running"] * (len(lines) - 1)


@pytest.mark.parametrize("name", COMMANDS)
def test_nothing_is_shown_where_no_terminal_is(
    name: str, places: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run([*COMMANDS[name].format(**places).split(), "-q"]) in (0, 1)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("name", COMMANDS)
def test_an_interruption_says_how_to_go_on(
    name: str, places: dict[str, str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = COMMANDS[name].format(**places).split()

    def interrupt(self: Progress, done: int, total: int) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Progress, "__call__", interrupt)
        assert main.run(words) == ExitCode.INTERRUPTED
    reported = capsys.readouterr().err
    assert "was interrupted" in reported
    assert "run it again" in reported
    assert main.run(words) in (0, 1), "it was said that it can be run again"


def test_json_lines_carry_rate_and_time_left() -> None:
    stream, now = io.StringIO(), 0.0
    pace, line = Pace("bytes", lambda: now), JsonLine(stream)
    for now, done, state in ((2.0, 100, "running"), (2.1, 105, "running"), (3.0, 200, "done")):  # noqa: B007 - the pace reads it
        pace.done, pace.total = done, 200
        line.show("backup", pace, state)
    first, last = (json.loads(text) for text in stream.getvalue().splitlines())
    assert first == {
        "progress": "backup",
        "state": "running",
        "done": 100,
        "total": 200,
        "unit": "bytes",
        "per_second": 50.0,
        "seconds_left": 2.0,
    }
    assert (last["state"], last["done"], last["seconds_left"]) == ("done", 200, None)


def test_a_terminal_shows_a_line_that_fits_it_and_none_of_short_work() -> None:
    stream, now = io.StringIO(), 0.0
    pace, line = Pace("bytes", lambda: now), TerminalLine(stream, 60)
    pace.done, pace.total = 1 << 20, 4 << 20
    line.show("backup", pace, "running")
    assert stream.getvalue() == ""
    now = 2.0
    line.show("backup", pace, "running")
    (drawn,) = stream.getvalue().split("\r\x1b[2K")[1:]
    assert drawn.startswith("backup ━━━━━")
    assert "25 %  1.0 MiB of 4.0 MiB" in drawn
    assert len(drawn) <= 59
    line.show("backup", pace, "done")
    assert stream.getvalue().endswith("\r\x1b[2K")


def test_parts_are_counted_by_themselves() -> None:
    stream = io.StringIO()
    progress = Progress("repair", JsonLine(stream), "bytes", "run it again")
    with progress:
        verify = progress.of_part("verify")
        verify(10, 10)
        progress.part("queues")
        verify(1, 20)
    shown = [(line["progress"], line["done"]) for line in map(json.loads, stream.getvalue().splitlines())]
    assert shown[-1] == ("repair: verify", 1)


@pytest.mark.parametrize("kind", ["json", "terminal"])
def test_a_long_part_does_not_silence_the_next_one(kind: str) -> None:
    stream, now = io.StringIO(), [0.0]
    line = JsonLine(stream) if kind == "json" else TerminalLine(stream, 60)
    for part in ("log", "queues"):
        pace = Pace("bytes", lambda: now[0])
        for seconds in (0, 600):
            now[0] += seconds
            pace.done += 1
            line.show(f"repair: {part}", pace, "running")
        assert f"repair: {part}" in stream.getvalue()
        if part == "log":
            line.show("repair: queues", queues := Pace("bytes", lambda: now[0]), "running")
            now[0] += 3.0
            before = len(stream.getvalue())
            line.show("repair: queues", queues, "running")
            assert len(stream.getvalue()) > before
