"""Commands used in every wrong way: one clear answer, the right exit code, no harm."""

from __future__ import annotations

import io
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cli.look.test_reading import DRY, READING, state_of

from flintlog import Message, open_store
from flintlog.cli import main

Golden = Callable[[str], Path]
_SOURCE = Path(__file__).parents[2] / "src"

WRITING = [
    "offsets set {store} earliest --group g --topic orders --create",
    "offsets reset {store} --group g --time 0",
    "offsets clone {store} --from g --to h",
    "repair {store} --apply",
    "consume {store} --group g --topic orders",
    "import {store} {room}/lines",
    "put {store} --topic orders hello",
]
FORMS = ("table", "csv", "json", "jsonl")


def shell(line: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A line of a real shell, with `flintlog` in it."""
    program = f"{sys.executable} -m flintlog.cli.main"
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", line.replace("flintlog ", f"{program} ")],
        env={**os.environ, "PYTHONPATH": str(_SOURCE), **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def make_places(root: Path) -> list[Path]:
    """Paths that are no store."""
    (root / "empty").mkdir()
    (root / "file").write_bytes(b"hello")
    (root / "dangling").symlink_to(root / "gone")
    broken = root / "broken"
    queue = broken / "consumequeue" / "t" / "0"
    for folder in (
        broken / "commitlog",
        queue,
        broken / "consumequeue" / "t" / "x",
        broken / "index",
        broken / "config",
    ):
        folder.mkdir(parents=True)
    (broken / "commitlog" / "0".rjust(20, "0")).write_bytes(b"\xda\xa3\x20\xa7" * 1000)
    (queue / "0".rjust(20, "0")).write_bytes(b"\xff" * 33)
    (broken / "index" / "20200101000000000").write_bytes(b"\x01" * 77)
    (broken / "config" / "topics.json").write_bytes(b"[1,2")
    (broken / "config" / "consumerOffset.json").write_bytes(b'{"offsetTable": {"a@b": 7, "c": {"x": "y"}}}')
    (broken / "checkpoint").write_bytes(b"1")
    return [root / "empty", root / "file", root / "dangling", root / "nowhere", broken]


@pytest.mark.parametrize("number", range(5))
def test_a_path_that_is_no_store_gets_one_clear_answer(
    number: int, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    place = make_places(tmp_path)[number]
    (tmp_path / "room").mkdir()
    (tmp_path / "room" / "lines").write_text('{"topic": "t"}\n')
    before = state_of(place) if place.is_dir() else {}
    lines = [line for lines in (*READING.values(), *DRY.values()) for line in lines] + WRITING
    for count, line in enumerate(line for line in lines if "{store}" in line):
        form = FORMS[count % len(FORMS)]
        monkeypatch.setattr(sys, "stdin", io.StringIO("topics\nverify\n"))
        code = main.run([*shlex.split(line.format(store=place, room=tmp_path / "room", log=place)), "-o", form])
        err = capsys.readouterr().err
        assert code in (0, 1, 2, 3, 5), (line, err)
        assert "Traceback" not in err and "unexpected" not in err, line
        assert err or code in (0, 1), line
        if place.name != "broken":
            assert code in (2, 3) or line.startswith("doctor"), line
        assert len(err.splitlines()) <= 5, line
        if line.startswith("repair") and "--apply" in line and place.name == "broken":
            # What can be mended is; the config that keeps the store from opening is named, and nothing else is said.
            assert "topics.json" in err and "repair again" in err and "nothing was changed" not in err
        if line not in WRITING or place.name != "broken":
            assert (state_of(place) if place.is_dir() else {}) == before, line


def test_a_store_in_use_is_4_for_writing_commands_and_0_for_reading_ones(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "lines").write_text("")
    with open_store(tmp_path / "store") as store:
        store.put(Message("orders", b"x"))
        store.wait_dispatched()
        store.consumer_offsets.commit("g", "orders", 0, 1)
        store.consumer_offsets.save()
        for line in WRITING:
            code = main.run(shlex.split(line.format(store=tmp_path / "store", room=tmp_path)))
            err = capsys.readouterr().err
            assert (code, err.startswith("flintlog: store-in-use:")) == (4, True), (line, err)
        for line in ("info {store}", "ls queues {store}", "cat {store}", "verify {store}", "forecast {store}"):
            assert main.run(shlex.split(line.format(store=tmp_path / "store"))) == 0, line


@pytest.mark.parametrize(
    "line",
    ["info {s}", "ls files {s}", "forecast {s}", "top {s} --interval 0.1", "explain", "dump {s}/checkpoint", "--help"],
)
def test_a_reader_that_wants_nothing_is_no_error(line: str, golden: Golden) -> None:
    result = shell(f"flintlog {line.format(s=golden('transaction') / 'store')} | head -c 0")
    assert result.returncode == 0, result.stderr
    assert "Error" not in result.stderr and "Broken" not in result.stderr


def test_an_output_that_is_full_says_so(golden: Golden) -> None:
    for form in FORMS:
        result = shell(f"flintlog info {golden('transaction') / 'store'} -o {form} > /dev/full")
        assert (result.returncode, result.stderr) == (
            70,
            "flintlog: cannot write the output: No space left on device\n",
        )


def test_streams_that_are_closed(golden: Golden, tmp_path: Path) -> None:
    store = golden("transaction") / "store"
    assert shell(f"flintlog info {store} >&-").returncode == 0
    assert shell(f"flintlog info {tmp_path} 2>&-").returncode == 3


def test_an_encoding_that_lacks_characters(golden: Golden) -> None:
    store = golden("plain") / "store"
    for line in (f"ls topics {store}", f"top {store} --interval 0.1", f"forecast {store}", f"ls topics {store} -o csv"):
        result = shell(f"flintlog {line}", PYTHONIOENCODING="ascii")
        assert result.returncode == 0, result.stderr
        assert result.stdout.isascii()
    assert "Unicode" in shell(f"flintlog ls topics {store}", PYTHONIOENCODING="ascii").stdout


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("cat {s} --topic none --limit 99999999999999999999", 0),
        ("tail {s} --topic none -n 99999999999999999999", 0),
        ("dump {s}/checkpoint --limit 99999999999999999999", 0),
        ("get {s} --physical 99999999999999999999", 3),
        ("get {s} --topic TxTopic --queue 99999999999999999999 --offset 1", 3),
        ("cat {s} --from @99999999999999999999", 0),
        ("top {s} --interval nan", 2),
        ("top {s} --interval 0", 2),
        ("consume {s} --group g --topic t --wait nan", 2),
        ("consume {s} --group g --topic t --wait -1", 2),
        ("forecast {s} --days 99999999999999999999", 2),
        ("cat {s} --limit -1", 2),
        ("cat {s} -o xml", 2),
        ("nonsense {s}", 2),
    ],
)
def test_numbers_out_of_range(line: str, code: int, golden: Golden, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(shlex.split(line.format(s=golden("transaction") / "store"))) == code
    assert "unexpected" not in capsys.readouterr().err


@pytest.mark.parametrize("content", [b"{", b'{"offsetTable": 7}', b'{"offsetTable": {"a@b": 7}}'])
def test_offsets_that_cannot_be_read_are_not_taken_for_none(
    content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with open_store(tmp_path / "store") as store:
        store.put(Message("orders", b"x"))
    (tmp_path / "store" / "config").mkdir(exist_ok=True)
    (tmp_path / "store" / "config" / "consumerOffset.json").write_bytes(content)
    for line in ("ls groups {s}", "ls topics {s}", "offsets show {s}"):
        assert main.run(shlex.split(line.format(s=tmp_path / "store"))) == 5, line
        assert "consumerOffset.json" in capsys.readouterr().err


def test_a_store_that_can_be_made_is_offered(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["put", str(tmp_path), "--topic", "t", "x"]) == 3
    assert "(--create makes one)" in capsys.readouterr().err
    assert main.run(["consume", str(tmp_path), "--topic", "t", "--group", "g"]) == 3
    assert "--create" not in capsys.readouterr().err
