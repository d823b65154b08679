"""`flintlog pipeline …`: help and refusals that need no Spark come before Spark is started."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click
import pytest

from flintlog.cli.main import run
from flintlog.cli.pipeline.commands import JOBS, pipeline


def test_help_and_refusals_do_not_wait_for_spark(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["pipeline", "rebuild", str(tmp_path / "nowhere")]) == 3
    error = capsys.readouterr().err
    assert f"there is no store here [{tmp_path / 'nowhere'}]" in error
    assert len(error.splitlines()) == 1
    assert run(["pipeline", "rebuild"]) == 2
    assert run(["pipeline", "--help"]) == 0
    assert "rebuild" in capsys.readouterr().out


def test_naming_a_job_does_not_import_pyspark() -> None:
    code = (
        "import sys, flintlog.cli.pipeline.commands, flintlog.cli.pipeline.rebuild; sys.exit('pyspark' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("master", ["bogus", "local[x]", "spark:/host"])
def test_a_master_that_spark_does_not_know_is_refused_in_one_sentence(tmp_path: Path, master: str) -> None:
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "commitlog" / f"{0:020}").write_bytes(bytes(4096))
    command = [sys.executable, "-m", "flintlog.cli.main", "pipeline", "verify", str(tmp_path), "--master", master]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith(f"flintlog: invalid-config: {master!r} is no master that Spark knows (local[*], ")
    assert len(ended.stderr.splitlines()) == 1


def test_a_query_that_fails_says_why_and_leaves_nothing_in_the_working_directory(tmp_path: Path) -> None:
    (tmp_path / "store" / "commitlog").mkdir(parents=True)
    (tmp_path / "store" / "commitlog" / f"{0:020}").write_bytes(bytes(4096))
    query = "select assert_true(false)"
    command = [sys.executable, "-m", "flintlog.cli.main", "pipeline", "sql", "store", query, "--master", "local[1]"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["store"]
    assert ended.returncode == 3
    assert "the query failed: 'false' is not true!" in ended.stderr


@pytest.mark.parametrize("job", JOBS)
def test_a_job_has_no_master_of_its_own_and_takes_settings(job: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = pipeline.get_command(click.Context(pipeline), job)
    assert command is not None
    options = {option.name: option for option in command.params}
    assert options["master"].to_info_dict()["default"] is None, "a default would override what is configured"
    assert options["conf"].to_info_dict()["multiple"]
    assert run(["pipeline", job, "a", "b", "--conf", "no-value"]) == 2
    assert "NAME=VALUE" in capsys.readouterr().err
