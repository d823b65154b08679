"""`flintlog get` of a message whose bytes are damaged is an error that names the place, not a denial."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from flintlog.cli import main

Golden = Callable[[str], Path]

PLACE = 661_688
ID = "0A01020300002A9F00000000000A18B8"
BY_QUEUE = ["--topic", "TopicTest", "--queue", "3", "--offset", "58"]


@pytest.fixture
def store(golden: Golden) -> Path:
    """One byte of the body at 661688 was flipped; RocketMQ has not opened the store since."""
    return golden("torn") / "flip" / "before" / "store"


@pytest.mark.parametrize("asked", [["--physical", str(PLACE)], ["--id", ID], ["--id", ID.lower()], BY_QUEUE])
def test_a_damaged_message_is_named(asked: list[str], store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["get", str(store), *asked]) == 3
    said = capsys.readouterr()
    assert "does not match its CRC" in said.err
    assert str(PLACE) in said.err
    assert "commitlog" in said.err
    assert "no such message" not in said.out + said.err


def test_it_is_found_by_queue_without_the_queues(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bare = tmp_path / "store"
    shutil.copytree(store / "commitlog", bare / "commitlog")
    assert main.run(["get", str(bare), *BY_QUEUE]) == 3
    assert "does not match its CRC" in capsys.readouterr().err


def test_a_head_that_is_overwritten_is_a_damaged_stretch(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = tmp_path / "store"
    shutil.copytree(store, copy)
    logs = sorted((copy / "commitlog").iterdir())
    log = max((path for path in logs if int(path.name) <= PLACE), key=lambda path: int(path.name))
    with log.open("r+b") as file:
        file.seek(PLACE - int(log.name))
        file.write(b"\x55" * 12)
    for asked in (["--physical", str(PLACE)], ["--id", ID], BY_QUEUE):
        assert main.run(["get", str(copy), *asked]) == 3
        assert f"the log is damaged from {PLACE} to" in capsys.readouterr().err


@pytest.mark.parametrize(
    "asked",
    [
        ["--physical", str(PLACE - 1)],
        ["--physical", "999999999999"],
        ["--id", "0A01020300002A9F00000000000A18B7"],
        ["--id", "0A01020400002A9F00000000000A18B8"],
        ["--topic", "TopicTest", "--queue", "3", "--offset", "5800"],
        ["--topic", "Other", "--queue", "3", "--offset", "58"],
        ["--key", "nobody"],
    ],
)
def test_what_is_not_there_is_still_not_there(
    asked: list[str], store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(["get", str(store), *asked]) == 3
    said = capsys.readouterr()
    assert "there is no such message" in said.out + said.err


def test_a_key_that_a_damaged_index_lost_is_denied_for_the_index_alone(
    golden: Golden, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = tmp_path / "store"
    shutil.copytree(golden("delay") / "store", copy)
    for path in (copy / "index").iterdir():
        path.write_bytes(b"\xee" * path.stat().st_size)
    assert main.run(["get", str(copy), "--key", "tk2"]) == 3
    no_entry = "there is no such message in the index; `flintlog cat --key` looks in the log itself\n"
    assert capsys.readouterr().err == no_entry
    assert main.run(["cat", str(copy), "--key", "tk2", "--limit", "1"]) == 0
    assert "timer 2" in capsys.readouterr().out
