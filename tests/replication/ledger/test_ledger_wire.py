"""DLedger's bodies: what the real one has sent is read and written alike; anything else is one named error."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flintlog.errors import FormatError
from flintlog.remoting.frame import MAX_FRAME_BYTES, Command, FrameReader, encode_frame, parse_frame
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
from flintlog.replication.ledger.node.wire import (
    Envelope,
    encode_refusal,
    encode_request,
    encode_response,
    parse_request,
    parse_response,
)

RECORDED = {
    line["name"]: line["frame"].encode("latin-1")
    for line in map(json.loads, (Path(__file__).parents[1] / "ledger_frames.jsonl").read_text().splitlines())
}
REQUESTS = sorted(name for name in RECORDED if name.endswith("request"))
ANSWERS = sorted(name for name in RECORDED if " answer " in name)
# What Java writes besides: derived from other fields, or never read by anyone.
DERIVED = {"batch", "count", "firstEntryIndex", "lastEntryIndex", "totalSize"}
DEFAULTS = {
    "code": 200, "term": -1, "batchEntry": [], "commitIndex": -1, "beginIndex": 0, "endIndex": 0, "count": 0,
    "type": "APPEND", "takeLeadershipLedgerIndex": 0, "ledgerEndIndex": -1, "ledgerEndTerm": -1,
}  # fmt: skip
PLAIN = Envelope("orders", "n0", "n1")


def _code(name: str) -> RequestCode:
    return next(code for code in RequestCode if name.startswith(code.name.lower().replace("_", " ")))


def _entry(number: int, term: int, position: int) -> Entry:
    return Entry(number, term, position, b"body %d \xff" % (number % 50))


@pytest.mark.parametrize("name", REQUESTS)
def test_a_request_of_java_is_read_and_written_alike(name: str) -> None:
    frame = parse_frame(RECORDED[name])
    envelope, request = parse_request(frame.code, frame.body)
    code, body = encode_request(request, envelope)
    theirs = {key: value for key, value in json.loads(frame.body).items() if key not in DERIVED}
    ours = json.loads(body)
    assert code == frame.code
    assert {key: DEFAULTS[key] for key in theirs if key not in ours} | ours == theirs


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_of_java_is_read_and_written_alike(name: str) -> None:
    frame = parse_frame(RECORDED[name])
    envelope, response = parse_response(_code(name), frame.body)
    theirs, ours = json.loads(frame.body), json.loads(encode_response(response, envelope))
    ours.setdefault("group", "")
    theirs.setdefault("group", "")
    assert {key: DEFAULTS[key] for key in theirs if key not in ours} | ours == theirs


def test_what_the_recorded_requests_say() -> None:
    said = {name: parse_request(frame.code, frame.body) for name in REQUESTS for frame in [parse_frame(RECORDED[name])]}
    assert said["vote request"] == (Envelope("orders", "n1", "n0"), VoteRequest(0, "n1", -1, -1))
    assert said["heart beat request"][1] == HeartbeatRequest(1, "n1")
    assert said["push compare request"][1] == PushRequest(PushType.COMPARE, 1, "n1", (_entry(10, 1, 560),))
    assert said["push truncate request"][1] == PushRequest(PushType.TRUNCATE, 1, "n1", (_entry(0, 1, 0),))
    assert said["push append request"][1] == PushRequest(PushType.APPEND, 2, "n0", (_entry(50, 2, 2840),), 49)
    assert said["push commit request"][1] == PushRequest(PushType.COMMIT, 2, "n0", (), 49)
    many = said["push append of many request"][1]
    assert isinstance(many, PushRequest)
    assert [entry.body for entry in many.entries] == [b"body %d \xff" % number for number in range(1, 50)]
    assert said["leadership transfer request"][1] == TransferRequest(1, "n1", "n1", "n0", 49)
    assert said["append request"] == (Envelope("orders", "", "n1"), AppendRequest((b"\x01\x02\x03\xff",)))
    assert said["get request"][1] == GetRequest(3)
    assert said["metadata request"][1] == MetadataRequest()


def test_what_the_recorded_answers_say() -> None:
    said = {name: parse_response(_code(name), parse_frame(RECORDED[name]).body)[1] for name in ANSWERS}
    assert said["vote answer ACCEPT"] == VoteResponse(1, "n1", VoteResult.ACCEPT)
    assert said["vote answer REJECT_TERM_NOT_READY"] == VoteResponse(0, "n1", VoteResult.REJECT_TERM_NOT_READY)
    assert said["heart beat answer 403"] == HeartbeatResponse(403, 2)
    assert said["push compare answer 406"] == PushResponse(406, 1, None, 10, 1, -1, -1)
    assert said["push append of many answer 200"] == PushResponse(200, 1, None, 1, 49, 0, 49)
    assert said["push commit answer 200"] == PushResponse(200, 2, None, None, 0, 0, 49)
    assert said["leadership transfer answer 200"] == TransferResponse(200, 2)
    assert said["append answer 200"] == AppendResponse(200, 3, "n1", 101, 5736)
    assert said["get answer 200"] == GetResponse(200, -1, None, (_entry(3, 1, 168),))
    assert cast(MetadataResponse, said["metadata answer 200"]).peers[0][0] == "n0"
    assert cast(MetadataResponse, said["metadata answer 400"]).code == ResponseCode.UNKNOWN_GROUP
    assert cast(MetadataResponse, said["metadata answer 401"]).code == ResponseCode.UNKNOWN_MEMBER


ENTRIES = tuple(Entry(7 + number, 3, 100 * number, bytes(range(number))) for number in range(5))


@pytest.mark.parametrize(
    "request_",
    [
        VoteRequest(3, "n0", 9, 2, dialect=1),
        HeartbeatRequest(3, "n0", dialect=1),
        PushRequest(PushType.APPEND, 3, "n0", ENTRIES, 4, dialect=1),
        PushRequest(PushType.APPEND, 3, "n0", (Entry(0, 0, 0, b""),), -1),
        PushRequest(PushType.COMMIT, 3, "n0", (), 2**62),
        TransferRequest(3, None, "n0", "n1", 99, dialect=1),
        AppendRequest((b"one", b"", b"\xff")),
        GetRequest(2**40, 100),
        MetadataRequest(),
    ],
    ids=lambda request: type(request).__name__,
)
def test_requests_of_ours_come_back(request_: Request) -> None:
    code, body = encode_request(request_, PLAIN)
    assert parse_request(code, body) == (PLAIN, request_)


@pytest.mark.parametrize(
    ("code", "response"),
    [
        (RequestCode.VOTE, VoteResponse(3, "n0", VoteResult.REJECT_TAKING_LEADERSHIP, dialect=1)),
        (RequestCode.HEART_BEAT, HeartbeatResponse(416, 3, dialect=1)),
        (RequestCode.PUSH, PushResponse(406, 3, "n0", 5, 1, -1, -1, 2, 4, dialect=1)),
        (RequestCode.LEADERSHIP_TRANSFER, TransferResponse(418, 3, "n0", dialect=1)),
        (RequestCode.APPEND, AppendResponse(502, 3, "n0", 5, 4096)),
        (RequestCode.GET, GetResponse(200, 3, "n0", ENTRIES)),
        (RequestCode.METADATA, MetadataResponse(200, 3, "n0", (("n0", "host:1"), ("n1", "host:2")))),
    ],
    ids=lambda each: type(each).__name__,
)
def test_answers_of_ours_come_back(code: RequestCode, response: Response) -> None:
    assert parse_response(code, encode_response(response, PLAIN)) == (PLAIN, response)


def test_an_empty_followers_ends_are_written_though_they_are_nothing() -> None:
    body = json.loads(encode_response(PushResponse(406, 3, begin_index=-1, end_index=-1), PLAIN))
    assert (body["beginIndex"], body["endIndex"]) == (-1, -1)  # Java takes 0 for what is not there


@pytest.mark.parametrize("code", list(RequestCode))
def test_a_refusal_is_an_answer_to_anything(code: RequestCode) -> None:
    _, response = parse_response(code, encode_refusal(ResponseCode.UNKNOWN_MEMBER, PLAIN))
    if isinstance(response, VoteResponse):
        assert response.vote_result is VoteResult.UNKNOWN
    else:
        assert response.code == ResponseCode.UNKNOWN_MEMBER


def _push(**changes: object) -> bytes:
    body = json.loads(encode_request(PushRequest(PushType.APPEND, 3, "n0", ENTRIES[:1], 4), PLAIN)[1])
    body.update(changes)
    return json.dumps({key: value for key, value in body.items() if value is not None}).encode()


def _changed_entry(**changes: object) -> dict[str, object]:
    return {**json.loads(_push())["entry"], **changes}


BROKEN = {
    "no JSON": b"\x00\xff",
    "an array": b"[]",
    "deep nesting": b'{"x":' * 100_000,
    "a term of text": _push(term="3"),
    "a term beyond 64 bits": _push(term=2**64),
    "a negative term": _push(term=-2),
    "a boolean for a number": _push(commitIndex=True),
    "no leader": _push(leaderId=None),
    "a leader that is a number": _push(leaderId=5),
    "a name without end": _push(leaderId="x" * 10_000),
    "an unknown type": _push(type="INSTALL_SNAPSHOT"),
    "an append without an entry": _push(entry=None),
    "a compare of many": _push(type="COMPARE", entry=None, batchEntry=[_changed_entry(), _changed_entry(index=8)]),
    "entries with a gap": _push(entry=None, batchEntry=[_changed_entry(), _changed_entry(index=9)]),
    "an entry with another size": _push(entry=_changed_entry(size=49)),
    "an entry with a negative size": _push(entry=_changed_entry(size=-1)),
    "an entry at a negative position": _push(entry=_changed_entry(pos=-1)),
    "an entry with a negative index": _push(entry=_changed_entry(index=-1)),
    "an entry without a body": _push(entry={key: value for key, value in _changed_entry().items() if key != "body"}),
    "a body that is no base64": _push(entry=_changed_entry(body="?")),
    "a body of five megabytes": _push(entry=_changed_entry(body="AAAA" * 1_700_000, size=48 + 5_100_000)),
    "more entries than any push": _push(entry=None, batchEntry=[_changed_entry()] * 70_000),
}


@pytest.mark.parametrize("name", list(BROKEN))
def test_a_broken_push_is_a_format_error(name: str) -> None:
    with pytest.raises(FormatError):
        parse_request(RequestCode.PUSH, BROKEN[name])


def test_unknown_fields_are_ignored() -> None:
    assert parse_request(RequestCode.PUSH, _push(snapshot={"x": [1]}, preLogIndex=5)) == parse_request(
        RequestCode.PUSH, _push()
    )


def test_an_unknown_code_is_a_format_error() -> None:
    with pytest.raises(FormatError, match="51006"):
        parse_request(51006, b"{}")


WHOLE = b"".join(RECORDED[name] for name in REQUESTS)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(WHOLE) - 1), st.binary(min_size=1, max_size=6)), max_size=4), st.data())
def test_garbled_streams_give_requests_or_a_format_error(changes: list[tuple[int, bytes]], data: st.DataObject) -> None:
    stream = bytearray(WHOLE)
    for place, new in changes:
        stream[place : place + len(new)] = new
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=5)))
    reader = FrameReader()
    try:
        for start, stop in zip([0, *cuts], [*cuts, len(stream)], strict=True):
            for frame in reader.feed(bytes(stream[start:stop])):
                _parse_or_refuse(frame)
            assert reader.pending_bytes < MAX_FRAME_BYTES
    except FormatError:
        return
    if not changes:
        assert reader.pending_bytes == 0


def _parse_or_refuse(frame: Command) -> None:
    envelope, request = parse_request(frame.code, frame.body)
    code, body = encode_request(request, envelope)
    again = parse_frame(encode_frame(replace(frame, code=code, body=body)))
    assert parse_request(again.code, again.body) == (envelope, request)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
FIELDS = sorted({key for name in REQUESTS for key in json.loads(parse_frame(RECORDED[name]).body)})


@settings(max_examples=80, deadline=None)
@given(st.sampled_from(REQUESTS), st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=3))
def test_bodies_with_anything_in_them_are_read_or_refused(name: str, changes: dict[str, object]) -> None:
    frame = parse_frame(RECORDED[name])
    body = json.dumps({**json.loads(frame.body), **changes}).encode()
    try:
        envelope, request = parse_request(frame.code, body)
    except FormatError:
        return
    assert parse_request(*encode_request(request, envelope)) == (envelope, request)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(ANSWERS), st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=3), st.binary(max_size=20))
def test_answers_with_anything_in_them_are_read_or_refused(name: str, changes: dict[str, object], tail: bytes) -> None:
    frame = parse_frame(RECORDED[name])
    for body in (json.dumps({**json.loads(frame.body), **changes}).encode(), frame.body + tail, tail):
        try:
            parse_response(_code(name), body)
        except FormatError:
            continue


def test_a_code_that_only_a_later_version_knows_is_unknown() -> None:
    assert ResponseCode.known(9_999) is ResponseCode.UNKNOWN
    assert ResponseCode.known(403) is ResponseCode.EXPIRED_TERM
