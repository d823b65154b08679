"""Sessions that are not ours, and the oldest Spark that is supported."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pyspark
import pytest
from tests.pipeline.building.test_rebuild import files
from tests.pipeline.conftest import COUNT, fill
from tests.pipeline.sink.test_sink_rows import CONFIG

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]
OLDEST = "4.1.4"
SCRIPT = Path(__file__).parents[1] / "user_script.py"
ROOT = Path(__file__).parents[3]
TIMEOUT_S = 600


def run_script(command: list[str], python: str, work: Path) -> dict[str, object]:
    """Run the user's script over a small store; what it found."""
    store = fill(work / "store")
    (work / "broker.conf").write_text(CONFIG)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    environment = {
        **kept,
        "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT))),
        "PYSPARK_PYTHON": python,
        "PYSPARK_DRIVER_PYTHON": python,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "TMPDIR": str(work),
    }
    done = subprocess.run(
        [*command, str(SCRIPT), str(store), str(work)],
        env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False, cwd=work,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-5000:]
    found: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    assert files(work / "rebuilt", "consumequeue") == files(store, "consumequeue")
    return found


def check(found: dict[str, object], version: str) -> None:
    assert found.pop("version") == version
    refused = str(found.pop("refused"))
    assert "tipic" in refused
    assert "\n" not in refused
    assert found == {
        "batch": {"orders": COUNT * 2 // 3, "payments": COUNT // 3},
        "stream": COUNT,
        "written": COUNT,
        "streamed": COUNT,
        "findings": 0,
        "exported": COUNT,
        "compacted": found["compacted"],
        "replayed": COUNT,
    }


def test_a_script_for_spark_submit_needs_no_setting_of_ours(tmp_path: Path) -> None:
    submit = str(Path(pyspark.__file__).parent / "bin" / "spark-submit")
    found = run_script([submit, "--master", "local[2]"], sys.executable, tmp_path)
    check(found, pyspark.__version__)


def test_the_oldest_spark_that_is_supported(tmp_path: Path) -> None:
    python = str(oldest_spark())
    found = run_script([python], python, tmp_path)
    check(found, OLDEST)


def oldest_spark() -> Path:
    """The Python of an environment with that Spark, made once; what else is needed it takes from this one."""
    root = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "flintlog" / f"pyspark-{OLDEST}"
    python, done = root / "bin" / "python", root / "complete"
    if not done.exists():
        venv.create(root, with_pip=True, clear=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", f"pyspark=={OLDEST}"], check=True, timeout=TIMEOUT_S)
        folder = next((root / "lib").glob("python*/site-packages"))
        (folder / "the_other_environment.pth").write_text(sysconfig.get_path("purelib") + "\n")
        done.touch()
    return python
