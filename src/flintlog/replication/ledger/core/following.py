"""A follower's handling of its leader's pushes.

Invariant: once a COMPARE or TRUNCATE of the leader's term has succeeded here, our log is a prefix of the leader's until
the term ends, and grows only by the leader's next entry. So a late, duplicate or reordered push must not cut it again.
This state is kept in memory. After a restart it follows from the log: an entry of the leader's own term can only have
been written in that state. (A Java leader may lead twice in one term and lose entries in between. Its cuts are allowed,
unless they remove committed entries.)

APPENDs are applied strictly in the order of their entries; an early one is parked. No push is answered before its
entries are durable. This holds for APPEND, and also for COMPARE and TRUNCATE, because the leader counts them. A push
with a damaged body is refused completely: it proves nothing about the leader's log.
"""

from __future__ import annotations

from dataclasses import dataclass

from flintlog.format.ledger import NO_INDEX
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
    """A request to answer later: when its entries are durable, or when the missing entries before them have arrived."""

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
        """Applied, but not durable yet."""
        self._matched_term = NO_TERM
        self._damaged_index = NO_INDEX
        """The entry that last arrived damaged, until it arrives intact; `trouble` reports it."""

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
        if request.leader_id != state.leader_id:
            return ResponseCode.INCONSISTENT_LEADER
        return None if self._is_intact(request) else ResponseCode.UNEXPECTED_ARGUMENT

    def _is_intact(self, request: PushRequest) -> bool:
        """Whether every body arrived intact. If not, this is reported until the entry arrives intact."""
        state, indexes = self._state, [entry.index for entry in request.entries]
        damaged = [entry.index for entry in request.entries if not state.is_intact(entry)]
        if damaged:
            state.refused_count += len(damaged)
            self._damaged_index = damaged[0]
            state.trouble = f"{request.leader_id} sent entry {damaged[0]} damaged: refused until it arrives intact"
        elif self._damaged_index in indexes:
            self._damaged_index, state.trouble = NO_INDEX, None
        return not damaged

    # Where the logs agree.

    @property
    def _is_matched(self) -> bool:
        """Whether our log is known to be a prefix of the leader's."""
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
        """Make this entry our last one, or refuse. Earlier entries stay only if they are known to be the leader's.

        Committed entries are the leader's too, so a request to cut them is a late one.
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
        """Apply entries that reach our log's end or overlap it: known ones must be equal, new ones are appended."""
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
        """Answer parked APPENDs that are no longer needed, and report a lasting gap to the leader.

        The leader fills a gap by itself after `push_timeout_ms`; one that is twice as old is reported.
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
    """Whether a push has the entries that its type needs: consecutive, and none of a later term."""
    entries = request.entries
    if request.type is PushType.COMMIT:
        return not entries
    if not entries or (len(entries) > 1 and request.type is not PushType.APPEND):
        return False
    return all(
        entry.index == entries[0].index + place and 0 <= entry.term <= request.term
        for place, entry in enumerate(entries)
    )
