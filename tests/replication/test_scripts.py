"""The scripts of `ledger_scripts` and `ha_scripts` play as they are written.

After a change that is meant, `FLINTLOG_REWRITE_SCRIPTS=1 pytest tests/replication/test_scripts.py` writes them again;
what changed is then read in the diff.
"""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

import pytest
from tests.replication.ha_scripting import HaPlayer
from tests.replication.ledger_scripting import LedgerPlayer
from tests.replication.scripting import Player, play


def _scripts(folder: str) -> list[Path]:
    return sorted((Path(__file__).parent / folder).glob("*.txt"))


LEDGER_SCRIPTS = _scripts("ledger_scripts")
HA_SCRIPTS = _scripts("ha_scripts")


def _check(path: Path, player: Player) -> None:
    script = path.read_text("utf-8")
    played = play(script, player)
    if os.environ.get("FLINTLOG_REWRITE_SCRIPTS"):
        path.write_text(played, "utf-8")
    else:
        assert played == script


@pytest.mark.parametrize("path", LEDGER_SCRIPTS, ids=lambda path: path.stem)
def test_ledger_script(path: Path) -> None:
    _check(path, LedgerPlayer())


@pytest.mark.parametrize("path", HA_SCRIPTS, ids=lambda path: path.stem)
def test_ha_script(path: Path, tmp_path: Path) -> None:
    with closing(HaPlayer(tmp_path)) as player:
        _check(path, player)


@pytest.mark.parametrize("path", [*LEDGER_SCRIPTS, *HA_SCRIPTS], ids=lambda path: path.stem)
def test_a_script_opens_with_a_drawing(path: Path) -> None:
    opening = path.read_text("utf-8").partition("\n\n")[0].splitlines()
    assert all(line.startswith("#") for line in opening)
    assert any(line.startswith("#   ") for line in opening[1:])


def test_there_are_scripts() -> None:
    assert len(LEDGER_SCRIPTS) >= 10
    assert len(HA_SCRIPTS) >= 5
