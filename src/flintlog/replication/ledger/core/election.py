"""Elections: votes, heartbeats, and the timers of candidates, followers and leaders.

    CANDIDATE ──a majority's votes──▶ LEADER
        ▲  ▲                             │ no majority for a while, a larger term
        │  └─────────────────────────────┘
        │ silence, a larger term
    FOLLOWER ◀──heartbeat of the same term── CANDIDATE

The order of the checks is DLedger's, because Java candidates act on which check refused them. A voter with a smaller
term answers TERM_NOT_READY, raises its term with the next tick, and is asked again.

Three rules are added. A node leads only with its own vote, and after a restart a node that has voted for itself stands
in a new term. So a node leads at most once per term, and two entries with the same index and term are equal. A node
that dropped its log, because its leader's log begins after it, votes as if it still had that log, and does not stand
until its new log is as far. A node that does not know what it had votes for nobody
(`flintlog.replication.ledger.core.joining`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto

from flintlog.format.ledger import NO_INDEX
from flintlog.replication.ledger.core.interface import Role
from flintlog.replication.ledger.core.messages import (
    OURS,
    HeartbeatRequest,
    HeartbeatResponse,
    PeerResponse,
    ResponseCode,
    VoteRequest,
    VoteResponse,
    VoteResult,
)
from flintlog.replication.ledger.core.state import NodeState

_TAKING_INTERVAL_MS = (30, 100)


class _Next(Enum):
    """The term of a candidate's next round."""

    SAME_TERM = auto()
    NEXT_TERM = auto()


@dataclass(slots=True)
class _VoteRound:
    term: int
    deadline_ms: int
    answers: list[VoteResponse] = field(default_factory=list)
    failed: int = 0

    def count(self, *results: VoteResult) -> int:
        return sum(answer.vote_result in results for answer in self.answers)


@dataclass(slots=True)
class _BeatRound:
    accepted: int = 1
    not_ready: int = 0
    is_over: bool = False


