"""The target of a compaction: a new store, or a new table.

The target is new, or left by a compaction that was killed; either way it holds no message and no row. Tasks write or
stage the kept rows (`part`); one commit of the driver makes them part of the store or the table.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Protocol

import pyarrow as pa

from flintlog.disk.media.local import LocalMedium
from flintlog.errors import InvalidConfig
from flintlog.format.names import COMMIT_LOG
from flintlog.pipeline.reading.logs import find_end, find_logs
from flintlog.pipeline.reading.reading import Reading
from flintlog.pipeline.reading.rows import RowShape
from flintlog.pipeline.sink.sink import StagedRows, StagingArea, check_place
from flintlog.pipeline.sink.sink_options import parse_sink_options
from flintlog.pipeline.spark.new_directory import new_directory
from flintlog.pipeline.tables.parquet_table import TableSpec
from flintlog.pipeline.tables.table import make_table
from flintlog.pipeline.tables.table_write import ExportTask, WrittenFile
from flintlog.store.paths import StorePaths

WRITER: Final = "flintlog-compact"
"""The writer of the one batch of a compacted store; in a table, the name of the position that says it is complete."""

Written = StagedRows | list[WrittenFile]


class Part(Protocol):
    """The part of a target that is sent to tasks."""

    def reading(self) -> Reading:
        """How rows are read."""

    def write_rows(self, batches: Iterable[pa.RecordBatch]) -> Written:
        """Write or stage the kept rows."""


class Target(Protocol):
    """A store or a table that a compaction writes."""

    @property
    def part(self) -> Part: ...

    def opened(self) -> AbstractContextManager[None]:
        """Hold it if it is new, otherwise refuse; if the block fails, everything that it made is removed."""

    def commit(self, parts: Sequence[Written], ends: Mapping[str, int]) -> int:
        """Make the tasks' results part of it, in this order; returns how many rows they have."""


@dataclass(frozen=True, slots=True)
class StagePart:
    """Tasks of a store stage messages; bodies stay as they are."""

    area: StagingArea
    fail_on_data_loss: bool

    def reading(self) -> Reading:
        return Reading(RowShape(), fail_on_data_loss=self.fail_on_data_loss)

    def write_rows(self, batches: Iterable[pa.RecordBatch]) -> Written:
        return self.area.write(iter(batches))


class StoreTarget:
    """A new store, whose messages are one closed batch."""

    def __init__(self, root: Path, config: str | None, fail_on_data_loss: bool) -> None:
        given = {"path": str(root), **({} if config is None else {"config": config})}
        self._root = root
        self._area = StagingArea(parse_sink_options(given, is_streaming=False), WRITER)
        self.part = StagePart(self._area, fail_on_data_loss)

    @contextmanager
    def opened(self) -> Iterator[None]:
        with new_directory(self._root):
            self._check_new()
            yield

    def _check_new(self) -> None:
        check_place(self._root)
        names = {info.name for info in LocalMedium().listing(self._root)}
        if names and COMMIT_LOG not in names and names != {StorePaths.of(self._root, None).own.name}:
            raise InvalidConfig("this directory is not a new store", path=self._root, advice="name a new one")
        if COMMIT_LOG in names and find_end(find_logs((str(self._root),))[0]) > 0:
            raise InvalidConfig("this store holds messages", path=self._root, advice="name a new store")

    def commit(self, parts: Sequence[Written], ends: Mapping[str, int]) -> int:
        closed = self._area.append([part for part in parts if isinstance(part, StagedRows)], WRITER, 0)
        return 0 if closed is None else closed.message_count


class TableTarget:
    """A new table: bodies are decompressed, partitions are topic and day."""

    def __init__(
        self,
        form: str,
        root: Path,
        version: int,
        topics: tuple[str, ...] | None,
        fail_on_data_loss: bool,
        *,
        with_broker: bool,
    ) -> None:
        self._root = root
        self._table = make_table(form, root)
        self._spec = TableSpec(
            format_version=version,
            topics=None if topics is None else sorted(topics),
            is_glob=with_broker,
            is_compacted=True,
        )
        self.part = ExportTask(
            str(self._table.staged),
            with_broker=with_broker,
            fail_on_data_loss=fail_on_data_loss,
            by_partition=self._table.is_staged_in_place,
        )

    @contextmanager
    def opened(self) -> Iterator[None]:
        with new_directory(self._root), self._table.opened(self._spec):
            if self._table.position(WRITER) is not None:
                raise InvalidConfig("this table is complete", path=self._root, advice="a compaction makes a new one")
            self.part = replace(self.part, keep_partitions=self._table.keeps_partitions)
            yield

    def commit(self, parts: Sequence[Written], ends: Mapping[str, int]) -> int:
        files = [file for part in parts if isinstance(part, list) for file in part]
        self._table.commit(files, {**ends, WRITER: 0})
        return sum(file.rows for file in files)
