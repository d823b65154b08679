"""A member without a log: is its group new, or has it forgotten what it had?

    no log ──all peers say that they have none──▶ the group is new: take part
       └─────a leader is there──▶ filled ──something newer than this start is committed without us──▶ take part

A member that lost its directory may have acknowledged entries that only it and a lost leader had, and voted in terms
that it does not know. Until one of the two ways is through it votes for nobody, does not stand, and says with its
answers to pushes that it is not to be counted. That lasts over restarts, because it is a promise
(`HardState.promised`).

A new group: what a peer answers to a vote with nothing behind it says whether it has an entry, because DLedger looks at
that first. So Java peers need not know the question. If nobody has an entry now, none was ever committed that
we have forgotten. Who has a plain log before its ledger and who has none cannot begin together: the starts must be the
same.

Filled: our leader shows with its pushes where its log ended after we had started. Once it has committed an entry behind
that, a majority without us was in its term then: there is no later leader that we elected, and nothing that we had
acknowledged is missing in what we have now. A leader of ours writes such an entry if nobody else does. One of Java's
shows its end with its first COMPARE, and counts us.
"""

from __future__ import annotations

from flintlog.format.ledger_entry import NO_INDEX
from flintlog.replication.ledger.core.interface import Role
from flintlog.replication.ledger.core.messages import (
    NO_TERM,
    OURS,
    PeerResponse,
    PushRequest,
    PushType,
    VoteRequest,
    VoteResponse,
    VoteResult,
)
from flintlog.replication.ledger.core.state import NodeState

_SAYS_NOTHING_IS_THERE = frozenset(
    {
        VoteResult.ACCEPT,
        VoteResult.REJECT_EXPIRED_VOTE_TERM,
        VoteResult.REJECT_TERM_NOT_READY,
        VoteResult.REJECT_ALREADY_VOTED,
        VoteResult.REJECT_ALREADY_HAS_LEADER,
        VoteResult.REJECT_TAKING_LEADERSHIP,
    }
)
"""Answers that DLedger gives only after it has seen that the candidate's log is as long as its own."""


class Joining:
    """What a node does as long as it has forgotten what it promised; nothing on any other."""

    def __init__(self, state: NodeState) -> None:
        self._state = state
        self._due_ms = state.now_ms
        self._blank: dict[str, int] = {}
        """Peers that have nothing, and their terms."""
        self._shown: tuple[int, int] | None = None
        """The term of a leader, and its last entry when it first pushed here."""
        self._compared_term = NO_TERM

    # A new group.

    def tick(self) -> None:
        state, config = self._state, self._state.config
        if not self._may_be_new() or state.now_ms < self._due_ms:
            return
        self._due_ms = state.now_ms + state.random.randint(config.min_vote_interval_ms, config.max_vote_interval_ms)
        request = VoteRequest(state.term, config.self_id, NO_INDEX, NO_TERM, OURS, state.log.start)
        for peer in config.others:
            state.call(peer, request, lambda response, peer=peer: self._on_answer(peer, response))  # type: ignore[misc]
        self._look()

    def _may_be_new(self) -> bool:
        state = self._state
        return state.has_forgotten and state.is_blank and state.role is Role.CANDIDATE

    def _on_answer(self, peer: str, response: PeerResponse | None) -> None:
        if not isinstance(response, VoteResponse) or not self._may_be_new():
            return
        if response.vote_result in _SAYS_NOTHING_IS_THERE:
            self._blank[peer] = response.term
            self._look()
        else:
            self._blank.pop(peer, None)

    def _look(self) -> None:
        others = self._state.config.others
        if len(self._blank) == len(others):
            self._state.found_group(max(self._blank.values(), default=0))

    # Filled by a leader.

    def on_push(self, request: PushRequest) -> bool:
        """A leader pushes. False if its place in our log is not known: it has to compare first."""
        state = self._state
        if not state.has_forgotten:
            return True
        is_compare = request.type is PushType.COMPARE
        if is_compare:
            self._compared_term = state.term
        if self._shown is None or self._shown[0] != state.term:
            end = request.first_index if request.end_index == NO_INDEX and is_compare else request.end_index
            self._shown = None if end == NO_INDEX else (state.term, end)
        return request.type is not PushType.TRUNCATE or self._compared_term == state.term

    def look(self) -> None:
        """Called at each end of a step: more may be committed, and on disk."""
        state, shown = self._state, self._shown
        if shown is None or shown[0] != state.term or not state.has_forgotten or state.role is not Role.FOLLOWER:
            return
        if shown[1] < state.committed <= state.synced:
            state.remember()
