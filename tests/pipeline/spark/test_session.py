"""Sessions that somebody else configured: nothing that is set is set again. And a job as a file for spark-submit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
import pytest
from tests.pages import Golden, PageRun, is_as_shown, read_blocks
from tests.pipeline.cluster import Cluster, command, descendants
from tests.pipeline.conftest import small_config

from flintlog import InvalidConfig, Message, open_store
from flintlog.pipeline.session import ARROW_OPTIONS, choose_settings, get_session
from flintlog.pipeline.spark.configured import parse_environment
from flintlog.pipeline.submit import main as write_script

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[3]
SCRIPT = Path(__file__).parents[1] / "session_script.py"
SUBMIT = str(Path(pyspark.__file__).parent / "bin" / "spark-submit")
TIMEOUT_S = 300


def environment(work: Path, **changes: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    paths = os.pathsep.join((str(ROOT / "src"), str(ROOT)))
    own = {"PYTHONPATH": paths, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", "TMPDIR": str(work)}
    return {**kept, **own, **changes}


def run(command_line: Sequence[str], work: Path, **changes: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command_line, env=environment(work, **changes), cwd=work, capture_output=True, text=True, timeout=TIMEOUT_S,
        check=False,
    )  # fmt: skip


def settings_of(done: subprocess.CompletedProcess[str]) -> Mapping[str, str]:
    assert done.returncode == 0, done.stderr[-5000:]
    found: Mapping[str, str] = json.loads(done.stdout.splitlines()[-1])
    assert found["answer"] == "10"
    return found


def test_what_spark_submit_sets_stays(tmp_path: Path) -> None:
    asked = {
        "spark.executor.extraJavaOptions": "-Dmine=1",
        "spark.python.daemon.module": "pyspark.daemon",
        "spark.sql.execution.arrow.pyspark.enabled": "false",
        "spark.driver.memory": "512m",
    }
    options = [word for name, value in asked.items() for word in ("--conf", f"{name}={value}")]
    found = settings_of(run([SUBMIT, "--master", "local[1]", "--name", "mine", *options, str(SCRIPT)], tmp_path))
    assert found["spark.master"] == "local[1]"
    assert found["spark.app.name"] == "mine"
    assert found["spark.executor.extraJavaOptions"].endswith(f"-Dmine=1 {ARROW_OPTIONS}")
    kept = [name for name in asked if name != "spark.executor.extraJavaOptions"]
    assert {name: found[name] for name in kept} == {name: asked[name] for name in kept}
    assert "spark.ui.enabled" not in found, "the UI of a submitted job is the submitter's business"
    assert found["spark.sql.python.filterPushdown.enabled"] == "true"


def test_what_spark_defaults_set_stays(tmp_path: Path) -> None:
    (tmp_path / "spark-defaults.conf").write_text(
        "spark.master local[1]\nspark.ui.enabled true\nspark.ui.port 0\nspark.app.name  theirs\n"
        "spark.driver.extraJavaOptions -Dmine=1 -Dother=2\n"
    )
    found = settings_of(run([sys.executable, str(SCRIPT)], tmp_path, SPARK_CONF_DIR=str(tmp_path)))
    assert found["spark.master"] == "local[1]"
    assert found["spark.app.name"] == "theirs"
    assert found["spark.ui.enabled"] == "true"
    assert f"-Dmine=1 -Dother=2 {ARROW_OPTIONS}" in found["spark.driver.extraJavaOptions"]


def test_a_session_of_another_thread_is_used_unchanged(spark: SparkSession) -> None:
    assert spark.range(2).count() == 2  # the first query sets the directory of tables
    before = dict(spark.sparkContext.getConf().getAll()), dict(spark.conf.getAll)
    found: list[SparkSession] = []
    thread = threading.Thread(target=lambda: found.append(get_session("local[7]", {"spark.sql.ansi.enabled": "false"})))
    thread.start()
    thread.join()
    assert found[0].sparkContext is spark.sparkContext
    assert (dict(spark.sparkContext.getConf().getAll()), dict(spark.conf.getAll)) == before


# ---------------------------------------------------------------------- without Spark


def test_ours_are_set_where_nobody_has_set_another() -> None:
    chosen = choose_settings({}, {})
    assert chosen["spark.master"] == "local[*]"
    assert chosen["spark.ui.enabled"] == "false"
    assert chosen["spark.driver.host"] == "127.0.0.1"
    assert chosen["spark.executor.extraJavaOptions"] == ARROW_OPTIONS


def test_what_is_given_wins_over_what_is_configured() -> None:
    chosen = choose_settings({"spark.master": "yarn", "spark.ui.enabled": "true"}, {"spark.master": "local[2]"})
    assert chosen["spark.master"] == "yarn"
    assert chosen["spark.ui.enabled"] == "true"
    assert "spark.driver.host" not in chosen, "a cluster has to reach the driver"


def test_java_options_that_somebody_set_are_kept() -> None:
    theirs = "-Xss4m -Darrow.enable_unsafe_memory_access=false"
    chosen = choose_settings({}, {"spark.executor.extraJavaOptions": theirs})
    assert chosen["spark.executor.extraJavaOptions"] == f"{theirs} -Darrow.enable_null_check_for_get=false"


def test_a_wrong_master_is_refused_before_java_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)
    with pytest.raises(InvalidConfig, match="no master that Spark knows"):
        get_session("mesos")


def test_the_environment_is_read_as_spark_reads_it(tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "spark-defaults.conf").write_text("# ours\nspark.master yarn\nspark.a=1\nother 2\n")
    assert parse_environment({}, tmp_path) == {"spark.master": "yarn", "spark.a": "1"}
    assert parse_environment({"MASTER": "local"}, tmp_path)["spark.master"] == "yarn"
    assert parse_environment({"MASTER": "local"}, tmp_path / "nowhere") == {"spark.master": "local"}
    (tmp_path / "mine").write_text("spark.b 3")
    shell = {"PYSPARK_SUBMIT_ARGS": f"--master local[3] --conf 'spark.c=x y' --properties-file {tmp_path}/mine x.py"}
    assert parse_environment(shell, tmp_path) == {"spark.b": "3", "spark.master": "local[3]", "spark.c": "x y"}


# ---------------------------------------------------------------------- jobs by spark-submit


def test_the_file_for_spark_submit_ends_with_the_exit_code_of_its_job(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """That it runs a job is shown by docs/guides/spark-submit.md."""
    write_script([])
    write_script(["--out", str(tmp_path / "flintlog_job.py")])
    assert (tmp_path / "flintlog_job.py").read_text() == capsys.readouterr().out
    done = run([SUBMIT, "--master", "local[1]", "flintlog_job.py", "sql", "nowhere", "select 1"], tmp_path)
    assert done.returncode == 3, done.stderr[-5000:]
    assert done.stdout.startswith("flintlog: damaged-store: there is no store here [nowhere]")


def readme_on_spark() -> tuple[str, str]:
    """The README's lines on Spark, and what they print."""
    blocks = read_blocks((ROOT / "README.md").read_text("utf-8"))
    ours = [place for place, block in enumerate(blocks) if block.language == "python" and "spark" in block.code]
    assert ours
    return "".join(blocks[place].code for place in ours), "".join(blocks[place + 1].code for place in ours)


