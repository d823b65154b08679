"""A ledger's directories: what works on a log by itself says no, and nothing says that there is nothing."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.maintenance.verify.test_verify import snapshot

from flintlog import open_store
from flintlog.cli import main
from flintlog.cli.exit_codes import ExitCode
from flintlog.errors import DamagedStore

Golden = Callable[[str], Path]


@pytest.fixture
def member(golden: Golden, tmp_path: Path) -> Path:
    """A store whose log is a ledger, with nothing but the member's directory in it."""
    shutil.copytree(golden("ledger") / "group" / "dledger-n1", tmp_path / "store" / "dledger-n1")
    return tmp_path / "store" / "dledger-n1"


@pytest.mark.parametrize(
    ("command", "is_store"),
    [
        (["repair", "--plan"], False),
        (["repair", "--plan"], True),
        (["repair", "--apply"], False),
        (["repair", "--apply"], True),
        (["backup"], False),
    ],
)
def test_a_ledger_is_not_repaired_and_its_directory_alone_not_backed_up(
    command: list[str], is_store: bool, member: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name, *options = command
    where = member.parent if is_store else member
    before = snapshot(member.parent)
    target = [str(tmp_path / "backup")] if name == "backup" else []
    assert main.run([name, str(where), *target, *options]) == ExitCode.USAGE
    said = capsys.readouterr()
    assert ("the log of this store is a ledger" if is_store else "this is a ledger member's directory") in said.err
    assert said.out == ""
    assert snapshot(member.parent) == before
    assert [path.name for path in tmp_path.iterdir()] == ["store"]
    assert [path.name for path in member.parent.iterdir()] == ["dledger-n1"]


@pytest.mark.parametrize("command", ["info", "cat", "verify", "diff", "stats"])
@pytest.mark.parametrize("name", ["dledger-n1", "renamed"])
def test_the_directory_of_a_member_is_not_taken_for_a_store(
    command: str, name: str, member: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = member.rename(member.with_name(name))
    both = [str(where), str(where)] if command == "diff" else [str(where)]
    assert main.run([command, *both]) == ExitCode.CANNOT_READ
    said = capsys.readouterr()
    assert "this is a ledger member's directory" in said.err
    assert "name the store above it" in said.err
    assert said.out == ""


@pytest.mark.parametrize("name", ["dledger-n1", "renamed"])
def test_no_store_is_made_in_the_directory_of_a_member(
    name: str, member: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = member.rename(member.with_name(name))
    before = snapshot(where)
    assert main.run(["put", str(where), "a body", "--topic", "orders", "--create"]) == ExitCode.CANNOT_READ
    assert "this is a ledger member's directory" in capsys.readouterr().err
    with pytest.raises(DamagedStore, match="this is a ledger member's directory"):
        open_store(where)
    assert snapshot(where) == before
