"""The inputs and outputs of the ledger's state machine: `core.step(event, now_ms) -> Output`.

    events ─▶ core ─▶ Output
                        1. hard_state    write and sync: the steps below must wait until it is durable
                        2. truncation    cut the log, make that durable
                        3. entries       append them to the log; sync soon, then send `Synced`
                        4. answers, calls, committed, role: in any order, after 1 to 3

The shell carries out an Output before the next `step`: 1 and 2 are durable, and the log that the core was given shows
the result of 2 and 3. Only the sync of entries may take longer: the core counts and acknowledges an entry after
`Synced`. Events that arrive together may be stepped one after another. Proposals that arrive together belong in one
`Propose`, so that they are sent in one push.

The core has no clock, no randomness of its own and no I/O. Each step gets the time. A `Tick` must arrive about every
`tick_ms`; without ticks there is no election and no retry.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final, Protocol, TypeAlias

from flintlog.format.ledger import NO_INDEX
from flintlog.replication.ledger.core.messages import (
    NO_TERM,
    Entry,
    PeerRequest,
    PeerResponse,
    Request,
    Response,
)


class Role(Enum):
    """The role of a node."""

    CANDIDATE = "CANDIDATE"
    LEADER = "LEADER"
    FOLLOWER = "FOLLOWER"


class LedgerLog(Protocol):
    """The log as the core reads it: consecutive entries from `begin` to `end`, both NO_INDEX when it is empty.

    `end_position` is the end of the last entry. The core never writes; its Output lists the writes.
    """

    @property
    def begin(self) -> int: ...
    @property
    def end(self) -> int: ...
    @property
    def end_position(self) -> int: ...

    def term_of(self, index: int) -> int:
        """The term of an existing entry."""
        ...

    def entry(self, index: int) -> Entry:
        """An existing entry."""
        ...

    def place(self, position: int, size: int) -> int:
        """The position of an entry of this size after one that ends at `position`: there, or in the next file."""
        ...


LogEnd: TypeAlias = tuple[int, int]
"""The term and the index of a log's last entry: of two logs the one with the larger is ahead."""
NOTHING_PROMISED: Final[LogEnd] = (NO_TERM, NO_INDEX)
FORGOTTEN: Final[LogEnd] = (2**63 - 1, 2**63 - 1)
"""The promise of a member that lost its state: no log is as far, so it votes for nobody."""


@dataclass(frozen=True, slots=True)
class HardState:
    """The state that must survive a crash: term, vote, and the end of a log that was dropped for one that begins later.

    A member without a log that may have had one promises FORGOTTEN (`flintlog.replication.ledger.core.joining`).
    """

    term: int = 0
    voted_for: str | None = None
    promised: LogEnd = NOTHING_PROMISED


@dataclass(frozen=True, slots=True)
class SafetyRules:
    """Rules that DLedger 0.3.x lacks. All are on; the simulator switches some off, to prove that it finds faults."""

    commit_own_term_only: bool = True
    """A leader commits through entries of its own term, and writes one when it is elected (Raft 5.4.2)."""
    sync_before_acknowledging: bool = True
    """An entry counts, here and in answers to the leader, once it is durable."""
    clamp_committed: bool = True
    """The committed index never points past the log's end."""
    keep_committed: bool = True
    """Committed entries are never cut: the node halts instead."""
    agree_once_a_term: bool = True
    """A follower that has agreed with its leader is not cut again in that term."""
    peers_only: bool = True
    """Messages are accepted only from the configured peers."""
    lead_once_a_term: bool = True
    """After a restart a node stands in a new term if it may have led in the old one."""


def _unchanged(body: bytes, position: int) -> bytes:
    return body


def _any_body(body: bytes, position: int) -> bool:
    return True


def _empty_record() -> bytes:
    return b""


