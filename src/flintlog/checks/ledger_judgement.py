"""From the entries of all ranges to a judgement of a ledger: its chain, its index, its term, vote and checkpoint.

    data        [ 0 1 2 … n ]                  indexes that count up, terms that never fall
    index       [ 0 1 2 … n ]                  the same, and no more
    currterm      term of n  <=  term          a member that forgot its term could vote twice in one
    checkpoint    committed  <=  n             what was committed is there

What damage in the log explains is not told again. DLedger leaves what a truncation gave up where it lies: bytes of
older terms behind the last entry, and their index records. Those are no damage.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from flintlog.checks.derived_files import DataFile, LedgerView, Read
from flintlog.checks.finding import ERROR, WARNING, Finding
from flintlog.checks.ledger_check import EntryRun, LedgerTally
from flintlog.checks.log_judgement import LogFacts, LogJudgement
from flintlog.checks.range_check import RangeResult
from flintlog.derive.stretches import Stretch
from flintlog.errors import FormatError
from flintlog.format.ledger_entry import ENTRY_MAGIC, INDEX_RECORD, INDEX_RECORD_SIZE
from flintlog.format.ledger_state import LedgerCheckpoint, parse_ledger_checkpoint, parse_term_vote

MAX_STRETCHES = 100
LOOK_BACK_FILES = 3
"""An opening reads so many data files, and writes what the index lacks of them."""

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
    def told(self) -> LedgerCheckpoint | None:
        """What the checkpoint says; None when it cannot be read."""
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
    """What is wrong with a ledger, and what is only worth a note."""

    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def merge_entries(results: Sequence[RangeResult]) -> LedgerTally:
    """What all ranges saw of the entries; the results are in the order of the log."""
    merged = LedgerTally()
    for result in results:
        merged.merge(result.entries)
    return merged


def given_up_from(results: Sequence[RangeResult], member: MemberFiles, *, is_clean: bool) -> int | None:
    """Where the log ends, if bytes lie behind it that a truncation gave up; None when there are none.

    Entries that were given up are of lower terms than the last that counts, which a later leader wrote over the first
    of them. Parts of one are bytes behind the last entry that the checkpoint of a clean stop knows.
    """
    runs, told = merge_entries(results).runs, member.told
    for number, (before, _) in enumerate(pairwise(runs)):
        was_committed = told is not None and told.committed_index >= before.stop
        is_over = all(run.last_term < before.last_term <= member.term for run in runs[number + 1 :])
        if is_over and not was_committed:
            return before.end
    is_torn = bool(results) and bool(results[-1].bad_places) and results[-1].bad_places[-1].end is None
    is_whole = bool(runs) and told is not None and told.end_index == runs[-1].stop - 1
    return runs[-1].end if is_clean and is_torn and is_whole else None


def judge_ledger(
    tally: LedgerTally,
    ledger: LedgerView,
    member: MemberFiles,
    index_ends: Sequence[tuple[DataFile, int]],
    log: LogJudgement,
    facts: LogFacts,
    read: Read,
) -> LedgerJudgement:
    """Findings about a ledger's own files; `index_ends` says where the bytes of each index file end."""
    return _Judge(tally, ledger, member, index_ends, log, facts, read).run()


