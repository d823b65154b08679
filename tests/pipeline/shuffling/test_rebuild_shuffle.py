"""Rebuilding without shared maps: the bytes are the same as where entries are placed into shared files."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.fs as pa_fs
import pytest
from pyspark.errors import PySparkException
from tests.pipeline.build_plans import make_plan
from tests.pipeline.building.test_rebuild import assert_same, config_of, embedded, without_derived
from tests.pipeline.building.test_rebuild_damage import damage_bodies, damage_heads, damage_offsets, damage_stretches
from tests.pipeline.conftest import COUNT, small_config
from tests.pipeline.s3_server import S3Server

from flintlog import Message, open_store
from flintlog.disk.mounts import is_coherent
from flintlog.errors import DamagedStore, DiskError, InvalidConfig
from flintlog.format.index_file import IndexLayout
from flintlog.pipeline.building.rebuild_build import LogFacts
from flintlog.pipeline.compact import compact
from flintlog.pipeline.export import export
from flintlog.pipeline.rebuild import choose_mode, rebuild
from flintlog.pipeline.replay import replay
from flintlog.pipeline.report import report
from flintlog.pipeline.shuffling.published import BEGUN, STAGED
from flintlog.pipeline.shuffling.shuffle_rows import Kind, PackedRow, _batches
from flintlog.pipeline.shuffling.shuffle_write import WriteJob, write_queues
from flintlog.pipeline.shuffling.targets import RemoteTarget
from flintlog.pipeline.spark.tasks import Refusal
from flintlog.pipeline.sql import query
from flintlog.pipeline.verify import verify

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize("case", ["batch", "multi", "cqext", "delay"])
def test_a_golden_store_is_shuffled_to_javas_bytes(
    spark: SparkSession, golden: Callable[[str], Path], tmp_path: Path, case: str
) -> None:
    folder = golden(case)
    rebuild(
        spark, folder / "store", config=config_of(folder), into=tmp_path / "new", mode="shuffle", split_bytes=90_000
    )
    assert_same(tmp_path / "new", folder / "store")


def test_a_store_is_shuffled_in_place_and_opens_cleanly(spark: SparkSession, store: Path, tmp_path: Path) -> None:
    copy = without_derived(store, tmp_path / "copy")
    batch_rows = spark.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch")
    report = rebuild(spark, copy, config=small_config(), mode="shuffle", split_bytes=20_000)
    assert_same(copy, store)  # its index has several files
    assert (report.mode, report.record_count, report.entry_count, report.queue_count) == ("shuffle", COUNT, COUNT, 4)
    assert report.index_file_count == len(list((store / "index").iterdir())) > 2
    assert not (copy / "flintlog" / "rebuild").exists()
    assert spark.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch") == batch_rows
    with open_store(copy, small_config()) as opened:
        assert opened.recovery.clean and not opened.recovery


@pytest.mark.parametrize("scene", [damage_bodies, damage_heads, damage_stretches, damage_offsets])
def test_a_damaged_log_is_shuffled_as_an_opening_would(
    spark: SparkSession, store: Path, tmp_path: Path, scene: Callable[[Path, random.Random], None]
) -> None:
    copy = without_derived(store, tmp_path / "copy")
    (copy / "abort").write_text("1")
    scene(copy, random.Random(scene.__name__))
    expected = embedded(copy, tmp_path / "embedded", small_config())
    report = rebuild(spark, copy, config=small_config(), into=tmp_path / "new", mode="shuffle", split_bytes=20_000)
    assert_same(tmp_path / "new", expected)
    assert bool(report.serial_queues) == (scene is not damage_bodies)


def test_many_queues_deleted_topics_and_a_missing_beginning(spark: SparkSession, tmp_path: Path) -> None:
    config = small_config(max_index_num=3000)
    root = tmp_path / "store"
    with open_store(root, config) as opened:
        for number in range(700):
            opened.put(Message(f"topic-{number % 23}", bytes(200), queue_id=number % 3, keys=[f"k{number}"]))
        opened.topics.delete("topic-7")
        opened.topics.delete("topic-8")
        for number in range(60):
            opened.put(Message("topic-8", bytes(90), queue_id=0, keys=[f"again{number}"]))
    min((root / "commitlog").iterdir()).unlink()
    rebuild(spark, root, config=config, into=tmp_path / "placed", mode="place", split_bytes=30_000)
    report = rebuild(spark, root, config=config, into=tmp_path / "shuffled", mode="shuffle", split_bytes=30_000)
    assert_same(tmp_path / "shuffled", tmp_path / "placed")
    assert report.log_start > 0
    assert report.queue_count > 60
    assert not (tmp_path / "shuffled" / "consumequeue" / "topic-7").exists()
    with open_store(root, config):  # its queues are cut to what the log has
        pass
    only = rebuild(spark, root, config=config, topics=["topic-8"], into=tmp_path / "one", mode="shuffle")
    assert [path.name for path in (tmp_path / "one" / "consumequeue").iterdir()] == ["topic-8"]
    assert (only.index_file_count, only.queue_count) == (0, 1)


def test_an_error_of_ours_in_a_writing_task_is_a_result_and_not_retried(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"no directory")
    plan = replace(make_plan(tmp_path, IndexLayout(10, 10)), staged=str(tmp_path / "file" / "staged"))
    job = WriteJob(plan, plan.staged, str(tmp_path), LogFacts(1000), {}, frozenset())
    row = PackedRow(Kind.ENTRIES, "orders", 0, 0, 0, 0, 0, bytes(40))
    (batch,) = write_queues(job)(_batches(iter([row])))
    refusal = pickle.loads(batch.column(0)[0].as_py())
    assert isinstance(refusal, Refusal)
    with pytest.raises(DiskError, match="cannot make the directory"):
        raise refusal.error()


def test_an_entry_that_is_missing_in_a_file_is_not_written_as_zeros(tmp_path: Path) -> None:
    plan = make_plan(tmp_path, IndexLayout(10, 10))
    job = WriteJob(plan, plan.staged, str(tmp_path), LogFacts(1000), {}, frozenset())
    rows = [PackedRow(Kind.ENTRIES, "orders", 0, 0, 0, first, first, bytes(40)) for first in (0, 3)]
    (batch,) = write_queues(job)(_batches(iter(rows)))
    assert pickle.loads(batch.column(0)[0].as_py()).kind is DamagedStore


def downloaded(s3: S3Server, uri: str, folder: Path) -> Path:
    pa_fs.copy_files(uri.removeprefix("s3://"), str(folder), source_filesystem=s3.files)
    return folder


@pytest.mark.parametrize("case", ["plain", "cqext"])
def test_a_store_in_an_object_store_is_rebuilt_into_another_place_there(
    spark: SparkSession, s3: S3Server, golden: Callable[[str], Path], tmp_path: Path, case: str
) -> None:
    folder = golden(case)
    uri = s3.upload(folder / "store", "store")
    new = f"{uri}2"
    target = RemoteTarget(new)
    if case == "plain":  # a rebuild that was killed while it published
        target.put(BEGUN, b"")
        target.put("consumequeue/killed/0/00000000000000000000", b"half of a result")
        target.put(f"{STAGED}/index/20260101000000000", b"staged")
    report = rebuild(spark, uri, config=config_of(folder), into=new, split_bytes=90_000)
    assert report.mode == "shuffle"
    assert_same(downloaded(s3, new, tmp_path / "new"), folder / "store")
    assert {name.split("/")[0] for name in target.names()} <= {"consumequeue", "consumequeue_ext", "index"}
    if case == "plain":
        with pytest.raises(InvalidConfig, match="must be empty"):
            rebuild(spark, uri, config=config_of(folder), into=new)
        with pytest.raises(InvalidConfig, match="only a path on this machine"):
            rebuild(spark, uri, config=config_of(folder))
        with pytest.raises(InvalidConfig, match="mounted disk"):
            rebuild(spark, uri, config=config_of(folder), into=f"{uri}3", mode="place")


def test_no_job_reads_a_place_whose_rebuild_has_not_finished(
    spark: SparkSession, s3: S3Server, store: Path, tmp_path: Path
) -> None:
    uri = s3.upload(store, "store")
    RemoteTarget(uri).put(BEGUN, b"")
    jobs: list[Callable[[], object]] = [
        lambda: query(spark, uri, "select 1"),
        lambda: verify(spark, uri),
        lambda: report(spark, uri),
        lambda: export(spark, uri, tmp_path / "table"),
        lambda: compact(spark, uri, tmp_path / "latest"),
        lambda: replay(spark, uri, tmp_path / "copy"),
        lambda: rebuild(spark, uri, config=small_config(), into=tmp_path / "rebuilt"),
    ]
    for job in jobs:
        with pytest.raises(DamagedStore, match=r"a rebuild into this place has not finished \[s3://.*run that rebuild"):
            job()
    for view in ("messages", "queue_entries"):
        with pytest.raises(PySparkException, match="has not finished"):
            spark.read.format("flintlog").option("view", view).load(uri)
    assert not list(tmp_path.iterdir())
    before = RemoteTarget(uri).names()
    with pytest.raises(InvalidConfig, match="must be empty, and has checkpoint"):  # nor is anything of others removed
        rebuild(spark, store, config=small_config(), into=uri)
    assert RemoteTarget(uri).names() == before
    RemoteTarget(uri).remove([BEGUN])
    assert spark.read.format("flintlog").load(uri).count() == COUNT


def test_a_rebuild_that_fails_leaves_nothing_at_its_uri(
    spark: SparkSession, s3: S3Server, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = f"s3://{s3.make_bucket()}/new"

    def fail(*_: object) -> None:
        raise DiskError("no room")

    monkeypatch.setattr("flintlog.pipeline.rebuild.publish", fail)
    with pytest.raises(DiskError, match="no room"):
        rebuild(spark, store, config=small_config(), into=new)
    assert RemoteTarget(new).names() == []


MOUNTS = """\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 22 0:40 / /mnt/nas rw,relatime - nfs4 nas:/export rw,vers=4.2
31 22 0:41 / /mnt/s3 rw - fuse.s3fs s3fs rw
32 30 0:42 / /mnt/nas/fast rw - xfs /dev/sdb rw
"""


def test_the_mode_follows_from_the_file_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(MOUNTS)
    found = {place: is_coherent(Path(place), mounts) for place in ("/data", "/mnt/nas/a", "/mnt/s3/a", "/mnt/nas/fast")}
    assert found == {"/data": True, "/mnt/nas/a": False, "/mnt/s3/a": False, "/mnt/nas/fast": True}
    monkeypatch.setattr("flintlog.pipeline.rebuild.is_coherent", lambda path: is_coherent(path, mounts))
    assert (choose_mode("/data"), choose_mode("/mnt/nas/store")) == ("place", "shuffle")
