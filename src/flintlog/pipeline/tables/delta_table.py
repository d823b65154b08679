"""A Delta table that gains whole batches, each exactly once: files and positions are one transaction of Delta's log.

    TABLE/topic=orders/day=2026-11-16/….parquet      written by tasks; not in the table until a transaction adds them
    TABLE/_delta_log/                                add actions, and for each store: txn(flintlog/STORE, position)
    TABLE/_flintlog/lock

Files of a killed batch are not part of the table; Delta's own VACUUM removes them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from flintlog.disk.media.local import LocalMedium
from flintlog.disk.media.medium import first_line
from flintlog.disk.media.parquet_file import read_schema
from flintlog.errors import InvalidConfig, JobFailed, MissingExtra
from flintlog.pipeline.tables.parquet_table import ROOM, TableSpec, check_same, parse_spec
from flintlog.pipeline.tables.table_write import WrittenFile

if TYPE_CHECKING:
    import deltalake

PARTITIONS = ["topic", "day"]


class DeltaTable:
    """Writes a table. A lock allows one writer at a time."""

    form = "delta"
    keeps_partitions = False
    is_staged_in_place = True

    def __init__(self, root: Path) -> None:
        try:
            import deltalake  # noqa: F401 - asked for before anything is read
        except ModuleNotFoundError as error:
            raise MissingExtra("a Delta table needs deltalake", advice="pip install 'flintlog[delta]'") from error
        self.root = root
        self._medium = LocalMedium()
        self._table: deltalake.DeltaTable | None = None
        self._spec = TableSpec()

    @property
    def staged(self) -> Path:
        """Tasks write where the files will stay."""
        return self.root

    def position(self, store: str) -> int | None:
        """Up to where a log is in the table."""
        return None if self._table is None else self._table.transaction_version(_application(store))

    @contextmanager
    def opened(self, spec: TableSpec) -> Iterator[None]:
        """Lock the table. Its first batch creates it."""
        import deltalake

        is_there = deltalake.DeltaTable.is_deltatable(str(self.root))
        strangers = [info.name for info in self._medium.listing(self.root) if not _may_be_ours(info.name)]
        if not is_there and strangers:
            raise InvalidConfig("this directory is not a Delta table", path=self.root, advice="name a new one")
        self._spec = spec
        self._medium.make_directories(self.root / ROOM)
        lock = self._medium.lock(self.root / ROOM / "lock")
        try:
            if is_there:
                self._table = deltalake.DeltaTable(str(self.root))
                self._check_spec()
            yield
        finally:
            lock.release()

    def commit(self, files: Sequence[WrittenFile], positions: Mapping[str, int]) -> None:
        """Add files and positions in one transaction."""
        import deltalake

        if not files and self._table is None:
            return
        for folder in sorted({Path(file.staged).parent for file in files}):
            self._medium.sync_directory(folder)
        properties = deltalake.CommitProperties(
            app_transactions=[deltalake.Transaction(_application(store), at) for store, at in positions.items()]
        )
        try:
            self._write([self._action(file) for file in files], files, properties)
        except deltalake.exceptions.DeltaError as error:
            raise JobFailed(f"the transaction failed: {first_line(error)}", path=self.root) from error
        self._table = deltalake.DeltaTable(str(self.root))

    def _write(
        self,
        actions: Sequence[deltalake.transaction.AddAction],
        files: Sequence[WrittenFile],
        properties: deltalake.CommitProperties,
    ) -> None:
        import deltalake

        if self._table is None:
            deltalake.transaction.create_table_with_add_actions(
                str(self.root),
                deltalake.Schema.from_arrow(self._schema(files[0])),
                [*actions],
                partition_by=PARTITIONS,
                description=msgspec.json.encode(self._spec).decode(),
                commit_properties=properties,
            )
        else:
            self._table.create_write_transaction(
                [*actions], "append", self._table.schema(), PARTITIONS, commit_properties=properties
            )

    def _action(self, file: WrittenFile) -> deltalake.transaction.AddAction:
        import deltalake

        path = Path(file.staged).relative_to(self.root).as_posix()
        return deltalake.transaction.AddAction(
            path=path,
            size=file.bytes,
            partition_values={"topic": file.topic, "day": file.day},
            modification_time=time.time_ns() // 1_000_000,
            data_change=True,
            stats=json.dumps({"numRecords": file.rows}),
        )

    def _schema(self, file: WrittenFile) -> pa.Schema:
        own = read_schema(Path(file.staged))
        return pa.schema([*own, pa.field("topic", pa.utf8()), pa.field("day", pa.date32())])

    def _check_spec(self) -> None:
        assert self._table is not None
        there = parse_spec(self._table.metadata().description)
        if there is None:
            raise InvalidConfig("this Delta table is not one of ours", path=self.root, advice="name a new one")
        check_same(there, self._spec, self.root)


def _application(store: str) -> str:
    return f"flintlog/{store}"


def _may_be_ours(name: str) -> bool:
    """Whether a first batch that was killed may have left this name."""
    return name == ROOM or name.startswith("topic=")