class _Judge:
    def __init__(
        self,
        tally: LedgerTally,
        ledger: LedgerView,
        member: MemberFiles,
        index_ends: Sequence[tuple[DataFile, int]],
        log: LogJudgement,
        facts: LogFacts,
        read: Read,
    ) -> None:
        self._tally = tally
        self._ledger = ledger
        self._member = member
        self._index_ends = index_ends
        self._log = log
        self._facts = facts
        self._read = read
        self._result = LedgerJudgement()

    def run(self) -> LedgerJudgement:
        last = self._judge_chain()
        for position in self._tally.odd_heads:
            evidence = "channel and sums of the entry's head are not 0"
            self._tell_data("damaged-ledger-head", ERROR, evidence, FILL_AGAIN, position)
        self._judge_index()
        if not self._facts.is_running:
            self._judge_vote(last)
            if self._judge_checkpoint(last):
                self._judge_index_end(last)
        return self._result

    # ------------------------------------------------------------------ entries

    def _judge_chain(self) -> EntryRun | None:
        """Tell where indexes or terms do not follow; the last entries, counted as they lie."""
        last: EntryRun | None = None
        for run in self._tally.runs[: MAX_STRETCHES + 1]:
            if last is None or run.follows(last) or self._is_explained(last, run):
                last = run
                continue
            evidence = (
                f"{_entries(run)} of term {run.first_term} lie behind entry {last.stop - 1} of term {last.last_term}"
            )
            self._tell_data("damaged-ledger-head", ERROR, evidence, FILL_AGAIN, run.position)
            # It has its place in the chain, whatever it says: then what follows it is told only if that is wrong, too.
            count = run.stop - run.first
            last = EntryRun(last.stop, last.stop + count, run.first_term, run.last_term, run.position, run.end)
        return last

    def _is_explained(self, last: EntryRun, run: EntryRun) -> bool:
        goes_on = run.first >= last.stop and run.first_term >= last.last_term
        return goes_on and self._log.is_damaged(last.end, run.position)

    # ------------------------------------------------------------------ index

    def _judge_index(self) -> None:
        late = 0
        for stretch in self._tally.absent.items[:MAX_STRETCHES]:
            if self._is_late(stretch):
                late += stretch.count
                continue
            evidence = f"the ledger's index has no record of {_entries(stretch)}"
            self._tell_index("missing-ledger-index", evidence, INDEX_AGAIN, stretch)
        for stretch in self._tally.wrong.items[:MAX_STRETCHES]:
            evidence = f"the index record of {_entries(stretch)}: {stretch.evidence}"
            self._tell_index("wrong-ledger-index", evidence, INDEX_AGAIN, stretch)
        if late:
            self._result.notes.append(f"the ledger's index lacks {late} entries; the next opening adds them")

    def _is_late(self, stretch: Stretch) -> bool:
        """Whether the next opening, after an unclean stop, looks at these entries and writes their records."""
        if self._facts.is_clean:
            return False
        files = self._ledger.data[-LOOK_BACK_FILES:]
        return self._facts.is_running or stretch.first_physical_offset >= files[0].base

    def _judge_index_end(self, last: EntryRun | None) -> None:
        """Behind the record of the last entry there is nothing, but records of what was given up."""
        stop = 0 if last is None else last.stop
        given_up = 0
        for file, end in self._index_ends:
            begin = max(file.base, stop * INDEX_RECORD_SIZE)
            for at in range(begin, min(file.base + end, file.end), INDEX_RECORD_SIZE):
                place = at - file.base
                found = INDEX_RECORD.unpack(self._read(file.path, place, place + INDEX_RECORD_SIZE))
                if found[0] == ENTRY_MAGIC and found[3] == at // INDEX_RECORD_SIZE:
                    given_up += 1
                elif any(found):
                    evidence = f"bytes behind the record of the last entry, {stop - 1}, are no index record: {found}"
                    self._result.findings.append(
                        Finding("wrong-ledger-index", WARNING, evidence, NEXT_OPENING, file.path, place)
                    )
                    return
        if given_up:
            self._result.notes.append(f"the ledger's index has {given_up} records of entries that were given up")

    # ------------------------------------------------------------------ term, vote, checkpoint

    def _judge_vote(self, last: EntryRun | None) -> None:
        data, term = self._member.vote, -1 if last is None else last.last_term
        evidence = ""
        try:
            if data is None:
                evidence = "the member's term and vote are not there" if last is not None else ""
            elif (told := parse_term_vote(data).term) < term:
                evidence = f"the member's term is {told}, and its log has entries of term {term}"
        except FormatError as error:
            evidence = f"the member's term and vote cannot be read: {error.what}"
        if evidence:
            self._result.findings.append(
                Finding("damaged-ledger-vote", ERROR, evidence, FILL_AGAIN, self._member.vote_path)
            )

    def _judge_checkpoint(self, last: EntryRun | None) -> bool:
        """Whether the log holds what the checkpoint says."""
        member, end = self._member, -1 if last is None else last.stop - 1
        told = member.told
        if told is None:
            if last is not None and (member.checkpoint is not None or self._facts.is_clean):
                evidence = "the ledger's checkpoint " + ("cannot be read" if member.checkpoint else "is not there")
                remedy = "the next opening writes one, once the group tells how far it has committed"
                self._result.findings.append(
                    Finding("damaged-ledger-checkpoint", WARNING, evidence, remedy, member.checkpoint_path)
                )
            return True
        if told.committed_index > end:
            evidence = f"the ledger ends with entry {end}, and entry {told.committed_index} was committed"
        elif self._facts.is_clean and told.end_index > end:
            evidence = f"the ledger ends with entry {end}, and the last stop left it at entry {told.end_index}"
        else:
            return True
        lost = max(told.committed_index, told.end_index) - end
        where = None if last is None else last.end
        self._result.findings.append(
            Finding("short-ledger", ERROR, evidence, FILL_AGAIN, member.checkpoint_path, None, where, lost)
        )
        return False

    # ------------------------------------------------------------------ telling

    def _tell_data(self, kind: str, severity: str, evidence: str, remedy: str, position: int) -> None:
        file = next((file for file in self._ledger.data if file.base <= position < file.end), None)
        path, offset = (None, None) if file is None else (file.path, position - file.base)
        self._result.findings.append(Finding(kind, severity, evidence, remedy, path, offset, position))

    def _tell_index(self, kind: str, evidence: str, remedy: str, stretch: Stretch) -> None:
        at = stretch.first_physical_offset
        self._result.findings.append(
            Finding(kind, WARNING, evidence, remedy, stretch.file, stretch.offset, at, stretch.count)
        )


def _entries(run: EntryRun | Stretch) -> str:
    return f"entry {run.first}" if run.stop - run.first == 1 else f"entries {run.first} to {run.stop - 1}"
