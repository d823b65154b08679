"""An Iceberg table as a frame, without Iceberg's jar: pyiceberg says which files it has now, Spark reads them.

The table's own catalog is asked, if it has one of ours; else the metadata that version-hint.text names, or the newest.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from flintlog.disk.media.local import LocalMedium
from flintlog.errors import InvalidConfig
from flintlog.pipeline.spark.failures import plain_errors
from flintlog.pipeline.tables.iceberg_table import SPEC, IcebergName, check_installed, iceberg_errors, open_catalog
from flintlog.pipeline.tables.parquet_table import ROOM

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyspark.sql import DataFrame, SparkSession

_METADATA = ".metadata.json"


def load_iceberg(spark: SparkSession, root: Path) -> tuple[DataFrame, str | None]:
    """The rows of a table as it is now, and how it was made if it is ours."""
    check_installed()
    with iceberg_errors("reading the table", root):
        table = _load_table(root)
        tasks = list(table.scan().plan_files())
    if any(task.delete_files for task in tasks):
        raise InvalidConfig("rows of this table were deleted", path=root, advice="rewrite its data files first")
    if not tasks:
        raise InvalidConfig("this table has no rows", path=root)
    with plain_errors("reading the table"):
        frame = spark.read.parquet(*(task.file.file_path for task in tasks))
    return frame, table.properties.get(SPEC)


def _load_table(root: Path) -> Table:
    from pyiceberg.table import StaticTable

    if LocalMedium().exists(root / ROOM / "catalog.db"):
        with open_catalog(root, IcebergName()) as catalog:
            if catalog.table_exists(IcebergName().identifier):
                return catalog.load_table(IcebergName().identifier)
    names = [info.name for info in LocalMedium().listing(root / "metadata")]
    if "version-hint.text" in names:
        return StaticTable.from_metadata(str(root))
    found = sorted(name for name in names if name.endswith(_METADATA))
    if not found:
        raise InvalidConfig("this is no Iceberg table", path=root)
    return StaticTable.from_metadata(str(root / "metadata" / found[-1]))
