"""Handing the leadership to another node, as one call that passes through the leader and the transferee.

    operator ──▶ leader: refuses proposals, calls the transferee with its last index
                    └──▶ transferee: waits until it has that entry, stands for election in the next term
                    ◀──  SUCCESS once it leads, TAKE_LEADERSHIP_FAILED if another does
    operator ◀──  the same; also if the leader learns of the new leader before the answer arrives

Either may time out: then the leader accepts proposals again, and the transferee stays a follower.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from flintlog.replication.ledger.core.interface import Role
from flintlog.replication.ledger.core.messages import (
    OURS,
    PeerResponse,
    ResponseCode,
    TransferRequest,
    TransferResponse,
)
from flintlog.replication.ledger.core.state import NodeState

CATCH_UP_MS: Final = 1_000
TRANSFER_MS: Final = 5_000


@dataclass(slots=True)
class _Handing:
    """We lead, or led, and hand over to another node."""

    answer_to: int
    to: str
    deadline_ms: int


@dataclass(slots=True)
class _Taking:
    """We take over in `term`, and stand for election once we have the entry at `index`."""

    answer_to: int
    index: int
    term: int
    stand_by_ms: int
    deadline_ms: int
    is_standing: bool = False


class Transfer:
    """Both ends of a transfer. A node takes part in at most one of each."""

    def __init__(self, state: NodeState) -> None:
        self._state = state
        self._handing: _Handing | None = None
        self._taking: _Taking | None = None

    @property
    def is_handing_over(self) -> bool:
        return self._handing is not None and self._state.role is Role.LEADER

    def on_request(self, sender: str, answer_to: int, request: TransferRequest, watermarks: dict[str, int]) -> None:
        if request.transfer_id == self._state.config.self_id:
            refusal = self._refusal_to_hand_over(request, watermarks)
            if refusal is None:
                self._hand_over(answer_to, request)
                return
        else:
            refusal = self._refusal_to_take_over(sender, request)
            if refusal is None:
                self._take_over(answer_to, request)
                return
        self._answer(answer_to, refusal)

    # The leader.

    def _refusal_to_hand_over(self, request: TransferRequest, watermarks: dict[str, int]) -> ResponseCode | None:
        state = self._state
        if state.role is not Role.LEADER:
            return ResponseCode.NOT_LEADER
        if request.term != state.term:
            return ResponseCode.EXPIRED_TERM if request.term < state.term else ResponseCode.INCONSISTENT_TERM
        if request.transferee_id not in watermarks:
            return ResponseCode.UNKNOWN_MEMBER
        if self._handing is not None:
            return ResponseCode.LEADER_TRANSFERRING
        lag = state.log.end - watermarks[request.transferee_id]
        return ResponseCode.FALL_BEHIND_TOO_MUCH if lag > state.config.max_transfer_lag else None

    def _hand_over(self, answer_to: int, request: TransferRequest) -> None:
        state = self._state
        self_id, to = state.config.self_id, request.transferee_id
        handing = self._handing = _Handing(answer_to, to, state.now_ms + TRANSFER_MS)

        def on_response(response: PeerResponse | None) -> None:
            if self._handing is handing:
                code = response.code if isinstance(response, TransferResponse) else ResponseCode.TIMEOUT
                self._end_handing(ResponseCode.known(code))

        state.call(to, TransferRequest(state.term, self_id, self_id, to, state.log.end, OURS), on_response)

    def _end_handing(self, code: ResponseCode) -> None:
        handing, self._handing = self._handing, None
        if handing is not None:
            self._answer(handing.answer_to, code)

    # The transferee.

    def _refusal_to_take_over(self, sender: str, request: TransferRequest) -> ResponseCode | None:
        state = self._state
        if request.transferee_id != state.config.self_id or (state.rules.peers_only and sender != request.transfer_id):
            return ResponseCode.UNEXPECTED_MEMBER
        if request.term != state.term:
            return ResponseCode.EXPIRED_TERM if request.term < state.term else ResponseCode.TERM_NOT_READY
        if state.role is not Role.FOLLOWER or state.leader_id != request.transfer_id:
            return ResponseCode.INCONSISTENT_LEADER
        return ResponseCode.REPEATED_REQUEST if self._taking is not None else None

    def _take_over(self, answer_to: int, request: TransferRequest) -> None:
        now_ms = self._state.now_ms
        index, term = request.take_leadership_index, request.term + 1
        self._taking = _Taking(answer_to, index, term, now_ms + CATCH_UP_MS, now_ms + TRANSFER_MS)
        self.look()

    def look(self) -> None:
        """Stand for election, or end a transfer. Called at the end of each step."""
        state, taking, handing = self._state, self._taking, self._handing
        if handing is not None and state.now_ms >= handing.deadline_ms:
            self._end_handing(ResponseCode.TIMEOUT)
        if taking is None:
            return
        if taking.is_standing:
            self._look_at_standing(taking)
        elif state.log.end >= taking.index:
            taking.is_standing = True
            state.term_to_take = taking.term
            state.become_candidate(taking.term)
        elif state.now_ms >= taking.stand_by_ms:
            self._end_taking(ResponseCode.FALL_BEHIND_TOO_MUCH)

    def _look_at_standing(self, taking: _Taking) -> None:
        state = self._state
        if state.term > taking.term:
            self._end_taking(ResponseCode.EXPIRED_TERM)
        elif state.term == taking.term and state.role is Role.LEADER:
            self._end_taking(ResponseCode.SUCCESS)
        elif state.role is Role.FOLLOWER:
            self._end_taking(ResponseCode.TAKE_LEADERSHIP_FAILED)
        elif state.now_ms >= taking.deadline_ms:
            self._end_taking(ResponseCode.TIMEOUT)

    def _end_taking(self, code: ResponseCode) -> None:
        taking, self._taking = self._taking, None
        if taking is not None:
            self._answer(taking.answer_to, code)

    # Both.

    def on_role_change(self) -> None:
        state, handing, taking = self._state, self._handing, self._taking
        if handing is not None and state.role is not Role.CANDIDATE:
            follows_it = state.leader_id == handing.to
            self._end_handing(ResponseCode.SUCCESS if follows_it else ResponseCode.TAKE_LEADERSHIP_FAILED)
        if taking is not None and not taking.is_standing:
            self._end_taking(ResponseCode.TAKE_LEADERSHIP_FAILED)

    def _answer(self, answer_to: int, code: ResponseCode) -> None:
        state = self._state
        state.answer(answer_to, TransferResponse(code, state.term, state.leader_id, OURS))
