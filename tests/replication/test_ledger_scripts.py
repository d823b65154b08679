"""The scripts of `ledger_scripts` play as they are written.

After a change that is meant, `FLINTLOG_REWRITE_SCRIPTS=1 pytest tests/replication/test_ledger_scripts.py` writes them
again; what changed is then read in the diff.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.replication.ledger_scripting import play

SCRIPTS = sorted((Path(__file__).parent / "ledger_scripts").glob("*.txt"))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_script(path: Path) -> None:
    script = path.read_text("utf-8")
    played = play(script)
    if os.environ.get("FLINTLOG_REWRITE_SCRIPTS"):
        path.write_text(played, "utf-8")
    else:
        assert played == script


def test_there_are_scripts() -> None:
    assert len(SCRIPTS) >= 10
