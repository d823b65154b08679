"""Files of the log that are not there, while something else has their name: a directory, a link that leads nowhere, or
an empty file. A crash leaves an empty file at the end of a log, and nowhere else.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from flintlog.derive.derived_files import DataFile
from flintlog.derive.finding import ERROR, Finding
from flintlog.disk.medium import Medium
from flintlog.errors import FormatError
from flintlog.format.names import parse_segment_name

_REMEDY = "is a disk not mounted? restore the file from a replica or a backup"


def find_gone(directories: Iterable[Path], found: Sequence[DataFile], size: int, medium: Medium) -> Iterator[Finding]:
    """The findings for them; `found` are the files of the log, `size` is that of each."""
    last = max((file.base for file in found if file.size), default=-1)
    for file in found:
        if not file.size and file.base < last:
            yield _gone(file.base, file.path, "the file is empty, and others follow it", size)
    for directory in dict.fromkeys(directories):
        files = {info.name for info in medium.listing(directory) if not info.is_directory}
        for name in _names_in(directory):
            if name not in files:
                what = "a link that leads nowhere" if os.path.islink(directory / name) else "a directory"
                yield _gone(int(name), str(directory / name), f"{what} is in the place of this file", size)


def _gone(base: int, path: str, evidence: str, size: int) -> Finding:
    return Finding("missing-log-file", ERROR, evidence, _REMEDY, path, None, base, size)


def _names_in(directory: Path) -> list[str]:
    """What is called as a file of a log, whatever it is. Only a local disk has links."""
    found: list[str] = []
    with suppress(OSError):
        for name in sorted(os.listdir(directory)):
            with suppress(FormatError):
                parse_segment_name(name)
                found.append(name)
    return found
