"""One node of a DLedger group: sockets, files and a clock around the state machine.

    requests of peers ─┐                      ┌─▶ term and vote, cuts    durable before the next action
    answers, ticks    ─┼─▶ turn: core.step ───┼─▶ entries                page cache, then one sync for all of the turn
    proposals         ─┘                      └─▶ calls, answers         one write per connection

One turn handles all events that arrived while the loop was busy. Entries are synced in a separate thread, so that
heartbeats and more entries continue meanwhile; entries written during a sync are covered by the next one. The core
counts and acknowledges entries only after `Synced`. When a file cannot be written or the core raises, the node halts:
it closes its port and every connection, and `halted` holds the reason.

Everything runs in the loop that `start` was called in, except `propose_from_thread`, `hand_over` and the properties,
which any thread may use.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from random import Random
from typing import Final, TypeVar

from flintlog.errors import FlintlogError, LedgerHalted
from flintlog.format.ledger import ENTRY_HEAD_SIZE
from flintlog.replication.ledger.core.core import LedgerCore, PeerView
from flintlog.replication.ledger.core.interface import (
    Answered,
    CallFailed,
    Event,
    LedgerConfig,
    Output,
    Proposal,
    Propose,
    Received,
    Role,
    RoleChange,
    Synced,
    Tick,
)
from flintlog.replication.ledger.core.messages import (
    NO_TERM,
    AppendRequest,
    AppendResponse,
    PushRequest,
    PushResponse,
    Response,
    ResponseCode,
    TransferRequest,
    TransferResponse,
)
from flintlog.replication.ledger.node.calling import PeerLine
from flintlog.replication.ledger.node.listening import LedgerListener, Question
from flintlog.replication.ledger.node.storage import LedgerStorage
from flintlog.replication.ledger.node.syncing import EntrySync
from flintlog.replication.ledger.node.wire import Envelope

log = logging.getLogger(__name__)

T = TypeVar("T")
TICK_S: Final = 0.01
CHECKPOINT_INTERVAL_S: Final = 3.0
MAX_PROPOSED_BYTES: Final = 64 * 1024 * 1024
"""The limit for bodies that wait for the next turn; a proposal above it is refused as LEADER_PENDING_FULL."""

OnAnswer = Callable[[Response], None]


@dataclass(frozen=True, slots=True)
class LedgerStatus:
    """The present state of a node; `peers` is a leader's view of the others."""

    self_id: str
    role: Role
    term: int
    leader_id: str | None
    begin: int
    end: int
    synced: int
    committed: int
    peers: tuple[PeerView, ...]
    connected: tuple[str, ...]
    halted: str | None
    is_voting: bool = True
    """False while it has no log and may have lost one."""
    trouble: str | None = None
    refused_count: int = 0
    """Entries that arrived damaged from peers."""


class LedgerListeners:
    """A node's callbacks, to be overridden. They are called in the node's loop, so they must be quick."""

    def on_role(self, change: RoleChange) -> None:
        """The role, the leader or the term has changed."""

    def on_committed(self, index: int) -> None:
        """All entries up to this one are committed, and written here."""

    def on_halted(self, error: FlintlogError) -> None:
        """The node has stopped for good."""


@dataclass(frozen=True, slots=True)
class _HandedOver:
    """A proposal of another thread; the loop owns it once it has claimed it."""

    bodies: tuple[bytes, ...]
    term: int | None
    claim: Callable[[], bool]
    on_answer: Callable[[AppendResponse], None]


