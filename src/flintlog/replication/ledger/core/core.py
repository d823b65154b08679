"""One node of a DLedger group as a state machine: `step` takes an event and returns the work to do.

    Received, Answered ─▶ Elector        elections
                          PushHandler    a follower's log
                          FollowerPush   a leader's view of one follower, one for each
                          Transfer       handing the leadership over
                          Joining        a node without a log: new, or one that lost its state
    Propose ────────────▶ entries of our own, answered once they are committed
    Synced, Tick ───────▶ all of them

The safety of the group rests on the order in which the shell carries out an Output, see
`flintlog.replication.ledger.core.interface`: term and vote are durable before anything is sent, cuts are durable before
they are answered, and entries count once they are synced. A leader commits an entry of its own term once a majority
holds it, and with it all entries before. So it writes an entry of its own when it is elected.

This module uses no sockets, files or clocks.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from random import Random

from flintlog.errors import LedgerHalted
from flintlog.format.ledger import NO_INDEX
from flintlog.replication.ledger.core.election import Elector
from flintlog.replication.ledger.core.following import PushHandler
from flintlog.replication.ledger.core.interface import (
    Answered,
    CallFailed,
    Event,
    HardState,
    LedgerConfig,
    LedgerLog,
    Output,
    Proposal,
    Propose,
    Received,
    Role,
    Synced,
    Tick,
)
from flintlog.replication.ledger.core.joining import Joining
from flintlog.replication.ledger.core.messages import (
    AppendRequest,
    AppendResponse,
    Entry,
    GetRequest,
    GetResponse,
    HeartbeatRequest,
    MetadataRequest,
    MetadataResponse,
    PushRequest,
    ResponseCode,
    TransferRequest,
    VoteRequest,
)
from flintlog.replication.ledger.core.pushing import FollowerPush
from flintlog.replication.ledger.core.state import NodeState
from flintlog.replication.ledger.core.transferring import Transfer


@dataclass(frozen=True, slots=True)
class _Pending:
    """A written proposal that is not committed yet."""

    answer_to: int
    last_index: int
    positions: tuple[int, ...]
    deadline_ms: int


@dataclass(frozen=True, slots=True)
class PeerView:
    """A leader's view of a peer."""

    peer: str
    mode: str
    watermark: int
    speaks_ours: bool


