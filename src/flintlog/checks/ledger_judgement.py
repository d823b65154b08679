"""Judges a ledger by the entries of all ranges: its chain, its index, its term, vote and checkpoint.

    data        [ 0 1 2 … n ]                  indexes that count up, terms that never fall
    index       [ 0 1 2 … n ]                  the same, and no more
    currterm      term of n  <=  term          a member that forgot its term could vote twice in one
    checkpoint    committed  <=  n             every committed entry is there

Faults that damage in the log explains are not reported again. After a truncation DLedger leaves the bytes of the
entries that it gave up: they are of older terms, after the last entry, and still have index records. That is no damage.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from flintlog.checks.derived_files import DataFile, LedgerView, Read
from flintlog.checks.finding import ERROR, WARNING, Finding, finding_in_log
from flintlog.checks.ledger_check import EntryRun, LedgerTally
from flintlog.checks.log_judgement import LogFacts, LogJudgement
from flintlog.checks.range_check import RangeResult
from flintlog.derive.stretches import Stretch
from flintlog.errors import FormatError
from flintlog.format.ledger import (
    ENTRY_MAGIC,
    INDEX_RECORD,
    INDEX_RECORD_SIZE,
    LedgerCheckpoint,
    parse_ledger_checkpoint,
    parse_term_vote,
)

MAX_STRETCHES = 100
LOOK_BACK_FILES = 3
"""An opening reads this many data files, and writes the index records that they lack."""

FILL_AGAIN = (
    "while the other members run, move the member's directory away: its group fills it again; without a group "
    "restore it from a backup"
)
INDEX_AGAIN = "move the member's `index` away: the next opening writes it from the data files"
NEXT_OPENING = "the next opening writes it again"


@dataclass(frozen=True, slots=True)
class MemberFiles:
    """The two small files of a member, as far as they are there."""

    vote_path: str
    vote: bytes | None
    checkpoint_path: str
    checkpoint: bytes | None

    @property
    def saved(self) -> LedgerCheckpoint | None:
        """The checkpoint as it was saved; None when it cannot be read."""
        try:
            return None if self.checkpoint is None else parse_ledger_checkpoint(self.checkpoint)
        except FormatError:
            return None

    @property
    def term(self) -> int:
        """The term that the member is in; -1 when that is not known."""
        try:
            return -1 if self.vote is None else parse_term_vote(self.vote).term
        except FormatError:
            return -1


@dataclass(slots=True)
class LedgerJudgement:
    """Findings about a ledger. Notes are about states that the next opening puts right."""

    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def merge_entries(results: Sequence[RangeResult]) -> LedgerTally:
    """The entries of all ranges; the results are in the order of the log."""
    merged = LedgerTally()
    for result in results:
        merged.merge(result.entries)
    return merged


def given_up_from(results: Sequence[RangeResult], member: MemberFiles, *, is_clean: bool) -> int | None:
    """Where the log ends, if bytes that a truncation gave up lie after it; None when there are none.

    A later leader wrote the last valid entry over the first one that was given up, so all others have lower terms. If
    only a part of an entry is left, it lies after the last entry that the checkpoint of a clean stop names.
    """
    runs, saved = merge_entries(results).runs, member.saved
    for number, (before, _) in enumerate(pairwise(runs)):
        was_committed = saved is not None and saved.committed_index >= before.stop
        is_over = all(run.last_term < before.last_term <= member.term for run in runs[number + 1 :])
        if is_over and not was_committed:
            return before.end
    is_torn = bool(results) and bool(results[-1].bad_places) and results[-1].bad_places[-1].end is None
    is_whole = bool(runs) and saved is not None and saved.end_index == runs[-1].stop - 1
    return runs[-1].end if is_clean and is_torn and is_whole else None


@dataclass(slots=True)
class LedgerJudge:
    """Makes the findings about a ledger's own files; `index_ends` says where the bytes of each index file end."""

    tally: LedgerTally
    ledger: LedgerView
    member: MemberFiles
    index_ends: Sequence[tuple[DataFile, int]]
    log: LogJudgement
    facts: LogFacts
    read: Read
    _result: LedgerJudgement = field(default_factory=LedgerJudgement)

    def run(self) -> LedgerJudgement:
        last = self._judge_chain()
        for position in self.tally.odd_heads:
            evidence = "channel and sums of the entry's head are not 0"
            self._report_data("damaged-ledger-head", ERROR, evidence, FILL_AGAIN, position)
        self._judge_index()
        if not self.facts.is_running:
            self._judge_vote(last)
            if self._judge_checkpoint(last):
                self._judge_index_end(last)
        return self._result

    # ------------------------------------------------------------------ entries

    def _judge_chain(self) -> EntryRun | None:
        """Report where indexes or terms do not follow; returns the last run, numbered by its place in the chain."""
        last: EntryRun | None = None
        for run in self.tally.runs[: MAX_STRETCHES + 1]:
            if last is None or run.follows(last) or self._is_explained(last, run):
                last = run
                continue
            evidence = (
                f"{_entries(run)} of term {run.first_term} lie after entry {last.stop - 1} of term {last.last_term}"
            )
            self._report_data("damaged-ledger-head", ERROR, evidence, FILL_AGAIN, run.position)
            # Number it by its place in the chain. Then the next run is reported only if it is wrong itself.
            count = run.stop - run.first
            last = EntryRun(last.stop, last.stop + count, run.first_term, run.last_term, run.position, run.end)
        return last

    def _is_explained(self, last: EntryRun, run: EntryRun) -> bool:
        goes_on = run.first >= last.stop and run.first_term >= last.last_term
        return goes_on and self.log.is_damaged(last.end, run.position)

    # ------------------------------------------------------------------ index

    def _judge_index(self) -> None:
        late = 0
        for stretch in self.tally.absent.items[:MAX_STRETCHES]:
            if self._is_late(stretch):
                late += stretch.count
                continue
            evidence = f"the ledger's index has no record of {_entries(stretch)}"
            self._report_index("missing-ledger-index", evidence, INDEX_AGAIN, stretch)
        for stretch in self.tally.wrong.items[:MAX_STRETCHES]:
            evidence = f"the index record of {_entries(stretch)}: {stretch.evidence}"
            self._report_index("wrong-ledger-index", evidence, INDEX_AGAIN, stretch)
        if late:
            self._result.notes.append(f"the ledger's index lacks {late} entries; the next opening adds them")

    def _is_late(self, stretch: Stretch) -> bool:
        """Whether the next opening, after an unclean stop, reads these entries and writes their records."""
        if self.facts.is_clean:
            return False
        files = self.ledger.data[-LOOK_BACK_FILES:]
        return self.facts.is_running or stretch.first_physical_offset >= files[0].base

    def _judge_index_end(self, last: EntryRun | None) -> None:
        """After the record of the last entry there are only records of entries that were given up."""
        stop = 0 if last is None else last.stop
        given_up = 0
        for file, end in self.index_ends:
            begin = max(file.base, stop * INDEX_RECORD_SIZE)
            for at in range(begin, min(file.base + end, file.end), INDEX_RECORD_SIZE):
                place = at - file.base
                found = INDEX_RECORD.unpack(self.read(file.path, place, place + INDEX_RECORD_SIZE))
                if found[0] == ENTRY_MAGIC and found[3] == at // INDEX_RECORD_SIZE:
                    given_up += 1
                elif any(found):
                    evidence = f"bytes after the record of the last entry, {stop - 1}, are no index record: {found}"
                    self._result.findings.append(
                        Finding("wrong-ledger-index", WARNING, evidence, NEXT_OPENING, file.path, place)
                    )
                    return
        if given_up:
            self._result.notes.append(f"the ledger's index has {given_up} records of entries that were given up")

    # ------------------------------------------------------------------ term, vote, checkpoint

    def _judge_vote(self, last: EntryRun | None) -> None:
        data, term = self.member.vote, -1 if last is None else last.last_term
        evidence = ""
        try:
            if data is None:
                evidence = "the member's term and vote are not there" if last is not None else ""
            elif (own_term := parse_term_vote(data).term) < term:
                evidence = f"the member's term is {own_term}, and its log has entries of term {term}"
        except FormatError as error:
            evidence = f"the member's term and vote cannot be read: {error.what}"
        if evidence:
            self._result.findings.append(
                Finding("damaged-ledger-vote", ERROR, evidence, FILL_AGAIN, self.member.vote_path)
            )

    def _judge_checkpoint(self, last: EntryRun | None) -> bool:
        """Whether the log holds the entries that the checkpoint names."""
        member, end = self.member, -1 if last is None else last.stop - 1
        saved = member.saved
        if saved is None:
            if last is not None and (member.checkpoint is not None or self.facts.is_clean):
                evidence = "the ledger's checkpoint " + ("cannot be read" if member.checkpoint else "is not there")
                remedy = "the next opening writes one, once the group says how far it has committed"
                self._result.findings.append(
                    Finding("damaged-ledger-checkpoint", WARNING, evidence, remedy, member.checkpoint_path)
                )
            return True
        if saved.committed_index > end:
            evidence = f"the ledger ends with entry {end}, and entry {saved.committed_index} was committed"
        elif self.facts.is_clean and saved.end_index > end:
            evidence = f"the ledger ends with entry {end}, and the last stop left it at entry {saved.end_index}"
        else:
            return True
        lost = max(saved.committed_index, saved.end_index) - end
        where = None if last is None else last.end
        self._result.findings.append(
            Finding("short-ledger", ERROR, evidence, FILL_AGAIN, member.checkpoint_path, None, where, lost)
        )
        return False

    # ------------------------------------------------------------------ reporting

    def _report_data(self, kind: str, severity: str, evidence: str, remedy: str, position: int) -> None:
        self._result.findings.append(finding_in_log(self.ledger.data, kind, severity, evidence, remedy, position))

    def _report_index(self, kind: str, evidence: str, remedy: str, stretch: Stretch) -> None:
        at = stretch.first_physical_offset
        self._result.findings.append(
            Finding(kind, WARNING, evidence, remedy, stretch.file, stretch.offset, at, stretch.count)
        )


def _entries(run: EntryRun | Stretch) -> str:
    return f"entry {run.first}" if run.stop - run.first == 1 else f"entries {run.first} to {run.stop - 1}"
