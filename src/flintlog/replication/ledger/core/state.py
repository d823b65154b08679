"""The shared state of a node: term, vote, role, log, committed index, and the Output of the present step.

Invariants: the term never falls, and a vote does not change within a term. The committed index never falls while the
node runs, and committed entries are never cut. Every change of term or vote is in the Output of the same step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from random import Random
from typing import NoReturn

from flintlog.errors import DamagedStore, LedgerHalted
from flintlog.format.ledger import NO_INDEX
from flintlog.replication.ledger.core.interface import (
    FORGOTTEN,
    NOTHING_PROMISED,
    Answer,
    Call,
    HardState,
    LedgerConfig,
    LedgerLog,
    LogEnd,
    Output,
    Role,
    RoleChange,
)
from flintlog.replication.ledger.core.log_view import LogView
from flintlog.replication.ledger.core.messages import JAVA, Entry, PeerRequest, PeerResponse, Response

OnResponse = Callable[[PeerResponse | None], None]
"""Called with a call's answer; with None when the call failed."""


_REFILL = "let another member lead, then move this one's ledger directory away and start it: the group fills it again"


@dataclass(frozen=True, slots=True)
class _PendingCall:
    peer: str
    sent_ms: int
    on_response: OnResponse


class NodeState:
    """One node's state. `on_role_change` is called at once when the role or the leader changes."""

    def __init__(
        self,
        config: LedgerConfig,
        log: LedgerLog,
        hard_state: HardState,
        committed: int,
        now_ms: int,
        random: Random,
    ) -> None:
        self.config = config
        self.rules = config.rules
        self.log = LogView(log)
        self.term = hard_state.term
        self.voted_for = hard_state.voted_for
        self._promised = hard_state.promised
        if self.log.end_term > self.term:
            raise DamagedStore(f"the term on disk is {self.term}, but the log has entries of term {self.log.end_term}")
        if self._promised <= self.own_end:
            self._promised = NOTHING_PROMISED
        self.known_max_term = self.term
        self.term_to_take = -1
        self.role = Role.CANDIDATE
        self.leader_id: str | None = None
        self.committed = min(committed, self.log.end) if self.rules.clamp_committed else committed
        self.synced = self.log.end
        self.now_ms = now_ms
        self.random = random
        self.dialects: dict[str, int] = {}
        self.trouble: str | None = None
        """The present problem of this node in the group, for people."""
        self.refused_count = 0
        """Entries that arrived damaged from peers."""
        self.is_beat_wanted = False
        """Whether a peer does not know yet that we lead."""
        self.output = Output()
        self.on_role_change: Callable[[], None] = lambda: None
        self._generation = 0
        self._call_id = 0
        self._calls: dict[int, _PendingCall] = {}
        self._reported = RoleChange(self.role, self.term, None)

    # A step.

    def begin_step(self, now_ms: int) -> None:
        self.log.settle()
        self.now_ms = max(now_ms, self.now_ms)
        self.output = Output()

    def end_step(self) -> Output:
        present = RoleChange(self.role, self.term, self.leader_id)
        if present != self._reported:
            self.output.role = self._reported = present
        self.output.generation = self._generation
        return self.output

    # Calls and answers.

    def call(self, peer: str, request: PeerRequest, on_response: OnResponse) -> int:
        self._call_id += 1
        self._calls[self._call_id] = _PendingCall(peer, self.now_ms, on_response)
        self.output.calls.append(Call(peer, self._call_id, request))
        return self._call_id

    def on_response(self, peer: str, call_id: int, response: PeerResponse | None) -> None:
        """Handle an answer, or None for a failed call. An answer to a call that is no longer pending is ignored."""
        pending = self._calls.get(call_id)
        if pending is None or (pending.peer != peer and self.rules.peers_only):
            return
        del self._calls[call_id]
        if response is not None:
            self.dialects[peer] = response.dialect
        pending.on_response(response)

    def expire_calls(self) -> None:
        """Fail the calls that were not answered in time. `_calls` is in the order of sending."""
        due = self.now_ms - self.config.call_timeout_ms
        while self._calls:
            call_id, pending = next(iter(self._calls.items()))
            if pending.sent_ms > due:
                return
            self.on_response(pending.peer, call_id, None)

    def answer(self, answer_to: int, response: Response) -> None:
        self.output.answers.append(Answer(answer_to, response))

    def speaks_ours(self, peer: str) -> bool:
        return self.dialects.get(peer, JAVA) > JAVA

    # Term, vote and role.

    def raise_term(self) -> None:
        """Move to the highest known term, or to the next one if that is ours."""
        self.term = self.known_max_term = max(self.known_max_term, self.term + 1)
        self.voted_for = None
        self._persist()

    def vote_for(self, candidate: str) -> None:
        if self.voted_for != candidate:
            self.voted_for = candidate
            self._persist()

    def _persist(self) -> None:
        self.output.hard_state = HardState(self.term, self.voted_for, self._promised)

    def become_candidate(self, term: int) -> None:
        """Become a candidate. The term itself is raised with the candidate's next tick."""
        self.known_max_term = max(self.known_max_term, term)
        self._become(Role.CANDIDATE, None)

    def become_follower(self, leader_id: str) -> None:
        self._become(Role.FOLLOWER, leader_id)

    def become_leader(self) -> None:
        self._become(Role.LEADER, self.config.self_id)

    def _become(self, role: Role, leader_id: str | None) -> None:
        if (role, leader_id) == (self.role, self.leader_id):
            return
        self.role = role
        self.leader_id = leader_id
        self._calls.clear()
        self.on_role_change()

    # The log.

    @property
    def own_end(self) -> LogEnd:
        return self.log.end_term, self.log.end

    @property
    def voting_end(self) -> LogEnd:
        """The log end that a candidate must have: that of our log, or of a log that we dropped, if it was ahead."""
        return max(self.own_end, self._promised)

    @property
    def has_forgotten(self) -> bool:
        """Whether we may have lost our promises, so that we neither vote nor count."""
        return self._promised == FORGOTTEN

    @property
    def is_blank(self) -> bool:
        """Whether there is no entry here, and none is known to have existed."""
        return self.log.end == NO_INDEX and self._promised in (NOTHING_PROMISED, FORGOTTEN)

    def remember(self) -> None:
        """Take part again: our log holds all we may have acknowledged. Our vote of this term goes to the leader."""
        self._promised = NOTHING_PROMISED
        self.voted_for = self.leader_id
        self._persist()

    def found_group(self, last_term: int) -> None:
        """Start in a new group. A vote that we lost was in a term up to `last_term`, so take part from the next on."""
        self._promised = NOTHING_PROMISED
        self.known_max_term = max(self.known_max_term, last_term + 1)
        self.raise_term()

    @property
    def durable(self) -> int:
        """The last entry that may be acknowledged."""
        return self.synced if self.rules.sync_before_acknowledging else self.log.end

    def on_synced(self, index: int, generation: int) -> None:
        if generation == self._generation:
            self.synced = max(self.synced, min(index, self.log.end))

    def append(self, entry: Entry) -> None:
        self.log.append(entry, self.output)

    def cut(self, last_index: int) -> None:
        """Drop all entries after `last_index`."""
        self._check_kept(last_index)
        self.log.cut(last_index, self.output)
        self._after_cut(last_index)

    def restart(self, entry: Entry) -> None:
        """Drop the log and restart it with an entry of the leader's."""
        self._check_kept(entry.index - 1)
        if self.voting_end != self._promised:
            self._promised = self.voting_end
            self._persist()
        self.log.restart(entry, self.output)
        self._after_cut(entry.index - 1)

    def is_intact(self, entry: Entry) -> bool:
        return self.config.is_intact(entry.body, entry.position)

    def intact_entry(self, index: int) -> Entry | None:
        """An existing entry; None if our copy is damaged, which is reported.

        A majority holds a committed entry, so the group can continue without our copy. An uncommitted entry can never
        be committed from our damaged copy: the node halts, so that another leads.
        """
        entry = self.log.entry(index)
        if self.is_intact(entry):
            return entry
        problem = f"entry {index} of term {entry.term} is damaged here"
        if index > self.committed:
            raise LedgerHalted(f"{problem}, and is not committed", advice=_REFILL)
        self.trouble = f"{problem}, and is not sent to followers: {_REFILL}"
        return None

    def check_committed(self, pushed: Iterable[Entry]) -> None:
        """Halt if a leader pushes another entry in place of a committed one: a valid leader has all of those."""
        if not self.rules.keep_committed:
            return
        for entry in pushed:
            if entry.index <= self.committed and self.log.has(entry.index) and self.log.entry(entry.index) != entry:
                self._halt(f"{self.leader_id} has another entry {entry.index} of term {entry.term}")

    def _check_kept(self, last_index: int) -> None:
        if last_index < self.committed and self.rules.keep_committed:
            self._halt(f"{self.leader_id} wants the log cut after entry {last_index}")

    def _halt(self, why: str) -> NoReturn:
        raise LedgerHalted(
            f"{why}, but everything up to {self.committed} is committed",
            advice="two nodes disagree about what is committed: compare their logs before either is started again",
        )

    def _after_cut(self, last_index: int) -> None:
        self._generation += 1
        self.synced = min(self.synced, last_index)
        if self.committed > self.log.end and self.rules.clamp_committed:
            self._set_committed(self.log.end)

    def commit_up_to(self, index: int) -> None:
        """Raise the committed index to `index`, at most to the log's end; it never falls here."""
        index = min(index, self.log.end)
        if index > self.committed:
            self._set_committed(index)

    def _set_committed(self, index: int) -> None:
        self.committed = self.output.committed = index
