"""Files of the log that have a wrong name: they were renamed, got a suffix, or were copied beside the original.

A file's name is the offset of its first byte. Each of its records holds its own offset, so the right name is known, and
nothing but the name is lost. A writer would end the log at the gap, reuse the file's offsets, or take its bytes for a
torn tail. So opening for writing is refused, and nothing is changed. A reader uses the offset from the records.

Checking each file would make opening a large log slow. If the names follow each other, only the first file and the last
ones are checked; otherwise all are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from flintlog.checks.finding import ERROR, Finding
from flintlog.derive.file_home import Home, find_home
from flintlog.derive.log_files import common_size
from flintlog.disk.media.medium import Medium
from flintlog.errors import DamagedStore, FormatError
from flintlog.format.names import parse_segment_name, segment_name


@dataclass(frozen=True, slots=True)
class NamedFile:
    """A file in the log's directory; `base` is the offset in its name, None if the name holds none."""

    path: Path
    size: int
    base: int | None
    home: Home | None = None

    @property
    def begins_at(self) -> int | None:
        """Where it belongs: by its records, or by its name if it has none."""
        return self.base if self.home is None else self.home.base


@dataclass(frozen=True, slots=True)
class Misnamed:
    """A file of the log with a wrong name; `obstacle` says why it cannot simply be renamed.

    With `is_waiting` another misnamed file has the right name, and has to be renamed first.
    """

    path: Path
    base: int
    size: int
    obstacle: str | None = None
    is_waiting: bool = False

    @property
    def right_name(self) -> str:
        return segment_name(self.base)

    @property
    def evidence(self) -> str:
        return f"the file has a wrong name: its records say that it begins at {self.base}"

    @property
    def remedy(self) -> str:
        if self.obstacle is not None:
            return f"its right name is {self.right_name}, but {self.obstacle}"
        first = ", after the file that is called so now, which belongs elsewhere, too" if self.is_waiting else ""
        return f"rename {self.path.name} to {self.right_name}{first}"

    def finding(self) -> Finding:
        return Finding("misnamed-log-file", ERROR, self.evidence, self.remedy, str(self.path), 0, self.base, self.size)


def list_log(directories: Iterable[Path], medium: Medium) -> list[NamedFile]:
    """The files where those of the log are, in the order of their names."""
    found = [
        NamedFile(directory / info.name, info.size, _base_of(info.name))
        for directory in dict.fromkeys(directories)
        for info in medium.listing(directory)
        if not info.is_directory
    ]
    return sorted(found, key=lambda file: file.path.name)


def _base_of(name: str) -> int | None:
    try:
        return parse_segment_name(name)
    except FormatError:
        return None


def find_misnamed(
    files: Sequence[NamedFile], segment_size: int | None, medium: Medium, *, every: bool = False
) -> list[Misnamed]:
    """Those that have a wrong name, in the order of the names they should have.

    `segment_size`: None if it is unknown; then it is the most common length. With `every` all files are checked.
    Raises `DiskError` if a file was deleted meanwhile, or cannot be read.
    """
    files = [file for file in files if file.size]
    size = segment_size or common_size(file.size for file in files) or 0
    if not every and _follow_each_other(files, size) and not _is_wrong_at_an_end(files, medium):
        return []
    looked = [replace(file, home=_look(file, medium)) for file in files]
    found = [_judge(file, looked, size) for file in looked if file.home is not None and file.base != file.home.base]
    return sorted(found, key=lambda misnamed: misnamed.base)


def refuse_misnamed(found: Sequence[Misnamed]) -> None:
    """Raise if there is one."""
    if found:
        others = f"; {len(found) - 1} other files, too: `flintlog verify` names all" if len(found) > 1 else ""
        raise DamagedStore(found[0].evidence, path=found[0].path, advice=found[0].remedy + others)


def _follow_each_other(files: Sequence[NamedFile], size: int) -> bool:
    bases = [file.base for file in files if file.base is not None]
    are_names = len(bases) == len(files) and all(base % size == 0 for base in bases)
    return are_names and all(after - before == size for before, after in pairwise(bases))


def _is_wrong_at_an_end(files: Sequence[NamedFile], medium: Medium) -> bool:
    """Whether the first file is misnamed, or the last one that holds records. Later files were made ahead of use."""
    for file in reversed(files):
        home = _look(file, medium, search=False)
        if home is not None:
            if home.base != file.base:
                return True
            break
    first = _look(files[0], medium, search=False) if files else None
    return first is not None and first.base != files[0].base


def _look(file: NamedFile, medium: Medium, *, search: bool = True) -> Home | None:
    raw = medium.open(file.path)
    try:
        return find_home(raw.buffer, raw.data_end(0), file.base, search=search)
    finally:
        raw.close()


def _judge(file: NamedFile, all_files: Collection[NamedFile], size: int) -> Misnamed:
    assert file.home is not None
    base = file.home.base
    others = [other for other in all_files if other is not file]
    obstacle: str | None = None
    there = next((other for other in others if other.begins_at == base), None)
    if there is not None:
        which = "that file is there" if there.base == base else f"{there.path.name} says the same of itself"
        obstacle = f"{which}: compare the two, and move one of them away"
    elif file.size != size:
        obstacle = f"it has {file.size} bytes, and a file of this log has {size}: is it a whole copy?"
    elif _is_out_of_time(file.home, others):
        obstacle = "its messages were not stored between those before and after it: is it of another store?"
    is_waiting = any(other.base == base for other in others)
    return Misnamed(file.path, base, file.size, obstacle, is_waiting)


def _is_out_of_time(home: Home, others: Iterable[NamedFile]) -> bool:
    """Whether the file's first record was not stored between those of its neighbours."""
    homes = [other.home for other in others if other.home is not None]
    before = max((other for other in homes if other.base < home.base), key=lambda other: other.base, default=home)
    after = min((other for other in homes if other.base > home.base), key=lambda other: other.base, default=home)
    return not before.store_timestamp <= home.store_timestamp <= after.store_timestamp
