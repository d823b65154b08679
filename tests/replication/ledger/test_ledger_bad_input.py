"""What a node does with strangers, forgers and garbage on its port: it says no, closes, logs once, writes nothing."""

from __future__ import annotations

import asyncio
import json
import logging
import random
import struct
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from tests.replication.ledger_nodes import GROUP, SlowDisk, entries_of, leader_of, patient, running, until
from tests.store.small_store import SMALL, wait_until

from flintlog import Message, PutStatus
from flintlog.remoting.frame import MAX_FRAME_BYTES, Command, FrameReader, encode_frame
from flintlog.replication.ledger.core.interface import HardState
from flintlog.replication.ledger.core.messages import (
    AppendRequest,
    AppendResponse,
    Entry,
    HeartbeatRequest,
    PushRequest,
    PushType,
    Request,
    RequestCode,
    ResponseCode,
    TransferRequest,
    VoteRequest,
)
from flintlog.replication.ledger.node import listening
from flintlog.replication.ledger.node.listening import LedgerListener, Question
from flintlog.replication.ledger.node.node import LedgerNode
from flintlog.replication.ledger.node.wire import Envelope, encode_request
from flintlog.replication.ledger.store_node import LedgerStoreNode
from flintlog.testing.free_ports import ledger_addresses

pytestmark = pytest.mark.timeout(120)
IDS = ("n0", "n1", "n2")
STRANGER = "127.0.0.2"  # an address of this machine that no peer is configured with


def _frame(request: Request, *, group: str = GROUP, local: str, remote: str, opaque: int = 7) -> bytes:
    code, body = encode_request(request, Envelope(group, local, remote))
    return encode_frame(Command(code, opaque, body=body))


class Line:
    """A connection to a node, from an address of one's choice."""

    def __init__(self, node: LedgerNode, source: str = "127.0.0.1") -> None:
        host, _, port = node.config.peers[node.config.self_id].rpartition(":")
        self._where = (host, int(port))
        self._source = source

    async def __aenter__(self) -> Line:
        self._reader, self._writer = await asyncio.open_connection(*self._where, local_addr=(self._source, 0))
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()

    async def say(self, data: bytes) -> list[Command]:
        """Send, and read until the node closes the connection."""
        self._writer.write(data)
        frames, found = FrameReader(), []
        try:
            async with asyncio.timeout(20):
                await self._writer.drain()
                while data := await self._reader.read(65536):
                    found += frames.feed(data)
        except ConnectionError:
            pass
        return found

    async def ask(self, data: bytes) -> Command:
        """Send one request and read its answer."""
        self._writer.write(data)
        frames = FrameReader()
        async with asyncio.timeout(20):
            while True:
                found = frames.feed(await self._reader.readexactly(1))
                if found:
                    return found[0]


def _nothing_changed(work: Callable[[LedgerNode, SlowDisk], object]) -> None:
    """Run against one of three nodes that agree; its log, term and vote must be what they were."""

    async def scenario() -> None:
        disks = {node_id: SlowDisk() for node_id in IDS}
        async with running(*IDS, storages=disks, configure=patient) as nodes:
            leader = await leader_of(nodes)
            await leader.propose(b"before")
            target = next(node for node in nodes.values() if node is not leader)
            disk = disks[target.config.self_id]
            await until(lambda: disk.log.end == leader.committed)  # a majority may have been the two others
            before = entries_of(disk), disk.hard_state, leader.term
            await work(target, disk)  # type: ignore[misc]
            assert (entries_of(disk), disk.hard_state, leader.term) == before
            assert (await leader.propose(b"after")).code == ResponseCode.SUCCESS

    asyncio.run(scenario())


def _push(node: LedgerNode, leader: str, *, term: int = 99) -> PushRequest:
    entry = Entry(0, term, 0, b"forged")
    return PushRequest(PushType.TRUNCATE, term, leader, (entry,), 0)


def _closings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if "was closed" in record.message]