class LedgerNode:
    """A node over a storage, which its caller closes."""

    def __init__(
        self,
        group: str,
        config: LedgerConfig,
        storage: LedgerStorage,
        listeners: LedgerListeners | None = None,
        *,
        random: Random | None = None,
        takes_appends: bool = True,
    ) -> None:
        """Without `takes_appends`, clients cannot append over the network; only local proposals append."""
        self.group = group
        self.config = config
        self.halted: FlintlogError | None = None
        self._storage = storage
        self._listeners = listeners or LedgerListeners()
        self._random = random or Random()
        self._core: LedgerCore | None = None
        self._trouble: str | None = None
        self._events: list[Event] = []
        self._proposals: list[Proposal] = []
        self._proposed_bytes = 0
        self._from_threads: deque[_HandedOver] = deque()
        self._is_woken = False
        self._is_scheduled = False
        self._is_stopped = False
        self._halting: asyncio.Task[None] | None = None
        self._numbers = itertools.count(1)
        self._questions: dict[int, Question] = {}
        self._waiting: dict[int, OnAnswer] = {}
        self._lines: dict[str, PeerLine] = {}
        self._sync = EntrySync(storage, self._take, self.halt)
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._listener = LedgerListener(
            group,
            config.self_id,
            config.peers,
            self._on_question,
            peers_only=config.rules.peers_only,
            takes_appends=takes_appends,
        )

    # ------------------------------------------------------------------ life

    async def start(self) -> None:
        """Listen on the node's own address and take part in the group."""
        self._loop = asyncio.get_running_loop()
        storage = self._storage
        self._core = LedgerCore(
            self.config,
            storage.log,
            storage.hard_state,
            storage.committed,
            now_ms=self._now_ms(),
            random=self._random,
        )
        if not self._core.is_voting:
            log.info(
                "the node %s has no log: it votes once the group has filled it, or all peers say that they have none",
                self.config.self_id,
            )
        for peer in self.config.others:
            envelope = Envelope(self.group, self.config.self_id, peer)
            self._lines[peer] = PeerLine(peer, self.config.peers[peer], envelope, self._take)
        host, _, port = self.config.peers[self.config.self_id].rpartition(":")
        await self._listener.start(host.strip("[]"), int(port))
        self._tick()
        self._timers["checkpoint"] = self._loop.call_later(CHECKPOINT_INTERVAL_S, self._save_committed)

    async def stop(self) -> None:
        """Leave the group. Written entries are synced, and the committed index is saved."""
        if self._is_stopped:
            if self._halting is not None:
                await self._halting
            return
        self._close_down(ResponseCode.ILLEGAL_MEMBER_STATE)
        await self._close_sockets()
        await self._sync.stop(None if self._core is None else self._core.committed)

    def _close_down(self, code: ResponseCode) -> None:
        self._is_stopped = True
        for timer in self._timers.values():
            timer.cancel()
        refused = AppendResponse(code, NO_TERM)
        waiting, self._waiting = self._waiting, {}
        for on_answer in waiting.values():
            on_answer(refused)
        while self._from_threads:
            handed = self._from_threads.popleft()
            if handed.claim():
                handed.on_answer(refused)

    def halt(self, error: Exception) -> None:
        """Stop for good after a failure, so that the group does not rely on this node. Called in the loop."""
        if self._is_stopped:
            return
        halted = error if isinstance(error, FlintlogError) else LedgerHalted(f"the node failed: {error!r}")
        self.halted = halted
        log.error("the node %s of the group %s has stopped: %s", self.config.self_id, self.group, halted)
        self._close_down(ResponseCode.DISK_ERROR)
        self._halting = self._loop.create_task(self._leave())
        self._listeners.on_halted(halted)

    async def _leave(self) -> None:
        await self._close_sockets()
        await self._sync.stop(None)

    async def _close_sockets(self) -> None:
        await self._listener.stop()
        for line in self._lines.values():
            await line.close()

    # ------------------------------------------------------------------ state

    @property
    def role(self) -> Role:
        return Role.CANDIDATE if self._core is None or self._is_stopped else self._core.role

    @property
    def term(self) -> int:
        return self._storage.hard_state.term if self._core is None else self._core.term

    @property
    def leader_id(self) -> str | None:
        return None if self._core is None or self._is_stopped else self._core.leader_id

    @property
    def committed(self) -> int:
        return self._storage.committed if self._core is None else self._core.committed

    def status(self) -> LedgerStatus:
        """The whole state of the node, for people and metrics."""
        core, ledger = self._running, self._storage.log
        return LedgerStatus(
            self.config.self_id,
            self.role,
            core.term,
            self.leader_id,
            ledger.begin,
            ledger.end,
            core.synced,
            core.committed,
            core.peer_views,
            tuple(peer for peer, line in self._lines.items() if line.is_connected),
            None if self.halted is None else str(self.halted),
            core.is_voting,
            core.trouble,
            core.refused_count,
        )

    # ------------------------------------------------------------------ proposals

    async def propose(self, *bodies: bytes) -> AppendResponse:
        """Append entries; returns when they are committed, or with the reason why they are not (yet)."""
        answer: asyncio.Future[AppendResponse] = self._loop.create_future()
        self._propose(bodies, lambda response: _settle(answer, response))
        return await answer

    def propose_from_thread(self, *bodies: bytes, term: int | None = None) -> Future[AppendResponse]:
        """The same from any thread; with a `term`, only in that term. One thread's proposals keep their order."""
        answer: Future[AppendResponse] = Future()
        self.hand_over(bodies, answer, lambda response: response, term)
        return answer

    def hand_over(
        self, bodies: Sequence[bytes], answer: Future[T], read: Callable[[AppendResponse], T], term: int | None
    ) -> None:
        """The same for a future of the caller, which is set to `read(answer)`.

        Until the node takes the proposal, the future can be cancelled; then its entries are in no log. So a caller that
        was interrupted in here can find out whether there will be an answer.
        """
        claim = answer.set_running_or_notify_cancel
        self._from_threads.append(
            _HandedOver(tuple(bodies), term, claim, lambda response: answer.set_result(read(response)))
        )
        if not self._is_woken:
            self._is_woken = True
            self._loop.call_soon_threadsafe(self._take_from_threads)

    async def transfer_leadership(self, successor: str) -> ResponseCode:
        """Hand over to another node; SUCCESS once it leads."""
        answer: asyncio.Future[Response] = self._loop.create_future()
        number = self._number(lambda response: _settle(answer, response))
        request = TransferRequest(self.term, self.leader_id, self.config.self_id, successor)
        self._take(Received("", number, request))
        response = await answer
        code = response.code if isinstance(response, TransferResponse | AppendResponse) else 0
        return ResponseCode.known(code)

    def _take_from_threads(self) -> None:
        self._is_woken = False
        while self._from_threads:
            handed = self._from_threads.popleft()
            if handed.claim():
                self._propose(handed.bodies, handed.on_answer, handed.term)

    def _propose(
        self, bodies: Sequence[bytes], on_answer: Callable[[AppendResponse], None], term: int | None = None
    ) -> None:
        size = sum(map(len, bodies))
        refusal = self._refusal(bodies, size)
        if refusal is not None:
            on_answer(AppendResponse(refusal, NO_TERM))
            return
        self._proposed_bytes += size
        number = self._number(lambda response: _hand_on(response, on_answer))
        self._proposals.append(Proposal(number, tuple(bodies), term))
        self._schedule()

    def _refusal(self, bodies: Sequence[bytes], size: int) -> ResponseCode | None:
        if self._is_stopped:
            return ResponseCode.ILLEGAL_MEMBER_STATE
        if not self._fit(bodies):
            return ResponseCode.UNEXPECTED_ARGUMENT
        is_full = self._proposed_bytes + size > MAX_PROPOSED_BYTES
        return ResponseCode.LEADER_PENDING_FULL if is_full else None

    def _fit(self, bodies: Iterable[bytes]) -> bool:
        most = self._storage.max_entry_bytes - ENTRY_HEAD_SIZE
        return all(len(body) <= most for body in bodies)

    def _number(self, on_answer: OnAnswer) -> int:
        number = next(self._numbers)
        self._waiting[number] = on_answer
        return number

    # ------------------------------------------------------------------ turns

    @property
    def _running(self) -> LedgerCore:
        if self._core is None:
            raise LedgerHalted("the node was not started")
        return self._core

    def _now_ms(self) -> int:
        return int(self._loop.time() * 1000)

    def _tick(self) -> None:
        # A signal may have interrupted a proposing thread before it woke the loop.
        self._take_from_threads()
        self._take(Tick())
        self._timers["tick"] = self._loop.call_later(TICK_S, self._tick)

    def _on_question(self, question: Question) -> None:
        request = question.request
        if isinstance(request, PushRequest) and not self._fit(entry.body for entry in request.entries):
            response = PushResponse(ResponseCode.DISK_ERROR, request.term, request.leader_id)
            question.refuse(response, "sent an entry that no file of this node can hold")
            return
        if isinstance(request, AppendRequest) and not self._fit(request.bodies):
            question.answer(AppendResponse(ResponseCode.UNEXPECTED_ARGUMENT, NO_TERM))
            return
        number = next(self._numbers)
        self._questions[number] = question
        self._take(Received(question.sender, number, question.request))

    def _take(self, event: Tick | Received | Answered | CallFailed | Synced) -> None:
        self._events.append(event)
        self._schedule()

    def _schedule(self) -> None:
        if not self._is_scheduled and not self._is_stopped:
            self._is_scheduled = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._is_scheduled = False
        if self._is_stopped:
            return
        events, self._events = self._events, []
        if self._proposals:
            events.append(Propose(tuple(self._proposals)))
            self._proposals = []
            self._proposed_bytes = 0
        core, now_ms = self._running, self._now_ms()
        try:
            for event in events:
                self._carry_out(core.step(event, now_ms))
        except Exception as error:  # noqa: BLE001 (after an incomplete step no later one can be trusted)
            self.halt(error)
            return
        self._sync.start_if_due()
        self._listener.flush()
        for line in self._lines.values():
            line.flush()

    def _carry_out(self, output: Output) -> None:
        storage = self._storage
        self._report_trouble()
        if output.hard_state is not None:
            storage.save_hard_state(output.hard_state)
        if output.truncation is not None:
            self._sync.wait()
            storage.truncate(output.truncation)
        self._sync.generation = output.generation
        if output.entries:
            storage.write(output.entries)
            self._sync.is_dirty = True
        for call in output.calls:
            self._lines[call.peer].send(call)
        if output.committed is not None:
            self._listeners.on_committed(output.committed)
        for answer in output.answers:
            self._answer(answer.answer_to, answer.response)
        if output.role is not None:
            log.info("the node %s is %s in term %d", self.config.self_id, output.role.role.name, output.role.term)
            self._listeners.on_role(output.role)

    def _report_trouble(self) -> None:
        trouble = self._running.trouble
        if trouble != self._trouble:
            self._trouble = trouble
            level = logging.INFO if trouble is None else logging.WARNING
            text = trouble or "the trouble is over"
            log.log(level, "the node %s of the group %s: %s", self.config.self_id, self.group, text)

    def _answer(self, number: int, response: Response) -> None:
        question = self._questions.pop(number, None)
        if question is not None and isinstance(response, PushResponse) and response.code is ResponseCode.DISK_ERROR:
            question.refuse(response, "sent an entry that has another position here: do its files have another size?")
            return
        if question is not None:
            question.answer(response)
            return
        on_answer = self._waiting.pop(number, None)
        if on_answer is not None:
            on_answer(response)

    def _save_committed(self) -> None:
        self._sync.save_committed(self._running.committed)
        self._timers["checkpoint"] = self._loop.call_later(CHECKPOINT_INTERVAL_S, self._save_committed)


def _settle(future: asyncio.Future[AppendResponse] | asyncio.Future[Response], response: Response) -> None:
    if not future.done():
        future.set_result(response)  # type: ignore[arg-type]


def _hand_on(response: Response, on_answer: Callable[[AppendResponse], None]) -> None:
    if isinstance(response, AppendResponse):
        on_answer(response)
