"""One thing that is not as it should be: the same value for recovery, verification, repair and Spark.

`id` is one of the names in `flintlog.checks.finding_kinds`, which also explains it. `severity` is "error" when a
message is lost or cannot be read, "warning" when something derived from the log is wrong and can be built again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

ERROR: Final = "error"
WARNING: Final = "warning"


@dataclass(frozen=True, slots=True)
class Finding:
    """What was seen and where; `offset` counts from the file's start, `physical_offset` from the log's."""

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
