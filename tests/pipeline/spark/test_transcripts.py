"""What jobs on Spark print, for people and for programs, and that those which read change nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.cli.look.test_reading import state_of
from tests.cli.test_transcripts import SPARK_CASES
from tests.cli.transcript import FORMS, check, tell

from flintlog import GetStatus, Message, StoreConfig, open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Golden = Callable[[str], Path]
READING = [name for name in SPARK_CASES if name != "pipeline-dispatch"]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", READING)
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
    reported = tell(SPARK_CASES[name], form, golden, tmp_path, capsys, monkeypatch)
    assert state_of(golden("transaction") / "store") == before
    check(name, form, reported)


@pytest.mark.parametrize("form", FORMS)
def test_a_dispatcher_says_what_it_dispatched_for_a_store_that_is_open(
    form: str,
    spark: SparkSession,
    golden: Golden,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"dispatch": "external"}))
    with open_store(tmp_path / "new", StoreConfig(dispatch="external")) as store:
        for number in range(3):
            store.put(Message("orders", b"%d" % number, keys=[f"o-{number}"])).check()
        store.flush()
        reported = tell(SPARK_CASES["pipeline-dispatch"], form, golden, tmp_path, capsys, monkeypatch)
        assert store.get("orders", 0, 0).status is GetStatus.FOUND
    check("pipeline-dispatch", form, reported)
