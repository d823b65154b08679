"""The messages between DLedger nodes as values; the codec defines their form on the wire.

    vote, heartbeat                 elections
    push                            the leader's log to its followers: COMPARE, TRUNCATE, APPEND, COMMIT
    leadership transfer             from a leader to its successor
    append, get, metadata           clients

Each body on the wire also has `group`, `localId` (the sender) and `remoteId` (the receiver). They are the same in every
message between two nodes, so the shell writes and checks them, and they are not here. Field names are DLedger's in
Python's case; docstrings name the JSON field where it differs.

`dialect` is flintlog's own field: 0 is Java, which ignores the key and never sends it; 1 is a flintlog node. A peer
with dialect 1 accepts many entries in one APPEND, answers a failed COMPARE with a hint, and never leads twice in one
term.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Final, TypeAlias

from flintlog.format.ledger import ENTRY_HEAD_SIZE, NO_INDEX

NO_TERM: Final = -1

JAVA: Final = 0
OURS: Final = 1


class RequestCode(IntEnum):
    """The codes of the remoting frames."""

    METADATA = 50000
    APPEND = 50001
    GET = 50002
    VOTE = 51001
    HEART_BEAT = 51002
    PUSH = 51004
    LEADERSHIP_TRANSFER = 51005


class ResponseCode(IntEnum):
    """`code` of a response's body."""

    UNKNOWN = -1
    SUCCESS = 200
    TIMEOUT = 300
    METADATA_ERROR = 301
    NETWORK_ERROR = 302
    UNSUPPORTED = 303
    UNKNOWN_GROUP = 400
    UNKNOWN_MEMBER = 401
    UNEXPECTED_MEMBER = 402
    EXPIRED_TERM = 403
    NOT_LEADER = 404
    NOT_FOLLOWER = 405
    INCONSISTENT_STATE = 406
    INCONSISTENT_TERM = 407
    INCONSISTENT_INDEX = 408
    INCONSISTENT_LEADER = 409
    INDEX_OUT_OF_RANGE = 410
    UNEXPECTED_ARGUMENT = 411
    REPEATED_REQUEST = 412
    REPEATED_PUSH = 413
    DISK_ERROR = 414
    DISK_FULL = 415
    TERM_NOT_READY = 416
    FALL_BEHIND_TOO_MUCH = 417
    TAKE_LEADERSHIP_FAILED = 418
    INDEX_LESS_THAN_LOCAL_BEGIN = 419
    REQUEST_WITH_EMPTY_BODYS = 420
    INTERNAL_ERROR = 500
    TERM_CHANGED = 501
    WAIT_QUORUM_ACK_TIMEOUT = 502
    LEADER_PENDING_FULL = 503
    ILLEGAL_MEMBER_STATE = 504
    LEADER_NOT_READY = 505
    LEADER_TRANSFERRING = 506

    @classmethod
    def known(cls, code: int) -> ResponseCode:
        """The code that a peer sent; UNKNOWN for a code of a later version."""
        return cls(code) if code in cls._value2member_map_ else cls.UNKNOWN


class VoteResult(Enum):
    """`voteResult` of a vote's answer; the value is the word on the wire."""

    UNKNOWN = "UNKNOWN"
    ACCEPT = "ACCEPT"
    REJECT_UNKNOWN_LEADER = "REJECT_UNKNOWN_LEADER"
    REJECT_UNEXPECTED_LEADER = "REJECT_UNEXPECTED_LEADER"
    REJECT_EXPIRED_VOTE_TERM = "REJECT_EXPIRED_VOTE_TERM"
    REJECT_ALREADY_VOTED = "REJECT_ALREADY_VOTED"
    REJECT_ALREADY_HAS_LEADER = "REJECT_ALREADY_HAS_LEADER"
    REJECT_TERM_NOT_READY = "REJECT_TERM_NOT_READY"
    REJECT_TERM_SMALL_THAN_LEDGER = "REJECT_TERM_SMALL_THAN_LEDGER"
    REJECT_EXPIRED_LEDGER_TERM = "REJECT_EXPIRED_LEDGER_TERM"
    REJECT_SMALL_LEDGER_END_INDEX = "REJECT_SMALL_LEDGER_END_INDEX"
    REJECT_TAKING_LEADERSHIP = "REJECT_TAKING_LEADERSHIP"


