"""Files of the log that are not there, while something else has their name: a directory, a link that leads nowhere, or
an empty file. A crash leaves an empty file at the end of a log, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from flintlog.checks.derived_files import DataFile
from flintlog.checks.finding import ERROR, Finding
from flintlog.disk.media.odd_names import odd_names
from flintlog.errors import FormatError
from flintlog.format.names import parse_segment_name

_REMEDY = "is a disk not mounted? restore the file from a replica or a backup"


def find_gone(directories: Iterable[Path], found: Sequence[DataFile], size: int) -> Iterator[Finding]:
    """The findings for them; `found` are the files of the log, `size` is that of each."""
    last = max((file.base for file in found if file.size), default=-1)
    for file in found:
        if not file.size and file.base < last:
            yield _gone(file.base, file.path, "the file is empty, and others follow it", size)
    for directory in dict.fromkeys(directories):
        for name, what in odd_names(directory).items():
            with suppress(FormatError):
                base = parse_segment_name(name)
                yield _gone(base, str(directory / name), f"{what} is in the place of this file", size)


def _gone(base: int, path: str, evidence: str, size: int) -> Finding:
    return Finding("missing-log-file", ERROR, evidence, _REMEDY, path, None, base, size)