@dataclass(frozen=True, slots=True)
class LedgerConfig:
    """One node of a group. The default times are DLedger's."""

    self_id: str
    peers: Mapping[str, str]
    """Every node of the group, including this one, with its `host:port`."""
    heartbeat_interval_ms: int = 2_000
    max_heartbeat_leak: int = 3
    """Heartbeats that may be missed before a follower stands for election or a leader without a majority steps down."""
    min_vote_interval_ms: int = 300
    max_vote_interval_ms: int = 1_000
    vote_wait_ms: int = 2_000
    """How long a candidate waits for answers; a random time of up to half of it is added."""
    push_timeout_ms: int = 1_000
    """Unacknowledged entries are sent again after this time; a gap twice as old is reported to the leader."""
    call_timeout_ms: int = 3_000
    """A call without an answer fails after this time, even if the shell does not report it."""
    commit_interval_ms: int = 1_000
    """When nothing else is sent, the committed index is sent this often."""
    acknowledge_timeout_ms: int = 2_500
    """A proposal that no majority holds by then is answered with WAIT_QUORUM_ACK_TIMEOUT; it may still be committed."""
    max_pending_proposals: int = 10_000
    max_pushes: int = 1_000
    """Unanswered APPENDs to a Java peer, one entry each."""
    max_batch_pushes: int = 4
    """Unanswered APPENDs to a flintlog peer; entries proposed meanwhile share the next one."""
    max_batch_bytes: int = 1 << 20
    batch_to_java: bool = False
    """Send Java peers many entries in a push too, up to `java_batch_bytes`. 0.3.x understands that."""
    java_batch_bytes: int = 4_096
    max_parked: int = 2_000
    """APPENDs that a follower keeps while an earlier one is missing."""
    max_transfer_lag: int = 1_000
    """A node that lags by more entries than this does not get the leadership."""
    rules: SafetyRules = field(default_factory=SafetyRules)
    seal: Callable[[bytes, int], bytes] = _unchanged
    """Called with a proposed body and its entry's position; returns the body to write, of the same length."""
    is_intact: Callable[[bytes, int], bool] = _any_body
    """Called with a body and its entry's position; returns whether it is undamaged. Entries have no checksum."""
    leader_record: Callable[[], bytes] = _empty_record
    """The body of the entry that a new leader writes; readers of the log must be able to ignore it."""

    @property
    def others(self) -> tuple[str, ...]:
        return tuple(peer for peer in self.peers if peer != self.self_id)

    @property
    def quorum(self) -> int:
        return len(self.peers) // 2 + 1

    @property
    def patience_ms(self) -> int:
        """How long a leader may be silent."""
        return self.heartbeat_interval_ms * self.max_heartbeat_leak

    def with_fast_timings(self) -> LedgerConfig:
        """The same node with shorter times, for a group without Java; it elects within two seconds."""
        return replace(
            self,
            heartbeat_interval_ms=200,
            min_vote_interval_ms=50,
            max_vote_interval_ms=250,
            vote_wait_ms=200,
            commit_interval_ms=50,
        )


# Events.


@dataclass(frozen=True, slots=True)
class Tick:
    """Time passed."""


@dataclass(frozen=True, slots=True)
class Received:
    """A request arrived. The `Answer`, at once or later, repeats `answer_to`; `sender` is the request's `localId`.

    The shell has checked `group` and `remoteId`. A client has no id: its `sender` is empty.
    """

    sender: str
    answer_to: int
    request: Request


@dataclass(frozen=True, slots=True)
class Answered:
    """The response to a `Call` arrived. It must not be from an earlier run of this node, because ids start again."""

    peer: str
    call_id: int
    response: PeerResponse


@dataclass(frozen=True, slots=True)
class CallFailed:
    """A `Call` could not be made, or was not answered in time. Without this event the call times out later."""

    peer: str
    call_id: int


@dataclass(frozen=True, slots=True)
class Proposal:
    """Bodies of consecutive entries that are answered together; `answer_to` is chosen by the shell."""

    answer_to: int
    bodies: tuple[bytes, ...]
    term: int | None = None
    """If given, the entries are written in this term or not at all."""


@dataclass(frozen=True, slots=True)
class Propose:
    """Append entries; each proposal gets an `Answer` with an AppendResponse."""

    proposals: tuple[Proposal, ...]


@dataclass(frozen=True, slots=True)
class Synced:
    """All entries up to `index` are durable. `generation` is that of the last Output before the sync began.

    A truncation starts a new generation: a sync that began before it does not cover entries that were written after it.
    """

    index: int
    generation: int


Event: TypeAlias = Tick | Received | Answered | CallFailed | Propose | Synced


# Outputs.


@dataclass(frozen=True, slots=True)
class Truncation:
    """Keep all entries up to and including `last_index`; zero those after it, so that no recovery finds them again.

    With `restart_position` no entry is kept: the log restarts at this position with the next written entry, whose index
    is `last_index` + 1.
    """

    last_index: int
    restart_position: int | None = None


@dataclass(frozen=True, slots=True)
class Call:
    """Send a request to a peer; report its response as `Answered` with the same id."""

    peer: str
    call_id: int
    request: PeerRequest


@dataclass(frozen=True, slots=True)
class Answer:
    """The response to the request or proposal with this number."""

    answer_to: int
    response: Response


@dataclass(frozen=True, slots=True)
class RoleChange:
    """The role, the leader or the term has changed."""

    role: Role
    term: int
    leader_id: str | None


@dataclass(slots=True)
class Output:
    """The work that a step returns; see the module for its order."""

    generation: int = 0
    hard_state: HardState | None = None
    truncation: Truncation | None = None
    entries: list[Entry] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    committed: int | None = None
    """The committed index, when it has changed. It also falls, when the log no longer holds its entry."""
    role: RoleChange | None = None
