"""Passes a ledger's own files to the checks: entries and index, `currterm`, `checkpoint`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from flintlog.checks.finding import Finding
from flintlog.checks.judge import LogFacts, RangeResult
from flintlog.checks.ledger_judgement import LedgerJudge, MemberFiles, given_up_from, merge_entries
from flintlog.checks.log_judgement import LogJudgement
from flintlog.format import names
from flintlog.maintenance.inspect.store_files import StoreFiles
from flintlog.store.paths import MEMBER_TERM


def find_given_up(files: StoreFiles, results: Sequence[RangeResult], facts: LogFacts) -> int | None:
    """Where a ledger's log ends, if a truncation left bytes after it that are no longer part of it."""
    if files.paths.ledger is None or facts.is_running or facts.cut_at is not None:
        return None
    return given_up_from(results, _member(files, files.paths.ledger), is_clean=facts.is_clean)


def check_member(
    files: StoreFiles,
    results: Sequence[RangeResult],
    log: LogJudgement,
    facts: LogFacts,
    written_end: Callable[[str], int],
) -> tuple[list[Finding], list[str]]:
    """Findings and notes about the ledger, if the store's log is one."""
    if files.paths.ledger is None or files.ledger is None:
        return [], []
    member = _member(files, files.paths.ledger)
    ends = [(file, written_end(file.path)) for file in files.ledger.index]
    judged = LedgerJudge(merge_entries(results), files.ledger, member, ends, log, facts, files.read).run()
    return judged.findings, judged.notes


def _member(files: StoreFiles, directory: Path) -> MemberFiles:
    vote, checkpoint = directory / MEMBER_TERM, directory / names.CHECKPOINT
    return MemberFiles(str(vote), files.small(vote), str(checkpoint), files.small(checkpoint))
