"""What goes into the ledger's state machine and what comes out: `core.step(event, now_ms) -> Output`.

    events ─▶ core ─▶ Output
                        1. hard_state    write and sync: nothing below may happen before it is durable
                        2. truncation    cut the log, make that durable
                        3. entries       write them behind the log's end; sync soon, then tell `Synced`
                        4. answers, calls, committed, role: in any order, after 1 to 3

The shell carries an Output out before the next `step`: 1 and 2 are durable, and the log that the core was given shows
what 2 and 3 have made of it. Only the sync of entries may take its time: the core counts an entry, and answers for
it, when `Synced` has come. Events that came together may be stepped one after another; proposals that came together
belong into one `Propose`, so that they leave in one push.

The core has no clock, no chance of its own and no I/O: the time is handed in with each step, and `Tick` must come about
every `tick_ms`, without which nobody is elected and nothing is sent again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final, Protocol, TypeAlias

from flintlog.format.ledger_entry import NO_INDEX
from flintlog.replication.ledger.core.messages import (
    NO_TERM,
    Entry,
    PeerRequest,
    PeerResponse,
    Request,
    Response,
)


class Role(Enum):
    """What a node is."""

    CANDIDATE = "CANDIDATE"
    LEADER = "LEADER"
    FOLLOWER = "FOLLOWER"


class LedgerLog(Protocol):
    """The log as the core reads it: consecutive entries from `begin` to `end`, both NO_INDEX when there are none.

    `end_position` is where the last entry ends. The core never writes: its Output says what is to be written.
    """

    @property
    def begin(self) -> int: ...
    @property
    def end(self) -> int: ...
    @property
    def end_position(self) -> int: ...

    def term_of(self, index: int) -> int:
        """The term of an entry that is there."""
        ...

    def entry(self, index: int) -> Entry:
        """An entry that is there."""
        ...

    def place(self, position: int, size: int) -> int:
        """Where an entry of this size lies that follows one which ended at `position`: there, or in the next file."""
        ...


LogEnd: TypeAlias = tuple[int, int]
"""The term and the index of a log's last entry: of two logs the one with the larger is ahead."""
NOTHING_PROMISED: Final[LogEnd] = (NO_TERM, NO_INDEX)
FORGOTTEN: Final[LogEnd] = (2**63 - 1, 2**63 - 1)
"""Promised by a member that does not know what it promised: no log is as far, so it votes for nobody."""


@dataclass(frozen=True, slots=True)
class HardState:
    """What must survive a crash: `currterm`, and the end of a log that was given up for one that begins behind it.

    FORGOTTEN is promised by who has no log and may have had one (`flintlog.replication.ledger.core.joining`).
    """

    term: int = 0
    voted_for: str | None = None
    promised: LogEnd = NOTHING_PROMISED


@dataclass(frozen=True, slots=True)
class SafetyRules:
    """What DLedger 0.3.x lacks. All on; only the simulator switches them off, to prove that it can see."""

    commit_own_term_only: bool = True
    """A leader commits through entries of its own term, and writes one when it is elected (Raft 5.4.2)."""
    sync_before_acknowledging: bool = True
    """An entry counts, here and in answers to the leader, once it is on disk."""
    clamp_committed: bool = True
    """The committed index never points behind the log's end."""
    keep_committed: bool = True
    """What is committed is not cut: the node halts instead."""
    agree_once_a_term: bool = True
    """A follower that has agreed with its leader is not cut again in that term."""
    peers_only: bool = True
    """Only the configured peers are heard."""
    lead_once_a_term: bool = True
    """After a restart a node stands in a new term if it may have led in the old one."""


def _unchanged(body: bytes, position: int) -> bytes:
    return body


def _empty_record() -> bytes:
    return b""


