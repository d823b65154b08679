"""One ledger node, fed event by event: what the scripts cannot show well."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from tests.replication.ledger_memory import MemoryLog

from flintlog.errors import DamagedStore, LedgerHalted
from flintlog.replication.ledger.core.core import LedgerCore
from flintlog.replication.ledger.core.interface import (
    Answered,
    Call,
    CallFailed,
    Event,
    HardState,
    LedgerConfig,
    Output,
    Proposal,
    Propose,
    Received,
    Role,
    Synced,
    Tick,
)
from flintlog.replication.ledger.core.messages import (
    JAVA,
    OURS,
    AppendResponse,
    Entry,
    GetRequest,
    GetResponse,
    HeartbeatRequest,
    MetadataRequest,
    MetadataResponse,
    PushRequest,
    PushResponse,
    PushType,
    ResponseCode,
    TransferRequest,
    VoteRequest,
    VoteResponse,
    VoteResult,
)

PEERS = {"n0": "h0:1", "n1": "h1:1", "n2": "h2:1"}


class Node:
    """A core and its log. `step` carries the output out; syncing is left to the test."""

    def __init__(self, config: LedgerConfig | None = None, *entries: Entry, term: int = 0, committed: int = -1) -> None:
        self.config = config or LedgerConfig("n0", PEERS)
        self.log = MemoryLog(entries=entries)
        self.now_ms = 0
        self.core = LedgerCore(self.config, self.log, HardState(term), committed, random=Random(1))

    def step(self, event: Event) -> Output:
        output = self.core.step(event, self.now_ms)
        self.log.apply(output)
        return output

    def tick(self, duration_ms: int) -> list[Call]:
        calls = []
        for _ in range(0, duration_ms, 10):
            self.now_ms += 10
            calls += self.step(Tick()).calls
        return calls

    def lead(self) -> list[Call]:
        """Be elected by n1; the calls of that step."""
        votes = self.tick(1_010)
        answer = VoteResponse(self.core.term, "n0", VoteResult.ACCEPT, OURS)
        output = self.step(Answered(votes[0].peer, votes[0].call_id, answer))
        assert self.core.role is Role.LEADER
        return output.calls

    def follow(self, leader: str = "n1") -> None:
        self.step(Received(leader, 0, HeartbeatRequest(self.core.term, leader, OURS)))
        assert self.core.role is Role.FOLLOWER

    def push(self, type_: PushType, *entries: Entry, number: int = 1, leader: str = "n1") -> Output:
        return self.step(Received(leader, number, PushRequest(type_, self.core.term, leader, entries, -1, OURS)))


def entries(*terms: int) -> list[Entry]:
    made: list[Entry] = []
    for index, term in enumerate(terms):
        made.append(Entry(index, term, index * 58, b"body %05d" % index))
    return made


def codes(output: Output) -> list[int]:
    return [answer.response.code for answer in output.answers if not isinstance(answer.response, VoteResponse)]


def matched(node: Node, calls: list[Call], *, dialect: int = OURS) -> list[Call]:
    """Answer the first COMPARE as somebody with the same log would."""
    compare = next(call for call in calls if isinstance(call.request, PushRequest))
    assert isinstance(compare.request, PushRequest)
    index = compare.request.first_index
    answer = PushResponse(ResponseCode.SUCCESS, node.core.term, "n0", index, 1, 0, index, dialect=dialect)
    return node.step(Answered(compare.peer, compare.call_id, answer)).calls


# Starting.


def test_a_term_below_that_of_the_log_is_damage() -> None:
    with pytest.raises(DamagedStore, match="the term on disk is 1"):
        Node(None, *entries(1, 2), term=1)


def test_a_committed_index_after_the_end_is_clamped() -> None:
    assert Node(None, *entries(1, 1), term=1, committed=7).core.committed == 1


# Following.


def test_a_sync_from_before_a_cut_counts_for_nothing() -> None:
    node = Node(None, *entries(1, 1), term=2)
    node.follow()
    first, second = Entry(2, 2, 116, b"old......."), Entry(2, 2, 116, b"new.......")
    node.push(PushType.COMPARE, node.log.entry(1))
    old = node.push(PushType.APPEND, first, number=2)
    assert not old.answers
    java = PushRequest(PushType.TRUNCATE, 2, "n1", (node.log.entry(1),), -1, JAVA)
    cut = node.step(Received("n1", 3, java))
    assert cut.truncation is not None and cut.truncation.last_index == 1
    new = node.push(PushType.APPEND, second, number=4)
    assert node.step(Synced(2, old.generation)).answers == []
    assert codes(node.step(Synced(2, new.generation))) == [ResponseCode.SUCCESS]


def test_an_entry_that_would_lie_elsewhere_is_refused() -> None:
    node = Node(None, *entries(1), term=1)
    node.follow()
    node.push(PushType.COMPARE, node.log.entry(0))
    output = node.push(PushType.APPEND, Entry(1, 1, 4096, b"from another file size"))
    assert codes(output) == [ResponseCode.DISK_ERROR] and not output.entries


@pytest.mark.parametrize(
    "pushed",
    [
        [],
        [Entry(1, 9, 58, b"of a later term than the leader's")],
        [Entry(1, 1, 58, b"a"), Entry(3, 1, 107, b"a gap within")],
    ],
    ids=["no entries", "later term", "gap"],
)
def test_an_unsound_append_is_refused(pushed: list[Entry]) -> None:
    node = Node(None, *entries(1), term=1)
    node.follow()
    output = node.push(PushType.APPEND, *pushed)
    assert codes(output) == [ResponseCode.UNEXPECTED_ARGUMENT] and not output.entries


def test_a_batch_that_overlaps_is_taken_from_where_it_is_new() -> None:
    node = Node(None, *entries(1, 1), term=1)
    node.follow()
    node.push(PushType.COMPARE, node.log.entry(1))
    assert node.push(PushType.APPEND, *entries(1, 1, 1, 1)).entries == entries(1, 1, 1, 1)[2:]


def test_a_batch_that_contradicts_is_refused_as_a_whole() -> None:
    node = Node(None, *entries(1, 1), term=1)
    node.follow()
    node.push(PushType.COMPARE, node.log.entry(1))
    other = [replace(entries(1, 1)[1], body=b"other....."), entries(1, 1, 1)[2]]
    output = node.push(PushType.APPEND, *other)
    assert codes(output) == [ResponseCode.INCONSISTENT_STATE] and not output.entries


def test_parked_appends_are_bounded() -> None:
    node = Node(replace(LedgerConfig("n0", PEERS), max_parked=2), *entries(1), term=1)
    node.follow()
    ahead = entries(*[1] * 6)
    for number, entry in enumerate(ahead[2:4]):
        assert not node.push(PushType.APPEND, entry, number=number).answers
    assert codes(node.push(PushType.APPEND, ahead[3], number=7)) == [ResponseCode.REPEATED_PUSH]
    assert codes(node.push(PushType.APPEND, ahead[4], number=8)) == [ResponseCode.INCONSISTENT_STATE]


def test_a_halted_node_stays_halted() -> None:
    node = Node(None, *entries(1, 1), term=2, committed=1)
    node.follow()
    with pytest.raises(LedgerHalted, match="everything up to 1 is committed"):
        node.push(PushType.COMPARE, replace(node.log.entry(1), term=2))
    assert node.log.end == 1
    with pytest.raises(LedgerHalted):
        node.step(Tick())


@pytest.mark.parametrize("type_", [PushType.COMPARE, PushType.TRUNCATE, PushType.APPEND])
def test_a_leader_that_contradicts_what_is_committed_is_not_followed(type_: PushType) -> None:
    node = Node(None, *entries(1, 1, 1), term=2, committed=1)
    node.follow()
    with pytest.raises(LedgerHalted, match="n1 has another entry 1 of term 2"):
        node.push(type_, replace(node.log.entry(1), term=2))


def test_a_late_truncate_after_a_restart_leaves_what_is_committed() -> None:
    node = Node(None, *entries(1, 1, 1, 1), term=2, committed=2)
    node.follow()
    output = node.push(PushType.TRUNCATE, node.log.entry(0))
    assert codes(output) == [ResponseCode.SUCCESS] and node.log.end == 2


def test_a_late_truncate_before_our_beginning_changes_nothing() -> None:
    node = Node(None, *entries(1, 1, 1, 1)[2:], term=2, committed=2)
    node.follow()
    output = node.push(PushType.TRUNCATE, entries(1)[0])
    assert codes(output) == [ResponseCode.INCONSISTENT_STATE] and output.truncation is None


# Leading.


def test_java_gets_one_entry_a_push_and_ours_get_batches() -> None:
    for dialect, sizes in ((JAVA, [1, 1, 1]), (OURS, [3])):
        node = Node(None, *entries(1), term=2)
        calls = node.lead()
        node.step(Propose((Proposal(1, (b"a", b"b")),)))
        pushes = [call.request for call in matched(node, calls, dialect=dialect)]
        assert [len(push.entries) for push in pushes if isinstance(push, PushRequest)] == sizes


def test_java_gets_batches_if_that_is_asked_for() -> None:
    node = Node(replace(LedgerConfig("n0", PEERS), batch_to_java=True, java_batch_bytes=110), *entries(1), term=2)
    calls = node.lead()
    node.step(Propose((Proposal(1, (b"a", b"b")),)))
    pushes = [call.request for call in matched(node, calls, dialect=JAVA)]
    assert [len(push.entries) for push in pushes if isinstance(push, PushRequest)] == [2, 1]


def test_an_answer_of_another_peer_counts_for_nothing() -> None:
    node = Node()
    votes = node.tick(1_010)
    answer = VoteResponse(0, "n0", VoteResult.ACCEPT, OURS)
    node.step(Answered("n2", votes[0].call_id, answer))
    assert node.core.leader_id is None
    node.step(Answered("n1", votes[0].call_id, answer))
    assert node.core.leader_id == "n0"


def test_a_push_that_failed_is_sent_again_soon() -> None:
    node = Node(None, *entries(1), term=2)
    append = matched(node, node.lead())[0]
    assert not [call for call in node.tick(50) if isinstance(call.request, PushRequest) and call.peer == append.peer]
    node.step(CallFailed(append.peer, append.call_id))
    again = [call.request for call in node.tick(120) if call.peer == append.peer]
    assert append.request in again


def test_a_position_is_sealed_into_the_body() -> None:
    def seal(body: bytes, position: int) -> bytes:
        return body[:2] + b"%04d" % position

    config = replace(LedgerConfig("n0", PEERS), seal=seal, leader_record=lambda: b"l.0000")
    node = Node(config, *entries(1), term=2)
    node.lead()
    output = node.step(Propose((Proposal(1, (b"a.0000",)),)))
    assert output.entries[0].body == b"a.%04d" % output.entries[0].position


def test_a_proposal_for_another_term_is_not_written() -> None:
    node = Node()
    node.lead()
    term = node.core.term
    output = node.step(Propose((Proposal(1, (b"a",), term - 1), Proposal(2, (b"b",), term))))
    assert codes(output) == [ResponseCode.NOT_LEADER]
    assert [entry.body for entry in output.entries] == [b"b"]


def test_too_many_proposals_are_refused() -> None:
    node = Node(replace(LedgerConfig("n0", PEERS), max_pending_proposals=2))
    node.lead()
    output = node.step(Propose(tuple(Proposal(number, (b"a",)) for number in range(3))))
    assert codes(output) == [ResponseCode.LEADER_PENDING_FULL] and len(output.entries) == 2


def test_proposals_end_with_the_leadership() -> None:
    node = Node()
    node.lead()
    node.step(Propose((Proposal(5, (b"a",)),)))
    output = node.step(Received("n2", 9, HeartbeatRequest(3, "n2", OURS)))
    assert [(answer.answer_to, codes(output)[0]) for answer in output.answers[:1]] == [(5, ResponseCode.TERM_CHANGED)]


def test_a_group_of_one_commits_with_its_own_sync() -> None:
    node = Node(LedgerConfig("n0", {"n0": "h0:1"}))
    node.tick(1_010)
    assert node.core.role is Role.LEADER
    node.step(Propose((Proposal(5, (b"a",)),)))
    output = node.step(Synced(1, 0))
    response = output.answers[0].response
    assert isinstance(response, AppendResponse)
    assert (output.committed, response.code, response.index) == (1, ResponseCode.SUCCESS, 1)


# Clients.


def test_only_what_is_committed_is_given_out() -> None:
    node = Node(LedgerConfig("n0", {"n0": "h0:1"}))
    assert codes(node.step(Received("", 1, GetRequest(0)))) == [ResponseCode.NOT_LEADER]
    node.tick(1_010)
    assert codes(node.step(Received("", 2, GetRequest(0)))) == [ResponseCode.INDEX_OUT_OF_RANGE]
    node.step(Synced(0, 0))
    response = node.step(Received("", 3, GetRequest(0))).answers[0].response
    assert isinstance(response, GetResponse) and response.entries == (node.log.entry(0),)


def test_metadata_names_the_leader_and_everybodys_address() -> None:
    node = Node()
    node.follow("n2")
    response = node.step(Received("", 1, MetadataRequest())).answers[0].response
    assert isinstance(response, MetadataResponse)
    assert response.leader_id == "n2" and dict(response.peers) == PEERS


def test_a_shell_that_did_not_write_is_found_out() -> None:
    node = Node()
    node.tick(1_010)
    answer = VoteResponse(0, "n0", VoteResult.ACCEPT, OURS)
    assert node.core.step(Answered("n1", 1, answer), node.now_ms).entries
    with pytest.raises(LedgerHalted, match="should end with entry 0"):
        node.core.step(Tick(), node.now_ms)


# Lines whose change nothing else would notice.


def test_a_comparison_is_answered_when_what_was_compared_is_on_disk() -> None:
    node = Node(None, *entries(1), term=1)
    node.follow()
    node.push(PushType.COMPARE, node.log.entry(0))
    node.push(PushType.APPEND, entries(1, 1)[1])
    assert not node.push(PushType.COMPARE, node.log.entry(1), number=2).answers
    assert codes(node.step(Synced(1, 0))) == [ResponseCode.SUCCESS] * 2


def test_what_was_cut_and_written_again_is_not_synced() -> None:
    node = Node(None, *entries(1, 1, 1), term=2)
    node.follow()
    cut = node.push(PushType.TRUNCATE, node.log.entry(0))
    assert codes(cut) == [ResponseCode.SUCCESS] and node.core.synced == 0
    assert not node.push(PushType.APPEND, entries(1, 1)[1]).answers


def test_what_stands_before_the_leaders_first_entry_stays_only_if_it_is_committed() -> None:
    begin = Entry(2, 2, 116, b"the leader's first")
    for committed, restart_position in ((1, None), (0, 116)):
        node = Node(None, *entries(1, 1), term=2, committed=committed)
        node.follow()
        output = node.push(PushType.TRUNCATE, begin)
        position = None if output.truncation is None else output.truncation.restart_position
        assert (output.entries, position) == ([begin], restart_position)


def test_an_entry_of_an_earlier_term_than_the_last_is_refused() -> None:
    node = Node(None, *entries(2), term=3)
    node.follow()
    node.push(PushType.COMPARE, node.log.entry(0))
    output = node.push(PushType.APPEND, entries(1, 1)[1])
    assert codes(output) == [ResponseCode.DISK_ERROR] and not output.entries


def test_another_leader_of_the_same_term_is_refused() -> None:
    node = Node(None, *entries(1), term=1)
    node.follow("n1")
    assert codes(node.step(Received("n2", 1, HeartbeatRequest(1, "n2", OURS)))) == [ResponseCode.INCONSISTENT_LEADER]
    assert codes(node.push(PushType.COMMIT, leader="n2")) == [ResponseCode.INCONSISTENT_LEADER]
    assert node.core.leader_id == "n1"


def test_a_candidate_with_fewer_entries_of_the_same_term_gets_no_vote() -> None:
    node = Node(None, *entries(1, 1), term=2)
    response = node.step(Received("n1", 1, VoteRequest(2, "n1", 0, 1, OURS))).answers[0].response
    assert isinstance(response, VoteResponse)
    assert response.vote_result is VoteResult.REJECT_SMALL_LEDGER_END_INDEX


def test_a_vote_is_given_once_a_term_and_part_of_the_output() -> None:
    node = Node(term=2)
    results = []
    for candidate in ("n1", "n2", "n1"):
        output = node.step(Received(candidate, 1, VoteRequest(2, candidate, 5, 1, OURS)))
        response = output.answers[0].response
        assert isinstance(response, VoteResponse)
        results.append((response.vote_result, output.hard_state))
    assert results == [
        (VoteResult.ACCEPT, HardState(2, "n1")),
        (VoteResult.REJECT_ALREADY_VOTED, None),
        (VoteResult.ACCEPT, None),
    ]


def test_a_contradicted_append_leads_back_to_comparing_and_late_answers_count_for_nothing() -> None:
    node = Node(None, *entries(1), term=2)
    first = matched(node, node.lead())[0]
    second = node.step(Propose((Proposal(1, (b"a",)),))).calls[0]
    assert (first.peer, second.peer) == ("n1", "n1")
    refused = PushResponse(ResponseCode.INCONSISTENT_STATE, 2, "n0", 1, 1, 0, 0, dialect=OURS)
    compare = node.step(Answered("n1", first.call_id, refused)).calls[0].request
    assert isinstance(compare, PushRequest) and compare.type is PushType.COMPARE and compare.first_index == 2
    node.step(Answered("n1", second.call_id, replace(refused, code=ResponseCode.SUCCESS, index=2, end_index=2)))
    assert node.core.peer_views[0].watermark == 0


def test_a_transferee_stands_once_it_has_everything() -> None:
    node = Node(None, *entries(1), term=1)
    node.follow()
    node.push(PushType.COMPARE, node.log.entry(0))
    node.step(Received("n1", 7, TransferRequest(1, "n1", "n1", "n0", 1, OURS)))
    node.tick(100)
    before = node.core.leader_id
    node.push(PushType.APPEND, entries(1, 1)[1])
    assert (before, node.core.leader_id) == ("n1", None)
    votes = [call.request for call in node.tick(200)]
    assert VoteRequest(2, "n0", 1, 1, OURS) in votes


def test_a_transferee_that_does_not_catch_up_stays_a_follower() -> None:
    node = Node(None, *entries(1), term=1)
    node.follow()
    node.step(Received("n1", 7, TransferRequest(1, "n1", "n1", "n0", 1, OURS)))
    node.now_ms += 1_000
    assert codes(node.step(Tick())) == [ResponseCode.FALL_BEHIND_TOO_MUCH]
    assert node.core.leader_id == "n1"
