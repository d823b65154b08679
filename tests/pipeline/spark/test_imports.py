"""Spark's Python processes collect no garbage among what they have imported."""

from __future__ import annotations

import gc
from collections.abc import Callable, MutableMapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from flintlog.pipeline.reading import imports
from flintlog.pipeline.spark.tasks import run_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSource, InputPartition
    from pyspark.sql.types import StructType

FEW = 10_000
"""Spark's Python processes import more than ten times as many objects."""


def make_count_collected() -> Callable[[int], int]:
    """Inside another function, so that workers, which lack the tests, get its code."""

    def count_collected(_item: int) -> int:
        return len(gc.get_objects())  # those that every collection visits

    return count_collected


def make_counting_source() -> type[DataSource]:
    """The source, that notes how many objects its planning processes would collect among."""
    from flintlog.pipeline.source import BatchReader, FlintlogSource

    class CountingReader(BatchReader):
        def partitions(self) -> Sequence[InputPartition]:
            note("planned", self.asked.paths[0])
            return super().partitions()

    class CountingSource(FlintlogSource):
        @classmethod
        def name(cls) -> str:
            return "counting"

        def __init__(self, options: MutableMapping[str, str]) -> None:
            super().__init__(options)
            self.shown = self.shape

        def schema(self) -> StructType:
            found = super().schema()
            note("created", self.asked.paths[0])
            return found

        def reader(self, schema: StructType) -> CountingReader:
            super().reader(schema)
            return CountingReader(self.asked, self.shown)

    def note(what: str, store: str) -> None:
        with Path(f"{store}.{what}").open("a") as notes:
            notes.write(f"{len(gc.get_objects())}\n")

    return CountingSource


def test_tasks(spark: SparkSession) -> None:
    for _ in range(2):
        counts = run_tasks(spark, make_count_collected(), range(4), doing="count")
    assert min(counts) < FEW


def test_the_processes_that_plan_a_read(spark: SparkSession, store: Path, tmp_path: Path) -> None:
    (tmp_path / "store").symlink_to(store)
    spark.dataSource.register(make_counting_source())
    for _ in range(2):
        assert spark.read.format("counting").load(str(tmp_path / "store")).count()
    for what in ("created", "planned"):
        last = (tmp_path / f"store.{what}").read_text().split()[-1]
        assert int(last) < FEW, what


def test_a_process_that_is_not_a_worker_of_spark_keeps_its_garbage() -> None:
    before = gc.get_freeze_count()
    imports.exclude()
    assert gc.get_freeze_count() == before