class Elector:
    """The election's part of a node; it changes the role through the shared state."""

    def __init__(self, state: NodeState) -> None:
        self._state = state
        self._config = state.config
        may_have_led = state.voted_for == self._config.self_id and state.rules.lead_once_a_term
        self._next = _Next.NEXT_TERM if may_have_led else _Next.SAME_TERM
        self._next_vote_ms = state.now_ms + self._interval()
        self._round: _VoteRound | None = None
        self._heard_ms = state.now_ms
        self._next_beat_ms = 0
        self._quorum_ms = 0

    def on_role_change(self) -> None:
        state = self._state
        self._round = None
        self._heard_ms = self._quorum_ms = self._next_beat_ms = state.now_ms
        self._next_vote_ms = state.now_ms + self._interval()

    def tick(self) -> None:
        state = self._state
        if state.role is Role.CANDIDATE:
            self._as_candidate()
        elif state.role is Role.FOLLOWER:
            if state.now_ms - self._heard_ms > self._config.patience_ms:
                state.become_candidate(state.term)
        else:
            self._as_leader()

    # Candidates.

    @property
    def _is_taking_leadership(self) -> bool:
        return self._state.term_to_take == self._state.term

    def _interval(self) -> int:
        if self._is_taking_leadership:
            return self._state.random.randint(*_TAKING_INTERVAL_MS)
        return self._state.random.randint(self._config.min_vote_interval_ms, self._config.max_vote_interval_ms)

    def _as_candidate(self) -> None:
        state = self._state
        if state.known_max_term > state.term:
            self._raise_term()
            self._next_vote_ms = state.now_ms + self._interval()
        elif self._round is not None:
            if state.now_ms >= self._round.deadline_ms:
                self._conclude(self._round)
        elif state.now_ms >= self._next_vote_ms and state.own_end == state.voting_end:
            if self._next is _Next.NEXT_TERM:
                self._raise_term()
            self._ask_for_votes()

    def _raise_term(self) -> None:
        self._state.raise_term()
        self._round = None
        self._next = _Next.SAME_TERM

    def _ask_for_votes(self) -> None:
        state, config = self._state, self._config
        wait_ms = config.vote_wait_ms + state.random.randint(0, config.vote_wait_ms // 2)
        round_ = self._round = _VoteRound(state.term, state.now_ms + wait_ms)
        request = VoteRequest(state.term, config.self_id, state.log.end, state.log.end_term, OURS, self._start)
        round_.answers.append(self.on_vote(config.self_id, request, is_own=True))
        for peer in config.others:
            state.call(peer, request, lambda response: self._on_vote_answer(round_, response))
        self._look_at(round_)

    @property
    def _start(self) -> int:
        return self._state.log.start if self._state.is_blank else NO_INDEX

    def _on_vote_answer(self, round_: _VoteRound, response: PeerResponse | None) -> None:
        if self._round is not round_ or self._state.known_max_term > round_.term:
            return
        if isinstance(response, VoteResponse):
            round_.answers.append(response)
        else:
            round_.failed += 1
        self._look_at(round_)

    def _look_at(self, round_: _VoteRound) -> None:
        """Conclude as soon as the round is decided. Java waits for all answers when the candidate has lost."""
        quorum = self._config.quorum
        for_us = round_.count(VoteResult.ACCEPT, VoteResult.REJECT_TERM_NOT_READY)
        missing = len(self._config.peers) - len(round_.answers) - round_.failed
        is_lost = len(round_.answers) >= quorum and for_us + missing < quorum
        if not missing or for_us >= quorum or is_lost or round_.count(VoteResult.REJECT_ALREADY_HAS_LEADER):
            self._conclude(round_)

    def _conclude(self, round_: _VoteRound) -> None:
        """Apply the first matching rule of DLedger's table."""
        state, config = self._state, self._config
        self._round = None
        quorum = config.quorum
        expired = (VoteResult.REJECT_EXPIRED_VOTE_TERM, VoteResult.REJECT_TERM_SMALL_THAN_LEDGER)
        larger = max((answer.term for answer in round_.answers if answer.vote_result in expired), default=-1)
        known = len(round_.answers) - round_.count(VoteResult.UNKNOWN)
        longer = round_.count(VoteResult.REJECT_EXPIRED_LEDGER_TERM, VoteResult.REJECT_SMALL_LEDGER_END_INDEX)
        accepted = round_.count(VoteResult.ACCEPT)
        self._next_vote_ms = state.now_ms + self._interval()
        if larger > state.term:
            state.become_candidate(larger)
        elif round_.count(VoteResult.REJECT_ALREADY_HAS_LEADER):
            self._next_vote_ms += config.patience_ms
        elif known < quorum:
            pass
        elif known - longer < quorum:
            self._next_vote_ms += config.max_vote_interval_ms
        elif state.voted_for != config.self_id and state.rules.lead_once_a_term:
            self._next = _Next.NEXT_TERM
        elif accepted >= quorum:
            state.become_leader()
        elif accepted + round_.count(VoteResult.REJECT_TERM_NOT_READY) >= quorum:
            self._next_vote_ms = state.now_ms
        else:
            self._next = _Next.NEXT_TERM

    # Voters.

    def on_vote(self, sender: str, request: VoteRequest, *, is_own: bool = False) -> VoteResponse:
        result, term = self._judge(sender, request, is_own=is_own)
        return VoteResponse(term, request.leader_id, result, OURS)

    def _judge(self, sender: str, request: VoteRequest, *, is_own: bool) -> tuple[VoteResult, int]:
        state = self._state
        candidate, log, term = request.leader_id, state.log, state.term
        if state.rules.peers_only and (candidate not in self._config.peers or sender != candidate):
            return VoteResult.REJECT_UNKNOWN_LEADER, term
        if candidate == self._config.self_id and not is_own:
            return VoteResult.REJECT_UNEXPECTED_LEADER, term
        refusal = self._refusal_of_log(request)
        if refusal is not None:
            return refusal, term
        if request.term < term:
            return VoteResult.REJECT_EXPIRED_VOTE_TERM, term
        if request.term > term:
            state.become_candidate(request.term)
            return VoteResult.REJECT_TERM_NOT_READY, term
        if state.voted_for not in (None, candidate):
            has_leader = state.leader_id is not None
            return VoteResult.REJECT_ALREADY_HAS_LEADER if has_leader else VoteResult.REJECT_ALREADY_VOTED, term
        if request.term < log.end_term:
            return VoteResult.REJECT_TERM_SMALL_THAN_LEDGER, log.end_term
        is_as_long = request.ledger_end_term == log.end_term and request.ledger_end_index <= log.end
        if not is_own and self._is_taking_leadership and is_as_long:
            return VoteResult.REJECT_TAKING_LEADERSHIP, term
        if state.has_forgotten:
            return VoteResult.REJECT_ALREADY_VOTED, term  # we may have
        state.vote_for(candidate)
        return VoteResult.ACCEPT, term

    def _refusal_of_log(self, request: VoteRequest) -> VoteResult | None:
        """Why the candidate's log is too short for our vote; None when it is not."""
        state = self._state
        if request.ledger_end_index == NO_INDEX and state.is_blank:
            return VoteResult.REJECT_SMALL_LEDGER_END_INDEX if self._begins_elsewhere(request) else None
        end_term, end = state.voting_end
        if request.ledger_end_term < end_term:
            return VoteResult.REJECT_EXPIRED_LEDGER_TERM
        if request.ledger_end_term == end_term and request.ledger_end_index < end:
            return VoteResult.REJECT_SMALL_LEDGER_END_INDEX
        return None

    def _begins_elsewhere(self, request: VoteRequest) -> bool:
        """Whether two empty ledgers would begin at different positions, because one follows a plain log."""
        own = self._state.log.start
        if request.start in (NO_INDEX, own):
            return False
        self._state.trouble = (
            f"the ledger would begin at {own} here and at {request.start} on {request.leader_id}: all members of a new "
            "group need a copy of the same store, or none"
        )
        return True

    # Leaders and followers.

    def _as_leader(self) -> None:
        state = self._state
        if state.now_ms - self._quorum_ms > self._config.patience_ms:
            state.become_candidate(state.term)
        elif state.now_ms >= self._next_beat_ms or state.is_beat_wanted:
            self.beat()

    def beat(self) -> None:
        """Send heartbeats: regularly, and before the first push, because only a follower accepts pushes."""
        state, config = self._state, self._config
        self._next_beat_ms = state.now_ms + config.heartbeat_interval_ms
        state.is_beat_wanted = False
        round_ = _BeatRound()
        for peer in config.others:
            request = HeartbeatRequest(state.term, config.self_id, OURS)
            state.call(peer, request, lambda response: self._on_beat_answer(round_, response))
        self._count(round_)

    def _on_beat_answer(self, round_: _BeatRound, response: PeerResponse | None) -> None:
        if not isinstance(response, HeartbeatResponse):
            return
        if response.term > self._state.term:
            self._state.become_candidate(response.term)
        elif response.code == ResponseCode.INCONSISTENT_LEADER:
            self._state.become_candidate(self._state.term)
        else:
            round_.accepted += response.code == ResponseCode.SUCCESS
            round_.not_ready += response.code == ResponseCode.TERM_NOT_READY
            self._count(round_)

    def _count(self, round_: _BeatRound) -> None:
        quorum = self._config.quorum
        if round_.accepted >= quorum:
            self._quorum_ms = self._state.now_ms
        elif round_.accepted + round_.not_ready >= quorum and not round_.is_over:
            round_.is_over = True
            self._next_beat_ms = self._state.now_ms

    def on_heartbeat(self, sender: str, request: HeartbeatRequest) -> HeartbeatResponse:
        state, leader = self._state, request.leader_id
        if state.rules.peers_only and (leader not in self._config.peers or sender != leader):
            return HeartbeatResponse(ResponseCode.UNKNOWN_MEMBER, dialect=OURS)
        if leader == self._config.self_id:
            return HeartbeatResponse(ResponseCode.UNEXPECTED_MEMBER, dialect=OURS)
        if request.term < state.term:
            return HeartbeatResponse(ResponseCode.EXPIRED_TERM, state.term, dialect=OURS)
        if request.term > state.term:
            state.become_candidate(request.term)
            return HeartbeatResponse(ResponseCode.TERM_NOT_READY, dialect=OURS)
        if state.leader_id is None:
            state.become_follower(leader)
        elif state.leader_id != leader:
            return HeartbeatResponse(ResponseCode.INCONSISTENT_LEADER, dialect=OURS)
        self._heard_ms = state.now_ms
        return HeartbeatResponse(dialect=OURS)
