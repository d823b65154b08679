"""Every command on a sound store and on damaged ones: its exit code, one clear error at most, and no traceback.

A walk through the tree of commands: a new command fails here until its line is added. Jobs on Spark are walked through
in `tests/pipeline/spark/test_every_job.py`.
"""

from __future__ import annotations

import io
import re
import shlex
import shutil
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from tests.cli.command_tree import command_lines
from tests.cli.test_node_transcripts import serving
from tests.store.small_store import SMALL

from flintlog import Message, open_store
from flintlog.cli import main
from flintlog.cli.exit_codes import MEANINGS

LINES = {
    "backup": "backup {store} {room}/backup",
    "bench": "bench --only nothing",
    "cat": "cat {store} --body none",
    "completion": "completion fish",
    "consume": "consume {store} --group billing --topic orders",
    "diff": "diff {sound} {store}",
    "doctor": "doctor {store}",
    "dump": "dump {store}/consumequeue/orders/0/00000000000000000000",
    "explain": "explain torn-tail",
    "export": "export {store} {room}/lines",
    "forecast": "forecast {store}",
    "get": "get {store} --key o-150",
    "import": "import {store} {room}/more",
    "info": "info {store}",
    "ls": "ls topics {store}",
    "offsets clone": "offsets clone {store} --from billing --to new",
    "offsets reset": "offsets reset {store} --group billing --time 0",
    "offsets set": "offsets set {store} latest --group billing --topic orders",
    "offsets show": "offsets show {store}",
    "put": "put {store} --topic orders more",
    "repair": "repair {store} --plan",
    "replica status": "replica status 127.0.0.1:1",
    "report": "report {store}",
    "restore": "restore {room}/backup {room}/restored",
    "retention": "retention {store}",
    "serve": "serve {store} --role slave",  # at its work: below
    "shell": "shell {store}",
    "stats": "stats {store} --by group",
    "tail": "tail {store} -n 3",
    "top": "top {store} --interval 0.1",
    "verify": "verify {store}",
}
SOUND = {"bench": 2, "replica status": 3, "serve": 2}
"""The codes that are not 0: nothing to measure, nobody there, a slave without a master."""

Damage = Callable[[Path], None]


def _flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 0xFF
    path.write_bytes(data)


def _flip_a_body(store: Path) -> None:
    log = store / "commitlog" / "00000000000000000000"
    _flip(log, log.read_bytes().index(b"order 150"))


def _cut_a_queue_file(store: Path) -> None:
    path = store / "consumequeue" / "orders" / "0" / "00000000000000000000"
    path.write_bytes(path.read_bytes()[:333])


def _garble_the_index(store: Path) -> None:
    for path in (store / "index").iterdir():
        path.write_bytes(b"\xee" * path.stat().st_size)


def _garble_the_offsets(store: Path) -> None:
    for path in (store / "config").glob("consumerOffset.json*"):
        path.write_bytes(b"{")


_REFUSED = ("consume", "import", "put")
_FOUND = {"verify": 1, "repair": 1}
DAMAGES: Mapping[str, tuple[Damage, Mapping[str, int]]] = {
    "nothing": (lambda _store: None, {}),
    "a body": (_flip_a_body, {**_FOUND, "diff": 1, "export": 5, "get": 3}),
    "a queue file": (
        _cut_a_queue_file,
        {**_FOUND, **dict.fromkeys(_REFUSED, 3), "offsets reset": 3, "retention": 3, "stats": 5},
    ),
    "the index": (_garble_the_index, {**_FOUND, "get": 3}),
    "the offsets": (
        _garble_the_offsets,
        {
            **_FOUND,
            **dict.fromkeys((*_REFUSED, "offsets clone", "offsets reset", "offsets set", "restore"), 3),
            **dict.fromkeys(("ls", "offsets show", "retention", "shell", "stats"), 5),
        },
    ),
}
"""The kind of damage, and the codes that differ from a sound store's. Commands that open a store for writing refuse one
that RocketMQ would refuse, those that read files read on."""


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sound") / "store"
    with open_store(path, SMALL) as store:
        for number in range(300):
            store.put(Message("orders", b"order %d" % number, keys=[f"o-{number}"], tags="paid", queue_id=number % 2))
        store.consumer_offsets.commit("billing", "orders", 0, 100)
    return path


def test_the_walk_knows_every_command() -> None:
    assert set(LINES) == {" ".join(words) for words in command_lines() if words[0] != "pipeline"}


@pytest.mark.parametrize("damaged", DAMAGES)
def test_every_command_ends_with_a_documented_code_and_one_error_at_most(
    damaged: str,
    sound: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    damage, differing = DAMAGES[damaged]
    expected = {**dict.fromkeys(LINES, 0), **SOUND, **differing}
    (tmp_path / "more").write_text('{"topic": "orders", "body": "more"}\n')
    codes = {}
    for name, line in LINES.items():
        store = tmp_path / "stores" / name.replace(" ", "-")  # its own: some commands write
        shutil.copytree(sound, store)
        damage(store)
        monkeypatch.setattr(sys, "stdin", io.StringIO("topics\n"))
        capsys.readouterr()
        codes[name] = main.run(shlex.split(line.format(store=store, room=tmp_path, sound=sound)))
        error = capsys.readouterr().err
        assert codes[name] in MEANINGS and codes[name] != 70, (line, error)
        assert "Traceback" not in error, line
        assert len(re.findall("^(?:flintlog|Error): ", error, re.MULTILINE)) <= 1, (line, error)
        assert error or codes[name] in (0, 1) or name == "replica status", line  # its error is a row
    assert codes == expected


def test_a_node_serves_a_store_with_a_damaged_message(sound: Path, tmp_path: Path) -> None:
    shutil.copytree(sound, tmp_path / "store")
    _flip_a_body(tmp_path / "store")
    with serving(tmp_path, "store", "table", "--role", "master", "--ha-port", "0") as (node, said):
        node.send_signal(signal.SIGTERM)
        _, error = node.communicate(timeout=60)
    assert (node.returncode, "127.0.0.1:" in said) == (0, True), error
    assert "Traceback" not in error
