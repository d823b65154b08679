"""What an opening found: one finding for each thing that was cut, damaged, missing or rebuilt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

from flintlog.checks.finding import Finding

__all__ = ["Finding", "RecoveryReport"]


class RecoveryReport(Sequence[Finding]):
    """The findings of one opening, in the order of the log."""

    def __init__(self, findings: Sequence[Finding], *, clean: bool, log_end: int, dispatched_from: int) -> None:
        self.findings = tuple(findings)
        self.clean = clean
        self.log_end = log_end
        self.dispatched_from = dispatched_from

    def with_findings(self, findings: Sequence[Finding]) -> RecoveryReport:
        """The same report with more in it."""
        both = (*self.findings, *findings)
        return RecoveryReport(both, clean=self.clean, log_end=self.log_end, dispatched_from=self.dispatched_from)

    def __len__(self) -> int:
        return len(self.findings)

    @overload
    def __getitem__(self, index: int) -> Finding: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Finding]: ...
    def __getitem__(self, index: int | slice) -> Finding | Sequence[Finding]:
        return self.findings[index]

    def __repr__(self) -> str:
        state = "clean" if self.clean else "unclean"
        return f"RecoveryReport({state}, log_end={self.log_end}, {list(map(str, self.findings))})"
