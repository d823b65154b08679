"""A message that a queue or the index has and the log lacks is a finding that names it, after any kind of stop."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from flintlog.cli import main
from flintlog.cli.exit_codes import ExitCode
from flintlog.maintenance.repair.repair import plan_repair
from flintlog.maintenance.verify.verify import verify

Golden = Callable[[str], Path]
Damage = Callable[[list[Path]], None]


def last_files_gone(log: list[Path]) -> None:
    for path in log[-2:]:
        path.unlink()


def last_file_empty(log: list[Path]) -> None:
    log[-1].write_bytes(b"")


def last_file_is_a_dangling_link(log: list[Path]) -> None:
    log[-1].unlink()
    log[-1].symlink_to("nowhere")


def last_file_is_a_directory(log: list[Path]) -> None:
    log[-1].unlink()
    log[-1].mkdir()


def first_file_is_a_dangling_link(log: list[Path]) -> None:
    log[0].unlink()
    log[0].symlink_to("nowhere")


def first_file_is_a_directory(log: list[Path]) -> None:
    log[0].unlink()
    log[0].mkdir()


def first_file_empty(log: list[Path]) -> None:
    log[0].write_bytes(b"")


def all_files_empty(log: list[Path]) -> None:
    for path in log:
        path.write_bytes(b"")


DAMAGES: list[Damage] = [
    last_files_gone,
    last_file_empty,
    last_file_is_a_dangling_link,
    last_file_is_a_directory,
    first_file_is_a_dangling_link,
    first_file_is_a_directory,
    first_file_empty,
    all_files_empty,
]


@pytest.fixture
def store(golden: Golden, tmp_path: Path) -> Path:
    shutil.copytree(golden("plain") / "store", tmp_path / "store")
    return tmp_path / "store"


@pytest.mark.parametrize("is_clean", [True, False], ids=["clean", "unclean"])
@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_files_that_the_log_lost_are_found(store: Path, damage: Damage, is_clean: bool) -> None:
    damage(sorted((store / "commitlog").iterdir()))
    if not is_clean:
        (store / "abort").write_bytes(b"")
    assert {"short-log", "missing-log-file"} & {finding.id for finding in verify(store).findings}
    lost = plan_repair(store).lost
    assert len(lost) >= 200
    assert all(message.topic is not None and message.queue_offset is not None for message in lost)
    assert main.run(["verify", str(store)]) == ExitCode.FINDINGS


def test_the_index_alone_shows_what_the_log_lost(store: Path) -> None:
    last_files_gone(sorted((store / "commitlog").iterdir()))
    shutil.rmtree(store / "consumequeue")
    (store / "abort").write_bytes(b"")
    assert "short-log" in {finding.id for finding in verify(store).findings}


def test_a_torn_end_after_a_crash_is_still_a_note(store: Path) -> None:
    """Records that a crash took from the last file: the next opening drops their entries, as ever."""
    last = max((store / "commitlog").iterdir())
    data = bytearray(last.read_bytes())
    end = len(data.rstrip(b"\0"))
    data[end - 3000 :] = bytes(len(data) - end + 3000)
    last.write_bytes(data)
    (store / "abort").write_bytes(b"")
    assert "short-log" not in {finding.id for finding in verify(store).findings}
