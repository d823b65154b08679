"""Every job takes a store in an object store, and its result is that of the same store on a disk."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.pipeline.conftest import COUNT, small_config
from tests.pipeline.s3_server import S3Server

from flintlog import open_store
from flintlog.cli.main import run
from flintlog.errors import InvalidConfig
from flintlog.maintenance.verify.verify import verify as verify_here
from flintlog.pipeline.compact import CompactOptions, compact
from flintlog.pipeline.export import ExportOptions, export
from flintlog.pipeline.replay import replay
from flintlog.pipeline.report import report
from flintlog.pipeline.verify import verify

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONF = "mappedFileSizeCommitLog=65536\nmappedFileSizeConsumeQueue=1000\nmaxHashSlotNum=100\nmaxIndexNum=200\n"


@pytest.fixture(scope="module")
def read_store(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a group that reads."""
    path = Path(shutil.copytree(store, tmp_path_factory.mktemp("remote") / "store"))
    offsets = {"offsetTable": {"orders@readers": {0: 10}}}
    (path / "config").mkdir(exist_ok=True)
    (path / "config" / "consumerOffset.json").write_text(json.dumps(offsets))
    return path


@pytest.fixture(scope="module")
def uri(s3: S3Server, read_store: Path) -> str:
    return s3.upload(read_store, "store")


@pytest.fixture
def conf(tmp_path: Path) -> str:
    (tmp_path / "broker.conf").write_text(CONF)
    return str(tmp_path / "broker.conf")


def messages(path: Path) -> list[tuple[object, ...]]:
    names = ("topic", "queue_id", "keys", "tags", "body", "properties", "sys_flag", "born_timestamp")
    with open_store(path, small_config(), read_only=True) as store:
        rows = pa.Table.from_batches(store.scan()).to_pylist()
    return [tuple(row[name] for name in names) for row in rows if row["topic"] in ("orders", "payments")]


@pytest.mark.parametrize("mode", ["full", "quick"])
def test_verify_finds_the_same(spark: SparkSession, read_store: Path, s3: S3Server, uri: str, mode: str) -> None:
    here = verify_here(read_store, mode="full" if mode == "full" else "quick")
    there = verify(spark, uri, mode=here.mode, range_bytes=20_000)
    assert (there.findings, there.notes, there.inferred) == (here.findings, here.notes, here.inferred)
    assert asdict(there) | {"root": None} == asdict(here) | {"root": None}


def test_verify_finds_the_same_damage(
    spark: SparkSession, read_store: Path, s3: S3Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = Path(shutil.copytree(read_store, tmp_path / "store"))
    log = min((copy / "commitlog").iterdir())
    data = bytearray(log.read_bytes())
    for place in (5_000, 30_000):
        data[place : place + 50] = bytes(50)
    log.write_bytes(data)
    here, uri = verify_here(copy), s3.upload(copy, "store")
    found = [(each.id, each.physical_offset, each.evidence) for each in verify(spark, uri, range_bytes=20_000).findings]
    assert found == [(each.id, each.physical_offset, each.evidence) for each in here.findings]
    assert found
    assert run(["pipeline", "verify", uri]) == 1
    assert "by kind" in capsys.readouterr().out


def test_the_report_is_the_same_with_its_groups(spark: SparkSession, read_store: Path, uri: str) -> None:
    here, there = asdict(report(spark, read_store)), asdict(report(spark, uri))
    assert there | {"store": None} == here | {"store": None}
    assert there["groups"] == [
        {"group": "readers", "topic": "orders", "queue_id": 0, "offset": 10, "max_offset": 100, "lag": 90}
    ]


def test_an_export_has_the_same_rows_and_goes_on(
    spark: SparkSession, read_store: Path, s3: S3Server, uri: str, tmp_path: Path
) -> None:
    assert export(spark, uri, tmp_path / "there").rows == export(spark, read_store, tmp_path / "here").rows == COUNT
    assert table(tmp_path / "there") == table(tmp_path / "here")
    assert export(spark, uri, tmp_path / "there").rows == 0
    with pytest.raises(InvalidConfig, match=r"no messages of topic order .*did you mean orders"):
        export(spark, uri, tmp_path / "typo", options=ExportOptions(topics=("order",)))
    assert not (tmp_path / "typo").exists()


def table(path: Path) -> pa.Table:
    return pq.read_table(path).sort_by("physical_offset")


def test_a_compaction_keeps_the_same_messages(
    spark: SparkSession, read_store: Path, uri: str, tmp_path: Path, conf: str
) -> None:
    options = CompactOptions(config=conf)
    there = compact(spark, uri, tmp_path / "there", options=options)
    here = compact(spark, read_store, tmp_path / "here", options=options)
    assert (there.messages, there.keyless, there.rows) == (here.messages, here.keyless, here.rows)
    assert messages(tmp_path / "there") == messages(tmp_path / "here")


def test_a_replay_puts_the_same_messages(
    spark: SparkSession, read_store: Path, uri: str, tmp_path: Path, conf: str
) -> None:
    assert replay(spark, uri, tmp_path / "target", config=conf).rows == COUNT
    assert messages(tmp_path / "target") == messages(read_store)


def test_the_commands_take_a_uri(
    spark: SparkSession, uri: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    question = "select topic, count(*) n from messages group by topic order by topic"
    assert run(["pipeline", "sql", uri, question, "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == [{"topic": "orders", "n": 200}, {"topic": "payments", "n": 100}]
    assert run(["pipeline", "report", uri, "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["totals"]["messages"] == COUNT
    assert run(["pipeline", "verify", uri, "--quick"]) == 0
    assert run(["pipeline", "export", uri, str(tmp_path / "table")]) == 0
    assert pq.read_table(tmp_path / "table").num_rows == COUNT


@pytest.mark.parametrize(
    "command", [["sql", "{}", "select 1"], ["report", "{}"], ["verify", "{}"], ["export", "{}", "table"]]
)
def test_a_bucket_that_cannot_be_read_is_one_sentence_and_ends_with_3(
    spark: SparkSession, s3: S3Server, tmp_path: Path, command: list[str],
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    closed = s3.make_bucket()
    s3.closed.add(closed)
    for bucket, sentence in ((closed, "the server denies access"), ("nowhere", "there is no such bucket")):
        assert run(["pipeline", *(part.format(f"s3://{bucket}/store") for part in command)]) == 3
        complaint = capsys.readouterr().err.strip()
        assert sentence in complaint
        assert f"s3://{bucket}/store" in complaint
        assert len(complaint.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_a_stream_has_the_rows_of_the_store(spark: SparkSession, uri: str, tmp_path: Path) -> None:
    frame = spark.readStream.format("flintlog").option("startingOffsets", "earliest").load(uri)
    writer = frame.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.option("path", str(tmp_path / "rows")).trigger(availableNow=True).start()
    query.awaitTermination(300)
    assert spark.read.parquet(str(tmp_path / "rows")).count() == COUNT


def test_a_misspelt_topic_of_a_remote_store_is_refused(spark: SparkSession, uri: str) -> None:
    with pytest.raises(Exception, match="did you mean orders"):
        spark.read.format("flintlog").option("topics", "order").load(uri).collect()