def submit_readme(master: str, work: Path, environment: Mapping[str, str]) -> None:
    """Submit the README's lines as a script, over the store that its first lines make."""
    lines, shown = readme_on_spark()
    with open_store(work / "orders-store", small_config()) as store:
        store.put(Message("orders", b"42 pieces", tags="paid", keys=["o-17"]))
    (work / "script.py").write_text(lines + "print('master:', spark.sparkContext.master)\n")
    done = subprocess.run(
        [SUBMIT, "--master", master, "script.py"], env=environment, cwd=work, capture_output=True, text=True,
        timeout=TIMEOUT_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-5000:]
    assert is_as_shown(f"{shown}master: {master}\n", done.stdout), done.stdout


def test_the_readme_s_lines_on_spark_run_in_a_submitted_script(tmp_path: Path) -> None:
    submit_readme("local[2]", tmp_path, environment(tmp_path))


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_the_readme_s_lines_on_spark_run_on_a_cluster(cluster: Cluster, tmp_path: Path) -> None:
    submit_readme(cluster.master, tmp_path, cluster.environment())


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_the_guide_s_job_runs_on_the_executors_of_a_cluster_with_the_flintlog_that_it_ships(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, golden: Golden
) -> None:
    for name in [name for name in os.environ if name.startswith(("SPARK_", "PYSPARK_"))]:
        monkeypatch.delenv(name)
    for name, value in {**cluster.environment(), "CLUSTER": cluster.master}.items():
        monkeypatch.setenv(name, value)
    is_over, seen = threading.Event(), set[str]()

    def look() -> None:
        while not is_over.wait(0.05):
            for executor in cluster.executors():
                workers = [each for each in descendants(executor) if "pyspark.daemon" in command(each)]
                seen.update(variable(each, "PYTHONPATH").rpartition(os.pathsep)[2] for each in workers)

    looking = threading.Thread(target=look)
    looking.start()
    try:
        PageRun(ROOT / "docs" / "guides" / "spark-submit.md", tmp_path, monkeypatch, golden).run()
    finally:
        is_over.set()
        looking.join()
    assert seen == {"packages"}, "the Python workers of executors, and where they look for flintlog"


def variable(process: int, name: str) -> str:
    """A variable in the environment of another process; empty if there is none, or no such process."""
    try:
        found = Path(f"/proc/{process}/environ").read_bytes().decode().split("\0")
    except OSError:
        return ""
    return next((each.partition("=")[2] for each in found if each.startswith(f"{name}=")), "")