@dataclass(frozen=True, slots=True)
class LedgerConfig:
    """One node of a group. Times are DLedger's own."""

    self_id: str
    peers: Mapping[str, str]
    """Every node of the group with its `host:port`, this one too."""
    heartbeat_interval_ms: int = 2_000
    max_heartbeat_leak: int = 3
    """Beats that may be missed before a follower stands for election, or a leader without a majority steps down."""
    min_vote_interval_ms: int = 300
    max_vote_interval_ms: int = 1_000
    vote_wait_ms: int = 2_000
    """How long a candidate waits for answers; up to half of it is added by chance."""
    push_timeout_ms: int = 1_000
    """Entries that were not acknowledged for so long are sent again; a gap twice as old is told to the leader."""
    call_timeout_ms: int = 3_000
    """A call that was not answered by then has failed, whether the shell says so or not."""
    commit_interval_ms: int = 1_000
    """When nothing else is sent, the committed index is told this often."""
    acknowledge_timeout_ms: int = 2_500
    """A proposal that no majority has by then is answered with WAIT_QUORUM_ACK_TIMEOUT; it may still be committed."""
    max_pending_proposals: int = 10_000
    max_pushes: int = 1_000
    """Unanswered APPENDs to a Java peer, one entry each."""
    max_batch_pushes: int = 4
    """Unanswered APPENDs to a peer of ours; what is proposed meanwhile goes along with the next one."""
    max_batch_bytes: int = 1 << 20
    batch_to_java: bool = False
    """Send Java peers many entries in a push too, up to `java_batch_bytes`. 0.3.x understands that."""
    java_batch_bytes: int = 4_096
    max_parked: int = 2_000
    """APPENDs that a follower keeps because an earlier one is missing."""
    max_transfer_lag: int = 1_000
    """A node further behind than this is not handed the leadership."""
    rules: SafetyRules = field(default_factory=SafetyRules)
    seal: Callable[[bytes, int], bytes] = _unchanged
    """Called with a proposed body and its entry's position, gives the body to write, of the same length."""
    leader_record: Callable[[], bytes] = _empty_record
    """The body of the entry that a new leader writes; it must be harmless to whoever reads the log."""

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
        """The same node in a group without Java, which elects within two seconds."""
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
    """Time went on."""


@dataclass(frozen=True, slots=True)
class Received:
    """A request came. `answer_to` comes back in the `Answer`, at once or later; `sender` is the request's `localId`.

    The shell has checked `group` and `remoteId`. A client has no id: its `sender` is empty.
    """

    sender: str
    answer_to: int
    request: Request


@dataclass(frozen=True, slots=True)
class Answered:
    """The response to a `Call` came. Never one to a call of an earlier run of this node: ids begin again."""

    peer: str
    call_id: int
    response: PeerResponse


@dataclass(frozen=True, slots=True)
class CallFailed:
    """A `Call` could not be made, or was not answered in time. Not telling costs time and nothing else."""

    peer: str
    call_id: int


@dataclass(frozen=True, slots=True)
class Proposal:
    """Bodies of consecutive entries that are answered together; `answer_to` is chosen by the shell."""

    answer_to: int
    bodies: tuple[bytes, ...]
    term: int | None = None
    """Written in this term or not at all, if one is given."""


@dataclass(frozen=True, slots=True)
class Propose:
    """Somebody wants entries appended; each proposal gets an `Answer` with an AppendResponse."""

    proposals: tuple[Proposal, ...]


@dataclass(frozen=True, slots=True)
class Synced:
    """Everything up to `index` is on disk. `generation` is that of the Output whose entries the sync began behind.

    A truncation starts a new generation: a sync that was under way then says nothing about what is written after it.
    """

    index: int
    generation: int


Event: TypeAlias = Tick | Received | Answered | CallFailed | Propose | Synced


# What comes out.


@dataclass(frozen=True, slots=True)
class Truncation:
    """Keep everything up to and including `last_index`; zero what was behind it, so that no recovery finds it again.

    With `restart_position` nothing is kept: the log begins anew, at this position, with the next entry that is written,
    whose index is `last_index` + 1.
    """

    last_index: int
    restart_position: int | None = None


@dataclass(frozen=True, slots=True)
class Call:
    """Send a request to a peer; its response comes back as `Answered` with the same id."""

    peer: str
    call_id: int
    request: PeerRequest


@dataclass(frozen=True, slots=True)
class Answer:
    """The response to what was `Received` or proposed with this number."""

    answer_to: int
    response: Response


@dataclass(frozen=True, slots=True)
class RoleChange:
    """The node is something else now, or follows another leader, or the term has changed."""

    role: Role
    term: int
    leader_id: str | None


@dataclass(slots=True)
class Output:
    """What a step asks for; the module says in which order it is done."""

    generation: int = 0
    hard_state: HardState | None = None
    truncation: Truncation | None = None
    entries: list[Entry] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    committed: int | None = None
    """The committed index, when it has changed. It also goes back, when what it pointed at is not there any more."""
    role: RoleChange | None = None
