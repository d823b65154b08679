"""Reading commands change nothing: names, sizes, times and digests of a store are the same before and after each.

Which commands read and which write is said here, for every command there is; those that need Spark are looked at in
`tests/pipeline`.
"""

from __future__ import annotations

import io
import shlex
import shutil
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cli.command_tree import command_lines

from flintlog.cli import main

Golden = Callable[[str], Path]

READING = {
    "backup": ["backup {store} {room}/backup", "backup verify {room}/backup"],
    "cat": ["cat {store}", "cat {store} --where \"a = 'b'\" --body hex"],
    "completion": ["completion zsh"],
    "diff": ["diff {store} {store}"],
    "doctor": ["doctor {store}"],
    "dump": ["dump {log}", "dump {log} --fields --limit 1"],
    "explain": ["explain torn-tail"],
    "export": ["export {store} {room}/lines", "export {store}"],
    "forecast": ["forecast {store}"],
    "get": ["get {store} --physical 0", "get {store} --key nothing --topic t"],
    "info": ["info {store}"],
    "ls": ["ls topics {store}", "ls queues {store}", "ls groups {store}", "ls files {store}"],
    "offsets show": ["offsets show {store}"],
    "repair": ["repair {store} --plan", "repair {store}"],
    "report": ["report {store}"],
    "retention": ["retention {store}"],
    "shell": ["shell {store}"],
    "stats": ["stats {store}", "stats {store} --by topic", "stats {store} --by queue"],
    "tail": ["tail {store} -n 3"],
    "top": ["top {store} --interval 0.1"],
    "verify": ["verify {store}", "verify {store} --quick"],
}
DRY = {
    "offsets set": ["offsets set {store} earliest --group CG_timer --topic TimerTopic --dry-run"],
    "offsets reset": ["offsets reset {store} --group CG_timer --time 0 --dry-run"],
    "offsets clone": ["offsets clone {store} --from CG_timer --to new --dry-run"],
}
"""Commands that write, and do not with the options that prevent it."""

TYPED = "topics\nqueues\ngroups\ncat\nget @0\nlag\nverify\nexplain\nexplain @0\nhelp\n"
"""What a shell reads."""

WRITING = {"consume", "import", "put", "restore", "serve"}
NO_STORE = {"bench", "replica status"}


def state_of(root: Path) -> dict[str, tuple[int, int, int, int]]:
    """Mode, size, time and digest of everything below a directory."""
    found = {}
    for path in sorted(root.rglob("*")):
        reported = path.lstat()
        digest = zlib.crc32(path.read_bytes()) if path.is_file() else 0
        found[str(path.relative_to(root))] = (reported.st_mode, reported.st_size, reported.st_mtime_ns, digest)
    return found


def test_every_command_reads_or_writes() -> None:
    named = {*READING, *DRY, *WRITING, *NO_STORE}
    every = {" ".join(words) for words in command_lines() if words[0] != "pipeline"}
    assert named == every


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("delay/store", "csv"),
        ("multi/store", "table"),
        ("torn/truncated/before/store", "json"),
        ("torn/flip/before/store", "jsonl"),
    ],
)
def test_reading_commands_change_nothing(
    name: str,
    form: str,
    golden: Golden,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    case, _, rest = name.partition("/")
    store, room = tmp_path / "store", tmp_path / "room"
    shutil.copytree(golden(case) / rest, store)
    room.mkdir()
    log = min((store / "commitlog").iterdir())
    before = state_of(store)
    assert len(before) > 10
    for line in (line for lines in (*READING.values(), *DRY.values()) for line in lines):
        monkeypatch.setattr(sys, "stdin", io.StringIO(TYPED))
        code = main.run([*shlex.split(line.format(store=store, room=room, log=log)), "-o", form])
        captured = capsys.readouterr()
        assert code in (0, 1, 2, 3, 5), (line, captured.err)
        assert "unexpected" not in captured.err and "Traceback" not in captured.err, line
        assert state_of(store) == before, line
    assert {path.name for path in tmp_path.iterdir()} == {"store", "room"}, "nothing is made beside it"
