"""A member without a log: either its group is new, or the member lost its state.

    no log ──all peers answer that they have none──▶ the group is new: take part
       └─────there is a leader──▶ filled ──an entry newer than our start is committed without us──▶ take part

A member that lost its directory may have acknowledged entries that only it and a lost leader held, and may have voted
in terms that it does not know. Until one of the two paths is complete it votes for nobody, does not stand, and says in
its answers to pushes that it must not be counted. This survives restarts, because it is stored as a promise
(`HardState.promised`).

A new group: we send each peer a vote request for an empty log. The answer shows whether the peer has an entry, because
DLedger checks that first. So Java peers need no new request. If no peer has an entry now, no committed entry was lost.
A member with a plain log before its ledger and one without cannot start together: the start positions must be equal.

Filled: the leader's pushes show where its log ended after our start. Once it has committed a later entry, a majority
without us was in its term at that time. So no later leader was elected with our vote, and our log holds every entry
that we had acknowledged. A flintlog leader writes such an entry if no client does. A Java leader shows its end with its
first COMPARE, and counts us.

Reasons and costs: docs/decisions/0015.
"""

from __future__ import annotations

from flintlog.format.ledger import NO_INDEX
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

_ANSWERS_OF_EMPTY_PEERS = frozenset(
    {
        VoteResult.ACCEPT,
        VoteResult.REJECT_EXPIRED_VOTE_TERM,
        VoteResult.REJECT_TERM_NOT_READY,
        VoteResult.REJECT_ALREADY_VOTED,
        VoteResult.REJECT_ALREADY_HAS_LEADER,
        VoteResult.REJECT_TAKING_LEADERSHIP,
    }
)
"""Answers that DLedger gives only after it has checked that the candidate's log is as long as its own."""


class Joining:
    """The work of a node that may have lost its state; does nothing on any other node."""

    def __init__(self, state: NodeState) -> None:
        self._state = state
        self._due_ms = state.now_ms
        self._blank: dict[str, int] = {}
        """Peers without entries, and their terms."""
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
        if response.vote_result in _ANSWERS_OF_EMPTY_PEERS:
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
        """Note a leader's push. False if the leader has to compare first, because our common entries are not known."""
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
        """Take part again once the proof is complete. Called at the end of each step."""
        state, shown = self._state, self._shown
        if shown is None or shown[0] != state.term or not state.has_forgotten or state.role is not Role.FOLLOWER:
            return
        if shown[1] < state.committed <= state.synced:
            state.remember()
