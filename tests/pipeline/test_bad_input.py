"""What every job does with what it cannot use: one sentence, no frames of Java or Python, nothing half-written."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from flintlog.cli.main import run

from .conftest import SEGMENT_BYTES, fill
from .test_sink_rows import CONFIG

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JOBS = {
    "rebuild": ["rebuild", "{store}", "--config", "{conf}"],
    "rebuild into": ["rebuild", "{store}", "--config", "{conf}", "--into", "{target}"],
    "verify": ["verify", "{store}"],
    "export": ["export", "{store}", "{target}"],
    "export delta": ["export", "{store}", "{target}", "--format", "delta"],
    "export iceberg": ["export", "{store}", "{target}", "--format", "iceberg"],
    "report": ["report", "{store}", "--html", "{target}"],
    "sql": ["sql", "{store}", "select count(*) from messages"],
    "sql into": ["sql", "{store}", "select * from messages", "--into", "{target}"],
    "compact": ["compact", "{store}", "{target}", "--config", "{conf}"],
    "compact table": ["compact", "{store}", "{target}", "--format", "parquet"],
    "replay": ["replay", "{store}", "{target}", "--config", "{conf}"],
}
WITH_TOPICS = [job for job in JOBS if not job.startswith(("verify", "sql"))]
LOOKING = {"verify": 1, "report": 0}
"""These are for damaged stores too: they say what they see, and end with this code."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fill(tmp_path_factory.mktemp("bad") / "store", 600)


class Case:
    """A store to spoil, and a job to run over it."""

    def __init__(self, folder: Path, whole: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.store, self.target, self.conf = folder / "store", folder / "target", folder / "broker.conf"
        shutil.copytree(whole, self.store)
        self.conf.write_text(CONFIG)
        self._capsys = capsys

    @property
    def log(self) -> list[Path]:
        return sorted((self.store / "commitlog").iterdir())

    def run(self, job: str, *more: str) -> tuple[int, str]:
        """The exit code, and what was said."""
        places = {"store": str(self.store), "target": str(self.target), "conf": str(self.conf)}
        before = snapshot(self.store)
        self._capsys.readouterr()
        code = run(["pipeline", *(part.format(**places) for part in JOBS[job]), *more])
        said = self._capsys.readouterr()
        assert snapshot(self.store) == before, "the store was changed"
        for frame in ("Traceback", "\tat ", "java.", "org.apache", "py4j"):
            assert frame not in said.out + said.err
        return code, said.err.strip()

    def refused(self, job: str, *more: str) -> str:
        """The one sentence of a job that would not; nothing may be left of it."""
        code, said = self.run(job, *more)
        assert code in (2, 3), (code, said)
        assert len(said.splitlines()) == 1, said
        assert not self.target.exists()
        return said


@pytest.fixture
def case(tmp_path: Path, whole: Path, capsys: pytest.CaptureFixture[str]) -> Case:
    return Case(tmp_path, whole, capsys)


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("job", JOBS)
def test_a_path_that_is_not_there(spark: SparkSession, case: Case, job: str) -> None:
    shutil.rmtree(case.store)
    assert "there is no store here" in case.refused(job)
    assert not case.store.exists()


@pytest.mark.parametrize("job", JOBS)
def test_a_file_of_another_size(spark: SparkSession, case: Case, job: str) -> None:
    with case.log[1].open("ab") as file:
        file.write(bytes(100))
    if job in LOOKING:
        assert case.run(job)[0] == LOOKING[job]
        return
    assert case.log[1].name in case.refused(job)


@pytest.mark.parametrize("job", JOBS)
def test_a_segment_that_was_cut_short(spark: SparkSession, case: Case, job: str) -> None:
    with case.log[0].open("r+b") as file:
        file.truncate(SEGMENT_BYTES // 2)
    if job in LOOKING:
        assert case.run(job)[0] == LOOKING[job]
        return
    assert case.log[0].name in case.refused(job)


@pytest.mark.parametrize("job", WITH_TOPICS)
def test_a_topic_that_is_not_there(spark: SparkSession, case: Case, job: str) -> None:
    assert "oders" in case.refused(job, "--topic", "oders")


@pytest.mark.parametrize("job", JOBS)
def test_an_option_that_is_misspelt(spark: SparkSession, case: Case, job: str) -> None:
    code, said = case.run(job, "--mastre", "local[2]")
    assert code == 2
    assert "--master" in said.splitlines()[-1]
    assert not case.target.exists()


@pytest.mark.parametrize("job", ["sql", "sql into"])
def test_an_option_of_the_source_that_is_misspelt(spark: SparkSession, case: Case, job: str) -> None:
    assert "startingOffsets" in case.refused(job, "--option", "startngOffsets=latest")
    assert "maxBytesPerTrigger" in case.refused(job, "--option", "maxBytesPerTrigger=many")
