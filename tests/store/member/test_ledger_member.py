"""A member of a group that does what the test tells it: what is shared when, and how services end and begin."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.store.scripted_group import CONFIG, PATIENCE_S, ScriptedGroup, until

from flintlog import Message, Store, encoded_batch, open_store
from flintlog.errors import DiskFull, InvalidConfig, InvalidTopic, NotLeading, PutFailed
from flintlog.format.topics import STATE_TOPIC
from flintlog.store.ledger.proposals import ProposalAnswer
from flintlog.store.model.message import PutStatus
from flintlog.store.runtime.service import Rewritten
from flintlog.testing import FakeClock

WITH_LEVELS = CONFIG.with_changes(services={"schedule"}, message_delay_level="1s")


class Member:
    """A store that leads when the test says so, its puts committed at once unless the test says otherwise."""

    def __init__(self, path: Path, *, clock: FakeClock | None = None) -> None:
        self.store: Store = open_store(path, WITH_LEVELS, clock=clock)
        self.group = ScriptedGroup(self.store)
        self.group.is_quick = True

    def lead(self) -> None:
        self.group.lead()
        until(lambda: self.group.port.is_ready)

    def close(self) -> None:
        self.group.port.stop()
        self.store.shutdown()

    @property
    def bodies(self) -> list[bytes]:
        self.store.wait_dispatched()
        return [message.body for message in self.store.get("orders", 0, 0).messages]

    def state_count(self) -> int:
        self.store.wait_dispatched()
        return self.store.max_offset(STATE_TOPIC, 0)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def member(tmp_path: Path, clock: FakeClock) -> Iterator[Member]:
    with ExitStack() as stack:
        made = Member(tmp_path / "store", clock=clock)
        stack.callback(made.close)
        made.lead()
        yield made


def test_a_save_returns_when_the_group_has_committed_it(member: Member) -> None:
    offsets, group = member.store.consumer_offsets, member.group
    member.store.put(Message("orders", b"x")).check()
    offsets.commit("billing", "orders", 0, 1)
    group.is_quick = False
    done: list[bool] = []
    saving = threading.Thread(target=lambda: done.append(offsets.save()))
    saving.start()
    until(lambda: group.asked)
    saving.join(0.2)
    assert saving.is_alive()
    assert not offsets.path.exists()  # never here before it is there
    group.commit()
    saving.join(PATIENCE_S)
    assert done == [True]
    assert offsets.path.exists()


def test_a_save_that_the_group_does_not_confirm_is_made_again(member: Member) -> None:
    offsets, group = member.store.consumer_offsets, member.group
    member.store.put(Message("orders", b"x")).check()
    offsets.commit("billing", "orders", 0, 1)
    group.refusal = PutStatus.SERVICE_NOT_AVAILABLE
    with pytest.raises(NotLeading):
        offsets.save()
    assert not offsets.path.exists()
    group.refusal = None
    until(lambda: group.port.is_ready)
    assert offsets.save()
    assert not offsets.save()
    assert member.state_count() == 1


def test_a_topic_that_the_group_does_not_take_is_not_created(member: Member) -> None:
    member.group.refusal = PutStatus.SERVICE_NOT_AVAILABLE
    with pytest.raises(NotLeading):
        member.store.topics.create("orders")
    assert "orders" not in member.store.topics
    assert not (member.store.path / "config/topics.json").exists()


def test_what_was_not_committed_is_forgotten_when_another_leads(member: Member) -> None:
    offsets = member.store.consumer_offsets
    for _ in range(3):
        member.store.put(Message("orders", b"x")).check()
    offsets.commit("billing", "orders", 0, 1)
    offsets.save()
    consumer = member.store.consumer("audit", "orders")
    offsets.commit("billing", "orders", 0, 3)
    member.group.port.follow()
    until(lambda: offsets.get("billing", "orders", 0) == 1)
    assert consumer.poll(PATIENCE_S) is None  # closed
    with pytest.raises(NotLeading):
        offsets.commit("billing", "orders", 0, 2)
    member.lead()
    assert offsets.get("billing", "orders", 0) == 1


def test_a_leader_that_only_paused_forgets_nothing(member: Member) -> None:
    offsets = member.store.consumer_offsets
    member.store.put(Message("orders", b"x")).check()
    offsets.commit("billing", "orders", 0, 1)
    member.group.refusal = PutStatus.SERVICE_NOT_AVAILABLE
    member.store.put(Message("orders", b"refused"), check=False)
    member.group.refusal = None
    until(lambda: member.group.port.is_ready)
    assert offsets.get("billing", "orders", 0) == 1
    offsets.save()
    assert member.state_count() == 1


def test_a_change_of_a_truncated_leader_is_never_taken(tmp_path: Path) -> None:
    """What was written and not committed is cut off; the state is as it was, and goes on from there."""
    member = Member(tmp_path / "store")
    member.lead()
    store, group = member.store, member.group
    store.put(Message("orders", b"x")).check()
    store.consumer_offsets.commit("billing", "orders", 0, 0)
    store.consumer_offsets.save()
    group.is_quick = False
    store.consumer_offsets.commit("billing", "orders", 0, 1)
    errors: list[BaseException] = []

    def save() -> None:
        try:
            store.consumer_offsets.save()
        except PutFailed as error:
            errors.append(error)

    saving = threading.Thread(target=save)
    saving.start()
    until(lambda: group.asked)
    ((_, end, answer),), group.asked = group.asked, []
    group.port.follow()
    answer.set_result(ProposalAnswer(PutStatus.UNKNOWN_ERROR))
    saving.join(PATIENCE_S)
    assert len(errors) == 1
    group.port.files.truncate(end - 1)
    group.is_quick = True
    until(lambda: store.consumer_offsets.get("billing", "orders", 0) == 0)
    member.lead()
    assert store.consumer_offsets.get("billing", "orders", 0) == 0
    store.consumer_offsets.commit("audit", "orders", 0, 1)
    store.consumer_offsets.save()
    member.close()
    again = Member(tmp_path / "store")
    assert again.store.consumer_offsets.get("audit", "orders", 0) == 1
    assert again.store.consumer_offsets.get("billing", "orders", 0) == 0
    again.close()


def test_a_delivery_that_nobody_confirmed_is_not_made_again(member: Member, clock: FakeClock) -> None:
    """The group is slow: the leader cannot know, waits for the log to be settled, and looks into it."""
    store, group = member.store, member.group
    store.put(Message("orders", b"before", delay_level=1)).check()
    clock.advance(1_500)
    store.put(Message("orders", b"first", delay_level=1)).check()
    store.put(Message("orders", b"second", delay_level=1)).check()
    group.is_quick = False
    turning = threading.Thread(target=lambda: _advance(clock, 2_000))
    turning.start()
    until(lambda: len(group.asked) == 2)  # together, not one after the other
    for _, _, answer in group.asked:
        answer.set_result(ProposalAnswer(PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH, is_written=True))
    group.asked = []
    turning.join(PATIENCE_S)
    assert not group.port.is_ready
    assert store.put(Message("orders", b"not now"), check=False).status is PutStatus.SERVICE_NOT_AVAILABLE
    group.is_quick = True
    group.commit()
    until(lambda: group.port.is_ready)
    clock.advance(1_000)
    assert member.bodies == [b"before", b"first", b"second"]


def test_a_delivery_that_was_lost_is_made_again(member: Member, clock: FakeClock) -> None:
    store, group = member.store, member.group
    store.put(Message("orders", b"first", delay_level=1)).check()
    group.refusal = PutStatus.UNKNOWN_ERROR
    _advance(clock, 2_000)
    assert member.bodies == []
    group.refusal = None
    until(lambda: group.port.is_ready)
    clock.advance(1_000)
    assert member.bodies == [b"first"]


def test_a_deposed_leader_delivers_nothing(member: Member, clock: FakeClock) -> None:
    member.store.put(Message("orders", b"first", delay_level=1)).check()
    member.group.port.follow()
    until(lambda: not member.group.port.is_ready)
    _advance(clock, 5_000)
    assert member.bodies == []
    assert member.group.asked == []
    member.lead()
    clock.advance(1)
    assert member.bodies == [b"first"]


def test_what_could_not_be_written_is_taken_with_the_next_change(
    tmp_path: Path, member: Member, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A follower's disk is full when a topic comes; it comes again with whatever comes next."""
    store, files = member.store, member.group.port.files
    store.topics.create("first")
    store.topics.create("second")
    store.groups.create("billing")
    entries = [files.entry(index) for index in range(files.end + 1)]
    follower = Member(tmp_path / "follower")
    follower.group.port.files.append(entries[:1])
    follower.group.commit()
    until(lambda: "first" in follower.store.topics)
    full = [DiskFull("no room")]

    def replace(path: Path, data: bytes) -> None:
        if full and path.name == "topics.json":
            raise full.pop()
        written(path, data)

    written = follower.store._host.medium.replace
    monkeypatch.setattr(follower.store._host.medium, "replace", replace)
    follower.group.port.files.append(entries[1:2])
    follower.group.commit()
    until(lambda: not full)
    assert "second" not in follower.store.topics
    follower.group.port.files.append(entries[2:])
    follower.group.commit()
    until(lambda: "billing" in follower.store.groups)
    assert "second" in follower.store.topics
    follower.close()


