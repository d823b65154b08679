"""A leader's work for one follower: find the last common entry, truncate the follower's log there, then push.

    COMPARE ──same entry, same end──────────────▶ APPEND ◀──┐
       │ ▲  └─same entry, the follower has more─▶ TRUNCATE ─┘
       │ └──other entry: one back, or at the follower's hint
       └────nothing in common: TRUNCATE at our first entry

`watermark` is the last entry that the follower has acknowledged; the leader commits by the followers' watermarks. A
Java peer gets one entry per push and up to a thousand pushes at a time, which it puts in order. A flintlog peer gets
batches, a few at a time, so that entries proposed meanwhile share the next batch.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto

from flintlog.format.ledger import NO_INDEX
from flintlog.replication.ledger.core.messages import (
    NO_TERM,
    OURS,
    Entry,
    PeerResponse,
    PushRequest,
    PushResponse,
    PushType,
    ResponseCode,
)
from flintlog.replication.ledger.core.state import NodeState

_RETRY_MS = 100
_PROOF_INTERVAL_MS = 2_000
_NOT_FOLLOWING = (ResponseCode.NOT_FOLLOWER, ResponseCode.TERM_NOT_READY)
_OnPushed = Callable[[PushResponse | None], None]


class Mode(Enum):
    """The phase of the work for a follower."""

    COMPARE = auto()
    TRUNCATE = auto()
    APPEND = auto()


class FollowerPush:
    """A leader's view of one follower, for one term."""

    def __init__(self, state: NodeState, peer: str) -> None:
        self._state = state
        self._config = state.config
        self.peer = peer
        self.mode = Mode.COMPARE
        self.watermark = NO_INDEX
        self._index = max(0, state.log.end)
        """The entry to compare or to truncate at."""
        self._next_index = 0
        self._pushes: dict[int, int] = {}
        """Unanswered APPENDs: their last entry, and when they count as lost. Both grow."""
        self._failed_ms: int | None = None
        """When to send again after a failed APPEND."""
        self._era = 0
        """Changes with the mode: answers to earlier pushes are ignored."""
        self._due_ms = state.now_ms
        """No entry is sent before this time, when a COMPARE or TRUNCATE counts as lost or a damaged entry is reread."""
        self._sent_committed = NO_INDEX
        self._sent_ms = state.now_ms
        self.has_forgotten = False
        """The follower reports that it may have lost entries that it acknowledged, so it does not count yet."""
        self._proof_ms = 0

    @property
    def counted(self) -> int:
        """The last entry for which the follower counts towards a majority."""
        return NO_INDEX if self.has_forgotten else self.watermark

    def wants_proof(self) -> bool:
        """Whether the follower holds all entries, and waits until an entry newer than its start is committed."""
        state = self._state
        is_due = self.has_forgotten and self.mode is Mode.APPEND and state.now_ms >= self._proof_ms
        if not is_due or not self.watermark == state.log.end == state.committed:
            return False
        self._proof_ms = state.now_ms + _PROOF_INTERVAL_MS
        return True

    def pump(self) -> None:
        """Send all that may be sent now."""
        if self.mode is Mode.APPEND:
            self._append()
        elif self._state.now_ms >= self._due_ms and self._state.log.begin != NO_INDEX:
            self._ask()

    # Finding where the logs agree.

    def _ask(self) -> None:
        log = self._state.log
        if self._index < log.begin or self._index > log.end:
            self._truncate_at(log.begin)
        self._due_ms = self._state.now_ms + self._config.push_timeout_ms
        entry = self._state.intact_entry(self._index)
        if entry is None:
            return
        if self.mode is Mode.COMPARE:
            self._push(PushType.COMPARE, (entry,), self._on_compared)
        else:
            self._push(PushType.TRUNCATE, (entry,), self._on_truncated)

    def _compare(self, index: int) -> None:
        self._enter(Mode.COMPARE, index)

    def _truncate_at(self, index: int) -> None:
        self._enter(Mode.TRUNCATE, index)

    def _enter(self, mode: Mode, index: int) -> None:
        self._era += 1
        self._pushes.clear()
        self._failed_ms = None
        self.mode, self._index, self._due_ms = mode, index, self._state.now_ms

    def _on_compared(self, response: PushResponse | None) -> None:
        log = self._state.log
        index = self._index
        if response is not None and response.code == ResponseCode.SUCCESS:
            if response.end_index == index:
                self._append_after(index)
            else:
                self._truncate_at(index)
        elif response is not None and response.code == ResponseCode.INCONSISTENT_STATE:
            begin, end = response.begin_index, response.end_index
            if end == NO_INDEX or end < log.begin or begin > log.end or index < begin:
                self._truncate_at(log.begin)
            elif index > end:
                self._compare(end)
            else:
                self._compare(self._further_back(index, response))
        else:
            self._retry_soon()

    def _further_back(self, index: int, response: PushResponse) -> int:
        """The next entry to compare, without skipping one that both logs could hold.

        The follower's log holds none of our entries after our last one with the follower's conflict term or a smaller
        one. If we have no entry of that term, the follower's entries from its first one of that term on differ too.
        """
        log = self._state.log
        back = index - 1
        if response.conflict_term != NO_TERM and log.has(index):
            back = min(back, log.last_up_to_term(response.conflict_term, index))
            if log.has(back) and log.term_of(back) != response.conflict_term:
                back = min(back, response.conflict_index - 1)
        return back

    def _on_truncated(self, response: PushResponse | None) -> None:
        if response is not None and response.code == ResponseCode.SUCCESS:
            self._append_after(self._index)
        elif response is not None and response.code == ResponseCode.INCONSISTENT_STATE:
            self._compare(self._state.log.end)
        else:
            self._retry_soon()

    def _retry_soon(self) -> None:
        self._due_ms = min(self._due_ms, self._state.now_ms + _RETRY_MS)

    # Pushing.

    def _append_after(self, index: int) -> None:
        self._era += 1
        self.mode = Mode.APPEND
        self.watermark = index
        self._next_index, self._due_ms = index + 1, self._state.now_ms
        self._sent_committed = NO_INDEX

    def _append(self) -> None:
        state, log = self._state, self._state.log
        if self._is_push_lost():
            self._pushes.clear()
            self._failed_ms = None
            self._next_index = self.watermark + 1
        if self._next_index < log.begin:
            self._truncate_at(log.begin)
            self._ask()
            return
        is_ours = state.speaks_ours(self.peer)
        limit = self._config.max_batch_pushes if is_ours else self._config.max_pushes
        while self._next_index <= log.end and len(self._pushes) < limit and state.now_ms >= self._due_ms:
            self._append_batch(self._batch(is_ours=is_ours))
        if not self._pushes and state.now_ms - self._sent_ms >= self._commit_interval_ms:
            held = self.watermark
            self._push(PushType.COMMIT, (), lambda response: self._on_committed(held, response))

    def _on_committed(self, held: int, response: PushResponse | None) -> None:
        """Compare again if the follower holds fewer entries than it had acknowledged: it was emptied."""
        if response is None or response.dialect != OURS or response.code != ResponseCode.SUCCESS:
            return
        if response.end_index < held:
            self.watermark = NO_INDEX
            self._compare(self._state.log.end)

    def _is_push_lost(self) -> bool:
        now_ms = self._state.now_ms
        if self._failed_ms is not None and now_ms >= self._failed_ms:
            return True
        return bool(self._pushes) and now_ms >= next(iter(self._pushes.values()))

    def _append_batch(self, entries: tuple[Entry, ...]) -> None:
        if not entries:
            self._due_ms = self._state.now_ms + self._config.push_timeout_ms
            return
        last_index = entries[-1].index
        self._pushes[last_index] = self._state.now_ms + self._config.push_timeout_ms
        self._next_index = last_index + 1
        self._push(PushType.APPEND, entries, lambda response: self._on_appended(last_index, response))

    @property
    def _commit_interval_ms(self) -> int:
        """A new committed index is sent soon; an old one is only repeated, in case it was lost."""
        is_new = self._sent_committed < self._state.committed
        return self._config.commit_interval_ms if is_new else max(1_000, self._config.commit_interval_ms)

    def _batch(self, *, is_ours: bool) -> tuple[Entry, ...]:
        """The next entries, up to a damaged one; empty if the first is damaged."""
        config, state = self._config, self._state
        left = config.max_batch_bytes if is_ours else config.java_batch_bytes if config.batch_to_java else 0
        entries: list[Entry] = []
        for index in range(self._next_index, state.log.end + 1):
            entry = state.intact_entry(index) if left > 0 or not entries else None
            if entry is None or (entries and entry.size > left):
                break
            entries.append(entry)
            left -= entry.size
        return tuple(entries)

    def _on_appended(self, last_index: int, response: PushResponse | None) -> None:
        """Handle an APPEND's answer; it acknowledges all earlier entries too."""
        if response is not None and response.code == ResponseCode.SUCCESS:
            self.watermark = max(self.watermark, last_index)
            self._next_index = max(self._next_index, last_index + 1)
            while self._pushes and next(iter(self._pushes)) <= self.watermark:
                del self._pushes[next(iter(self._pushes))]
        elif response is not None and response.code == ResponseCode.INCONSISTENT_STATE:
            self._compare(self._state.log.end)
        elif (response is None or response.code != ResponseCode.REPEATED_PUSH) and self._failed_ms is None:
            self._failed_ms = self._state.now_ms + _RETRY_MS

    # Both.

    def _push(self, type_: PushType, entries: tuple[Entry, ...], on_pushed: _OnPushed) -> None:
        state, era = self._state, self._era
        request = PushRequest(type_, state.term, self._config.self_id, entries, state.committed, OURS, state.log.end)
        if self.mode is Mode.APPEND:
            self._sent_committed, self._sent_ms = state.committed, state.now_ms

        def on_response(response: PeerResponse | None) -> None:
            if isinstance(response, PushResponse) and response.term > state.term:
                state.become_candidate(response.term)
                return
            if isinstance(response, PushResponse):
                self.has_forgotten = response.has_forgotten
                state.is_beat_wanted |= response.code in _NOT_FOLLOWING
            if era == self._era:
                on_pushed(response if isinstance(response, PushResponse) else None)

        state.call(self.peer, request, on_response)
