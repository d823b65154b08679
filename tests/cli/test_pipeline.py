"""`flintlog pipeline …`: what needs no Spark is told before Spark is started."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from flintlog.cli.main import run


def test_help_and_refusals_do_not_wait_for_spark(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["pipeline", "rebuild", str(tmp_path / "nowhere")]) == 3
    error = capsys.readouterr().err
    assert f"there is no store here [{tmp_path / 'nowhere'}]" in error
    assert len(error.splitlines()) == 1
    assert run(["pipeline", "rebuild"]) == 2
    assert run(["pipeline", "--help"]) == 0
    assert "rebuild" in capsys.readouterr().out


def test_naming_a_job_does_not_import_pyspark() -> None:
    code = "import sys, flintlog.cli.pipeline, flintlog.cli.pipeline_rebuild; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