def test_an_address_that_no_peer_has_is_refused_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    async def work(node: LedgerNode, disk: SlowDisk) -> None:
        other = next(each for each in IDS if each != node.config.self_id)
        for _ in range(3):
            async with Line(node, STRANGER) as line:
                said = await line.say(_frame(HeartbeatRequest(99, other), local=other, remote=node.config.self_id))
                assert said == []

    with caplog.at_level(logging.WARNING):
        _nothing_changed(work)
    assert len(_closings(caplog)) == 1
    assert f"{STRANGER} is none of the configured peers" in _closings(caplog)[0]


@pytest.mark.parametrize("kind", ["heartbeat", "vote", "push", "transfer"])
def test_a_sender_that_is_no_node_of_the_group_is_refused(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    async def work(node: LedgerNode, disk: SlowDisk) -> None:
        mine = node.config.self_id
        requests: dict[str, Request] = {
            "heartbeat": HeartbeatRequest(99, "n9"),
            "vote": VoteRequest(99, "n9", 99, 99),
            "push": _push(node, "n9"),
            "transfer": TransferRequest(99, "n9", "n9", mine, 0),
        }
        for sender in ("n9", mine):
            for _ in range(2):
                async with Line(node) as line:
                    (answer,) = await line.say(_frame(requests[kind], local=sender, remote=mine))
                    assert json.loads(answer.body)["code"] == ResponseCode.UNKNOWN_MEMBER

    with caplog.at_level(logging.WARNING):
        _nothing_changed(work)
    assert len(_closings(caplog)) == 1  # the same reason, whomever they name


def test_a_node_is_believed_only_at_its_own_address() -> None:
    async def scenario() -> None:
        addresses = {**ledger_addresses("n0", "n1"), "n2": f"{STRANGER}:9"}
        disk = SlowDisk()
        async with running("n0", storages={"n0": disk}, addresses=addresses) as nodes:
            beat = _frame(HeartbeatRequest(99, "n2"), local="n2", remote="n0")
            async with Line(nodes["n0"]) as line:
                (answer,) = await line.say(beat)
                assert json.loads(answer.body)["code"] == ResponseCode.UNKNOWN_MEMBER
            assert nodes["n0"].term < 99
            async with Line(nodes["n0"], STRANGER) as line:
                answer = await line.ask(beat)
                assert json.loads(answer.body)["code"] == ResponseCode.TERM_NOT_READY

    asyncio.run(scenario())


def test_a_request_without_a_sender_is_no_peers() -> None:
    async def work(node: LedgerNode, disk: SlowDisk) -> None:
        async with Line(node) as line:
            (answer,) = await line.say(_frame(_push(node, "n9"), local="", remote=node.config.self_id))
            assert json.loads(answer.body)["code"] == ResponseCode.UNKNOWN_MEMBER

    _nothing_changed(work)


@pytest.mark.parametrize(
    ("group", "remote", "code"),
    [("others", None, ResponseCode.UNKNOWN_GROUP), (GROUP, "n9", ResponseCode.UNKNOWN_MEMBER)],
    ids=["another group", "another node"],
)
def test_a_request_for_another_node_is_refused_as_java_does(
    group: str, remote: str | None, code: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def work(node: LedgerNode, disk: SlowDisk) -> None:
        mine = node.config.self_id
        other = next(each for each in IDS if each != mine)
        for _ in range(3):
            async with Line(node) as line:
                frame = _frame(HeartbeatRequest(99, other), group=group, local=other, remote=remote or mine)
                (answer,) = await line.say(frame)
                assert (answer.opaque, json.loads(answer.body)["code"]) == (7, code)

    with caplog.at_level(logging.WARNING):
        _nothing_changed(work)
    assert len(_closings(caplog)) == 1


GARBAGE = {
    "a web browser": b"GET / HTTP/1.1\r\nHost: here\r\n\r\n",
    "a length of two gigabytes": struct.pack(">ii", 2**31 - 1, 10),
    "a length just beyond the bound": struct.pack(">ii", MAX_FRAME_BYTES - 3, 10),
    "a negative length": struct.pack(">ii", -1, 10),
    "a header longer than its frame": struct.pack(">ii", 20, 0xFFFFFF) + bytes(16),
    "an unknown form": struct.pack(">ii", 20, 0x07000010) + bytes(16),
    "a header that is no JSON": struct.pack(">ii", 20, 16) + b"x" * 16,
    "a body that is no JSON": encode_frame(Command(RequestCode.PUSH, 1, body=b"\xff\xfe")),
    "a body of nested lists": encode_frame(Command(RequestCode.PUSH, 1, body=b"[" * 100_000)),
    "an entry longer than it says": encode_frame(
        Command(
            RequestCode.PUSH,
            1,
            body=b'{"group":"orders","localId":"n0","remoteId":"n1","leaderId":"n0","term":9,"type":"APPEND",'
            b'"entry":{"magic":1,"size":48,"index":5,"term":9,"pos":0,"body":"AAAA"}}',
        )
    ),
    "noise": random.Random(1).randbytes(100_000),
}


@pytest.mark.parametrize("name", list(GARBAGE))
def test_garbage_closes_the_connection(name: str, caplog: pytest.LogCaptureFixture) -> None:
    async def work(node: LedgerNode, disk: SlowDisk) -> None:
        for _ in range(2):
            async with Line(node) as line:
                assert await line.say(GARBAGE[name]) == []

    with caplog.at_level(logging.WARNING):
        _nothing_changed(work)
    assert len(_closings(caplog)) == 1


def test_a_frame_that_never_ends_is_not_waited_for_in_memory() -> None:
    async def work(node: LedgerNode, disk: SlowDisk) -> None:
        async with Line(node) as line:
            line._writer.write(struct.pack(">ii", MAX_FRAME_BYTES - 4, 16))
            await line._writer.drain()
            await asyncio.sleep(0.2)  # nothing more comes: the node goes on, and holds eight bytes

    _nothing_changed(work)


def test_an_unknown_request_is_answered_and_the_connection_goes_on() -> None:
    async def work(node: LedgerNode, disk: SlowDisk) -> None:
        async with Line(node) as line:
            assert (await line.ask(encode_frame(Command(51006, 3, body=b"{}")))).code == 3

    _nothing_changed(work)


def test_an_old_term_and_a_false_leader_change_nothing() -> None:
    async def work(node: LedgerNode, disk: SlowDisk) -> None:
        mine, leader = node.config.self_id, node.leader_id
        other = next(each for each in IDS if each not in (mine, leader))
        async with Line(node) as line:
            push = _push(node, other, term=node.term)
            answer = await line.ask(_frame(push, local=other, remote=mine))
            assert json.loads(answer.body)["code"] == ResponseCode.INCONSISTENT_LEADER

    _nothing_changed(work)


def test_entries_that_no_file_can_hold_are_refused(caplog: pytest.LogCaptureFixture) -> None:
    async def work(node: LedgerNode, disk: SlowDisk) -> None:
        disk.max_entry_bytes = 1_000
        mine, leader = node.config.self_id, node.leader_id or ""
        entry = Entry(disk.log.end + 1, node.term, disk.log.end_position, bytes(953))
        push = PushRequest(PushType.APPEND, node.term, leader, (entry,), 0)
        for _ in range(2):
            async with Line(node) as line:
                (answer,) = await line.say(_frame(push, local=leader, remote=mine))
                assert json.loads(answer.body)["code"] == ResponseCode.DISK_ERROR
        assert (await node.propose(bytes(953))).code == ResponseCode.UNEXPECTED_ARGUMENT
        assert (await node.propose(bytes(952))).code == ResponseCode.NOT_LEADER
        async with Line(node) as line:
            answer = await line.ask(_frame(AppendRequest((bytes(953),)), local="", remote=mine))
            assert json.loads(answer.body)["code"] == ResponseCode.UNEXPECTED_ARGUMENT

    with caplog.at_level(logging.WARNING):
        _nothing_changed(work)
    assert len(_closings(caplog)) == 1


def test_reading_pauses_on_a_connection_with_too_many_open_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "MAX_OPEN_REQUESTS", 64)

    async def scenario() -> None:
        asked: list[Question] = []
        (address,) = ledger_addresses("n0").values()
        listener = LedgerListener(GROUP, "n0", {"n0": address}, asked.append)
        port = await listener.start("127.0.0.1", 0)
        frame = _frame(AppendRequest((bytes(3_000),)), local="", remote="n0")
        wanted = 4_096  # more than the sockets' buffers hold
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        sending = asyncio.create_task(_send(writer, frame, wanted))
        await until(lambda: len(asked) >= 64)
        await _nothing_more_comes(asked)
        # As many as may be open, and what was read together with the last of them.
        assert len(asked) < 64 + 2 * 256 * 1024 // len(frame)
        assert not sending.done()
        answered, frames, found = 0, FrameReader(), 0
        async with asyncio.timeout(110):
            while found < wanted:
                for question in asked[answered:]:
                    question.answer(AppendResponse(ResponseCode.SUCCESS, 0))
                answered = len(asked)
                listener.flush()
                found += len(frames.feed(await reader.read(65536)))
        await sending
        writer.close()
        await listener.stop()

    asyncio.run(scenario())


async def _nothing_more_comes(asked: list[Question]) -> None:
    """Return when the loop has gone round often without another question; a reading node would have asked."""
    before, quiet = len(asked), 0
    while quiet < 200:
        await asyncio.sleep(0.001)
        quiet = quiet + 1 if len(asked) == before else 0
        before = len(asked)


async def _send(writer: asyncio.StreamWriter, frame: bytes, count: int) -> None:
    for _ in range(count // 64):
        writer.write(frame * 64)
        await writer.drain()


def test_the_term_and_vote_of_a_fresh_node_are_not_taken_from_a_stranger() -> None:
    async def scenario() -> None:
        disk = SlowDisk()
        async with running("n0", storages={"n0": disk}) as nodes:
            async with Line(nodes["n0"], STRANGER) as line:
                assert await line.say(_frame(VoteRequest(77, "n1", 99, 77), local="n1", remote="n0")) == []
            assert disk.hard_state in (HardState(), HardState(0, "n0"), HardState(1, "n0"))

    asyncio.run(scenario())


@pytest.mark.parametrize("term", [2**40 + 1, 2**63 - 1])
def test_a_term_that_no_group_comes_to_is_refused(term: int, caplog: pytest.LogCaptureFixture) -> None:
    async def work(node: LedgerNode, disk: SlowDisk) -> None:
        other = next(each for each in IDS if each != node.config.self_id)
        async with Line(node) as line:
            assert await line.say(_frame(HeartbeatRequest(term, other), local=other, remote=node.config.self_id)) == []

    with caplog.at_level(logging.WARNING):
        _nothing_changed(work)
    assert len(_closings(caplog)) == 1


def test_an_address_has_so_many_connections_and_no_more(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening, "MAX_CONNECTIONS_A_HOST", 12)

    async def work(node: LedgerNode, disk: SlowDisk) -> None:
        async with AsyncExitStack() as lines:
            for _ in range(12):
                await lines.enter_async_context(Line(node))
            async with Line(node) as refused:
                assert await refused.say(b"") == []
            own = [connection for connection in node._listener.connections if connection.host == "127.0.0.1"]
            assert len(own) <= 12

    with caplog.at_level(logging.WARNING):
        _nothing_changed(work)
    assert any("has too many connections" in reported for reported in _closings(caplog))


def test_a_stores_ledger_takes_no_append_from_the_network(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    addresses = ledger_addresses("n0")
    peers = ";".join(f"{member}-{address}" for member, address in addresses.items())
    config = SMALL.with_changes(dledger_group=GROUP, dledger_peers=peers, dledger_self_id="n0")
    member = LedgerStoreNode(tmp_path / "n0", config, fast=True)
    member.start()
    try:
        wait_until(lambda: member.is_serving, 30)
        member.store.put(Message("orders", b"1")).check()
        end = member.store.replication.raw_log.end

        async def append() -> list[Command]:
            async with Line(member.node) as line:
                return await line.say(_frame(AppendRequest((b"hello",)), local="", remote="n0"))

        with caplog.at_level(logging.WARNING):
            (answer,) = asyncio.run(append())
        assert json.loads(answer.body)["code"] == ResponseCode.UNEXPECTED_ARGUMENT
        assert len(_closings(caplog)) == 1
        assert member.store.replication.raw_log.end == end
        assert member.store.put(Message("orders", b"2")).status is PutStatus.PUT_OK
    finally:
        member.stop()
