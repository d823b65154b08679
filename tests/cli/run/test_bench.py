"""`flintlog bench`: short runs, to see that the figures come out and are complete."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.java import RealJava
from flintlog.bench.ours import Ours
from flintlog.bench.tasks import Measurement, Task, Window
from flintlog.cli.exit_codes import exit_code_of
from flintlog.cli.main import run
from flintlog.errors import MissingExtra


def _bench(tmp_path: Path, *arguments: str) -> int:
    return run(["bench", *arguments, "--quick", "--seconds", "0.05", "--directory", str(tmp_path)])


def test_json_carries_the_figures_and_what_they_depend_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = _bench(tmp_path, "--only", "synced put, 8", "--only", "visible, paced", "--compare", "sqlite", "-o", "json")
    printed = json.loads(capsys.readouterr().out)
    assert code == 0
    assert printed["versions"].keys() == {"flintlog", "sqlite"}
    assert {row["task"] for row in printed["figures"]} == {"synced put, 8 threads", "visible, paced"}
    assert all(row["per_second"] > 0 for row in printed["figures"])
    assert printed["machine"]["cores"] > 0
    assert len(printed["load_average_before"]) == 3
    assert list(tmp_path.iterdir()) == []


def test_the_services_have_a_suite_of_their_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", "services", "--quick", "--directory", str(tmp_path), "-o", "json"]) == 0
    figures = {row["figure"]: row["value"] for row in json.loads(capsys.readouterr().out)}
    assert figures["2,000 queues: opening"] > 0
    assert figures["5,000 timers wait: a tick with 10 due"] > 0
    assert list(tmp_path.iterdir()) == []


def test_a_table_shows_ours_and_theirs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _bench(tmp_path, "--only", "64 asyncio", "--compare", "file") == 0
    printed = capsys.readouterr()
    assert "synced put, 64 asyncio" in printed.out
    assert "×" in printed.out
    assert "cores" in printed.err


def test_csv_has_a_line_a_figure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _bench(tmp_path, "--only", "put 128", "-o", "csv") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("task,contender,per_second")
    assert lines[1].startswith("put 128 B,flintlog,")


def test_an_interrupted_run_shows_what_is_finished(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    measure = Ours.measure

    def stop_at_the_second(self: Ours, task: Task, window: Window, directory: Path) -> Measurement | None:
        if task.name == "put 1 KiB":
            raise KeyboardInterrupt
        return measure(self, task, window, directory)

    monkeypatch.setattr(Ours, "measure", stop_at_the_second)
    assert _bench(tmp_path, "--only", "put 128", "--only", "put 1 KiB", "-o", "csv") == 5
    printed = capsys.readouterr()
    assert [line.partition(",")[0] for line in printed.out.splitlines()] == ["task", "put 128 B"]
    assert "Interrupted" in printed.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("arguments", [("--only", "no such task"), ("--compare", "no-such-peer")])
def test_a_name_that_is_not_known_is_a_usage_error(
    tmp_path: Path, arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert _bench(tmp_path, *arguments) == 2
    assert "there are:" in capsys.readouterr().err


def test_the_installed_package_leaves_java_out_and_says_where_it_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _bench(tmp_path, "--only", "put 128", "--compare", "java", "-o", "json") == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["versions"].keys() == {"flintlog"}
    assert "java is left out" in printed.err and "make bench ARGS='--compare java'" in printed.err


@pytest.mark.parametrize("suite", ["pipeline", "replication"])
def test_a_suite_beside_java_ends_at_once_where_java_cannot_run(
    suite: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _bench(tmp_path, suite, "--compare", "java") == exit_code_of(MissingExtra(""))
    [line] = capsys.readouterr().err.splitlines()
    assert "make bench" in line
    assert list(tmp_path.iterdir()) == []


@pytest.mark.interop
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_java_is_measured_at_every_task(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["bench", "--quick", "--seconds", "0.05", "--directory", str(tmp_path), "--rebuild-mib", "4"]
    assert run([*command, "--compare", "java", "-o", "json"], RealJava()) == 0
    printed = json.loads(capsys.readouterr().out)
    by_contender = {
        who: [row["task"] for row in printed["figures"] if row["contender"] == who] for who in printed["versions"]
    }
    assert by_contender["java"] == by_contender["flintlog"]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_pipeline_is_measured_beside_the_same_work_in_one_process(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "flintlog.cli.main", "bench", "pipeline", "--quick", "--directory", str(tmp_path)]
    done = subprocess.run([*command, "-o", "json"], capture_output=True, text=True, check=True)  # a session of its own
    rows = {row["name"]: row for row in json.loads(done.stdout)}
    assert {row["beside"] for row in rows.values()} <= {None, *rows}
    assert rows["rebuild, Spark, one core"]["beside"] == "rebuild, Spark"
    assert {name: row["target"] for name, row in rows.items() if row["target"] is not None} == {
        "topics, Spark": "at most 2 times the CPU",
        "topics, Spark, 4 times the log": "at most 2 times the CPU",
        "rare topic, Spark": "at most 0.05 times the CPU",
        "rare topic, Spark, 4 times the log": "at most 0.05 times the CPU",
        "key, Spark": "at most 1 s",
        "rebuild, Spark, shuffled": "at most 4 times the CPU",
        "rebuild, Spark, shuffled, 4 times the log": "at most 4 times the CPU",
    }
    assert all((row["is_met"] is None) == (row["target"] is None) for row in rows.values())
    topics = [rows[f"topics, {name}"]["cpu_seconds"] for name in ("Spark", "ready in Spark", "kernel alone")]
    assert rows["topics, Spark"]["own_times_the_cpu"] == pytest.approx((topics[0] - topics[1]) / topics[2])
    assert all(row["cpu_seconds"] > 0 and row["memory_mib"] > 0 for row in rows.values())
    assert list(tmp_path.iterdir()) == []


def test_help_names_all_that_can_be_compared_with() -> None:
    from flintlog.cli.run import bench, bench_run

    assert ("java", *bench_run.PEERS) == bench.OTHERS
