"""What a group knows besides messages, and what only its leader does: it goes on where the last leader stopped."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from tests.replication.ledger_group import FILE_BYTES, Group, bodies, config_of, until

from flintlog import InvalidConfig, Message, open_store
from flintlog.cli import main
from flintlog.cli.exit_codes import ExitCode
from flintlog.errors import NotLeading, PutFailed, ServiceNotEnabled
from flintlog.format.topics import STATE_TOPIC
from flintlog.replication.ledger.store_node import LedgerStoreNode
from flintlog.services.transaction.transaction_service import TransactionService
from flintlog.store.member.state_log import WHOLE_EVERY
from flintlog.store.model.message import PutStatus
from flintlog.testing import FakeClock

THREE = ("n0", "n1", "n2")
LEVELS = {"services": {"schedule"}, "message_delay_level": "1s 1m"}


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Callable[..., Group]]:
    with ExitStack() as stack:

        def make(*members: str, **changes: object) -> Group:
            made = Group(tmp_path, *members, **changes)  # type: ignore[arg-type]
            stack.callback(made.stop_all)
            made.start()
            return made

        yield make


def fill(group: Group, count: int, topic: str = "orders") -> None:
    for number in range(count):
        group.put(Message(topic, b"%d" % number))


def take(group: Group, count: int) -> None:
    """Let the group "billing" acknowledge so many messages at the leader."""
    with group.leader.store.consumer("billing", "orders") as consumer:
        for _ in range(count):
            message = consumer.poll(20.0)
            assert message is not None
            consumer.acknowledge(message)


def offset(node: LedgerStoreNode) -> int | None:
    return node.store.consumer_offsets.get("billing", "orders", 0)


def other(group: Group) -> LedgerStoreNode:
    """A member that does not lead."""
    leader = group.leader
    return next(node for node in group.nodes.values() if node is not leader)


def turn(group: Group, clock: FakeClock, by_ms: int, expected: list[bytes]) -> None:
    """Let time pass; then the leader shows this. On a busy machine another one may lead by then, and need a moment."""

    def is_shown() -> bool:
        with suppress(NotLeading, PutFailed):
            clock.advance(1)
        return bodies(group.leader) == expected

    with suppress(NotLeading, PutFailed):
        clock.advance(by_ms - 1)
    until(is_shown, f"{expected}")


# ------------------------------------------------------------------ offsets


def test_a_saved_offset_is_the_new_leaders(group: Callable[..., Group]) -> None:
    three = group(*THREE)
    fill(three, 20)
    take(three, 12)
    three.leader.store.consumer_offsets.save()
    three.drop_leader()
    assert offset(three.leader) == 12
    with three.leader.store.consumer("billing", "orders", timeout_s=1.0) as consumer:
        assert [message.body for message in consumer] == [b"%d" % number for number in range(12, 20)]


def test_what_was_acknowledged_and_not_saved_is_given_again_and_nothing_is_left_out(
    group: Callable[..., Group],
) -> None:
    three = group(*THREE)
    fill(three, 10)
    take(three, 4)
    three.leader.store.consumer_offsets.save()
    take(three, 3)
    three.drop_leader()
    assert offset(three.leader) == 4


def test_a_clean_stop_of_the_leader_brings_its_last_acknowledgements_to_the_group(
    group: Callable[..., Group],
) -> None:
    three = group(*THREE)
    fill(three, 10)
    take(three, 7)
    three.stop(three.name_of(three.leader))
    assert offset(three.leader) == 7


def test_a_leader_that_hands_over_keeps_nothing_to_itself(group: Callable[..., Group]) -> None:
    three = group(*THREE)
    fill(three, 10)
    take(three, 7)
    leader, successor = three.leader, three.name_of(other(three))
    until(lambda: leader.hand_over(successor), "the other leads")
    until(lambda: three.nodes[successor].is_serving, "it serves")
    assert offset(three.nodes[successor]) == 7
    until(lambda: offset(leader) == 7, "the old leader follows")
    with pytest.raises(NotLeading):
        leader.store.consumer_offsets.commit("billing", "orders", 0, 8)


def test_followers_have_the_offsets_too_and_in_their_files(group: Callable[..., Group]) -> None:
    three = group(*THREE)
    fill(three, 10)
    take(three, 5)
    three.leader.store.consumer_offsets.save()
    for node in three.nodes.values():
        until(lambda node=node: offset(node) == 5, "the offset everywhere")  # type: ignore[misc]
    three.stop_all()
    for member in THREE:
        reported = json.loads((three.root / member / "config/consumerOffset.json").read_text().replace("0:5", '"0":5'))
        assert reported["offsetTable"]["orders@billing"] == {"0": 5}


def test_offsets_move_on_through_many_leaders_and_never_back(group: Callable[..., Group]) -> None:
    three = group(*THREE)
    fill(three, 30)
    for done in range(5, 30, 5):
        take(three, 5)
        three.leader.store.consumer_offsets.save()
        gone = three.drop_leader()
        assert offset(three.leader) == done
        three.start(gone)
        until(lambda gone=gone, done=done: offset(three.nodes[gone]) == done, "the old leader has it too")  # type: ignore[misc]


def test_a_reset_goes_back_on_all_members(group: Callable[..., Group]) -> None:
    three = group(*THREE)
    fill(three, 10)
    take(three, 8)
    with three.leader.store.consumer("billing", "orders") as consumer:
        consumer.seek(0, 2)
    three.drop_leader()
    assert offset(three.leader) == 2


def test_a_group_that_was_deleted_with_its_offsets_is_gone_everywhere(group: Callable[..., Group]) -> None:
    three = group(*THREE)
    fill(three, 3)
    take(three, 3)
    three.leader.store.groups.delete("billing", clean_offsets=True)
    three.leader.store.consumer_offsets.save()
    three.drop_leader()
    assert offset(three.leader) is None
    assert "billing" not in three.leader.store.groups


def test_the_whole_state_is_written_now_and_then_and_found_again(group: Callable[..., Group]) -> None:
    one = group("n0")
    offsets = one.leader.store.consumer_offsets
    fill(one, 3)
    for number in range(2 * WHOLE_EVERY + 5):
        offsets.commit(f"group{number}", "orders", 0, 1 + number % 3)
        offsets.save()
    wholes = [
        message.properties["STATE"]
        for number in range(one.leader.store.max_offset(STATE_TOPIC, 0))
        for message in one.leader.store.get(STATE_TOPIC, 0, number, 1).messages
    ]
    assert wholes.count("whole") == 3
    one.drop("n0")
    (one.root / "n0/config/consumerOffset.json").unlink()
    (one.root / "n0/config/consumerOffset.json.bak").unlink()
    one.start()
    again = one.leader.store.consumer_offsets
    found = [again.get(f"group{number}", "orders", 0) for number in range(2 * WHOLE_EVERY + 5)]
    assert found == [1 + number % 3 for number in range(2 * WHOLE_EVERY + 5)]


def test_a_state_longer_than_a_message_travels_in_pieces(group: Callable[..., Group]) -> None:
    one = group("n0")
    offsets = one.leader.store.consumer_offsets
    fill(one, 1)
    for number in range(2000):
        offsets.commit(f"group{number}", "orders", 0, 1)
    offsets.save()
    until(lambda: one.leader.store.max_offset(STATE_TOPIC, 0) > 2, "the pieces can be read")
    assert max(len(message.body) for message in one.leader.store.get(STATE_TOPIC, 0, 0, 8).messages) <= FILE_BYTES // 4
    one.drop("n0")
    (one.root / "n0/config/consumerOffset.json").unlink()
    one.start()
    assert one.leader.store.consumer_offsets.get("group1999", "orders", 0) == 1


def test_a_plain_stores_offsets_topics_and_groups_are_the_groups(group: Callable[..., Group], tmp_path: Path) -> None:
    plain = config_of({"n0": "127.0.0.1:1"}, "n0").with_changes(enable_dledger_commit_log=False)
    with open_store(tmp_path / "n0", plain) as store:
        for number in range(5):
            store.put(Message("orders", b"%d" % number)).check()
        store.topics.create("orders", read_queue_nums=3)
        store.groups.create("billing")
        store.consumer_offsets.commit("billing", "orders", 0, 3)
    one = group("n0")
    store = one.leader.store
    assert offset(one.leader) == 3
    until(lambda: store.max_offset(STATE_TOPIC, 0), "what is the group's can be read from its log")
    (reported,) = store.get(STATE_TOPIC, 0, 0).messages
    assert set(json.loads(reported.body)) == {"consumerOffset", "topics", "subscriptionGroup"}


def test_offsets_are_not_moved_in_one_members_directory(
    group: Callable[..., Group], capsys: pytest.CaptureFixture[str]
) -> None:
    one = group("n0")
    fill(one, 3)
    take(one, 2)
    one.stop("n0")
    before = (one.root / "n0/config/consumerOffset.json").read_bytes()
    assert main.run(["offsets", "clone", str(one.root / "n0"), "--from", "billing", "--to", "audit"]) == ExitCode.USAGE
    assert "the offsets of a ledger's member are its group's" in capsys.readouterr().err
    assert (one.root / "n0/config/consumerOffset.json").read_bytes() == before


# ------------------------------------------------------------------ settings


def test_topics_and_groups_are_everywhere_when_their_creation_returns(group: Callable[..., Group]) -> None:
    three = group(*THREE)
    three.leader.store.topics.create("orders", read_queue_nums=3, write_queue_nums=3)
    three.leader.store.groups.create("billing", retry_queue_nums=2)
    three.drop_leader()
    topic, found = three.leader.store.topics.get("orders"), three.leader.store.groups.get("billing")
    assert topic is not None
    assert (topic.read_queue_nums, topic.write_queue_nums) == (3, 3)
    assert found is not None
    assert found.retry_queue_nums == 2
    three.leader.store.topics.change("orders", read_queue_nums=4)
    follower = other(three)
    until(lambda: (follower.store.topics.get("orders") or topic).read_queue_nums == 4, "the change")


def test_only_the_leader_is_asked_for_what_changes_something(group: Callable[..., Group]) -> None:
    three = group(*THREE, services={"schedule", "transaction"})
    fill(three, 3)
    follower = other(three).store
    with pytest.raises(NotLeading):
        follower.consumer_offsets.commit("billing", "orders", 0, 1)
    with pytest.raises(NotLeading):
        follower.consumer_offsets.reset("billing", "orders", 0, 1)
    with pytest.raises(NotLeading):
        follower.consumer("billing", "orders")
    with pytest.raises(NotLeading):
        follower.topics.create("more")
    with pytest.raises(NotLeading):
        follower.groups.create("more")
    with pytest.raises(ServiceNotEnabled, match="leader"):
        follower.service("transaction")
    assert (
        follower.put(Message("orders", b"later", delay_level=1), check=False).status is PutStatus.SERVICE_NOT_AVAILABLE
    )
    assert follower.consumer_offsets.get("billing", "orders", 0) is None
    assert "more" not in follower.topics
    assert "more" not in follower.groups


def test_what_the_groups_members_cannot_do_alike_is_refused(group: Callable[..., Group]) -> None:
    one = group("n0")
    with pytest.raises(InvalidConfig):
        one.leader.store.topics.create("batches", attributes={"queue.type": "BatchCQ"})
    one.leader.store.topics.create("orders")
    with pytest.raises(InvalidConfig):
        one.leader.store.topics.delete("orders")
    assert "orders" in one.leader.store.topics


# ------------------------------------------------------------------ delay levels


def test_a_delayed_message_is_delivered_by_the_next_leader(group: Callable[..., Group]) -> None:
    clock = FakeClock()
    three = group(*THREE, clock=clock, **LEVELS)
    three.put(Message("orders", b"soon", delay_level=1))
    three.put(Message("orders", b"later", delay_level=2))
    turn(three, clock, 2_000, [b"soon"])
    three.drop_leader()
    _ = three.leader
    turn(three, clock, 30_000, [b"soon"])
    turn(three, clock, 60_000, [b"soon", b"later"])


@pytest.mark.parametrize("shared", [0, 2])
def test_what_was_delivered_and_not_recorded_is_not_delivered_again(group: Callable[..., Group], shared: int) -> None:
    """The leader dies between a delivery and the record of it, with or without an earlier record."""
    clock = FakeClock()
    three = group(*THREE, clock=clock, flush_delay_offset_interval=600_000, **LEVELS)
    for number in range(5):
        three.put(Message("orders", b"%d" % number, delay_level=1))
        if number < shared:
            turn(three, clock, 1_500, [b"%d" % each for each in range(number + 1)])
            turn(three, clock, 700_000, [b"%d" % each for each in range(number + 1)])  # recorded
    turn(three, clock, 1_500, [b"%d" % each for each in range(5)])
    three.drop_leader()
    three.put(Message("orders", b"new", delay_level=1))
    turn(three, clock, 5_000, [*(b"%d" % each for each in range(5)), b"new"])


def test_delay_levels_go_on_through_many_leaders_each_message_once(group: Callable[..., Group]) -> None:
    clock = FakeClock()
    three = group(*THREE, clock=clock, flush_delay_offset_interval=1_000, **LEVELS)
    expected = []
    for number in range(6):
        expected.append(b"%d" % number)
        three.put(Message("orders", expected[-1], delay_level=1))
        with suppress(NotLeading, PutFailed):
            clock.advance(600)
        gone = three.drop_leader()
        _ = three.leader
        with suppress(NotLeading, PutFailed):
            clock.advance(600)
        three.start(gone)
    turn(three, clock, 5_000, expected)
    three.settle()


# ------------------------------------------------------------------ transactions and timers


def transactions(node: LedgerStoreNode) -> TransactionService:
    service = node.store.service("transaction")
    assert isinstance(service, TransactionService)
    return service


def test_a_transaction_is_decided_at_the_next_leader(group: Callable[..., Group]) -> None:
    three = group(*THREE, services={"transaction"})
    service = transactions(three.leader)
    ids = [service.begin(Message("orders", b"%d" % number)).id for number in range(3)]
    service.commit(ids[0]).check()
    three.drop_leader()
    service = transactions(three.leader)
    assert [each.id for each in service.undecided()] == ids[1:]
    service.commit(ids[1]).check()
    service.rollback(ids[2]).check()
    assert bodies(three.leader) == [b"0", b"1"]
    three.start(next(member for member in THREE if member not in three.nodes))
    three.drop_leader()
    assert transactions(three.leader).undecided() == []
    assert bodies(three.leader) == [b"0", b"1"]


def test_timers_are_delivered_by_the_next_leader_once(group: Callable[..., Group]) -> None:
    clock = FakeClock()
    three = group(*THREE, clock=clock, services={"timer"})
    start = clock.now_ms()
    for number in range(4):
        three.put(Message("orders", b"%d" % number, deliver_at_ms=start + 10_000 * (number + 1)))
    turn(three, clock, 11_000, [b"0"])
    for delivered in range(2, 5):
        gone = three.drop_leader()
        _ = three.leader
        turn(three, clock, 10_000, [b"%d" % number for number in range(delivered)])
        three.start(gone)
    turn(three, clock, 60_000, [b"0", b"1", b"2", b"3"])


# ------------------------------------------------------------------ retention


def log_files(group: Group, member: str) -> list[str]:
    return sorted(path.name for path in (group.root / member / f"dledger-{member}/data").iterdir())


def expire(group: Group, clock: FakeClock) -> None:
    """Let three days pass, and the files of that time go."""
    for member in group.nodes:
        for name in log_files(group, member):
            path = group.root / member / f"dledger-{member}/data" / name
            os.utime(path, (clock.now_ms() / 1000, clock.now_ms() / 1000))
    clock.advance(73 * 3_600_000)
    for node in group.nodes.values():
        node.store.cleaning.delete_expired_files()
    for _ in range(12):
        with suppress(NotLeading, PutFailed):
            clock.advance(10_000)


def test_old_files_go_and_the_shared_state_stays(group: Callable[..., Group]) -> None:
    clock = FakeClock()
    three = group(*THREE, clock=clock, file_reserved_time=72, clean_resource_interval=10_000, protect_unconsumed=False)
    fill(three, 3)
    three.leader.store.topics.create("orders", read_queue_nums=5)
    take(three, 3)
    three.leader.store.consumer_offsets.save()
    for number in range(120):
        three.put(Message("orders", b"%d" % number * 1000))
    three.settle()
    end = three.leader.store.max_offset("orders", 0)  # a put may have been repeated
    before = log_files(three, "n0")
    assert len(before) > 3 and end >= 123

    def has_expired() -> bool:
        expire(three, clock)
        return all(before[0] not in log_files(three, member) for member in THREE)

    # A follower keeps the file until it has read the state that the leader wrote again.
    until(has_expired, "a first file that all members have deleted")
    for member in THREE:
        assert three.nodes[member].store.min_physical_offset > 0
    three.drop_leader()
    assert offset(three.leader) == 3
    for member in THREE:  # as if each were new: what is left of the log says it all
        if member in three.nodes:
            three.drop(member)
        for path in (three.root / member / "config").iterdir():
            path.unlink()
    three.start()
    topic = three.leader.store.topics.get("orders")
    assert topic is not None
    assert (offset(three.leader), topic.read_queue_nums) == (3, 5)
    receipt = three.leader.store.put(Message("orders", b"next"))
    assert receipt.queue_offset == end
