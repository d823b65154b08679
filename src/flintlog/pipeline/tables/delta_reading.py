"""A Delta table as a frame, without Delta's jar: deltalake says which files it has now, Spark reads them as Parquet.

Values of partition columns are in Delta's log, not in the files: they are joined to the rows by the file's name.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from flintlog.disk.media.medium import first_line
from flintlog.errors import InvalidConfig, MissingExtra
from flintlog.pipeline.spark.failures import plain_errors

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def load_delta(spark: SparkSession, root: Path) -> tuple[DataFrame, str | None]:
    """The rows of a table as it is now, and its description."""
    try:
        import deltalake
    except ModuleNotFoundError as error:
        raise MissingExtra("a Delta table needs deltalake", advice="pip install 'flintlog[delta]'") from error
    try:
        table = deltalake.DeltaTable(str(root))
        actions = pa.table(table.get_add_actions(flatten=True))
    except deltalake.exceptions.DeltaError as error:
        raise InvalidConfig(f"this is no Delta table: {first_line(error)}", path=root) from error
    if not actions.num_rows:
        raise InvalidConfig("this table has no rows", path=root)
    metadata = table.metadata()
    with plain_errors("reading the table"):
        files = [str(root / path) for path in actions["path"].to_pylist()]
        frame = spark.read.parquet(*files)
        return _with_partitions(spark, frame, actions, metadata.partition_columns, root), metadata.description


def _with_partitions(
    spark: SparkSession, frame: DataFrame, actions: pa.Table, columns: list[str], root: Path
) -> DataFrame:
    from pyspark.sql import functions as f

    names = [Path(path).name for path in actions["path"].to_pylist()]
    if not columns:
        return frame
    if len(set(names)) < len(names):
        raise InvalidConfig("two files of this table have the same name", path=root, advice="compact the table first")
    values = [actions[f"partition.{column}"].to_pylist() for column in columns]
    rows = [
        (name, *(None if each is None else str(each) for each in row))
        for name, *row in zip(names, *values, strict=True)
    ]
    ddl = ", ".join(f"`{column}` string" for column in ("_file", *columns))
    by_file = f.broadcast(spark.createDataFrame(rows, ddl))
    return frame.withColumn("_file", f.col("_metadata.file_name")).join(by_file, "_file").drop("_file")
