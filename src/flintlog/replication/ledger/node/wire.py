"""DLedger's calls on the wire: a remoting frame with a JSON header, and a JSON body.

    frame header   {"code": 51004, "opaque": 7, "flag": 0, …}          flag 1 and code 200 in a response
    body           {"group", "localId", "remoteId", "leaderId", "code", "term", … the fields of the call}

`flintlog.replication.ledger.node.bodies` defines the names and types of a body. Bytes are base64, null fields are left
out, unknown fields are ignored. Every number must fit Java's type, every list and text has a bounded length, and an
entry must have the length that it states. A `FormatError` names the fault.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

import msgspec

from flintlog.errors import FormatError
from flintlog.format.ledger import ENTRY_HEAD_SIZE, ENTRY_MAGIC, MAX_ENTRY_SIZE
from flintlog.replication.ledger.core.messages import (
    AppendRequest,
    AppendResponse,
    Entry,
    GetRequest,
    GetResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    MetadataRequest,
    MetadataResponse,
    PeerResponse,
    PushRequest,
    PushResponse,
    PushType,
    Request,
    RequestCode,
    Response,
    ResponseCode,
    TransferRequest,
    TransferResponse,
    VoteRequest,
    VoteResponse,
    VoteResult,
)
from flintlog.replication.ledger.node import bodies

FRAME_SUCCESS: Final = 200
"""The code of every response's frame; the body holds the result."""

Body = TypeVar("Body", bound=bodies.Base)

_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class Envelope:
    """The group, the sender and the receiver of a call. A client has no id."""

    group: str
    local_id: str
    remote_id: str

    def turned(self) -> Envelope:
        """The envelope of the answer."""
        return Envelope(self.group, self.remote_id, self.local_id)


# ---------------------------------------------------------------------- requests


def encode_request(request: Request, envelope: Envelope) -> tuple[RequestCode, bytes]:
    """The frame's code and its body.

    >>> encode_request(HeartbeatRequest(3, "n0"), Envelope("g", "n0", "n1"))[1]
    b'{"group":"g","localId":"n0","remoteId":"n1","leaderId":"n0","term":3}'
    """
    code, body = _request_body(request)
    return code, _sealed(body, envelope)


def _request_body(request: Request) -> tuple[RequestCode, bodies.Base]:
    match request:
        case PushRequest():
            return RequestCode.PUSH, _push_body(request)
        case HeartbeatRequest(term, leader_id, dialect):
            return RequestCode.HEART_BEAT, bodies.Base(leader_id=leader_id, term=term, dialect=dialect)
        case VoteRequest(term, leader_id, end_index, end_term, dialect, start):
            return RequestCode.VOTE, bodies.Vote(
                leader_id=leader_id,
                term=term,
                dialect=dialect,
                ledger_end_index=end_index,
                ledger_end_term=end_term,
                start=start,
            )
        case TransferRequest(term, leader_id, transfer_id, transferee_id, index, dialect):
            return RequestCode.LEADERSHIP_TRANSFER, bodies.Transfer(
                leader_id=leader_id,
                term=term,
                dialect=dialect,
                transfer_id=transfer_id,
                transferee_id=transferee_id,
                take_leadership_ledger_index=index,
            )
        case AppendRequest((only,)):
            return RequestCode.APPEND, bodies.Append(body=only)
        case AppendRequest(several):
            return RequestCode.APPEND, bodies.Append(batch_msgs=list(several))
        case GetRequest(begin_index, max_size):
            return RequestCode.GET, bodies.Get(begin_index=begin_index, max_size=max_size)
        case MetadataRequest():
            return RequestCode.METADATA, bodies.Base()


def _push_body(request: PushRequest) -> bodies.Push:
    entries = [_entry_body(entry) for entry in request.entries]
    return bodies.Push(
        leader_id=request.leader_id,
        term=request.term,
        dialect=request.dialect,
        type=request.type,
        commit_index=request.commit_index,
        end_index=request.end_index,
        entry=entries[0] if len(entries) == 1 else None,
        batch_entry=entries if len(entries) > 1 else [],
    )


def parse_request(code: int, body: bytes) -> tuple[Envelope, Request]:
    """Parse a request and its envelope; FormatError for an unknown code or a malformed body."""
    parse = _REQUEST_PARSERS.get(code)
    if parse is None:
        raise FormatError(f"a request with the unknown code {code}")
    return parse(body)


def _parse_vote(data: bytes) -> tuple[Envelope, Request]:
    body = _decode(_VOTE, data, "a vote")
    return _envelope(body), VoteRequest(
        body.term, _leader(body, "a vote"), body.ledger_end_index, body.ledger_end_term, body.dialect, body.start
    )


def _parse_heartbeat(data: bytes) -> tuple[Envelope, Request]:
    body = _decode(_BASE, data, "a heartbeat")
    return _envelope(body), HeartbeatRequest(body.term, _leader(body, "a heartbeat"), body.dialect)


