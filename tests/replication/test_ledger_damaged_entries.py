"""Entries whose bodies are damaged: on their way to a follower, and in a leader's own files.

DLedger's heads have fields for sums that Java never fills, so the CRC of the record in a body is all there is.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from tests.replication.ledger.test_ledger_core import PEERS, Node, codes, entries
from tests.replication.ledger_group import Group, bodies, until

from flintlog import Message, StoreConfig
from flintlog.errors import LedgerHalted
from flintlog.format.ledger import seal_record
from flintlog.maintenance.verify.verify import verify
from flintlog.replication.ledger.core.interface import Answered, Call, LedgerConfig, Received, Role, Synced
from flintlog.replication.ledger.core.messages import (
    JAVA,
    OURS,
    Entry,
    GetRequest,
    PushRequest,
    PushResponse,
    PushType,
    ResponseCode,
)
from flintlog.replication.ledger.node import file_storage
from flintlog.replication.ledger.node.calling import PeerLine
from flintlog.replication.ledger.store_node import leader_record
from flintlog.store.ledger.ledger_tail import body_check


def checking(**changes: object) -> LedgerConfig:
    """A body with a `!` in it is a damaged one."""
    return replace(LedgerConfig("n0", PEERS, is_intact=lambda body, position: b"!" not in body), **changes)  # type: ignore[arg-type]


def damaged(entry: Entry) -> Entry:
    return replace(entry, body=b"!" + entry.body[1:])


# ------------------------------------------------------------------ a follower


@pytest.mark.parametrize("type_", [PushType.APPEND, PushType.COMPARE, PushType.TRUNCATE])
@pytest.mark.parametrize("dialect", [JAVA, OURS])
def test_a_damaged_body_is_refused_and_the_same_one_is_taken_when_it_comes_intact(
    type_: PushType, dialect: int
) -> None:
    first, second = entries(1, 1)
    node = Node(checking(), first, term=1)
    node.follow()
    node.push(PushType.COMPARE, first)
    pushed = first if type_ is PushType.COMPARE else second
    output = node.step(Received("n1", 2, PushRequest(type_, 1, "n1", (damaged(pushed),), -1, dialect)))
    assert codes(output) == [ResponseCode.UNEXPECTED_ARGUMENT]
    assert not output.entries and output.truncation is None
    assert (node.core.refused_count, node.core.trouble) == (
        1,
        f"n1 sent entry {pushed.index} damaged: refused until it arrives intact",
    )
    again = node.step(Received("n1", 3, PushRequest(type_, 1, "n1", (pushed,), -1, dialect)))
    answers = [*codes(again), *codes(node.step(Synced(pushed.index, again.generation)))]
    assert answers == [ResponseCode.SUCCESS]
    assert (node.core.refused_count, node.core.trouble) == (1, None)


def test_one_damaged_body_refuses_its_whole_batch() -> None:
    first, second, third = entries(1, 1, 1)
    node = Node(checking(), first, term=1)
    node.follow()
    node.push(PushType.COMPARE, first)
    output = node.push(PushType.APPEND, second, damaged(third))
    assert codes(output) == [ResponseCode.UNEXPECTED_ARGUMENT] and not output.entries


def test_a_later_intact_push_does_not_end_the_trouble_of_an_entry_that_is_still_missing() -> None:
    first, second, third = entries(1, 1, 1)
    node = Node(checking(), first, term=1)
    node.follow()
    node.push(PushType.COMPARE, first)
    node.push(PushType.APPEND, damaged(second))
    node.push(PushType.APPEND, third, number=2)
    assert str(node.core.trouble).startswith("n1 sent entry 1 damaged")
    node.push(PushType.APPEND, second, number=3)
    assert (node.core.trouble, node.log.end) == (None, 2)


def test_a_committed_entry_that_comes_damaged_does_not_halt_a_follower() -> None:
    first, second = entries(1, 1)
    node = Node(checking(), first, second, term=1, committed=1)
    node.follow()
    assert codes(node.push(PushType.COMPARE, damaged(second))) == [ResponseCode.UNEXPECTED_ARGUMENT]
    assert codes(node.push(PushType.COMPARE, second)) == [ResponseCode.SUCCESS]


# ------------------------------------------------------------------ a leader


def pushed_to_n1(calls: list[Call]) -> list[int]:
    return [
        entry.index
        for call in calls
        if call.peer == "n1" and isinstance(call.request, PushRequest)
        for entry in call.request.entries
    ]


def leader(committed: int) -> tuple[Node, list[Call]]:
    """It has entries 0 to 3, of which 2 is damaged; n1 has only the first. What it sends then."""
    held = entries(1, 1, 1, 1)
    held[2] = damaged(held[2])
    node = Node(checking(), *held, term=1, committed=committed)
    calls = node.lead()
    compare = next(call for call in calls if call.peer == "n1" and isinstance(call.request, PushRequest))
    behind = PushResponse(ResponseCode.INCONSISTENT_STATE, node.core.term, "n0", 4, 1, 0, 0, dialect=OURS)
    again = node.step(Answered("n1", compare.call_id, behind)).calls
    same = PushResponse(ResponseCode.SUCCESS, node.core.term, "n0", 0, 1, 0, 0, dialect=OURS)
    return node, node.step(Answered("n1", again[0].call_id, same)).calls


def test_a_leader_sends_nothing_from_its_damaged_entry_on_and_reports_it() -> None:
    node, calls = leader(committed=3)
    assert pushed_to_n1(calls) == [1]
    taken = PushResponse(ResponseCode.SUCCESS, node.core.term, "n0", 1, 1, 0, 1, dialect=OURS)
    append = next(call for call in calls if call.peer == "n1")
    node.step(Answered("n1", append.call_id, taken))
    calls = node.tick(2_000)
    assert pushed_to_n1(calls) == []
    commits = [call.request for call in calls if isinstance(call.request, PushRequest) and call.peer == "n1"]
    assert {push.type for push in commits} == {PushType.COMMIT}
    assert node.core.role is Role.LEADER
    assert str(node.core.trouble).startswith("entry 2 of term 1 is damaged here, and is not sent to followers")
    assert codes(node.step(Received("", 9, GetRequest(2)))) == [ResponseCode.DISK_ERROR]


def test_a_leader_halts_on_a_damaged_entry_that_is_not_committed() -> None:
    with pytest.raises(LedgerHalted, match="entry 2 of term 1 is damaged here, and is not committed"):
        leader(committed=1)


# ------------------------------------------------------------------ stores


@pytest.fixture
def three(tmp_path: Path) -> Iterator[Group]:
    with ExitStack() as stack:
        made = Group(tmp_path, "n0", "n1", "n2")
        stack.callback(made.stop_all)
        yield made


def test_a_bit_that_flips_on_the_wire_is_refused_and_sent_again(
    three: Group, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each first push of an entry to each follower is damaged: no majority may take it like that."""
    seen: set[tuple[str, int]] = set()
    send = PeerLine.send

    def flip(line: PeerLine, call: Call) -> None:
        request = call.request
        if isinstance(request, PushRequest) and request.entries and b"damage me" in request.entries[-1].body:
            last = request.entries[-1]
            if (line.peer, last.index) not in seen:
                seen.add((line.peer, last.index))
                bad = replace(last, body=last.body.replace(b"damage me", b"damage mE"))
                call = replace(call, request=replace(request, entries=(*request.entries[:-1], bad)))
        send(line, call)

    monkeypatch.setattr(PeerLine, "send", flip)
    three.start()
    with caplog.at_level(logging.INFO, "flintlog"):
        for number in range(3):
            three.put(Message("orders", b"damage me %d" % number))
    followers = [node for node in three.nodes.values() if node is not three.leader]
    assert len(seen) == 6
    for node in three.nodes.values():
        until(lambda node=node: len(bodies(node)) == 3, "everybody has everything")  # type: ignore[misc]
        assert bodies(node) == [b"damage me %d" % number for number in range(3)]
    until(lambda: all(node.status().trouble is None for node in followers), "the trouble is over")
    assert [node.status().refused_entries for node in followers] == [3, 3]
    assert "damaged: refused until it arrives intact" in caplog.text and "the trouble is over" in caplog.text
    three.stop_all()
    assert all(verify(three.root / member).findings == [] for member in ("n0", "n1", "n2"))


