"""What every job does with what it cannot use: one sentence, no frames of Java or Python, nothing half-written."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException
from tests.pipeline.conftest import SEGMENT_BYTES, fill
from tests.pipeline.sink.test_sink_rows import CONFIG

from flintlog.cli.main import run

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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
LOOKING = {"verify": 1, "report": 5}
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


# ---------------------------------------------------------------------- the source, and the sink


class Ways:
    """What a program of the user's own does with a store: each way in and out of it."""

    def __init__(self, spark: SparkSession, case: Case) -> None:
        self._spark = spark
        self._case = case

    def batch(self, **options: str) -> None:
        self._spark.read.format("flintlog").options(**options).load(str(self._case.store)).collect()

    def stream(self, **options: str) -> None:
        rows = self._spark.readStream.format("flintlog").options(startingOffsets="earliest", **options)
        writer = rows.load(str(self._case.store)).writeStream.format("noop")
        placed = writer.option("checkpointLocation", str(self._case.target))
        placed.trigger(availableNow=True).start().awaitTermination()

    def sink(self, **options: str) -> None:
        rows = self._spark.sql("select 'orders' as topic, 'x' as body")
        self._write(rows, self._case.store, **options)

    def new_sink(self, body: str) -> None:
        self._write(self._spark.sql(f"select 'orders' as topic, {body} as body"), self._case.target)

    def _write(self, rows: DataFrame, where: Path, **options: str) -> None:
        writer = rows.write.format("flintlog").mode("append").option("config", str(self._case.conf))
        writer.options(**options).save(str(where))

    def refused(self, way: str, **options: str) -> str:
        """What Spark says; there are no frames in it, and the store is as it was."""
        before = snapshot(self._case.store)
        with pytest.raises(PySparkException) as caught:
            getattr(self, way)(**options)
        assert snapshot(self._case.store) == before
        for frame in ("Traceback", "\tat ", 'File "'):
            assert frame not in str(caught.value)
        return str(caught.value)


@pytest.fixture
def ways(spark: SparkSession, case: Case) -> Ways:
    return Ways(spark, case)


@pytest.mark.parametrize("way", ["batch", "stream"])
def test_reading_a_path_that_is_not_there(ways: Ways, case: Case, way: str) -> None:
    shutil.rmtree(case.store)
    assert "there is no store here" in ways.refused(way)


@pytest.mark.parametrize("way", ["batch", "stream", "sink"])
def test_a_way_to_a_store_with_a_file_of_another_size(ways: Ways, case: Case, way: str) -> None:
    with case.log[1].open("ab") as file:
        file.write(bytes(100))
    assert case.log[1].name in ways.refused(way)


@pytest.mark.parametrize("way", ["batch", "stream", "sink"])
def test_a_way_to_a_store_with_a_segment_that_was_cut_short(ways: Ways, case: Case, way: str) -> None:
    with case.log[0].open("r+b") as file:
        file.truncate(SEGMENT_BYTES // 2)
    assert case.log[0].name in ways.refused(way)


@pytest.mark.parametrize(("way", "option"), [("batch", "tpics"), ("stream", "tpics"), ("sink", "tpic")])
def test_an_option_of_the_source_or_sink_that_is_misspelt(ways: Ways, way: str, option: str) -> None:
    assert "did you mean topic" in ways.refused(way, **{option: "orders"})


def test_a_stream_whose_log_was_cut_meanwhile_says_so_without_frames(ways: Ways, case: Case) -> None:
    ways.stream()
    case.log[-1].unlink()
    assert "and now ends at" in ways.refused("stream")


def test_rows_that_are_no_messages_leave_nothing_of_a_new_store(ways: Ways, case: Case) -> None:
    assert "a row has no body" in ways.refused("new_sink", body="cast(null as string)")
    assert not case.target.exists()
