"""The JSON bodies of DLedger's calls: field names and allowed values.

A field with its default value is not written, so the defaults are those of Java's classes. `dialect`, `xTerm` and
`xIndex`, a vote's `start`, a push's `endIndex` and `forgotten` in its answer are flintlog's own; Java ignores them.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from flintlog.format.ledger import NO_INDEX
from flintlog.replication.ledger.core.messages import JAVA, NO_TERM, PushType, ResponseCode, VoteResult

MAX_BATCH_ENTRIES = 65_536

Int = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Long = Annotated[int, msgspec.Meta(ge=-1, le=2**63 - 1)]
"""A term, an index or a position; -1 means none."""
Term = Annotated[int, msgspec.Meta(ge=-1, le=2**40)]
"""With a new leader every millisecond a group needs 34 years to reach the limit. A larger term is forged."""
EntryTerm = Annotated[int, msgspec.Meta(ge=0, le=2**40)]
Place = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Name = Annotated[str, msgspec.Meta(max_length=255)]


class EntryBody(msgspec.Struct, kw_only=True):
    """An entry. Neither Java nor flintlog computes the two checksums."""

    magic: Int
    size: Int
    index: Place
    term: EntryTerm
    pos: Place
    channel: Int = 0
    chain_crc: Int = msgspec.field(default=0, name="chainCrc")
    body_crc: Int = msgspec.field(default=0, name="bodyCrc")
    body: bytes


class Base(msgspec.Struct, kw_only=True, rename="camel", omit_defaults=True):
    """The fields of every body; a heartbeat and its answer have no others."""

    group: Name | None = None
    local_id: Name | None = None
    remote_id: Name | None = None
    leader_id: Name | None = None
    code: Int = int(ResponseCode.SUCCESS)
    term: Term = NO_TERM
    dialect: Int = JAVA


class Vote(Base, kw_only=True, rename="camel", omit_defaults=True):
    """A candidate's request."""

    ledger_end_index: Long = NO_INDEX
    ledger_end_term: Term = NO_TERM
    start: Long = NO_INDEX


class VoteAnswer(Base, kw_only=True, rename="camel", omit_defaults=True):
    """A voter's answer."""

    vote_result: VoteResult = VoteResult.UNKNOWN


class Push(Base, kw_only=True, rename="camel", omit_defaults=True):
    """The leader's entries, or its committed index."""

    type: PushType = PushType.APPEND
    commit_index: Long = NO_INDEX
    end_index: Long = NO_INDEX
    entry: EntryBody | None = None
    batch_entry: Annotated[list[EntryBody], msgspec.Meta(max_length=MAX_BATCH_ENTRIES)] = []


class PushAnswer(Base, kw_only=True, rename="camel", omit_defaults=True):
    """A follower's answer to a push."""

    index: Long | None = None
    count: Int = 0
    begin_index: Long = 0
    end_index: Long = 0
    x_term: Long = NO_TERM
    x_index: Long = NO_INDEX
    forgotten: bool = False


class Transfer(Base, kw_only=True, rename="camel", omit_defaults=True):
    """A leadership transfer."""

    transfer_id: Name
    transferee_id: Name
    take_leadership_ledger_index: Long = 0


class Append(Base, kw_only=True, rename="camel", omit_defaults=True):
    """A client's entries."""

    body: bytes | None = None
    batch_msgs: Annotated[list[bytes], msgspec.Meta(max_length=MAX_BATCH_ENTRIES)] | None = None


class AppendAnswer(Base, kw_only=True, rename="camel", omit_defaults=True):
    """The place of the last entry."""

    index: Long = NO_INDEX
    pos: Long = NO_INDEX


class Get(Base, kw_only=True, rename="camel", omit_defaults=True):
    """A client's request for an entry."""

    begin_index: Long = NO_INDEX
    max_size: Int = 0


class GetAnswer(Base, kw_only=True, rename="camel", omit_defaults=True):
    """The entry."""

    entries: list[EntryBody] | None = None


class MetadataAnswer(Base, kw_only=True, rename="camel", omit_defaults=True):
    """The leader, and the addresses of all nodes."""

    peers: dict[Name, Name] | None = None