def test_nobody_else_writes_the_groups_state(member: Member) -> None:
    with pytest.raises(InvalidTopic):
        member.store.put(Message(STATE_TOPIC, b"{}"))
    with pytest.raises(InvalidTopic):
        member.store.put_batch([Message(STATE_TOPIC, b"{}")])
    assert member.state_count() == 0


def test_a_closed_batch_is_refused_because_only_the_group_cuts_its_log(member: Member) -> None:
    with pytest.raises(InvalidConfig, match="group"):
        member.store.put_closed([Message("orders", b"x")])
    member.store.put(Message("orders", b"goes on")).check()


def test_no_service_writes_the_groups_state(member: Member) -> None:
    state, plain = Message(STATE_TOPIC, b"{}"), Message("orders", b"{}")
    with pytest.raises(InvalidTopic):
        member.store._host.put_rewritten(state, lambda seen: Rewritten(replace(seen, topic="half")))
    with pytest.raises(InvalidTopic):
        member.store._host.put_rebuilt(Rewritten(state))
    with pytest.raises(InvalidTopic):
        member.store._host.put_rebuilt_soon(Rewritten(state))
    with pytest.raises(InvalidTopic):
        member.store.put(replace(state, delay_level=1))
    with pytest.raises(InvalidTopic):
        member.store._host.put_rewritten(plain, lambda seen: Rewritten(state))
    assert member.state_count() == 0


def test_no_hook_sends_a_message_to_the_groups_state(member: Member) -> None:
    member.store.add_put_hook(lambda seen: replace(seen, topic=STATE_TOPIC))
    with pytest.raises(InvalidTopic):
        member.store.put(Message("orders", b"{}"))
    with pytest.raises(InvalidTopic):
        member.store.put_batch([Message("orders", b"{}")])
    with pytest.raises(InvalidTopic):
        member.store.put_encoded(encoded_batch([Message("orders", b"{}")]))
    assert member.state_count() == 0


def _advance(clock: FakeClock, by_ms: int) -> None:
    """A job that fails raises in the thread that turned the clock."""
    try:
        clock.advance(by_ms)
    except (PutFailed, NotLeading):
        clock.advance(0)
