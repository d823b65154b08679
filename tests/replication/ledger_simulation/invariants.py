"""What must always hold, checked after every step of every node.

- One leader a term, and once: nobody leads in a term that somebody, itself before a restart included, has led in.
- Log matching: two entries of the same index and term are the same, and so are those before them.
- Leader completeness: a new leader has everything that was committed in earlier terms.
- Committed never changes: what one node once gave as committed is what every node gives there, for ever.
- Committed is kept: no node cuts what it gave as committed itself, whatever the others have come to.
- The committed index points into the log.
- What was acknowledged is in the committed log exactly once, where the acknowledgement said, and behind
  everything that was acknowledged before it was proposed.
- In the end, when the network is whole and everybody is up, all nodes hold all of it, and more can be appended.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from flintlog.format.ledger import NO_INDEX
from flintlog.replication.ledger.core.core import LedgerCore
from flintlog.replication.ledger.core.interface import LedgerLog, Output, Role
from flintlog.replication.ledger.core.messages import NO_TERM, AppendResponse, Entry

COMMITTED_IS_KEPT = "committed is kept"


class Violation(AssertionError):
    """An invariant was broken; `kind` says which."""

    def __init__(self, kind: str, what: str) -> None:
        super().__init__(f"{kind}: {what}")
        self.kind = kind


@dataclass(slots=True)
class Operation:
    """Bodies that a client proposed, and what had been acknowledged when it did."""

    bodies: tuple[bytes, ...]
    acknowledged_before: int


@dataclass(slots=True)
class Invariants:
    """Everything that was ever seen, of all nodes."""

    watched: frozenset[str] | None = None
    """The kinds of violations that end a run; None for all. Of what is broken on purpose one wants to see the end."""
    leaders: dict[int, tuple[str, int]] = field(default_factory=dict)
    """Who led in each term: node and run."""
    seen: dict[tuple[int, int], tuple[Entry, int]] = field(default_factory=dict)
    """Every entry ever written, by index and term, with the term of the one before it."""
    committed: dict[int, tuple[Entry, int]] = field(default_factory=dict)
    """Every entry that was given as committed, with the term in which it was."""
    acknowledged: dict[bytes, int] = field(default_factory=dict)
    checked: dict[str, int] = field(default_factory=dict)
    """How far each node's committed entries were looked at."""
    last_acknowledged: int = NO_INDEX

    def report(self, kind: str, what: str) -> None:
        """Something is broken."""
        if self.watched is None or kind in self.watched:
            raise Violation(kind, what)

    def on_step(self, node: str, run: int, core: LedgerCore, log: LedgerLog, output: Output) -> None:
        if output.truncation is not None and output.truncation.last_index < self.checked.get(node, NO_INDEX):
            what = f"{node} cuts its log behind {output.truncation.last_index}, {self.checked[node]} was committed"
            self.report(COMMITTED_IS_KEPT, what)
        if output.entries:
            self._check_written(node, log, output.entries[0].index)
        if output.role is not None and output.role.role is Role.LEADER:
            self._check_leader(node, run, core, log)
        if output.committed is not None:
            self._check_committed(node, core, log)

    def on_restart(self, node: str, core: LedgerCore, log: LedgerLog) -> None:
        self._check_written(node, log, log.begin)
        self.checked[node] = NO_INDEX
        self._check_committed(node, core, log)

    def _check_written(self, node: str, log: LedgerLog, first: int) -> None:
        if first == NO_INDEX:
            return
        before = log.term_of(first - 1) if log.begin < first else None
        for index in range(first, log.end + 1):
            entry = log.entry(index)
            known = self.seen.setdefault((index, entry.term), (entry, NO_TERM if before is None else before))
            if known[0] != entry:
                self.report("log matching", f"{node} holds {entry}, another held {known[0]}")
            if before is not None and known[1] not in (before, NO_TERM):
                self.report("log matching", f"before {entry} {node} has term {before}, another had {known[1]}")
            before = entry.term

    def _check_leader(self, node: str, run: int, core: LedgerCore, log: LedgerLog) -> None:
        known = self.leaders.setdefault(core.term, (node, run))
        if known != (node, run):
            self.report("one leader a term", f"term {core.term}: {known} and {(node, run)}")
        for index, (entry, term) in self.committed.items():
            is_missing = index >= log.begin and (index > log.end or log.entry(index) != entry)
            if term < core.term and is_missing:
                self.report("leader completeness", f"{node} leads in {core.term} without {entry}")

    def _check_committed(self, node: str, core: LedgerCore, log: LedgerLog) -> None:
        if core.committed > log.end:
            self.report("committed points into the log", f"{node}: {core.committed} of {log.end}")
        last = min(core.committed, log.end)
        for index in range(max(self.checked.get(node, NO_INDEX) + 1, log.begin, 0), last + 1):
            entry = log.entry(index)
            known = self.committed.setdefault(index, (entry, core.term))
            if known[0] != entry:
                self.report("committed never changes", f"{node} gives {entry}, {known[0]} was committed")
        self.checked[node] = core.committed

    def on_acknowledged(self, operation: Operation, response: AppendResponse) -> None:
        first = response.index - len(operation.bodies) + 1
        if first <= operation.acknowledged_before:
            self.report("order", f"{operation.bodies} at {first}, behind {operation.acknowledged_before}")
        for place, body in enumerate(operation.bodies):
            self.acknowledged[body] = first + place
        self.last_acknowledged = max(self.last_acknowledged, response.index)
        self.check_acknowledged(operation.bodies)

    def check_acknowledged(self, bodies: tuple[bytes, ...]) -> None:
        for body in bodies:
            index = self.acknowledged[body]
            if index not in self.committed or self.committed[index][0].body != body:
                self.report("acknowledged is committed", f"{body!r} at {index}: {self.committed.get(index)}")

    def check_exactly_once(self) -> None:
        """The committed log as a whole has no body twice and everything that was acknowledged."""
        bodies = [entry.body for entry, _ in self.committed.values() if not entry.body.startswith(b"leads")]
        if len(set(bodies)) != len(bodies):
            self.report("exactly once", "a body is in the committed log twice")
        self.check_acknowledged(tuple(self.acknowledged))
