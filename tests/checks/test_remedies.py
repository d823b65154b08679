"""The remedy of a finding, the text of `explain` and the acts of `repair` agree."""

from __future__ import annotations

from pathlib import Path

import pytest

from flintlog.checks.finding import WARNING, Finding
from flintlog.checks.finding_kinds import KINDS
from flintlog.checks.queue_judgement import OF_THE_LOG
from flintlog.maintenance.repair.repair_plan import plan_steps

_MENDING = Path(__file__).parents[2] / "docs" / "mending.md"


@pytest.mark.parametrize("kind", ["queue-gap", "repeated-queue-offset"])
def test_offsets_of_the_log_are_left_and_everyone_says_so(kind: str) -> None:
    steps, left = plan_steps([Finding(kind, WARNING, "", "", None, None, 0)], restorable=frozenset())
    assert not steps and left
    assert "`repair` leaves" in OF_THE_LOG[kind]
    assert "`repair` leaves" in KINDS[kind].remedy
    (row,) = [line for line in _MENDING.read_text("utf-8").splitlines() if line.startswith("|") and f"`{kind}`" in line]
    assert "left as it is: the log itself says so" in row
