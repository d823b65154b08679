"""Parquet files: one that is written row group by row group and is on disk when it is closed, and a file's schema.

A module of its own, so that only writers of Parquet load pyarrow.
"""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from flintlog.disk.media.medium import os_errors


def read_schema(path: Path) -> pa.Schema:
    """The columns of a file, without metadata."""
    with os_errors("read", path):
        return pq.read_schema(path).remove_metadata()


class ParquetFile:
    """One new file, which one task owns."""

    def __init__(self, path: Path, schema: pa.Schema, compression: str) -> None:
        self.path = path
        self.row_count = 0
        self.size = 0
        with os_errors("create", path):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._writer = pq.ParquetWriter(path, schema, compression=compression)

    def write(self, table: pa.Table) -> None:
        """Write one row group."""
        with os_errors("write", self.path):
            self._writer.write_table(table, row_group_size=max(1, table.num_rows))
        self.row_count += table.num_rows

    def close(self) -> None:
        """Close the file and make its bytes durable. The caller makes its name durable."""
        with os_errors("close", self.path):
            self._writer.close()
            descriptor = os.open(self.path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
                self.size = os.fstat(descriptor).st_size
            finally:
                os.close(descriptor)
