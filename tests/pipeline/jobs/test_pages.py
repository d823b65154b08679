"""Pages that need Spark, run in the session that all tests of the pipeline share."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.pages import Golden, PageRun
from tests.test_pages import ON_SPARK
from tests.test_pages import PAGES as ALL

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGES = [page for page in ALL if page.name in ON_SPARK]


@pytest.fixture
def empty_home(spark_home: Path) -> Iterator[Path]:
    """The directory in which Spark was started; what a page left there is removed."""
    before = set(spark_home.iterdir())
    yield spark_home
    for left in set(spark_home.iterdir()) - before:
        if left.is_dir():
            shutil.rmtree(left)
        else:
            left.unlink()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_a_page_shows_happens(
    page: Path, spark: SparkSession, empty_home: Path, monkeypatch: pytest.MonkeyPatch, golden: Golden
) -> None:
    monkeypatch.setenv("CLUSTER", "local[2]")  # a real one: tests/pipeline/spark/test_session.py
    PageRun(page, empty_home, monkeypatch, golden).run()
