"""Groups of real RocketMQ brokers and stores of ours: either leads, each goes on with its own and the other's files."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from random import Random

import pytest
from py4j.protocol import Py4JError
from tests.interop.ledger_members import (
    IDS,
    QUEUES,
    TOPIC,
    KillableMember,
    OurMember,
    StoreGroup,
    TheirMember,
    put_through,
    store_group,
    until,
)

from flintlog import Message
from flintlog.format.topics import STATE_TOPIC

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("java"), pytest.mark.timeout(600)]


def test_a_broker_among_two_of_ours_leads_is_killed_and_ours_takes_its_place(tmp_path: Path) -> None:
    with store_group(tmp_path) as group:
        group.start_theirs("n0")
        group.start_ours("n1", "n2")
        group.hand_over("n1")
        group.put(800, "ours leads")
        group.hand_over("n0")
        group.put(800, "java leads")
        group.check()
        group.kill("n0")
        group.put(200, "java is gone")
        group.start_ours("n0")
        group.hand_over("n0")
        group.put(200, "ours on java's files")
        group.check()
        group.stop()
        group.same_files()
        assert len(group.acknowledged) >= 2_000


def test_offsets_and_delays_go_on_under_a_new_leader(tmp_path: Path) -> None:
    """A broker leads, then ours, then the broker: consumers and delayed messages go on, and the files stay the same."""
    with store_group(tmp_path) as group:
        group.start_theirs("n0")
        java = group.members["n0"]
        assert isinstance(java, TheirMember)
        for member_id in ("n1", "n2"):
            group.members[member_id] = OurMember(
                group.path(member_id), member_id, group.addresses, {"n0": java.java.address}, ["schedule"]
            )
        ours = group.members["n1"]
        assert isinstance(ours, OurMember)
        offsets = ours.node.store.consumer_offsets

        group.hand_over("n0")
        group.put(300, "java leads")
        java.java.create_topic("later", 1)
        java.java.commit_consumer_offset("readers", TOPIC, 0, 7)
        assert {receipt.status for receipt in java.java.put([Message("later", b"java's", delay_level=3)])} == {"PUT_OK"}
        until(lambda: offsets.get("readers", TOPIC, 0) == 7, lambda: "the broker was not asked")

        group.hand_over("n1")
        assert offsets.get("readers", TOPIC, 0) == 7
        assert ours.node.store.topics.get("later") is not None
        offsets.commit("readers", TOPIC, 0, 9)
        offsets.save()
        ours.node.store.put(Message("later", b"ours", delay_level=1)).check()
        until(lambda: ours.node.store.max_offset("later", 0) == 2, lambda: "the delayed messages do not come")
        group.put(300, "ours leads")
        other = group.members["n2"]
        assert isinstance(other, OurMember)
        until(lambda: other.node.store.consumer_offsets.get("readers", TOPIC, 0) == 9, lambda: "not shared")

        delays = group.path("n1") / "config/delayOffset.json"
        until(lambda: b"1:1" in delays.read_bytes() and b"3:1" in delays.read_bytes(), lambda: "not recorded")
        java.java.sync_from(f"127.0.0.1:{ours.node.port}")  # what a slave does that has found its master
        assert java.java.consumer_offset("readers", TOPIC, 0) == 9
        group.hand_over("n0")
        group.put(300, "java leads again")
        group.check()
        assert java.java.consumer_offset("readers", TOPIC, 0) == 9
        assert sorted(message.body for message in java.java.messages("later")) == [b"java's", b"ours"]
        assert java.java.max_offset(STATE_TOPIC, 0) > 0  # for Java an ordinary message
        group.stop()
        group.same_files()


@pytest.mark.slow
def test_ours_among_two_brokers_follows_leads_and_restarts(tmp_path: Path) -> None:
    with store_group(tmp_path) as group:
        group.start_theirs("n0", "n1")
        group.start_ours("n2")
        group.hand_over("n0")
        group.put(1_500, "java leads")
        group.stop("n2")
        group.put(500, "java leads without ours")
        group.start_ours("n2")
        group.hand_over("n2")
        group.put(1_500, "ours leads")
        group.kill("n1")
        group.put(500, "ours leads one broker")
        group.start_theirs("n1")
        group.hand_over("n1")
        group.put(500, "the broker is back")
        group.kill("n1")
        group.put(500, "those that are left")
        group.start_theirs("n1")
        group.check()
        group.stop()
        group.same_files()


@pytest.mark.slow
def test_members_change_places_with_each_others_files_and_back(tmp_path: Path) -> None:
    """Each directory is Java's, then ours, then Java's again, or the other way round; all are stopped in between."""
    with store_group(tmp_path) as group:
        for round_, brokers in enumerate((("n0", "n1"), ("n2",), ("n0",))):
            ours = [member_id for member_id in IDS if member_id not in brokers]
            group.start_theirs(*brokers)
            group.start_ours(*ours)
            for leader in (brokers[0], ours[0]):
                group.hand_over(leader)
                group.put(400, f"round {round_}, {leader} leads")
            group.check()
            group.stop()
            group.same_files()


@pytest.mark.slow
def test_what_a_broker_showed_before_it_was_committed_is_not_shown_by_ours(tmp_path: Path) -> None:
    with store_group(tmp_path) as group:
        group.start_theirs("n0")
        group.start_killable("n1", "n2")
        group.hand_over("n0")
        group.put(100, "common")
        group.settle()
        group.kill("n1")
        group.kill("n2")
        lost = [Message(TOPIC, b"lost %d" % number, queue_id=number % QUEUES) for number in range(20)]
        assert "PUT_OK" not in {reported.status for reported in put_through(group.members["n0"], lost)}
        ends = group.members["n0"].ends()
        assert ends.end >= ends.committed + len(lost)
        group.kill("n0")
        group.start_killable("n1", "n2")
        group.put(100, "agreed")
        group.start_theirs("n0")
        group.settle()
        with pytest.raises((AssertionError, Py4JError)):  # RocketMQ's queues point at what was cut off
            group.check()
        group.kill("n0")
        group.start_killable("n0")
        group.check()
        group.stop()
        group.same_files()


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_nothing_acknowledged_is_lost_while_members_of_both_kinds_are_killed(tmp_path: Path) -> None:
    """A follower that was killed comes back as the other kind over the same files, a leader as one of ours.

    A leader's entries may be cut off, and a broker that is opened over them shows them (docs/replication.md).
    """
    random = Random(7)
    with store_group(tmp_path) as group:
        group.start_theirs("n0")
        group.start_killable("n1", "n2")
        for round_ in range(8):
            leader = group.leader()
            victim = random.choice([leader, *IDS])
            _kill_while_putting(group, victim, random.uniform(0.1, 2.0), f"round {round_}")
            was_theirs = isinstance(group.members[victim], TheirMember)
            group.kill(victim)
            (group.start_killable if was_theirs or victim == leader else group.start_theirs)(victim)
        group.check()
        group.stop()
        group.same_files()


def _kill_while_putting(group: StoreGroup, victim: str, after_s: float, name: str) -> None:
    member = group.members[victim]
    assert isinstance(member, TheirMember | KillableMember)
    killing = threading.Timer(after_s, os.kill, (member.pid, signal.SIGKILL))
    killing.start()
    batch = 0
    while killing.is_alive() or batch < 10:
        group.put(40, f"{name} batch {batch}")
        batch += 1
    killing.join()
