"""An Iceberg table that gains whole batches, each exactly once: files and positions are one change of its metadata.

    TABLE/data/topic=orders/day=2026-11-16/….parquet     written by tasks; not in the table until a snapshot adds them
    TABLE/metadata/                                      Iceberg's own; version-hint.text names the newest
    TABLE/_flintlog/catalog.db                           the catalog that points at it, unless another one is named
    TABLE/_flintlog/lock

Positions are properties of the table, set by the same commit that adds the files. Files of a killed batch are not part
of the table; Iceberg's own removal of orphan files deletes them. Partitions are the columns topic and day, which the
files also have, as Iceberg requires.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

import msgspec

from flintlog.disk.media.local import LocalMedium
from flintlog.disk.media.medium import first_line
from flintlog.disk.media.parquet_file import read_schema
from flintlog.errors import InvalidConfig, JobFailed, MissingExtra
from flintlog.pipeline.tables.parquet_table import ROOM, TableSpec, check_same, parse_spec
from flintlog.pipeline.tables.table_write import WrittenFile

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table, Transaction

DEFAULT_IDENTIFIER: Final = "rocketmq.messages"
SPEC: Final = "flintlog.table"
POSITION: Final = "flintlog.position/"
_IO: Final = {"py-io-impl": "flintlog.pipeline.tables.iceberg_io.DurableFileIO"}
_PARTS: Final = frozenset({ROOM, "data", "metadata"})


@dataclass(frozen=True, slots=True)
class IcebergName:
    """The catalog and the name of a table in it; without a catalog, one in the table's directory."""

    catalog: str | None = None
    identifier: str = DEFAULT_IDENTIFIER

    def __post_init__(self) -> None:
        if len(self.identifier.split(".")) < 2 or not all(self.identifier.split(".")):
            raise InvalidConfig(f"{self.identifier!r} is no name of an Iceberg table", advice="NAMESPACE.TABLE")