class LedgerCore:
    """A node. At the start the log's entries and `hard_state` are durable, and the role is CANDIDATE.

    `committed` is the committed index known before a restart, or NO_INDEX. It is a hint, limited to the log's end.
    """

    def __init__(
        self,
        config: LedgerConfig,
        log: LedgerLog,
        hard_state: HardState | None = None,
        committed: int = NO_INDEX,
        *,
        now_ms: int = 0,
        random: Random,
    ) -> None:
        self._state = NodeState(config, log, hard_state or HardState(), committed, now_ms, random)
        self._state.on_role_change = self._on_role_change
        self._elector = Elector(self._state)
        self._joining = Joining(self._state)
        self._handler = PushHandler(self._state, self._joining)
        self._transfer = Transfer(self._state)
        self._followers: tuple[FollowerPush, ...] = ()
        self._pending: deque[_Pending] = deque()
        self._halted: LedgerHalted | None = None

    # Properties.

    @property
    def role(self) -> Role:
        return self._state.role

    @property
    def term(self) -> int:
        return self._state.term

    @property
    def leader_id(self) -> str | None:
        return self._state.leader_id

    @property
    def committed(self) -> int:
        """The last entry that a majority holds, as far as this node knows."""
        return self._state.committed

    @property
    def synced(self) -> int:
        """The last durable entry of this node."""
        return self._state.synced

    @property
    def peer_views(self) -> tuple[PeerView, ...]:
        """A leader's view of every follower; empty on other nodes."""
        speaks_ours = self._state.speaks_ours
        return tuple(PeerView(d.peer, d.mode.name, d.watermark, speaks_ours(d.peer)) for d in self._followers)

    @property
    def is_voting(self) -> bool:
        """Whether this node votes and counts; False while it may have lost its votes and acknowledged entries."""
        return not self._state.has_forgotten

    @property
    def trouble(self) -> str | None:
        """The present problem of this node in the group, for people."""
        return self._state.trouble

    @property
    def refused_count(self) -> int:
        """How many entries arrived damaged from peers."""
        return self._state.refused_count

    # Steps.

    def step(self, event: Event, now_ms: int) -> Output:
        """Handle an event and return the work to do. A node that has raised LedgerHalted raises it again."""
        if self._halted is not None:
            raise self._halted
        try:
            self._state.begin_step(now_ms)
            self._handle(event)
            self._transfer.look()
            self._joining.look()
            if self._state.role is Role.LEADER:
                self._lead()
            return self._state.end_step()
        except LedgerHalted as error:
            self._halted = error
            raise
        except BaseException as error:
            self._halted = LedgerHalted(f"a step failed before its end: {error!r}")
            raise

    def _handle(self, event: Event) -> None:
        state = self._state
        if isinstance(event, Received):
            self._on_request(event)
        elif isinstance(event, Answered):
            state.on_response(event.peer, event.call_id, event.response)
        elif isinstance(event, CallFailed):
            state.on_response(event.peer, event.call_id, None)
        elif isinstance(event, Propose):
            for proposal in event.proposals:
                self._propose(proposal)
        elif isinstance(event, Synced):
            state.on_synced(event.index, event.generation)
            self._handler.on_synced()
        elif isinstance(event, Tick):
            state.expire_calls()
            self._joining.tick()
            self._elector.tick()
            self._handler.tick()
            self._give_up_on_late()

    def _on_request(self, event: Received) -> None:
        state, request, answer_to = self._state, event.request, event.answer_to
        if isinstance(request, AppendRequest):
            self._propose(Proposal(answer_to, request.bodies))
        elif isinstance(request, GetRequest):
            state.answer(answer_to, self._get(request.begin_index))
        elif isinstance(request, MetadataRequest):
            peers = tuple(state.config.peers.items())
            state.answer(answer_to, MetadataResponse(ResponseCode.SUCCESS, state.term, state.leader_id, peers))
        elif isinstance(request, TransferRequest):
            watermarks = {follower.peer: follower.watermark for follower in self._followers}
            self._transfer.on_request(event.sender, answer_to, request, watermarks)
        else:
            if event.sender in state.config.peers:
                state.dialects[event.sender] = request.dialect
            self._on_peer_request(event.sender, answer_to, request)

    def _on_peer_request(
        self, sender: str, answer_to: int, request: VoteRequest | HeartbeatRequest | PushRequest
    ) -> None:
        if isinstance(request, VoteRequest):
            self._state.answer(answer_to, self._elector.on_vote(sender, request))
        elif isinstance(request, HeartbeatRequest):
            self._state.answer(answer_to, self._elector.on_heartbeat(sender, request))
        else:
            self._handler.on_push(sender, answer_to, request)

    def _on_role_change(self) -> None:
        self._elector.on_role_change()
        self._handler.on_role_change()
        self._transfer.on_role_change()
        self._followers = ()
        pending, self._pending = self._pending, deque()
        for proposal in pending:
            self._answer_proposal(proposal.answer_to, ResponseCode.TERM_CHANGED)
        if self._state.role is Role.LEADER:
            self._followers = tuple(FollowerPush(self._state, peer) for peer in self._state.config.others)
            if self._state.rules.commit_own_term_only:
                self._write(self._state.config.leader_record())
            self._elector.beat()

    # A leader.

    def _lead(self) -> None:
        """Commit the entries that a majority holds, answer their proposals, and push to the followers."""
        state = self._state
        index = self._majority_index()
        is_own = state.log.has(index) and state.log.term_of(index) == state.term
        if is_own or not state.rules.commit_own_term_only:
            state.commit_up_to(index)
        while self._pending and self._pending[0].last_index <= state.committed:
            self._answer_committed(self._pending.popleft())
        wanting = [follower for follower in self._followers if follower.wants_proof()]
        if wanting and not self._transfer.is_handing_over:
            self._write(state.config.leader_record())
        for follower in self._followers:
            follower.pump()

    def _majority_index(self) -> int:
        """The last entry that a majority holds; our own entries count once they are durable."""
        watermarks = sorted([self._state.durable, *(d.counted for d in self._followers)], reverse=True)
        return watermarks[self._state.config.quorum - 1]

    def _write(self, body: bytes) -> Entry:
        state = self._state
        entry = state.log.next_entry(state.term, body)
        sealed = state.config.seal(body, entry.position)
        if len(sealed) != len(body):
            raise LedgerHalted(f"sealing entry {entry.index} changed its length from {len(body)} to {len(sealed)}")
        if sealed is not body:
            entry = Entry(entry.index, entry.term, entry.position, sealed)
        state.append(entry)
        return entry

    def _propose(self, proposal: Proposal) -> None:
        state = self._state
        refusal = self._refusal_to_propose(proposal)
        if refusal is not None:
            self._answer_proposal(proposal.answer_to, refusal)
            return
        entries = [self._write(body) for body in proposal.bodies]
        positions = tuple(entry.position for entry in entries)
        deadline_ms = state.now_ms + state.config.acknowledge_timeout_ms
        self._pending.append(_Pending(proposal.answer_to, entries[-1].index, positions, deadline_ms))

    def _refusal_to_propose(self, proposal: Proposal) -> ResponseCode | None:
        if self._state.role is not Role.LEADER or proposal.term not in (None, self._state.term):
            return ResponseCode.NOT_LEADER
        if self._transfer.is_handing_over:
            return ResponseCode.LEADER_TRANSFERRING
        if not proposal.bodies:
            return ResponseCode.REQUEST_WITH_EMPTY_BODYS
        is_full = len(self._pending) >= self._state.config.max_pending_proposals
        return ResponseCode.LEADER_PENDING_FULL if is_full else None

    def _give_up_on_late(self) -> None:
        while self._pending and self._pending[0].deadline_ms <= self._state.now_ms:
            self._answer_proposal(self._pending.popleft().answer_to, ResponseCode.WAIT_QUORUM_ACK_TIMEOUT)

    def _answer_proposal(self, answer_to: int, code: ResponseCode) -> None:
        state = self._state
        state.answer(answer_to, AppendResponse(code, state.term, state.leader_id))

    def _answer_committed(self, pending: _Pending) -> None:
        state = self._state
        response = AppendResponse(
            ResponseCode.SUCCESS,
            state.term,
            state.leader_id,
            pending.last_index,
            pending.positions[-1],
            pending.positions,
        )
        state.answer(pending.answer_to, response)

    def _get(self, index: int) -> GetResponse:
        state = self._state
        entries: tuple[Entry, ...] = ()
        if state.role is not Role.LEADER:
            code = ResponseCode.NOT_LEADER
        elif index < state.log.begin:
            code = ResponseCode.INDEX_LESS_THAN_LOCAL_BEGIN
        elif not state.log.has(index) or index > state.committed:
            code = ResponseCode.INDEX_OUT_OF_RANGE
        elif (entry := state.intact_entry(index)) is None:
            code = ResponseCode.DISK_ERROR
        else:
            code, entries = ResponseCode.SUCCESS, (entry,)
        return GetResponse(code, state.term, state.leader_id, entries)
