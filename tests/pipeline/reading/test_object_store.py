"""A store in an object store: the same rows as on a disk, read by real clients from an S3 server."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.pipeline.conftest import small_config
from tests.pipeline.s3_server import S3Server

from flintlog import Message, open_store
from flintlog.disk.media.arrow_source import PIECE_BYTES
from flintlog.pipeline.reading.logs import find_end, find_logs
from flintlog.pipeline.reading.options import parse_source_options
from flintlog.pipeline.reading.partitions import start_at_time
from flintlog.pipeline.reading.positions import next_record, stands
from flintlog.pipeline.reading.rows import RowShape
from flintlog.pipeline.reading.split_partition import SplitPartition
from flintlog.pipeline.source import BatchReader

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

MIB = 1024 * 1024


@pytest.fixture(scope="module")
def remote_store(s3: S3Server, store: Path) -> str:
    """The same store in a bucket. Read only."""
    return s3.upload(store, "backup", "store")


def rows(spark: SparkSession, place: Path | str) -> list[Row]:
    return spark.read.format("flintlog").load(str(place)).orderBy("physical_offset").collect()


def test_a_store_at_a_uri_has_the_rows_of_the_one_on_the_disk(
    spark: SparkSession, s3: S3Server, store: Path, remote_store: str
) -> None:
    with s3.traffic() as traffic:
        found = rows(spark, remote_store)
    assert found == rows(spark, store)
    assert traffic.bytes_read > 0


@pytest.fixture(scope="module")
def full_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with three log files of 16 MiB: two full ones, and one that is half full."""
    path = tmp_path_factory.mktemp("large") / "store"
    chance = random.Random(20)
    with open_store(path, small_config(mapped_file_size_commit_log=16 * MIB)) as store:
        for number in range(400):
            assert store.put(Message("orders", chance.randbytes(100_000), keys=[f"k{number}"]))
    return path


def test_planning_a_batch_reads_a_few_mebibytes_of_a_log_of_several_files(s3: S3Server, full_log: Path) -> None:
    uri = s3.upload(full_log, "store")
    asked = parse_source_options({"path": uri, "topics": "orders"})
    with s3.traffic() as traffic:
        planned = BatchReader(asked, RowShape()).partitions()
    here = BatchReader(parse_source_options({"path": str(full_log)}), RowShape()).partitions()
    splits = [each.value.split for each in planned if isinstance(each, SplitPartition)]
    assert splits == [each.value.split for each in here if isinstance(each, SplitPartition)]
    assert sum(split.size for split in splits) > 32 * MIB
    assert traffic.bytes_read < 8 * MIB
    assert max(each.sent for each in traffic.reads) <= PIECE_BYTES


def test_an_object_that_ends_with_its_last_record_has_the_same_end(
    s3: S3Server, full_log: Path, tmp_path: Path
) -> None:
    copy = shutil.copytree(full_log, tmp_path / "store")
    (log,) = find_logs((str(copy),))
    end = find_end(log)
    last = copy / "commitlog" / log.files[-1].name
    os.truncate(last, end - log.files[-1].base)
    (remote,) = find_logs((s3.upload(copy),), strict=False)
    assert find_end(remote) == end


def test_the_end_of_a_batch_inside_a_file_is_found_without_the_rest_of_it(s3: S3Server, full_log: Path) -> None:
    (here,), (remote,) = find_logs((str(full_log),)), find_logs((s3.upload(full_log, "store"),))
    with s3.traffic() as traffic:
        place = next_record(remote, MIB)
        assert stands(remote, place)
    assert place == next_record(here, MIB)
    assert traffic.bytes_read < 9 * MIB
    with s3.traffic() as traffic:
        assert start_at_time(remote, 0) == remote.first
        assert start_at_time(remote, 1 << 50) == remote.files[-1].base
    assert traffic.bytes_read < MIB
