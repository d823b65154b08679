"""A few messages by hand: consume, export, import."""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from flintlog import Message, StoreConfig, open_store
from flintlog.cli import main
from flintlog.cli.exit_codes import ExitCode
from flintlog.cli.mend.exporting import Part, part_of
from flintlog.format.sys_flag import STORE_HOST_V6
from flintlog.maintenance.inspect.log_reader import Wanted
from flintlog.store.log.batch_markers import MARKER_TOPIC
from flintlog.store.model.message import Receipt
from flintlog.store.put.appender import Appender, Prepared

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


def small_config() -> StoreConfig:
    return StoreConfig(mapped_file_size_commit_log=65536, max_hash_slot_num=100, max_index_num=400)


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


def test_exported_messages_can_be_imported_elsewhere(
    golden: Golden, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, lines = golden("batch") / "store", tmp_path / "some.jsonl"
    counted = run(capsys, "export", source, lines, "--until", "1700000009000", "-o", "json")
    printed = [json.loads(line) for line in lines.read_text("utf-8").splitlines()]
    assert counted == {"messages": len(printed)}
    assert main.run(["export", str(source), "--until", "1700000009000"]) == ExitCode.FINE
    assert capsys.readouterr().out == lines.read_text("utf-8")
    assert len(printed) > 50
    conf = tmp_path / "broker.conf"
    conf.write_text("mappedFileSizeCommitLog=4194304\nmaxHashSlotNum=100\nmaxIndexNum=4000\n")
    capsys.readouterr()
    done = run(capsys, "import", tmp_path / "new", lines, "--create", "--config", conf, "-o", "json")
    assert done == {"messages": len(printed), "skipped": 0}
    assert main.run(["export", str(tmp_path / "new")]) == ExitCode.FINE
    now = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    for name in ("topic", "queue_id", "body", "properties", "flag", "born_timestamp", "born_host", "reconsume_times"):
        assert [row[name] for row in now] == [row[name] for row in printed], name


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


def test_an_unknown_topic_is_reported_and_nothing_is_written(
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


def test_a_body_that_is_no_text_keeps_its_bytes(
    tmp_path: Path, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "store"
    bodies = [b"\xff\x00binary\xfe", "Grüße".encode(), b"", b"\xed\xa0\x80"]
    with open_store(store, small_config()) as opened:
        for body in bodies:
            opened.put(Message("orders", body, properties={"KEYS": "k"}))
    for command in ("cat", "tail", "consume"):
        group = ("--group", "g", "--topic", "orders") if command == "consume" else ()
        rows = run(capsys, command, store, "-o", "json", *group)
        assert [row["body_form"] for row in rows] == ["base64", "text", "text", "base64"], command
        assert [body_of(row) for row in rows] == bodies, command
    got = run(capsys, "get", store, "--physical", 0, "-o", "json")["message"]
    assert (body_of(got), got["body_form"]) == (bodies[0], "base64")


def body_of(row: dict[str, str]) -> bytes:
    return base64.b64decode(row["body"]) if row["body_form"] == "base64" else row["body"].encode()


@pytest.mark.parametrize("form", ["text", "hex", "base64"])
@pytest.mark.parametrize("kind", ["jsonl", "json"])
def test_the_output_of_cat_can_be_imported(
    tmp_path: Path, config: Path, capsys: pytest.CaptureFixture[str], form: str, kind: str
) -> None:
    bodies = [b"\xff\x00binary\xfe", "Grüße".encode(), b"", b"packed " * 1000]
    with open_store(tmp_path / "store", small_config()) as opened:
        for number, body in enumerate(bodies):
            opened.put(Message("orders", body, compress="zlib" if number == 3 else None))
    assert main.run(["cat", str(tmp_path / "store"), "-o", kind, "--body", form]) == ExitCode.FINE
    (tmp_path / "lines").write_text(capsys.readouterr().out, "utf-8")
    place = (tmp_path / "new", tmp_path / "lines", "--create", "--config", config)
    assert run(capsys, "import", *place, "-o", "json") == {"messages": 4, "skipped": 0}
    with open_store(tmp_path / "new", small_config()) as opened:
        assert [message.plain_body() for message in opened.get("orders", 0, 0).messages] == bodies


@pytest.mark.parametrize("command", ["export", "cat"])
def test_bytes_that_are_no_text_are_shown_and_not_imported(
    tmp_path: Path, config: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    store, lines = tmp_path / "store", tmp_path / "lines"
    with open_store(store, small_config()) as opened:
        for name in ("first", "second", "third"):
            opened.put(Message("orders", b"x", properties={"name": name, "sign": "\ufffd"}))
    log = min((store / "commitlog").iterdir())
    log.write_bytes(log.read_bytes().replace(b"second", b"s\xffc\xc3nd"))
    assert main.run([command, str(store), *(["-o", "jsonl"] if command == "cat" else [])]) == ExitCode.FINE
    text = capsys.readouterr().out
    lines.write_text(text, "utf-8")
    first, second, third = (json.loads(line) for line in text.splitlines())
    assert "no_text" not in first and "no_text" not in third
    assert b"name\x01s\xffc\xc3nd\x02" in base64.b64decode(second["no_text"]["properties"])
    place = (tmp_path / "new", lines, "--create", "--config", config)
    assert main.run(["import", *map(str, place)]) == ExitCode.USAGE
    assert "line 2 is no exported message: its properties are not UTF-8" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()
    lines.write_text("".join(text.splitlines(keepends=True)[::2]), "utf-8")
    assert run(capsys, "import", *place, "-o", "json") == {"messages": 2, "skipped": 0}


BAD_LINES = {
    "a topic that is no text": '{"topic": "a", "body": "", "no_text": {"topic": "/w=="}}',
    "a field that names no bytes": '{"topic": "a", "body": "", "no_text": 7}',
    "no body": '{"topic": "orders"}',
    "a body that is no base64": '{"topic": "orders", "body": "?"}',
    "a topic that cannot be": '{"topic": "or/ders", "body": "eA=="}',
    "a body that is too long": json.dumps({"topic": "orders", "body": "x" * 70_000, "body_form": "text"}),
    "properties that are too long": json.dumps({"topic": "o", "body": "", "properties": {"p": "x" * 40_000}}),
    "no JSON": "orders",
    "too deep": "[" * 100_000,
    "another form": '{"topic": "orders", "body": "x", "body_form": "rot13"}',
}


@pytest.mark.parametrize("bad", BAD_LINES)
def test_an_import_with_a_bad_line_puts_nothing(
    tmp_path: Path, config: Path, capsys: pytest.CaptureFixture[str], bad: str
) -> None:
    good = '{"topic": "orders", "body": "eA=="}\n'
    (tmp_path / "lines").write_text(good * 3 + BAD_LINES[bad] + "\n" + good)
    place = ("import", str(tmp_path / "new"), str(tmp_path / "lines"), "--create", "--config", str(config))
    assert main.run(place) == ExitCode.USAGE
    assert "line 4" in capsys.readouterr().err
    (tmp_path / "lines").write_text(good)
    assert run(capsys, *place, "-o", "json") == {"messages": 1, "skipped": 0}
    assert len(run(capsys, "export", tmp_path / "new", tmp_path / "out", "-o", "json")) == 1
    assert len((tmp_path / "out").read_text().splitlines()) == 1


def test_an_import_that_runs_again_puts_nothing_twice(
    tmp_path: Path, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "lines").write_text('{"topic": "orders", "body": "eA=="}\n' * 5)
    place = ("import", tmp_path / "new", tmp_path / "lines", "--create", "--config", config, "-o", "json")
    assert run(capsys, *place) == {"messages": 5, "skipped": 0}
    assert run(capsys, *place) == {"messages": 0, "skipped": 5}
    assert run(capsys, *place, "--topic", "other") == {"messages": 5, "skipped": 0}
    assert run(capsys, *place, "--again") == {"messages": 5, "skipped": 0}


def test_an_import_that_is_interrupted_leaves_nothing_and_runs_again(
    tmp_path: Path, config: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lines").write_text('{"topic": "orders", "body": "eA=="}\n' * 500)
    place = ("import", tmp_path / "new", tmp_path / "lines", "--create", "--config", config, "-o", "json")
    append, count = Appender.append_held, 0

    def interrupted(self: Appender, prepared: Prepared) -> Receipt:
        nonlocal count
        count += 1
        if count == 200:
            raise KeyboardInterrupt
        return append(self, prepared)

    monkeypatch.setattr(Appender, "append_held", interrupted)
    assert main.run([*map(str, place)]) == ExitCode.INTERRUPTED
    assert run(capsys, *place) == {"messages": 500, "skipped": 0}
    rows = run(capsys, "cat", tmp_path / "new", "--topic", "orders", "-o", "json")
    assert [row["queue_offset"] for row in rows] == list(range(500))


def test_an_export_that_is_interrupted_goes_on_and_has_every_message_once(
    golden: Golden, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = golden("plain") / "store"
    run(capsys, "export", store, tmp_path / "whole", "-o", "json")
    write = Part.write

    def interrupted(self: Part, lines: Iterable[str]) -> None:
        write(self, islice(lines, 1000))
        self.file.write(b'{"topic": "torn')
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Part, "write", interrupted)
        assert main.run(["export", str(store), str(tmp_path / "lines")]) == ExitCode.INTERRUPTED
    assert not (tmp_path / "lines").exists()
    assert main.run(["export", str(store), str(tmp_path / "lines")]) == 0
    assert "goes on after 1000 messages" in capsys.readouterr().err
    assert (tmp_path / "lines").read_bytes() == (tmp_path / "whole").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lines", "whole"]


def test_a_part_that_is_not_of_this_store_any_more_is_written_anew(
    golden: Golden, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store, target = golden("plain") / "store", tmp_path / "lines"
    run(capsys, "export", store, tmp_path / "whole", "-o", "json")
    lines = (tmp_path / "whole").read_bytes().splitlines(keepends=True)
    wanted = Wanted(but_topic=MARKER_TOPIC)
    part_of(target, store, wanted).write_bytes(lines[0].replace(b'"flag": ', b'"flag": 1'))
    run(capsys, "export", store, target, "-o", "json")
    assert target.read_bytes() == (tmp_path / "whole").read_bytes()


def without_store_flag(row: dict[str, Any]) -> dict[str, Any]:
    """Whether its host is of IPv6 is a store's own affair too."""
    return {**row, "sys_flag": row["sys_flag"] & ~STORE_HOST_V6} if "sys_flag" in row else row


@pytest.mark.parametrize("name", ["plain", "transaction", "delay", "batch"])
def test_a_round_trip_gives_the_same_messages(
    golden: Golden, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """But for what a store gives each message itself: its place, its time, its own host."""
    own = {"queue_offset", "physical_offset", "message_id", "store_timestamp", "store_host", "tags_code", "size"}
    for store, file in ((golden(name) / "store", "first"), (tmp_path / "new", "second")):
        run(capsys, "export", store, tmp_path / file, "-o", "json")
        if file == "first":
            run(capsys, "import", tmp_path / "new", tmp_path / file, "--create", "-o", "json")
    first, second = (
        [
            {
                field: value
                for field, value in json.loads(line, object_hook=without_store_flag).items()
                if field not in own
            }
            for line in (tmp_path / file).read_text().splitlines()
        ]
        for file in ("first", "second")
    )
    assert len(first) > 100
    assert second == first