class IcebergTable:
    """Writes a table. A lock allows one writer at a time."""

    form = "iceberg"
    keeps_partitions = True
    is_staged_in_place = True

    def __init__(self, root: Path, name: IcebergName | None = None) -> None:
        check_installed()
        self.root = root
        self._name = name or IcebergName()
        self._medium = LocalMedium()
        self._catalog: Catalog | None = None
        self._table: Table | None = None
        self._spec = TableSpec()

    @property
    def staged(self) -> Path:
        """Tasks write where the files will stay."""
        return self.root / "data"

    def position(self, store: str) -> int | None:
        """Up to where a log is in the table."""
        found = None if self._table is None else self._table.properties.get(POSITION + store)
        return None if found is None else int(found)

    @contextmanager
    def opened(self, spec: TableSpec) -> Iterator[None]:
        """Lock the table. Its first batch creates it."""
        strangers = {info.name for info in self._medium.listing(self.root)} - _PARTS
        if strangers:
            raise InvalidConfig(
                "this directory is not an Iceberg table of ours", path=self.root, advice="name a new one"
            )
        self._spec = spec
        self._medium.make_directories(self.root / ROOM)
        lock = self._medium.lock(self.root / ROOM / "lock")
        with ExitStack() as held:
            held.callback(lock.release)
            with iceberg_errors("opening the catalog", self.root):
                self._catalog = held.enter_context(open_catalog(self.root, self._name))
                self._table = self._load(self._catalog)
            yield

    def commit(self, files: Sequence[WrittenFile], positions: Mapping[str, int]) -> None:
        """Add files and positions in one transaction."""
        if not files and self._table is None:
            return
        for folder in sorted({Path(file.staged).parent for file in files}):
            self._medium.sync_directory(folder)
            self._medium.sync_directory(folder.parent)
        assert self._catalog is not None
        with iceberg_errors("the commit", self.root), ExitStack() as undo:
            if self._table is None:
                self._create(files[0], undo)
            assert self._table is not None
            with self._table.transaction() as transaction:
                self._write(transaction, files, positions)
            self._point_at(self._table.metadata_location)
            undo.pop_all()

    def _write(self, transaction: Transaction, files: Sequence[WrittenFile], positions: Mapping[str, int]) -> None:
        if files:
            # No file can be in the table already: its name is unique to the attempt.
            transaction.add_files([_uri(Path(file.staged)) for file in files], check_duplicate_files=False)
        transaction.set_properties({POSITION + store: str(at) for store, at in positions.items()})

    def _load(self, catalog: Catalog) -> Table | None:
        if not catalog.table_exists(self._name.identifier):
            return None
        table = catalog.load_table(self._name.identifier)
        if table.location().rstrip("/") != _uri(self.root):
            raise InvalidConfig(
                f"{self._name.identifier} is somewhere else: {table.location()}", path=self.root, advice="name another"
            )
        there = parse_spec(table.properties.get(SPEC))
        if there is None:
            raise InvalidConfig("this Iceberg table is not one of ours", path=self.root, advice="name a new one")
        check_same(there, self._spec, self.root)
        return table

    def _create(self, file: WrittenFile, undo: ExitStack) -> None:
        assert self._catalog is not None
        namespace = self._name.identifier.rpartition(".")[0]
        self._catalog.create_namespace_if_not_exists(namespace)
        with (
            self._catalog.create_table_transaction(
                self._name.identifier,
                read_schema(Path(file.staged)),
                location=_uri(self.root),
                properties={SPEC: msgspec.json.encode(self._spec).decode()},
            ) as transaction,
            transaction.update_spec() as partitions,
        ):
            partitions.add_identity("topic")
            partitions.add_identity("day")
        undo.push(self._forget)
        self._table = self._catalog.load_table(self._name.identifier)

    def _forget(self, kind: type[BaseException] | None, *others: object) -> None:
        """Drop a table whose first batch failed: its directory is deleted, so no catalog may point there."""
        assert self._catalog is not None
        if kind is not None and issubclass(kind, Exception):
            self._table = None
            with suppress(Exception):  # the user needs the batch's own error
                self._catalog.drop_table(self._name.identifier)

    def _point_at(self, metadata: str) -> None:
        """Name the newest metadata for readers without the catalog."""
        self._medium.replace(self.root / "metadata" / "version-hint.text", PurePosixPath(metadata).name.encode())


def check_installed() -> None:
    """`MissingExtra` without pyiceberg."""
    try:
        import pyiceberg.catalog.sql  # noqa: F401 - asked for before anything is read
    except ModuleNotFoundError as error:
        raise MissingExtra("an Iceberg table needs pyiceberg", advice="pip install 'flintlog[iceberg]'") from error


@contextmanager
def open_catalog(root: Path, name: IcebergName) -> Iterator[Catalog]:
    """The catalog that was named (of pyiceberg's own configuration), or the one in the table's directory."""
    from pyiceberg.catalog import load_catalog
    from pyiceberg.catalog.sql import SqlCatalog

    if name.catalog is not None:
        catalog = load_catalog(name.catalog, **_IO)
    else:
        database = f"sqlite:///{root / ROOM / 'catalog.db'}"
        catalog = SqlCatalog("flintlog", uri=database, warehouse=_uri(root), **_IO)
    try:
        yield catalog
    finally:
        catalog.close()


@contextmanager
def iceberg_errors(doing: str, root: Path) -> Iterator[None]:
    """Turns errors of pyiceberg and its catalogs into one clear error."""
    from pyiceberg import exceptions
    from sqlalchemy.exc import SQLAlchemyError

    # pyiceberg's exceptions have no common root.
    theirs = (each for each in vars(exceptions).values() if isinstance(each, type) and issubclass(each, Exception))
    known: tuple[type[Exception], ...] = (SQLAlchemyError, ValueError, OSError, *theirs)
    try:
        yield
    except known as error:
        raise JobFailed(f"{doing} failed: {first_line(error)}", path=root) from error


def _uri(path: Path) -> str:
    """A path as an URI for Iceberg. Nothing is escaped, because readers differ in whether they unescape."""
    return f"file://{path}"
