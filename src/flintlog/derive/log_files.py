"""The files of a log from a directory listing, checked before anything is read.

    00000000000000000000   00000000001073741824   00000000002147483648
    |<---- file size ---->|<---- file size ---->|<---- file size ---->|        the name is the first byte's offset

A log may begin anywhere (retention deletes its oldest files), but it has no gap, and all its files have one size.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from flintlog.errors import DamagedStore, FormatError, WrongFileSize
from flintlog.format.names import parse_segment_name


@dataclass(frozen=True, slots=True)
class LogFile:
    """One file of a log: bytes [base, base + size) of it."""

    name: str
    base: int
    size: int

    @property
    def end(self) -> int:
        return self.base + self.size


def log_files(listing: Iterable[tuple[str, int]], where: str = "", *, strict: bool = True) -> list[LogFile]:
    """The files among (name, size) pairs, in order; files of other names and empty ones (just made) are passed over.

    With `strict`, a missing file or one of another size is an error; without, the existing files are returned.
    """
    found = [LogFile(name, base, size) for name, size in listing if (base := _base(name)) >= 0 and size]
    files = sorted(found, key=lambda file: file.base)
    if strict:
        check_files(files, where)
    return files


def common_size(sizes: Iterable[int], *, unit: int = 1) -> int | None:
    """The length that most files have, a multiple of `unit`; the greater one of two equally common ones."""
    counted = Counter(size for size in sizes if size > 0 and size % unit == 0)
    return max(counted, key=lambda size: (counted[size], size)) if counted else None


def log_file_size(files: Sequence[tuple[int, int]]) -> int | None:
    """The size of log files from (base, length) of each; None when bases and lengths do not fit together.

    >>> log_file_size([(0, 1024), (1024, 1024), (2048, 100)]), log_file_size([(0, 100), (1024, 1000)])
    (1024, 1024)
    """
    lengths = [length for _, length in files]
    size = common_size(lengths)
    steps = [after - before for (before, _), (after, _) in pairwise(files) if after > before]
    # A length that several files share is the size, whatever the names are. Otherwise some file is cut short, and the
    # distance of two neighbours is the size.
    if size is not None and lengths.count(size) == 1 and steps and size not in steps:
        size = min(steps)
    if size is None or any(base % size for base, _ in files):
        return None
    return size


def check_files(files: Sequence[LogFile], where: str) -> None:
    """Raise unless the files have one size and follow each other."""
    size = common_size(file.size for file in files)
    for file in files:
        if file.size != size:
            raise WrongFileSize(
                f"a file of the log has {file.size} bytes, the others have {size}",
                path=f"{where}{file.name}",
                advice="look at it with `flintlog verify`",
            )
    for before, after in pairwise(files):
        if after.base != before.end:
            missing = f"the log's bytes {before.end} to {after.base} are missing"
            raise DamagedStore(
                missing if before.end < after.base else "a file of the log begins inside of the one before it",
                path=f"{where}{after.name}",
                advice="look at it with `flintlog verify`",
            )


def _base(name: str) -> int:
    try:
        return parse_segment_name(name)
    except FormatError:
        return -1
