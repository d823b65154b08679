"""A few messages by hand: consume, export, import."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flintlog.cli import main
from flintlog.cli.exit_codes import ExitCode

Golden = Callable[[str], Path]


def run(capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 0) -> Any:  # noqa: ANN401
    assert main.run([*map(str, arguments)]) == code
    out = capsys.readouterr().out
    return json.loads(out) if out else None


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "broker.conf"
    path.write_text("mappedFileSizeCommitLog=65536\nmaxHashSlotNum=100\nmaxIndexNum=400\n")
    return path


def test_a_message_is_consumed_once(tmp_path: Path, config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = tmp_path / "store"
    place = ("--topic", "orders", "--queue", "1", "--tag", "paid", "--key", "o-17", "--property", "region=eu=1")
    run(capsys, "put", store, "hello", "again", *place, "--create", "--config", config, "-o", "json")
    asked = ("consume", store, "--group", "billing", "--topic", "orders", "-o", "json")
    (got,) = run(capsys, *asked, "--limit", "1")
    assert (got["body"], got["tags"], got["keys"]) == ("hello", "paid", ["o-17"])
    assert got["properties"]["region"] == "eu=1"
    assert [row["body"] for row in run(capsys, *asked)] == ["again"]
    assert run(capsys, *asked) == []


def test_what_is_exported_can_be_imported_elsewhere(
    golden: Golden, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, lines = golden("batch") / "store", tmp_path / "some.jsonl"
    counted = run(capsys, "export", source, lines, "--until", "1700000009000", "-o", "json")
    told = [json.loads(line) for line in lines.read_text("utf-8").splitlines()]
    assert counted == {"messages": len(told)}
    assert main.run(["export", str(source), "--until", "1700000009000"]) == ExitCode.FINE
    assert capsys.readouterr().out == lines.read_text("utf-8")
    assert len(told) > 50
    conf = tmp_path / "broker.conf"
    conf.write_text("mappedFileSizeCommitLog=4194304\nmaxHashSlotNum=100\nmaxIndexNum=4000\n")
    capsys.readouterr()
    done = run(capsys, "import", tmp_path / "new", lines, "--create", "--config", conf, "-o", "json")
    assert done == {"messages": len(told), "refused": 0}
    now = run(capsys, "cat", tmp_path / "new", "--body", "base64", "-o", "json")
    for name in ("topic", "queue_id", "body", "properties", "flag", "born_timestamp", "born_host", "reconsume_times"):
        assert [row[name] for row in now] == [row[name] for row in told], name


def test_a_line_that_is_no_message_is_named(tmp_path: Path, config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bad.jsonl").write_text('{"topic": "orders", "body": "eA=="}\n{"topic": "orders"}\n')
    place = ("import", str(tmp_path / "new"), str(tmp_path / "bad.jsonl"), "--create", "--config", str(config))
    assert main.run(place) == ExitCode.USAGE
    assert "line 2" in capsys.readouterr().err


def test_a_file_that_cannot_be_written_is_one_sentence(
    golden: Golden, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = tmp_path / "none" / "x.jsonl"
    assert main.run(["export", str(golden("plain") / "store"), str(missing)]) == ExitCode.CANNOT_READ
    said = capsys.readouterr()
    assert "cannot be written: No such file or directory" in said.err
    assert str(missing) in said.err
    assert "unexpected" not in said.err
    assert not missing.parent.exists()


def test_a_topic_that_is_not_there_is_said_and_nothing_is_written(
    golden: Golden, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "store"
    shutil.copytree(golden("plain") / "store", store)
    before = {path: path.stat().st_mtime_ns for path in store.rglob("*")}
    assert main.run(["consume", str(store), "--group", "g", "--topic", "nope"]) == ExitCode.USAGE
    said = capsys.readouterr()
    assert "there is no topic nope" in said.err
    assert not said.out
    assert {path: path.stat().st_mtime_ns for path in store.rglob("*")} == before


def test_a_topic_whose_queues_are_not_built_is_there(
    golden: Golden, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "store"
    shutil.copytree(golden("plain") / "store", store)
    shutil.rmtree(store / "consumequeue")
    rows = run(capsys, "consume", store, "--group", "g", "--topic", "TopicTest", "--limit", "2", "-o", "json")
    assert len(rows) == 2
