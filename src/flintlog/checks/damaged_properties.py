"""Records whose properties changed after their queue entry and their index entries were written.

Without a CRC over whole records (`enabled_append_prop_crc`) nothing in a record tells. What was derived from it does:
tags and keys have other hashes than those that stand in queue and index. These are right then, and building them again
would write the damage into them as well.
"""

from __future__ import annotations

from collections.abc import Sequence

from flintlog.checks.derived_files import DataFile
from flintlog.checks.finding import ERROR, Finding

_REMEDY = (
    "restore the message from a replica or a backup; `repair` leaves it, and what was derived from it, as they are"
)


def damaged_properties(files: Sequence[DataFile], physical_offset: int, evidence: str) -> Finding:
    """The finding about the record at an offset of the log."""
    file = next((file for file in files if file.base <= physical_offset < file.end), None)
    path, offset = (None, None) if file is None else (file.path, physical_offset - file.base)
    return Finding("damaged-properties", ERROR, evidence, _REMEDY, path, offset, physical_offset)
