"""One fault of a store. Recovery, verification, repair and Spark report the same value.

`id` is one of the names in `flintlog.checks.finding_kinds`, which also explains it. `severity` is "error" when a
message is lost or cannot be read, "warning" when something derived from the log is wrong and can be built again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from flintlog.checks.derived_files import DataFile, file_at

ERROR: Final = "error"
WARNING: Final = "warning"


@dataclass(frozen=True, slots=True)
class Finding:
    """A fault and its place; `offset` counts from the file's start, `physical_offset` from the log's."""

    id: str
    severity: str
    evidence: str
    remedy: str
    file: str | None = None
    offset: int | None = None
    physical_offset: int | None = None
    size: int = 0
    kept_in: str | None = None

    def __str__(self) -> str:
        where = "" if self.physical_offset is None else f" at {self.physical_offset}"
        return f"{self.id}{where}: {self.evidence}; {self.remedy}"


def finding_in_log(
    files: Iterable[DataFile],
    kind: str,
    severity: str,
    evidence: str,
    remedy: str,
    physical_offset: int,
    size: int = 0,
) -> Finding:
    """A finding at an offset of a log that has these files; it names the file that holds the offset, if one does."""
    file = file_at(files, physical_offset)
    path, offset = (None, None) if file is None else (file.path, physical_offset - file.base)
    return Finding(kind, severity, evidence, remedy, path, offset, physical_offset, size)


def damaged_properties(files: Iterable[DataFile], physical_offset: int, evidence: str) -> Finding:
    """The finding about a record whose properties changed after its queue and index entries were written.

    Without a CRC over whole records (`enabled_append_prop_crc`) nothing in the record shows it. Its tags or keys have
    other hashes than its queue and index entries. The entries are right: building them again would copy the damage.
    """
    remedy = (
        "restore the message from a replica or a backup; `repair` leaves it, and what was derived from it, as they are"
    )
    return finding_in_log(files, "damaged-properties", ERROR, evidence, remedy, physical_offset)
