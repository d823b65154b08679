"""A session of Spark Connect: the source, the sink and every job, with a real server in a process of its own."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.pipeline.building.test_dispatch import job
from tests.pipeline.building.test_dispatch_tasks import DENSE, all_queues, dense_twin, put_dense
from tests.pipeline.building.test_rebuild import files
from tests.pipeline.conftest import COUNT, small_config
from tests.pipeline.connect import environment, running_server
from tests.pipeline.spark.test_tasks import make_fill_the_disk, make_own_task
from tests.store.dispatch.test_external_dispatch import EXTERNAL, derived, embedded_twin, put

from flintlog import Message, open_store
from flintlog.errors import DiskFull, InvalidConfig
from flintlog.pipeline.compact import compact
from flintlog.pipeline.dispatch import DispatchReport, dispatch
from flintlog.pipeline.export import export
from flintlog.pipeline.rebuild import rebuild
from flintlog.pipeline.replay import replay
from flintlog.pipeline.report import report
from flintlog.pipeline.session import get_session
from flintlog.pipeline.spark.tasks import is_connect, parallelism, run_tasks
from flintlog.pipeline.sql import query, write_answer
from flintlog.pipeline.verify import findings_frame, verify

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MAIN = "import sys; from flintlog.cli.main import run; sys.exit(run(sys.argv[1:]))"
QUESTION = "select topic, count(*) as n from messages group by topic order by topic"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_server(tmp_path_factory.mktemp("connect")) as url:
        yield url


@pytest.fixture(scope="module")
def remote(url: str) -> Iterator[SparkSession]:
    """A session of the server. Classic sessions of other tests may run in this process; PySpark's functions look at
    the environment to know which kind is meant."""
    from pyspark.sql.connect.session import SparkSession as ServersSession

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_CONNECT_MODE_ENABLED", "1")
        session: SparkSession = ServersSession.builder.remote(url).getOrCreate()  # type: ignore[assignment]
        yield session
        session.stop()


# ---------------------------------------------------------------------- sessions


def test_a_named_server_is_used_and_nothing_is_set(url: str, tmp_path: Path) -> None:
    """In a process of its own, where no session runs."""
    script = (
        "from flintlog.pipeline.session import get_session\n"
        "from flintlog.pipeline.spark.tasks import is_connect\n"
        "spark = get_session()\n"
        "assert is_connect(spark) and get_session() is spark\n"
        "names = ('spark.sql.python.filterPushdown.enabled', 'spark.sql.execution.pyspark.udf.hideTraceback.enabled')\n"
        "print(*[spark.conf.get(name) for name in names], spark.range(10).count())\n"
        "spark.stop()\n"
    )
    for changes in ({"SPARK_REMOTE": url}, {"PYSPARK_SUBMIT_ARGS": f"--remote {url} pyspark-shell"}):
        done = subprocess.run(
            [sys.executable, "-c", script], env={**environment(tmp_path), **changes}, cwd=tmp_path,
            capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-3000:]
        assert done.stdout.split() == ["false", "false", "10"], "the server's own settings"


def test_a_session_of_another_thread_is_found(remote: SparkSession) -> None:
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(get_session).result() is remote


def test_a_master_beside_a_server_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from flintlog.pipeline import session

    monkeypatch.setattr(session, "is_running", lambda: False)
    monkeypatch.setattr(session, "_active_session", lambda: None)
    with pytest.raises(InvalidConfig, match=r"'local\[2\]' and server 'sc://host' are both set"):
        get_session("local[2]", {"spark.remote": "sc://host"})


# ---------------------------------------------------------------------- tasks


def test_each_item_is_a_task_of_its_own(remote: SparkSession) -> None:
    assert is_connect(remote)
    assert parallelism(remote) == 2
    found = run_tasks(remote, make_own_task(), [5, 3, 4, 1, 2], doing="count")
    assert [item for item, _ in found] == [5, 3, 4, 1, 2]
    assert len({partition for _, partition in found}) == 5


def test_errors_of_ours_are_raised_as_they_were(remote: SparkSession) -> None:
    with pytest.raises(DiskFull, match="no room for 2"):
        run_tasks(remote, make_fill_the_disk(), [0, 1, 2, 3], doing="write")


def test_progress_is_the_server_s_and_tags_are_taken_back(remote: SparkSession) -> None:
    seen: list[tuple[int, int]] = []
    remote.addTag("mine")
    run_tasks(remote, time.sleep, [1, 1, 1, 1], lambda *counts: seen.append(counts), doing="wait, once")
    assert remote.getTags() == {"mine"}
    remote.removeTag("mine")
    assert {total for _, total in seen} == {4}
    assert seen[-1] == (4, 4)
    assert {done for done, _ in seen} & {1, 2, 3}


# ---------------------------------------------------------------------- source and sink


def test_source_and_sink_in_batches(remote: SparkSession, store: Path, tmp_path: Path) -> None:
    messages = remote.read.format("flintlog").load(str(store))
    assert messages.count() == COUNT
    messages.write.format("flintlog").mode("append").save(str(tmp_path / "copy"))
    assert remote.read.format("flintlog").load(str(tmp_path / "copy")).count() == COUNT


def test_source_and_sink_as_streams(remote: SparkSession, store: Path, tmp_path: Path) -> None:
    stream = remote.readStream.format("flintlog").option("startingOffsets", "earliest").load(str(store))
    writer = stream.writeStream.format("flintlog").option("path", str(tmp_path / "copy"))
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination()
    assert query.exception() is None
    assert remote.read.format("flintlog").load(str(tmp_path / "copy")).count() == COUNT


# ---------------------------------------------------------------------- jobs


def test_rebuild_and_verify(remote: SparkSession, store: Path, tmp_path: Path) -> None:
    counts: list[tuple[int, int]] = []
    done = rebuild(
        remote, store, config=small_config(), into=tmp_path / "rebuilt", progress=lambda *c: counts.append(c)
    )
    assert done.record_count == COUNT
    assert not done.serial_queues
    assert files(tmp_path / "rebuilt", "consumequeue") == files(store, "consumequeue")
    assert counts[-1][0] == counts[-1][1]
    found = verify(remote, store, config=small_config())
    assert found.record_count == COUNT
    assert findings_frame(remote, found.findings).count() == len(found.findings) == 0


def test_export_and_replay(remote: SparkSession, store: Path, tmp_path: Path) -> None:
    assert export(remote, store, tmp_path / "table").rows == COUNT
    assert replay(remote, tmp_path / "table", tmp_path / "replayed").rows == COUNT
    assert replay(remote, tmp_path / "table", tmp_path / "replayed").is_there_already
    assert replay(remote, store, tmp_path / "again").rows == COUNT
    assert remote.read.format("flintlog").load(str(tmp_path / "again")).count() == COUNT


def test_compact(remote: SparkSession, store: Path, tmp_path: Path) -> None:
    done = compact(remote, store, tmp_path / "latest")
    assert (done.messages, done.rows) == (COUNT, len([number for number in range(COUNT) if number % 4]))


def test_dispatch_until_it_is_stopped_while_the_store_is_opened_again(remote: SparkSession, tmp_path: Path) -> None:
    root = tmp_path / "store"
    assert parallelism(remote) == 2  # the first query of a server takes its time, and the store has little patience
    store = open_store(root, DENSE)
    with job(remote, root, DENSE) as ended:
        put_dense(store, 40, 0)
        store.wait_dispatched()
        assert [message.body for message in store.query("orders", "k5", 0, 2**62, 9)] == [b"5"]
        store.shutdown()
        with open_store(root, DENSE) as store:  # the job gives the files up, and goes on
            put_dense(store, 40, 40)
            store.wait_dispatched()
            store.put(Message("orders", b"rest")).check()
    (report,) = ended
    assert isinstance(report, DispatchReport), report
    assert report.start_count >= 2
    assert report.serial_count == 0, report.serial_because
    assert not remote.streams.active
    assert all_queues(root) == dense_twin(root, tmp_path / "twin")


@pytest.mark.slow
def test_dispatch_once_in_small_batches(remote: SparkSession, tmp_path: Path) -> None:
    root, counts = tmp_path / "store", list[tuple[int, int]]()
    with open_store(root, EXTERNAL) as store:
        put(store, 100)
        report = dispatch(
            remote, root, config=EXTERNAL, once=True, max_bytes=5000, interval_s=0.7,
            progress=lambda *c: counts.append(c),
        )  # fmt: skip
        assert (report.log_start, report.log_end) == (0, store.max_physical_offset)
        assert (report.record_count, report.serial_count) == (100, 0), report.serial_because
        assert report.batch_count == len(counts) >= 3
        assert report.seconds > 0.7 * (report.batch_count - 1)
        assert counts[-1] == (report.byte_count, store.max_physical_offset)
        assert dispatch(remote, root, config=EXTERNAL, once=True).batch_count == 0
    assert derived(root) == embedded_twin(root, tmp_path / "twin")


def test_report(remote: SparkSession, store: Path) -> None:
    found = report(remote, store)
    assert found.totals["messages"] == COUNT
    assert {row["topic"]: row["messages"] for row in found.topics} == {"orders": 200, "payments": 100}


def test_sql_answers_without_a_view_in_the_session(remote: SparkSession, store: Path, tmp_path: Path) -> None:
    answer = query(remote, str(store), QUESTION)
    assert [tuple(row) for row in answer.collect()] == [("orders", 200), ("payments", 100)]
    assert not remote.catalog.tableExists("messages")
    write_answer(answer, tmp_path / "answer", "parquet")
    assert remote.read.parquet(str(tmp_path / "answer")).count() == 2


@pytest.mark.parametrize(
    "text", ["with m as (select 1 as n) insert into t select n from m", "from messages insert into t select topic"]
)
def test_sql_refuses_to_change_anything(remote: SparkSession, store: Path, text: str) -> None:
    remote.sql("create table if not exists t (n string) using parquet")
    with pytest.raises(InvalidConfig, match="is no question"):
        query(remote, str(store), text)
    assert remote.table("t").count() == 0


def test_sql_reports_a_wrong_question_at_once(remote: SparkSession, store: Path) -> None:
    with pytest.raises(InvalidConfig, match="nothing"):
        query(remote, str(store), "select nothing from messages")


def test_a_command_asks_the_server(url: str, store: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", MAIN, "pipeline", "sql", str(store), QUESTION, "-o", "csv"]
    given = {**environment(tmp_path), "SPARK_REMOTE": url}
    done = subprocess.run(command, env=given, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.split() == ["topic,n", "orders,200", "payments,100"]
    assert not list(tmp_path.iterdir())
