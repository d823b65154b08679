"""A store in an object store: the same rows as on a disk, read by real clients from an S3 server."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.pipeline.s3_server import S3Server

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession


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