def test_a_leader_with_a_damaged_file_fills_nobody_with_it_and_the_next_leader_does(
    three: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_storage, "RECENT_BYTES", 0)
    three.start()
    first = three.leader
    away, other = (member for member, node in three.nodes.items() if node is not first)
    three.stop(away)
    messages = [Message("orders", b"number %02d" % number) for number in range(20)]
    places = [first.store.put(message).check().physical_offset for message in messages]
    flip_in_files(first.store.path, places[7], b"number 07", b"number 0&")
    three.start(away)
    behind = three.nodes[away]
    until(lambda: first.status().trouble, "the leader has read the damaged entry")
    assert "is damaged here, and is not sent to followers" in str(first.status().trouble)
    until(lambda: len(bodies(behind)) == 7, "it gets what is before")
    until(lambda: three.leader is not first or first.hand_over(other), "another leads")
    until(lambda: len(bodies(behind)) == 20, "the other leader has filled it")
    assert bodies(behind) == [b"number %02d" % number for number in range(20)]


def flip_in_files(root: Path, place: int, old: bytes, new: bytes) -> None:
    (file,) = root.glob("dledger-*/data/00000000000000000000")
    with open(file, "r+b") as data:
        data.seek(place)
        content = data.read(300)
        data.seek(place + content.index(old))
        data.write(new)


# ------------------------------------------------------------------ what is checked


@pytest.mark.parametrize(
    "config",
    [
        StoreConfig(),
        StoreConfig(enabled_append_prop_crc=True),
        StoreConfig(enabled_append_prop_crc=True, force_verify_prop_crc=True),
    ],
    ids=["body", "record", "forced"],
)
def test_a_leaders_own_record_passes_every_check(config: StoreConfig) -> None:
    """It has no CRC over all of it; a member that demanded one would never have a leader."""
    record = seal_record(leader_record(config, 1), 4096)
    is_intact = body_check(config)
    assert is_intact(record, 4096)
    assert not is_intact(record, 8192)
    assert not is_intact(record[:-1], 4096)
    assert not is_intact(b"", 4096)
