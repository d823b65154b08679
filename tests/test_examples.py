"""The examples run, and say what they should."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import flintlog

EXAMPLES = Path(__file__).parents[1] / "examples"


def _run(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(Path(flintlog.__file__).parents[1]), "COLUMNS": "120"}
    command = [sys.executable, str(EXAMPLES / name), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=500, check=False)


def test_the_demo_finds_everything_again() -> None:
    done = _run("demo.py", "--count", "5000", "--without-spark")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "then SIGKILL" in done.stdout
    assert "nothing that was acknowledged is lost" in done.stdout


@pytest.mark.slow
@pytest.mark.timeout(500)
def test_the_demo_goes_on_in_spark() -> None:
    done = _run("demo.py", "--count", "5000")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "verified on Spark" in done.stdout
    assert "exported as Parquet" in done.stdout
    page = Path(done.stdout.splitlines()[-1].split(": ")[1])
    assert "<svg" in page.read_text()


def test_the_readme_shows_steps_that_the_demo_has() -> None:
    readme = (EXAMPLES.parent / "README.md").read_text("utf-8")
    shown = re.findall(r"^│ (\w[^│]*?) +│ +\d+\.\d+ │", readme, re.MULTILINE)
    source = (EXAMPLES / "demo.py").read_text("utf-8") + (EXAMPLES / "demo_spark.py").read_text("utf-8")
    assert shown == re.findall(r'report\.step\("([^"]+)"\)', source)


def test_the_first_steps() -> None:
    done = _run("first_steps.py")
    assert done.returncode == 0, done.stderr
    assert "FOUND: ['order 17', 'order 19']" in done.stdout
    assert "acknowledged: PUT_OK" in done.stdout
    assert "after opening again: ['the last one'], next offset 4" in done.stdout


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("web_application", ["created: 40", "{'id': 'o-17', 'pieces': 17}", "(404, None)", "billed: 780 pieces of 40"]),
        ("worker_pool", ["done: 39 jobs, 39 times", "dead letters: ['job 13']"]),
        ("outbox", ["refused: o-2", "undecided: 2", "rows: ['o-1', 'o-3']", "messages: ['o-1', 'o-3']"]),
        ("event_sourcing", ["refused: bob has 20", "a reader beside the writer: {'ann': 70, 'bob': 20}"]),
        ("order_pipeline", ["ended with SIGKILL", " 5 parcels\n", "at the end: 12 parcels, at most 1 of one order"]),
        ("fork_pool", ["a child that puts: put-failed", "highest: [100, 200, 300, 400]"]),
    ],
)
def test_an_example_program_ends_with_its_result(name: str, said: list[str]) -> None:
    done = _run(f"{name}.py")
    assert done.returncode == 0, done.stderr
    assert [each for each in said if each not in done.stdout] == []


def test_scheduled_jobs_run_when_they_are_due_and_not_when_recalled() -> None:
    done = _run("scheduled_jobs.py")
    assert done.returncode == 0, done.stderr
    ran = [line for line in done.stdout.splitlines() if line.startswith("run:")]
    assert (done.stdout.splitlines()[0], ran) == (
        "visible at once: 0",
        ["run: remind, by level", "run: report, by timer"],
    )


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_declarative_pipeline_adds_what_came_since(tmp_path: Path) -> None:
    project, store = tmp_path / "declarative", tmp_path / "store"
    shutil.copytree(EXAMPLES / "declarative", project)
    spec = project / "spark-pipeline.yml"
    spec.write_text(spec.read_text("utf-8").replace("/tmp/flintlog-orders", str(tmp_path)), "utf-8")
    for count in (3, 5):
        with flintlog.open_store(store, flintlog.StoreConfig(mapped_file_size_commit_log=1 << 20)) as opened:
            for number in range(opened.max_offset("orders", 0), count):
                opened.put(flintlog.Message("orders", b"%d" % number, keys=[f"o-{number}"]))
        _run_pipeline(project)
        messages = pq.read_table(project / "spark-warehouse" / "messages").sort_by("queue_offset")
        assert messages["body"].to_pylist() == [b"%d" % number for number in range(count)]
        (volume,) = pq.read_table(project / "spark-warehouse" / "volume").to_pylist()
        assert (volume["topic"], volume["messages"]) == ("orders", count)


def _run_pipeline(project: Path) -> None:
    given = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    search_path = str(Path(flintlog.__file__).parents[1])
    environment = {**given, "PYTHONPATH": search_path, "PYSPARK_PYTHON": sys.executable}
    program = Path(sys.executable).with_name("spark-pipelines")
    done = subprocess.run(
        [program, "run", "--conf", "spark.sql.catalogImplementation=hive"],
        cwd=project,
        env=environment,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
