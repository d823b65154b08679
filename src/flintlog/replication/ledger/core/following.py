"""What a follower does with its leader's pushes.

Invariant: once a COMPARE or TRUNCATE of the leader's term has succeeded here, our log is the beginning of the leader's
and stays that until the term ends: it only grows by the leader's next entry. So nothing that came late, twice or out
of order may cut it again. Whether that holds is remembered, and after a restart it is seen from the log: an entry of
the leader's own term can have come in no other way. (A Java leader may lead twice in one term, having lost entries
between; what it wants cut is cut, as long as nothing of it is committed.)

APPENDs are taken strictly in the order of their entries; one that comes too early is parked. Nothing is answered for
before it is on disk: that holds for APPEND, and for COMPARE and TRUNCATE too, because the leader counts them.
"""

from __future__ import annotations

from dataclasses import dataclass

from flintlog.format.ledger_entry import NO_INDEX
from flintlog.replication.ledger.core.interface import Role
from flintlog.replication.ledger.core.joining import Joining
from flintlog.replication.ledger.core.messages import (
    JAVA,
    NO_TERM,
    OURS,
    Entry,
    PushRequest,
    PushResponse,
    PushType,
    ResponseCode,
)
from flintlog.replication.ledger.core.state import NodeState


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A request that will be answered: when what it brought is on disk, or when what is missing before it has come."""

    answer_to: int
    request: PushRequest
    since_ms: int


class PushHandler:
    """The follower's part of a node."""

    def __init__(self, state: NodeState, joining: Joining) -> None:
        self._state = state
        self._joining = joining
        self._parked: dict[int, _Waiting] = {}
        """APPENDs with a gap before them, by their first entry."""
        self._unsynced: list[_Waiting] = []
        """Done, but not on disk yet."""
        self._matched_term = NO_TERM

    def on_role_change(self) -> None:
        self._refuse_all(ResponseCode.NOT_FOLLOWER)

    def on_push(self, sender: str, answer_to: int, request: PushRequest) -> None:
        waiting = _Waiting(answer_to, request, self._state.now_ms)
        refusal = self._refusal(sender, request)
        if refusal is not None:
            self._answer(waiting, refusal)
            return
        self._state.check_committed(request.entries)
        if not self._joining.on_push(request):
            self._answer(waiting, ResponseCode.INCONSISTENT_STATE)
        elif request.type is PushType.APPEND:
            self._on_append(waiting)
        elif request.type is PushType.COMMIT:
            self._state.commit_up_to(request.commit_index)
            self._answer(waiting, ResponseCode.SUCCESS)
        else:
            self._refuse_parked(ResponseCode.TIMEOUT)
            if request.type is PushType.COMPARE:
                self._on_compare(waiting)
            else:
                self._on_truncate(waiting)

    def _refusal(self, sender: str, request: PushRequest) -> ResponseCode | None:
        state = self._state
        if state.rules.peers_only and (request.leader_id not in state.config.peers or sender != request.leader_id):
            return ResponseCode.UNKNOWN_MEMBER
        if not _is_sound(request):
            return ResponseCode.UNEXPECTED_ARGUMENT
        if request.term < state.term:
            return ResponseCode.EXPIRED_TERM
        if request.term > state.term:
            return ResponseCode.TERM_NOT_READY
        if state.role is not Role.FOLLOWER:
            return ResponseCode.NOT_FOLLOWER
        return None if request.leader_id == state.leader_id else ResponseCode.INCONSISTENT_LEADER

    # Where the logs agree.

    @property
    def _is_matched(self) -> bool:
        """Whether our log is known to be the beginning of the leader's."""
        return self._state.term in (self._matched_term, self._state.log.end_term)

    def _on_compare(self, waiting: _Waiting) -> None:
        log, entry = self._state.log, waiting.request.entries[0]
        if not (log.has(entry.index) and log.entry(entry.index) == entry):
            self._answer(waiting, ResponseCode.INCONSISTENT_STATE)
            return
        if entry.index == log.end:
            self._matched_term = self._state.term
        self._answer_when_synced(waiting)

    def _on_truncate(self, waiting: _Waiting) -> None:
        request = waiting.request
        entry = request.entries[0]
        may_cut = request.dialect == JAVA or not self._is_matched or not self._state.rules.agree_once_a_term
        refusal = self._keep_up_to(entry, may_cut=may_cut)
        if refusal is not None:
            self._answer(waiting, refusal)
            return
        self._matched_term = self._state.term
        self._state.commit_up_to(request.commit_index)
        self._answer_when_synced(waiting)

    def _keep_up_to(self, entry: Entry, *, may_cut: bool) -> ResponseCode | None:
        """Make this entry our last one, or refuse. What is before it stays only if it is known to be the leader's.

        What is committed is the leader's too, so a request to cut some of it is one that comes late.
        """
        state, log = self._state, self._state.log
        kept = state.committed if state.rules.keep_committed else NO_INDEX
        if log.has(entry.index) and log.entry(entry.index) == entry:
            if max(entry.index, kept) < log.end and may_cut:
                self._refuse_all(ResponseCode.TIMEOUT)
                state.cut(max(entry.index, kept))
            return None
        if entry.index <= (kept if may_cut else log.end):
            return ResponseCode.INCONSISTENT_STATE
        is_prefix_known = not may_cut or state.committed >= entry.index - 1
        if log.has(entry.index - 1) and is_prefix_known:
            if not log.follows(entry):
                return ResponseCode.DISK_ERROR
            if entry.index <= log.end:
                self._refuse_all(ResponseCode.TIMEOUT)
                state.cut(entry.index - 1)
            state.append(entry)
        else:
            self._refuse_all(ResponseCode.TIMEOUT)
            state.restart(entry)
        return None

    # Entries.

    def _on_append(self, waiting: _Waiting) -> None:
        request, log = waiting.request, self._state.log
        if request.first_index <= log.end + 1:
            self._take(waiting)
            self._take_parked()
        elif request.first_index in self._parked:
            self._answer(waiting, ResponseCode.REPEATED_PUSH)
        elif len(self._parked) >= self._state.config.max_parked:
            self._answer(waiting, ResponseCode.INCONSISTENT_STATE)
        else:
            self._parked[request.first_index] = waiting

    def _take_parked(self) -> None:
        while (waiting := self._parked.pop(self._state.log.end + 1, None)) is not None:
            self._take(waiting)

    def _take(self, waiting: _Waiting) -> None:
        """Entries that touch our log: those that it has must be the same, the others are written."""
        state, log, request = self._state, self._state.log, waiting.request
        known = [entry for entry in request.entries if entry.index <= log.end]
        if not all(log.has(entry.index) and log.entry(entry.index) == entry for entry in known):
            self._answer(waiting, ResponseCode.INCONSISTENT_STATE)
            return
        for entry in request.entries[len(known) :]:
            if not log.follows(entry):
                self._answer(waiting, ResponseCode.DISK_ERROR)
                return
            state.append(entry)
        state.commit_up_to(request.commit_index)
        self._answer_when_synced(waiting)

    def tick(self) -> None:
        """Parked APPENDs that are not needed any more are answered; a gap that stays is told to the leader.

        It stays when the leader has not filled it by itself, which it does after `push_timeout_ms`.
        """
        if not self._parked:
            return
        end = self._state.log.end
        for first_index in [index for index in self._parked if index <= end]:
            self._take(self._parked.pop(first_index))
        oldest = min(self._parked, default=None)
        if (
            oldest is not None
            and self._state.now_ms - self._parked[oldest].since_ms >= 2 * self._state.config.push_timeout_ms
        ):
            self._answer(self._parked.pop(oldest), ResponseCode.INCONSISTENT_STATE)

    # Answers.

    def _answer_when_synced(self, waiting: _Waiting) -> None:
        self._unsynced.append(waiting)
        self.on_synced()

    def on_synced(self) -> None:
        durable = self._state.durable
        still = [waiting for waiting in self._unsynced if waiting.request.last_index > durable]
        for waiting in self._unsynced:
            if waiting.request.last_index <= durable:
                self._answer(waiting, ResponseCode.SUCCESS)
        self._unsynced = still

    def _refuse_all(self, code: ResponseCode) -> None:
        self._refuse_parked(code)
        unsynced, self._unsynced = self._unsynced, []
        for waiting in unsynced:
            self._answer(waiting, code)

    def _refuse_parked(self, code: ResponseCode) -> None:
        parked, self._parked = self._parked, {}
        for waiting in parked.values():
            self._answer(waiting, code)

    def _answer(self, waiting: _Waiting, code: ResponseCode) -> None:
        state, request = self._state, waiting.request
        conflict = self._conflict(request) if code is ResponseCode.INCONSISTENT_STATE else (NO_TERM, NO_INDEX)
        response = PushResponse(
            code,
            state.term if code is ResponseCode.EXPIRED_TERM else request.term,
            request.leader_id,
            request.first_index if request.entries else None,
            len(request.entries),
            state.log.begin,
            state.log.end,
            *conflict,
            OURS,
            state.has_forgotten,
        )
        state.answer(waiting.answer_to, response)

    def _conflict(self, request: PushRequest) -> tuple[int, int]:
        log = self._state.log
        if request.type is not PushType.COMPARE or not log.has(request.first_index):
            return NO_TERM, NO_INDEX
        return log.term_of(request.first_index), log.first_of_term(request.first_index)


def _is_sound(request: PushRequest) -> bool:
    """Whether a push has the entries that its type needs, consecutive, and none of a later term."""
    entries = request.entries
    if request.type is PushType.COMMIT:
        return not entries
    if not entries or (len(entries) > 1 and request.type is not PushType.APPEND):
        return False
    return all(
        entry.index == entries[0].index + place and 0 <= entry.term <= request.term
        for place, entry in enumerate(entries)
    )
