"""What jobs on Spark print, for people and for programs, and that those which read change nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cli.test_reading import state_of
from tests.cli.test_transcripts import SPARK_CASES
from tests.cli.transcript import FORMS, check, tell

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Golden = Callable[[str], Path]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", SPARK_CASES)
def test_a_job_prints_what_its_transcript_says_and_changes_nothing(
    name: str,
    form: str,
    spark: SparkSession,
    golden: Golden,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = state_of(golden("transaction") / "store")
    told = tell(SPARK_CASES[name], form, golden, tmp_path, capsys, monkeypatch)
    assert state_of(golden("transaction") / "store") == before
    check(name, form, told)
