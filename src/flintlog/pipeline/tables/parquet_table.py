"""A directory of Parquet files that gains whole batches, each exactly once.

    TABLE/topic=orders/day=2026-11-16/part-00000003-00001.parquet     what readers see (version 1)
    TABLE/part-00000003-00001.parquet                                 the same with columns topic and day (version 2)
    TABLE/_flintlog/table.json                                        what the table is made of
    TABLE/_flintlog/commits/00000003.json                             a batch: its files, and how far logs were read
    TABLE/_flintlog/staged/                                           files of a batch that is not committed
    TABLE/_flintlog/lock

Readers of Parquet (Spark's, pyarrow's) ignore names that begin with an underscore. A batch is written and synced under
`staged/`; then its commit is written by one atomic replacement, and the batch belongs to the table. Then its files are
renamed to where readers find them. After a crash, the next writer finishes the renames of the last commit and deletes
the rest of `staged/`, so no message is duplicated or missing.

Readers take the topic from the folder's name, and all files of a table must lie in folders of the same kind. A topic
may be too long for such a name, so a table of a store with such a topic has no folders (version 2).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace

from flintlog.disk.media.leftovers import remove_leftovers
from flintlog.disk.media.local import LocalMedium
from flintlog.disk.media.medium import Medium
from flintlog.errors import InvalidConfig
from flintlog.pipeline.tables.table_write import WrittenFile, can_name_folder
from flintlog.store.runtime.note_file import NoteFile, parse_note

ROOM: Final = "_flintlog"
SPEC_FILE: Final = "table.json"
FORMAT_VERSION: Final = 1
FLAT_VERSION: Final = 2
"""Of a table of Parquet without folders for topic and day."""
_RECORD: Final = "the table's own record"
_ADVICE: Final = "restore the file, or export into a new table"


class TableSpec(msgspec.Struct, frozen=True, kw_only=True):
    """The options that all batches of a table share."""

    format_version: int = FORMAT_VERSION
    topics: list[str] | None = None
    include_body: bool = True
    decompress: bool = True
    value_schema: str | None = None
    is_glob: bool = False
    is_compacted: bool = False


class Move(msgspec.Struct, frozen=True):
    """One file of a batch: its name under `staged/`, its place in the table, its rows."""

    staged: str
    path: str
    rows: int
    bytes: int


class Commit(msgspec.Struct, frozen=True):
    """One batch; `positions` are physical offsets by store, up to which the table holds everything."""

    version: int
    positions: dict[str, int]
    files: list[Move]


class ParquetTable:
    """Writes a table. A lock allows one writer at a time."""

    form = "parquet"
    is_staged_in_place = False

    def __init__(self, root: Path, medium: Medium | None = None) -> None:
        self.root = root
        self._medium = LocalMedium() if medium is None else medium
        self._last: Commit | None = None
        self._version = FORMAT_VERSION

    @property
    def keeps_partitions(self) -> bool:
        """Whether files have the columns topic and day; known once the table is opened."""
        return self._version == FLAT_VERSION

    @property
    def staged(self) -> Path:
        """Where tasks put their files."""
        return self.root / ROOM / "staged"

    def position(self, store: str) -> int | None:
        """Up to where a log is in the table."""
        return None if self._last is None else self._last.positions.get(store)

    @contextmanager
    def opened(self, spec: TableSpec) -> Iterator[None]:
        """Lock the table; create it if it does not exist, and finish a commit that a crash interrupted."""
        self._check_place()
        self._medium.make_directories(self.root / ROOM / "commits")
        lock = self._medium.lock(self.root / ROOM / "lock")
        try:
            self._take_spec(spec)
            self._last = self._load_last()
            if self._last is not None:
                self._finish(self._last)
            self._medium.remove_tree(self.staged)
            yield
        finally:
            lock.release()

    def commit(self, files: Sequence[WrittenFile], positions: Mapping[str, int]) -> None:
        """Make written files part of the table."""
        version = 0 if self._last is None else self._last.version + 1
        moves = [
            Move(Path(file.staged).name, self._place(file, f"part-{version:08d}-{number:05d}.parquet"), *file.sizes)
            for number, file in enumerate(files)
        ]
        if moves:
            self._medium.sync_directory(self.staged)
        before = {} if self._last is None else self._last.positions
        commit = Commit(version, {**before, **positions}, moves)
        self._commit_note(f"{version:08d}.json").save(commit)
        self._last = commit
        self._finish(commit)
        remove_leftovers(self.staged, self._medium)  # files of other attempts

    # ------------------------------------------------------------------ steps

    def _place(self, file: WrittenFile, name: str) -> str:
        return name if self.keeps_partitions else f"{file.folder}/{name}"

    def _check_place(self) -> None:
        # Other kinds of tables have this folder too, and files where readers of Parquet would find them.
        known = self._medium.exists(self.root / ROOM / SPEC_FILE)
        if not known and any(info.name != ROOM for info in self._medium.listing(self.root)):
            raise InvalidConfig("this directory is not a table of ours", path=self.root, advice="name a new one")

    def _take_spec(self, spec: TableSpec) -> None:
        note = NoteFile(self.root / ROOM / SPEC_FILE, self._medium, TableSpec)
        there = note.load_or_refuse(_RECORD, _ADVICE).content
        if there is None:
            note.save(spec)
        elif there.format_version == FLAT_VERSION:
            check_same(there, replace(spec, format_version=FLAT_VERSION), self.root)
        else:
            check_same(there, replace(spec, format_version=FORMAT_VERSION), self.root)
        self._version = (there or spec).format_version

    def _load_last(self) -> Commit | None:
        names = [info.name for info in self._medium.listing(self.root / ROOM / "commits") if _is_commit(info.name)]
        return None if not names else self._commit_note(max(names)).load_or_refuse(_RECORD, _ADVICE).content

    def _finish(self, commit: Commit) -> None:
        """Rename the files of a commit to their places, unless that was done before."""
        folders = set()
        for move in commit.files:
            source, target = self.staged / move.staged, self.root / move.path
            # A file that is in neither place was moved before, and its owner has deleted it since.
            if self._medium.exists(source):
                self._medium.make_directories(target.parent)
                self._medium.rename(source, target)
                folders.add(target.parent)
        for folder in sorted(folders):
            self._medium.sync_directory(folder)
            self._medium.sync_directory(folder.parent)
        if folders:
            self._medium.sync_directory(self.root)

    def _commit_note(self, name: str) -> NoteFile[Commit]:
        return NoteFile(self.root / ROOM / "commits" / name, self._medium, Commit)


def version_for(form: str, topics: Iterable[str]) -> int:
    """The version of a new table that these topics are known for: without folders if a topic cannot name one."""
    is_flat = form == ParquetTable.form and not all(map(can_name_folder, topics))
    return FLAT_VERSION if is_flat else FORMAT_VERSION


def check_same(there: TableSpec, now: TableSpec, root: Path) -> None:
    """`InvalidConfig` unless a table was made with the present options."""
    for name in TableSpec.__struct_fields__:
        before, asked = getattr(there, name), getattr(now, name)
        if before != asked:
            what = name.replace("_", " ")
            raise InvalidConfig(f"the table was made with {what} = {before}, not {asked}", path=root)


def parse_spec(text: bytes | str | None) -> TableSpec | None:
    """How a table of ours was made; None if it is not ours."""
    data = text.encode() if isinstance(text, str) else text or b""
    return parse_note(data, TableSpec).content


def _is_commit(name: str) -> bool:
    return name.endswith(".json") and name.removesuffix(".json").isdecimal()
