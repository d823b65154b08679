"""The interface of the tables that jobs write, and the choice of one by its form.

A table gains whole batches. Its files and the positions of their logs are committed as one: files of a killed batch are
not part of the table, and the table itself holds the position at which to continue.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from flintlog.disk.media.local import LocalMedium
from flintlog.errors import InvalidConfig
from flintlog.pipeline.tables.parquet_table import ROOM, SPEC_FILE, ParquetTable, TableSpec
from flintlog.pipeline.tables.table_write import WrittenFile

if TYPE_CHECKING:
    from flintlog.pipeline.tables.iceberg_table import IcebergName

FORMS: Final = ("parquet", "delta", "iceberg")


class Table(Protocol):
    """A table that a job writes."""

    form: str
    root: Path
    is_staged_in_place: bool
    """Whether tasks write where files will stay, by partition."""

    @property
    def keeps_partitions(self) -> bool:
        """Whether files have the columns topic and day; else these are only in a directory's name or the table's log.

        It is known once the table is opened.
        """

    @property
    def staged(self) -> Path:
        """The directory that tasks put their files into."""

    def position(self, store: str) -> int | None:
        """The physical offset up to which the table holds a store; None before its first batch."""

    def opened(self, spec: TableSpec) -> AbstractContextManager[None]:
        """Lock the table for this job."""

    def commit(self, files: Sequence[WrittenFile], positions: Mapping[str, int]) -> None:
        """Add files and set positions, both or neither."""


def find_form(root: Path) -> str | None:
    """The form of the table in a directory; None when there is none yet."""
    medium = LocalMedium()
    marks = (
        ("delta", "_delta_log"),
        ("iceberg", "metadata"),
        ("iceberg", f"{ROOM}/catalog.db"),
        ("parquet", f"{ROOM}/{SPEC_FILE}"),
    )
    return next((form for form, mark in marks if medium.exists(root / mark)), None)


def make_table(form: str | None, root: Path, name: IcebergName | None = None) -> Table:
    """The table at a path, of a form, or of the form that it has. Nothing is created yet.

    An Iceberg table may have a name in a catalog.
    """
    there = find_form(root)
    if form is None:
        form = there or "parquet"
    elif there is not None and form in FORMS and form != there:
        # With two kinds of table in one directory, a reader of one would see files of the other.
        raise InvalidConfig(f"there is a table of {there} here, not of {form}", path=root, advice="name a new one")
    if form == "iceberg":
        from flintlog.pipeline.tables.iceberg_table import IcebergTable

        return IcebergTable(root, name)
    if name is not None:
        raise InvalidConfig(f"a table of {form} is in no catalog", advice="one of iceberg is")
    if form == "parquet":
        return ParquetTable(root)
    if form == "delta":
        from flintlog.pipeline.tables.delta_table import DeltaTable

        return DeltaTable(root)
    raise InvalidConfig(f"there is no table format {form}", advice=f"there are: {', '.join(FORMS)}")
