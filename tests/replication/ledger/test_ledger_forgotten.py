"""A node that has no log and may have had one, fed event by event."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random

import pytest
from tests.replication.ledger.test_ledger_core import PEERS, Node, codes, entries
from tests.replication.ledger_memory import MemoryLog, MemoryStorage
from tests.replication.ledger_nodes import until

from flintlog.errors import FormatError
from flintlog.replication.ledger.core.core import LedgerCore
from flintlog.replication.ledger.core.interface import (
    FORGOTTEN,
    NOTHING_PROMISED,
    Answered,
    Call,
    HardState,
    LedgerConfig,
    Output,
    Received,
    Role,
    Synced,
)
from flintlog.replication.ledger.core.messages import (
    JAVA,
    OURS,
    Entry,
    HeartbeatRequest,
    PushRequest,
    PushResponse,
    PushType,
    RequestCode,
    ResponseCode,
    VoteRequest,
    VoteResponse,
    VoteResult,
)
from flintlog.replication.ledger.node.syncing import EntrySync
from flintlog.replication.ledger.node.wire import Envelope, encode_request, parse_request


class Forgetful(Node):
    """A node that was started without a log."""

    def __init__(self, *, start: int = 0, peers: dict[str, str] = PEERS) -> None:
        self.config = LedgerConfig("n0", peers)
        self.log = MemoryLog(start=start)
        self.now_ms = 0
        self.core = LedgerCore(self.config, self.log, HardState(0, None, FORGOTTEN), random=Random(1))

    def ask(self, request: VoteRequest, sender: str = "n1") -> VoteResult:
        answer = self.step(Received(sender, 1, request)).answers[0].response
        assert isinstance(answer, VoteResponse)
        return answer.vote_result

    def pushed(self, type_: PushType, *pushed: Entry, committed: int, end: int, dialect: int = OURS) -> Output:
        end = end if dialect == OURS else -1
        request = PushRequest(type_, self.core.term, "n1", pushed, committed, dialect, end)
        return self.step(Received("n1", 1, request))


def response_of(output: Output) -> PushResponse:
    response = output.answers[-1].response
    assert isinstance(response, PushResponse)
    return response


def followed(node: Forgetful, term: int = 3) -> Forgetful:
    """n1 leads, and the node knows it."""
    node.step(Received("n1", 0, HeartbeatRequest(term, "n1", OURS)))
    node.tick(10)
    node.follow()
    return node


def test_it_votes_for_no_candidate_with_entries_and_does_not_stand() -> None:
    node = Forgetful()
    assert node.ask(VoteRequest(5, "n1", 7, 5, OURS)) is VoteResult.REJECT_EXPIRED_LEDGER_TERM
    assert node.ask(VoteRequest(5, "n1", 7, 5)) is VoteResult.REJECT_EXPIRED_LEDGER_TERM
    node.tick(20_000)
    assert node.core.role is Role.CANDIDATE
    assert not node.core.is_voting


def test_it_gives_no_vote_to_an_empty_candidate_either() -> None:
    node = Forgetful()
    assert node.ask(VoteRequest(0, "n1", -1, -1, OURS, 0)) is VoteResult.REJECT_ALREADY_VOTED


@pytest.mark.parametrize("dialect", [OURS, JAVA])
def test_all_peers_without_an_entry_are_a_new_group(dialect: int) -> None:
    node = Forgetful()
    asked = node.tick(10)
    assert [call.request for call in asked] == [VoteRequest(0, "n0", -1, -1, OURS, 0)] * 2
    reported = [(VoteResult.REJECT_EXPIRED_VOTE_TERM, 6), (VoteResult.REJECT_ALREADY_VOTED, 0)]
    for call, (result, term) in zip(asked, reported, strict=True):
        assert not node.core.is_voting
        output = node.step(Answered(call.peer, call.call_id, VoteResponse(term, "n0", result, dialect)))
    assert output.hard_state == HardState(
        7, None, NOTHING_PROMISED
    )  # a vote that it forgot was in one of the terms before
    assert node.core.is_voting
    assert node.ask(VoteRequest(7, "n1", -1, -1, OURS, 0)) is VoteResult.ACCEPT


@pytest.mark.parametrize(
    "result",
    [
        VoteResult.REJECT_EXPIRED_LEDGER_TERM,
        VoteResult.REJECT_SMALL_LEDGER_END_INDEX,
        VoteResult.REJECT_UNKNOWN_LEADER,
        VoteResult.UNKNOWN,
    ],
)
def test_one_peer_with_an_entry_or_without_an_answer_is_no_new_group(result: VoteResult) -> None:
    node = Forgetful()
    for _ in range(5):
        first, second = node.tick(1_010)[:2]
        node.step(Answered(first.peer, first.call_id, VoteResponse(0, "n0", VoteResult.ACCEPT, OURS)))
        node.step(Answered(second.peer, second.call_id, VoteResponse(0, "n0", result, OURS)))
        assert not node.core.is_voting


def test_a_group_of_one_is_new_when_it_is_empty() -> None:
    node = Forgetful(peers={"n0": "h0:1"})
    node.tick(1_020)
    assert node.core.role is Role.LEADER


def test_ledgers_that_would_begin_at_different_places_do_not_begin_together() -> None:
    node = Forgetful(start=4096)
    assert node.ask(VoteRequest(0, "n1", -1, -1, OURS, 0)) is VoteResult.REJECT_SMALL_LEDGER_END_INDEX
    assert node.core.trouble is not None
    assert "copy of the same store" in node.core.trouble
    assert node.ask(VoteRequest(0, "n1", -1, -1, OURS, 4096)) is VoteResult.REJECT_ALREADY_VOTED
    assert node.ask(VoteRequest(0, "n2", -1, -1, JAVA), "n2") is VoteResult.REJECT_ALREADY_VOTED


# Filled by a leader.


@pytest.mark.parametrize("dialect", [OURS, JAVA])
def test_it_has_everything_again_when_something_newer_than_its_start_is_committed(dialect: int) -> None:
    log = entries(1, 1, 3, 3, 3)
    node = followed(Forgetful())
    compared = node.pushed(PushType.COMPARE, log[3], committed=3, end=3, dialect=dialect)
    assert response_of(compared).has_forgotten
    node.pushed(PushType.TRUNCATE, log[0], committed=3, end=3, dialect=dialect)
    for entry in log[1:4]:
        node.pushed(PushType.APPEND, entry, committed=3, end=3, dialect=dialect)
    output = node.step(Synced(3, 1))
    assert node.core.committed == 3
    assert all(response_of(Output(answers=[answer])).has_forgotten for answer in output.answers)
    assert not node.core.is_voting  # an earlier leader could have shown all that
    node.pushed(PushType.APPEND, log[4], committed=4, end=4, dialect=dialect)
    assert not node.core.is_voting  # not on disk
    output = node.step(Synced(4, 1))
    assert output.hard_state == HardState(3, "n1", NOTHING_PROMISED)  # it may have voted in this term
    assert node.core.is_voting


def test_what_one_leader_showed_says_nothing_about_the_next() -> None:
    log = entries(1, 3, 4)
    node = followed(Forgetful())
    node.pushed(PushType.COMPARE, log[0], committed=-1, end=0)
    node.pushed(PushType.TRUNCATE, log[0], committed=0, end=0)
    node.step(Synced(0, 1))
    followed(node, 4)
    node.pushed(PushType.APPEND, log[1], committed=1, end=1)
    node.step(Synced(1, 1))
    assert not node.core.is_voting
    node.pushed(PushType.APPEND, log[2], committed=2, end=2)
    node.step(Synced(2, 1))
    assert node.core.is_voting


def test_a_truncate_that_nobody_compared_for_is_refused() -> None:
    node = followed(Forgetful())
    output = node.pushed(PushType.TRUNCATE, entries(1, 1)[1], committed=1, end=1)
    assert codes(output) == [ResponseCode.INCONSISTENT_STATE]
    assert output.truncation is None


# Its leader.


def answered(node: Node, calls: list[Call], peer: str, *, has_forgotten: bool = False) -> list[Call]:
    """The peer takes what is pushed; what is sent to it next."""
    push = next(call for call in calls if call.peer == peer and isinstance(call.request, PushRequest))
    assert isinstance(push.request, PushRequest)
    index = push.request.last_index
    response = PushResponse(ResponseCode.SUCCESS, node.core.term, "n0", index, 1, 0, index, -1, -1, OURS, has_forgotten)
    return node.step(Answered(peer, push.call_id, response)).calls


def test_a_leader_does_not_count_it_and_writes_something_newer_once_all_else_is_committed() -> None:
    node = Node(None, *entries(1), term=2)
    calls = node.lead()
    answered(node, answered(node, calls, "n2", has_forgotten=True), "n2", has_forgotten=True)
    node.step(Synced(1, 0))
    assert node.core.committed == -1
    assert node.log.end == 1
    newer = answered(node, answered(node, calls, "n1"), "n1")
    assert node.core.committed == 1
    assert node.log.end == 2  # for n2, which may count once that is committed
    node.step(Synced(2, 0))
    answered(node, newer, "n2", has_forgotten=True)
    node.tick(500)
    assert node.core.committed == 1
    answered(node, newer, "n1")
    assert (node.core.committed, node.log.end) == (2, 2)


def test_a_follower_that_has_less_than_it_acknowledged_is_compared_again() -> None:
    node = Node(None, *entries(1), term=2)
    calls = node.lead()
    answered(node, answered(node, calls, "n1"), "n1")
    reported = [call for call in node.tick(1_500) if call.peer == "n1" and isinstance(call.request, PushRequest)]
    lost = PushResponse(ResponseCode.SUCCESS, node.core.term, "n0", None, 0, -1, -1, dialect=OURS, has_forgotten=True)
    again = node.step(Answered("n1", reported[0].call_id, lost)).calls
    requests = [call.request for call in again if call.peer == "n1" and isinstance(call.request, PushRequest)]
    assert [request.type for request in requests] == [PushType.COMPARE]


# The wire, and the disk.


def test_the_answer_about_a_forgotten_log_is_sent_over_the_wire() -> None:
    envelope = Envelope("g", "n0", "n1")
    push = PushRequest(PushType.COMMIT, 3, "n0", (), 5, OURS, 9)
    for request in (VoteRequest(3, "n0", -1, -1, OURS, 4096), push):
        assert parse_request(*encode_request(request, envelope)) == (envelope, request)


def test_an_entry_with_another_magic_is_refused() -> None:
    push = PushRequest(PushType.APPEND, 3, "n0", (Entry(0, 3, 0, b"x", magic=2),))
    code, body = encode_request(push, Envelope("g", "n0", "n1"))
    assert code is RequestCode.PUSH
    with pytest.raises(FormatError, match="magic 2"):
        parse_request(code, body)


@pytest.mark.parametrize("how", [SystemExit, OSError])
def test_a_sync_that_did_not_end_well_is_none(how: Callable[[int], BaseException]) -> None:
    class Ending(MemoryStorage):
        def sync(self) -> None:
            raise how(5)

    async def sync_once() -> tuple[list[Synced], list[Exception]]:
        synced: list[Synced] = []
        failed: list[Exception] = []
        sync = EntrySync(Ending(), synced.append, failed.append)
        sync.is_dirty = True
        sync.start_if_due()
        await until(lambda: bool(synced or failed))
        await sync.stop(None)
        return synced, failed

    synced, failed = asyncio.run(asyncio.wait_for(sync_once(), 30))
    assert (synced, len(failed)) == ([], 1)