def _parse_push(data: bytes) -> tuple[Envelope, Request]:
    body = _decode(_PUSH, data, "a push")
    bodies_of = body.batch_entry or ([] if body.entry is None else [body.entry])
    entries = tuple([_entry(entry) for entry in bodies_of])
    _check_push(body.type, entries)
    return _envelope(body), PushRequest(
        body.type, body.term, _leader(body, "a push"), entries, body.commit_index, body.dialect, body.end_index
    )


def _check_push(kind: PushType, entries: tuple[Entry, ...]) -> None:
    if kind is PushType.COMMIT:
        return
    if not entries:
        raise FormatError(f"a push of type {kind.value} without an entry")
    if kind is not PushType.APPEND and len(entries) > 1:
        raise FormatError(f"a push of type {kind.value} with {len(entries)} entries")
    first = entries[0].index
    if any(entry.index != first + place for place, entry in enumerate(entries)):
        raise FormatError("a push whose entries do not follow each other")


def _parse_transfer(data: bytes) -> tuple[Envelope, Request]:
    body = _decode(_TRANSFER, data, "a leadership transfer")
    return _envelope(body), TransferRequest(
        body.term,
        body.leader_id,
        body.transfer_id,
        body.transferee_id,
        body.take_leadership_ledger_index,
        body.dialect,
    )


def _parse_append(data: bytes) -> tuple[Envelope, Request]:
    body = _decode(_APPEND, data, "an append")
    several = body.batch_msgs or ([] if body.body is None else [body.body])
    if not several:
        raise FormatError("an append without a body")
    if any(len(each) + ENTRY_HEAD_SIZE > MAX_ENTRY_SIZE for each in several):
        raise FormatError("an append of more than an entry can hold")
    return _envelope(body), AppendRequest(tuple(several))


def _parse_get(data: bytes) -> tuple[Envelope, Request]:
    body = _decode(_GET, data, "a get")
    return _envelope(body), GetRequest(body.begin_index, body.max_size)


def _parse_metadata(data: bytes) -> tuple[Envelope, Request]:
    return _envelope(_decode(_BASE, data, "a question for metadata")), MetadataRequest()


# ---------------------------------------------------------------------- responses


def encode_response(response: Response, envelope: Envelope) -> bytes:
    """The body of an answer; `envelope` is the answer's own.

    >>> encode_response(HeartbeatResponse(), Envelope("g", "n1", "n0"))
    b'{"group":"g","localId":"n1","remoteId":"n0"}'
    """
    body = _response_body(response)
    body.leader_id = response.leader_id
    return _sealed(body, envelope)


def encode_refusal(code: ResponseCode, envelope: Envelope) -> bytes:
    """The answer to a request that is not for this node; Java accepts it as the answer to any request."""
    return _sealed(bodies.Base(code=int(code)), envelope)


def _response_body(response: Response) -> bodies.Base:
    match response:
        case PushResponse():
            return bodies.PushAnswer(
                code=int(response.code),
                term=response.term,
                dialect=response.dialect,
                index=response.index,
                count=response.count,
                begin_index=response.begin_index,
                end_index=response.end_index,
                x_term=response.conflict_term,
                x_index=response.conflict_index,
                forgotten=response.has_forgotten,
            )
        case VoteResponse(term, _, result, dialect):
            return bodies.VoteAnswer(term=term, dialect=dialect, vote_result=result)
        case HeartbeatResponse(code, term, _, dialect) | TransferResponse(code, term, _, dialect):
            return bodies.Base(code=int(code), term=term, dialect=dialect)
        case AppendResponse(code, term, _, index, position):
            return bodies.AppendAnswer(code=int(code), term=term, index=index, pos=position)
        case GetResponse(code, term, _, entries):
            found = [_entry_body(entry) for entry in entries]
            return bodies.GetAnswer(code=int(code), term=term, entries=found or None)
        case MetadataResponse(code, term, _, peers):
            return bodies.MetadataAnswer(code=int(code), term=term, peers=dict(peers) or None)


def parse_response(code: RequestCode, body: bytes) -> tuple[Envelope, Response]:
    """The answer to a request of this code."""
    return _RESPONSE_PARSERS[code](body)


def parse_peer_response(code: RequestCode, body: bytes) -> PeerResponse:
    """The answer to a call between nodes."""
    response = _RESPONSE_PARSERS[code](body)[1]
    if isinstance(response, AppendResponse | GetResponse | MetadataResponse):
        raise TypeError(code)
    return response


def _parse_vote_answer(data: bytes) -> tuple[Envelope, Response]:
    body = _decode(_VOTE_ANSWER, data, "the answer to a vote")
    result = body.vote_result if body.code == ResponseCode.SUCCESS else VoteResult.UNKNOWN
    return _envelope(body), VoteResponse(body.term, body.leader_id, result, body.dialect)


def _parse_heartbeat_answer(data: bytes) -> tuple[Envelope, Response]:
    body = _decode(_BASE, data, "the answer to a heartbeat")
    return _envelope(body), HeartbeatResponse(body.code, body.term, body.leader_id, body.dialect)