class PushType(Enum):
    """`type` of a push; the value is the word on the wire."""

    COMPARE = "COMPARE"
    TRUNCATE = "TRUNCATE"
    APPEND = "APPEND"
    COMMIT = "COMMIT"


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of the ledger. `position` (`pos`) is the offset of its head in the data files of every node."""

    index: int
    term: int
    position: int
    body: bytes
    magic: int = 1
    channel: int = 0

    @property
    def size(self) -> int:
        """Head and body."""
        return ENTRY_HEAD_SIZE + len(self.body)


@dataclass(frozen=True, slots=True)
class VoteRequest:
    """`leader_id` wants to lead in `term`; its ledger ends with this index, of this term."""

    term: int
    leader_id: str
    ledger_end_index: int
    ledger_end_term: int
    dialect: int = JAVA
    start: int = NO_INDEX
    """Ours: the position of the first entry of an empty ledger, for example after a plain log."""


@dataclass(frozen=True, slots=True)
class VoteResponse:
    """`leader_id` is the candidate's own id; `term` is the voter's."""

    term: int
    leader_id: str | None
    vote_result: VoteResult
    dialect: int = JAVA


@dataclass(frozen=True, slots=True)
class HeartbeatRequest:
    """`leader_id` leads in `term`."""

    term: int
    leader_id: str
    dialect: int = JAVA


@dataclass(frozen=True, slots=True)
class HeartbeatResponse:
    """`term` is NO_TERM unless the leader's term has expired."""

    code: int = ResponseCode.SUCCESS
    term: int = NO_TERM
    leader_id: str | None = None
    dialect: int = JAVA


@dataclass(frozen=True, slots=True)
class PushRequest:
    """COMPARE and TRUNCATE have one entry, COMMIT has none, APPEND has consecutive ones.

    On the wire one entry is `entry`, several are `batchEntry`.
    """

    type: PushType
    term: int
    leader_id: str
    entries: tuple[Entry, ...] = ()
    commit_index: int = NO_INDEX
    dialect: int = JAVA
    end_index: int = NO_INDEX
    """Ours: the leader's last entry when this was sent."""

    @property
    def first_index(self) -> int:
        return self.entries[0].index

    @property
    def last_index(self) -> int:
        return self.entries[-1].index


@dataclass(frozen=True, slots=True)
class PushResponse:
    """`index` and `count` repeat the request's entries; begin and end are those of the follower's ledger.

    A successful APPEND acknowledges that all entries up to its last one are durable on the follower.
    `conflict_term` and `conflict_index` (ours, `xTerm` and `xIndex` as in DLedger 0.4) are set after a failed COMPARE:
    the term of the follower's own entry at that index, and its first entry of that term.
    """

    code: int
    term: int
    leader_id: str | None = None
    index: int | None = None
    count: int = 0
    begin_index: int = NO_INDEX
    end_index: int = NO_INDEX
    conflict_term: int = NO_TERM
    conflict_index: int = NO_INDEX
    dialect: int = JAVA
    has_forgotten: bool = False
    """Ours: the follower may have lost entries that it acknowledged, and must not be counted yet."""


@dataclass(frozen=True, slots=True)
class TransferRequest:
    """To the leader: hand over to `transferee_id`. From the leader to the transferee: take over after this index.

    `take_leadership_index` is `takeLeadershipLedgerIndex`, `transfer_id` the leader.
    """

    term: int
    leader_id: str | None
    transfer_id: str
    transferee_id: str
    take_leadership_index: int = NO_INDEX
    dialect: int = JAVA


@dataclass(frozen=True, slots=True)
class TransferResponse:
    """SUCCESS when the transferee leads."""

    code: int
    term: int
    leader_id: str | None = None
    dialect: int = JAVA


@dataclass(frozen=True, slots=True)
class AppendRequest:
    """A client's entry, or several that are answered together (`batchMsgs`)."""

    bodies: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class AppendResponse:
    """`index` and `position` (`pos`) of the last entry; `positions` of all of them."""

    code: int
    term: int
    leader_id: str | None = None
    index: int = NO_INDEX
    position: int = NO_INDEX
    positions: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class GetRequest:
    """A client asks for the entry of an index."""

    begin_index: int
    max_size: int = 0


@dataclass(frozen=True, slots=True)
class GetResponse:
    """The entry, if it is committed and present."""

    code: int
    term: int
    leader_id: str | None = None
    entries: tuple[Entry, ...] = ()


@dataclass(frozen=True, slots=True)
class MetadataRequest:
    """A client asks who leads."""


@dataclass(frozen=True, slots=True)
class MetadataResponse:
    """`peers` is a mapping of ids to `host:port` on the wire; here its items."""

    code: int
    term: int
    leader_id: str | None = None
    peers: tuple[tuple[str, str], ...] = ()


PeerRequest: TypeAlias = VoteRequest | HeartbeatRequest | PushRequest | TransferRequest
PeerResponse: TypeAlias = VoteResponse | HeartbeatResponse | PushResponse | TransferResponse
ClientRequest: TypeAlias = AppendRequest | GetRequest | MetadataRequest
ClientResponse: TypeAlias = AppendResponse | GetResponse | MetadataResponse
Request: TypeAlias = PeerRequest | ClientRequest
Response: TypeAlias = PeerResponse | ClientResponse