def _parse_push_answer(data: bytes) -> tuple[Envelope, Response]:
    body = _decode(_PUSH_ANSWER, data, "the answer to a push")
    return _envelope(body), PushResponse(
        code=body.code,
        term=body.term,
        leader_id=body.leader_id,
        index=body.index,
        count=body.count,
        begin_index=body.begin_index,
        end_index=body.end_index,
        conflict_term=body.x_term,
        conflict_index=body.x_index,
        dialect=body.dialect,
        has_forgotten=body.forgotten,
    )


def _parse_transfer_answer(data: bytes) -> tuple[Envelope, Response]:
    body = _decode(_BASE, data, "the answer to a leadership transfer")
    return _envelope(body), TransferResponse(body.code, body.term, body.leader_id, body.dialect)


def _parse_append_answer(data: bytes) -> tuple[Envelope, Response]:
    body = _decode(_APPEND_ANSWER, data, "the answer to an append")
    return _envelope(body), AppendResponse(body.code, body.term, body.leader_id, body.index, body.pos)


def _parse_get_answer(data: bytes) -> tuple[Envelope, Response]:
    body = _decode(_GET_ANSWER, data, "the answer to a get")
    entries = tuple([_entry(entry) for entry in body.entries or ()])
    return _envelope(body), GetResponse(body.code, body.term, body.leader_id, entries)


def _parse_metadata_answer(data: bytes) -> tuple[Envelope, Response]:
    body = _decode(_METADATA_ANSWER, data, "the answer about metadata")
    return _envelope(body), MetadataResponse(body.code, body.term, body.leader_id, tuple((body.peers or {}).items()))


# ---------------------------------------------------------------------- parts


def _sealed(body: bodies.Base, envelope: Envelope) -> bytes:
    body.group = envelope.group
    body.local_id = envelope.local_id or None
    body.remote_id = envelope.remote_id or None
    return _encode(body)


def _decode(decoder: msgspec.json.Decoder[Body], data: bytes, what: str) -> Body:
    try:
        return decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise FormatError(f"{what} that cannot be read: {error}") from None


def _envelope(body: bodies.Base) -> Envelope:
    return Envelope(body.group or "", body.local_id or "", body.remote_id or "")


def _leader(body: bodies.Base, what: str) -> str:
    if body.leader_id is None:
        raise FormatError(f"{what} without a leaderId")
    return body.leader_id


def _entry_body(entry: Entry) -> bodies.EntryBody:
    return bodies.EntryBody(
        magic=entry.magic,
        size=ENTRY_HEAD_SIZE + len(entry.body),
        index=entry.index,
        term=entry.term,
        pos=entry.position,
        channel=entry.channel,
        body=entry.body,
    )


def _entry(body: bodies.EntryBody) -> Entry:
    if body.magic != ENTRY_MAGIC:
        raise FormatError(f"an entry with the magic {body.magic}")
    if body.size != ENTRY_HEAD_SIZE + len(body.body):
        raise FormatError(f"an entry of {body.size} bytes with a body of {len(body.body)}")
    if body.size > MAX_ENTRY_SIZE:
        raise FormatError(f"an entry of {body.size} bytes; at most {MAX_ENTRY_SIZE} are allowed")
    return Entry(body.index, body.term, body.pos, body.body, body.magic, body.channel)


_BASE = msgspec.json.Decoder(bodies.Base)
_VOTE = msgspec.json.Decoder(bodies.Vote)
_PUSH = msgspec.json.Decoder(bodies.Push)
_TRANSFER = msgspec.json.Decoder(bodies.Transfer)
_APPEND = msgspec.json.Decoder(bodies.Append)
_GET = msgspec.json.Decoder(bodies.Get)
_VOTE_ANSWER = msgspec.json.Decoder(bodies.VoteAnswer)
_PUSH_ANSWER = msgspec.json.Decoder(bodies.PushAnswer)
_APPEND_ANSWER = msgspec.json.Decoder(bodies.AppendAnswer)
_GET_ANSWER = msgspec.json.Decoder(bodies.GetAnswer)
_METADATA_ANSWER = msgspec.json.Decoder(bodies.MetadataAnswer)

_REQUEST_PARSERS: dict[int, Callable[[bytes], tuple[Envelope, Request]]] = {
    RequestCode.VOTE: _parse_vote,
    RequestCode.HEART_BEAT: _parse_heartbeat,
    RequestCode.PUSH: _parse_push,
    RequestCode.LEADERSHIP_TRANSFER: _parse_transfer,
    RequestCode.APPEND: _parse_append,
    RequestCode.GET: _parse_get,
    RequestCode.METADATA: _parse_metadata,
}

_RESPONSE_PARSERS: dict[int, Callable[[bytes], tuple[Envelope, Response]]] = {
    RequestCode.VOTE: _parse_vote_answer,
    RequestCode.HEART_BEAT: _parse_heartbeat_answer,
    RequestCode.PUSH: _parse_push_answer,
    RequestCode.LEADERSHIP_TRANSFER: _parse_transfer_answer,
    RequestCode.APPEND: _parse_append_answer,
    RequestCode.GET: _parse_get_answer,
    RequestCode.METADATA: _parse_metadata_answer,
}
