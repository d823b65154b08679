"""A store and a group that does what the test tells it: what is shown when, and what a put returns."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path

import pytest
from tests.store.scripted_group import CONFIG, PATIENCE_S, ScriptedGroup, until

from flintlog import InvalidConfig, Message, open_store
from flintlog.errors import LedgerLeftBehind, StoreClosed
from flintlog.format.ledger import ENTRY_HEAD_SIZE
from flintlog.store.ledger import ledger_commit_log as ledger_log
from flintlog.store.ledger.proposals import ProposalAnswer
from flintlog.store.model.message import PutStatus, Receipt


@pytest.fixture
def group(tmp_path: Path) -> Iterator[ScriptedGroup]:
    with open_store(tmp_path / "store", CONFIG) as store:
        made = ScriptedGroup(store)
        yield made
        made.port.stop()


def test_a_proposed_message_is_visible_once_it_is_committed_and_not_before(group: ScriptedGroup) -> None:
    group.lead()
    store = group.store
    later = store.put_async(Message("orders", b"first", keys=["k"]))
    positions = group.asked[0][0]
    assert group.port.files.end_position > 0
    assert store.max_physical_offset == 0
    assert store.message_at(positions[0] + 48) is None
    assert store.get("orders", 0, 0).messages == []
    assert not later.done()
    group.commit()
    receipt = later.result(PATIENCE_S).check()
    assert receipt.physical_offset == positions[0] + 48
    store.wait_dispatched()  # the port's own thread may be at it still
    assert [message.body for message in store.get("orders", 0, 0).messages] == [b"first"]
    assert [message.body for message in store.query("orders", "k")] == [b"first"]
    assert store.max_physical_offset == receipt.end_offset == group.port.committed_position


def test_only_what_is_committed_is_shown_of_what_is_written(group: ScriptedGroup) -> None:
    group.lead()
    futures = [group.store.put_async(Message("orders", b"%d" % number)) for number in range(10)]
    group.port.committed(3)
    until(lambda: group.store.max_offset("orders", 0) == 4)
    assert group.store.max_physical_offset == group.port.files.position_after(3)
    assert group.store.message_at(group.asked[3][0][0] + 48) is not None
    assert group.store.message_at(group.asked[4][0][0] + 48) is None
    assert sum(batch.num_rows for batch in group.store.scan()) == 4
    assert not any(future.done() for future in futures)


def test_a_put_that_waits_dispatches_itself(group: ScriptedGroup) -> None:
    group.lead()
    group.port.stop()
    group.store.replication.ledger._log.serve(group)
    reported: list[Receipt] = []
    thread = threading.Thread(target=lambda: reported.append(group.store.put(Message("orders", b"x"))))
    thread.start()
    until(lambda: group.asked)
    group.commit()
    thread.join(PATIENCE_S)
    assert reported[0].status is PutStatus.PUT_OK
    assert len(group.store.get("orders", 0, 0).messages) == 1


def test_queue_offsets_are_taken_from_the_queues_when_a_member_leads(group: ScriptedGroup) -> None:
    group.lead()
    futures = [group.store.put_async(Message("orders", b"%d" % number)) for number in range(5)]
    group.commit()
    assert [future.result(PATIENCE_S).queue_offset for future in futures] == list(range(5))
    group.port.follow()
    assert group.store.put(Message("orders", b"no"), check=False).status is PutStatus.SERVICE_NOT_AVAILABLE
    assert not group.port.is_serving
    group.lead()
    later = group.store.put_async(Message("orders", b"next"))
    group.commit()
    assert later.result(PATIENCE_S).check().queue_offset == 5


def test_a_member_that_ceases_to_lead_waits_for_no_put(group: ScriptedGroup) -> None:
    group.lead()
    with group.store._engine.log.lock():  # a put is being made
        thread = threading.Thread(target=group.port.follow)
        thread.start()
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
    assert group.store.put(Message("orders", b"no"), check=False).status is PutStatus.SERVICE_NOT_AVAILABLE


def test_a_store_that_cannot_follow_its_log_says_so_and_takes_no_puts(
    group: ScriptedGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    group.lead()
    failed: list[Exception] = []
    group.port.on_failed = failed.append

    def fails() -> None:
        raise ZeroDivisionError("a fault of ours")

    monkeypatch.setattr(group.port, "_take_shared", fails)
    group.port.committed(-1)
    until(lambda: failed)
    assert isinstance(failed[0], ZeroDivisionError)
    assert not group.port.is_serving
    assert group.store.put(Message("orders", b"no"), check=False).status is PutStatus.SERVICE_NOT_AVAILABLE


def test_a_leader_serves_only_when_all_it_has_is_committed(group: ScriptedGroup) -> None:
    group.lead()
    group.store.put_async(Message("orders", b"from an earlier term"))
    group.port.follow()
    for _, _, answer in group.asked:
        answer.set_result(ProposalAnswer(PutStatus.UNKNOWN_ERROR))
    group.port.lead(group)
    time.sleep(0.1)
    assert not group.port.is_serving
    group.asked = []
    group.commit()
    until(lambda: group.port.is_serving)
    later = group.store.put_async(Message("orders", b"next"))
    group.commit()
    assert later.result(PATIENCE_S).check().queue_offset == 1


@pytest.mark.parametrize("status", [PutStatus.SERVICE_NOT_AVAILABLE, PutStatus.UNKNOWN_ERROR])
def test_a_refused_put_leaves_no_gap_in_the_queue(group: ScriptedGroup, status: PutStatus) -> None:
    group.lead()
    group.refusal = status
    assert group.store.put(Message("orders", b"refused"), check=False).status is status
    group.refusal = None
    until(lambda: group.port.is_serving)
    later = group.store.put_async(Message("orders", b"taken"))
    group.commit()
    assert later.result(PATIENCE_S).check().queue_offset == 0


def test_a_put_that_no_majority_has_yet_keeps_its_place(group: ScriptedGroup) -> None:
    group.lead()
    later = group.store.put_async(Message("orders", b"slow"), check=False)
    group.asked.pop()[2].set_result(ProposalAnswer(PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH, is_written=True))
    receipt = later.result(PATIENCE_S)
    assert (receipt.status, receipt.physical_offset) == (PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH, -1)
    assert group.port.is_serving
    following = group.store.put_async(Message("orders", b"next"))
    group.commit()
    assert following.result(PATIENCE_S).check().queue_offset == 1
    group.store.wait_dispatched()
    assert [message.body for message in group.store.get("orders", 0, 0).messages] == [b"slow", b"next"]


def test_too_much_under_way_is_refused_without_a_gap(group: ScriptedGroup, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_log, "MAX_OUTSTANDING", 3)
    group.lead()
    futures = [group.store.put_async(Message("orders", b"x")) for _ in range(3)]
    assert group.store.put(Message("orders", b"y"), check=False).status is PutStatus.OS_PAGE_CACHE_BUSY
    assert group.store.put_batch([Message("orders", b"y")] * 2, check=False).status is PutStatus.OS_PAGE_CACHE_BUSY
    group.commit()
    futures.append(group.store.put_async(Message("orders", b"z")))
    group.commit()
    assert [future.result(PATIENCE_S).check().queue_offset for future in futures] == [0, 1, 2, 3]


def test_a_store_stopped_with_an_uncommitted_tail_comes_back_without_showing_it(tmp_path: Path) -> None:
    with open_store(tmp_path / "store", CONFIG) as store:
        group = ScriptedGroup(store)
        group.lead()
        first = store.put_async(Message("orders", b"first"))
        group.commit()
        first.result(PATIENCE_S).check()
        store.put_async(Message("orders", b"tail"))
        group.port.files.save_checkpoint(0)
        group.port.stop()
    with open_store(tmp_path / "store", CONFIG) as store:
        assert store.recovery.findings == ()
        assert [message.body for message in store.get("orders", 0, 0).messages] == [b"first"]
        again = ScriptedGroup(store)
        assert again.port.files.end == 1
        again.commit()
        store.wait_dispatched()
        assert [message.body for message in store.get("orders", 0, 0).messages] == [b"first", b"tail"]
        again.port.stop()


def test_a_new_member_begins_where_the_groups_log_begins_now(group: ScriptedGroup) -> None:
    """The group has deleted its oldest files: a queue's first message here is not its first one."""
    file_bytes = CONFIG.mapped_file_size_commit_log
    with open_store(group.store._engine.path.parent / "other", CONFIG) as other:
        leader = ScriptedGroup(other)
        leader.lead()
        for number in range(400):
            other.put_async(Message("orders", b"%d" % number * 50, keys=["k"]))
        leader.commit()
        entries = [leader.port.files.entry(index) for index in range(400)]
        leader.port.stop()
    kept = [entry for entry in entries if entry[0].position >= file_bytes]
    assert kept[0][0].position == file_bytes
    group.port.files.restart(file_bytes, kept[0][0].index)
    group.port.files.append(kept)
    group.commit()
    group.store.wait_dispatched()
    first = kept[0][0].index
    assert group.store.min_physical_offset == file_bytes
    assert (group.store.min_offset("orders", 0), group.store.max_offset("orders", 0)) == (first, 400)
    assert group.store.get("orders", 0, first).messages[0].body == b"%d" % first * 50
    group.lead()
    later = group.store.put_async(Message("orders", b"next"))
    group.commit()
    assert later.result(PATIENCE_S).check().queue_offset == 400


def test_a_log_that_was_read_does_not_begin_anew(group: ScriptedGroup) -> None:
    group.lead()
    group.store.put_async(Message("orders", b"x"))
    group.commit()
    with pytest.raises(LedgerLeftBehind, match="begins at"):
        group.port.files.restart(10 * CONFIG.mapped_file_size_commit_log, 500)
    assert group.port.files.end == 0
    group.store.wait_dispatched()
    assert len(group.store.get("orders", 0, 0).messages) == 1


@pytest.mark.parametrize("has_plain_log", [False, True])
def test_first_entries_that_were_never_committed_give_way_to_another_leaders(
    tmp_path: Path, has_plain_log: bool
) -> None:
    """Two leaders in a row before anything is committed: the member keeps its plain log, and takes the second's."""
    if has_plain_log:
        with open_store(tmp_path / "store", CONFIG.with_changes(enable_dledger_commit_log=False)) as plain:
            plain.put(Message("orders", b"of the plain log")).check()
    with open_store(tmp_path / "store", CONFIG) as store:
        group = ScriptedGroup(store)
        files = group.port.files
        begin, before = files.end_position, [b"of the plain log"] * has_plain_log
        group.lead()
        store.put_async(Message("orders", b"first"))
        head, body = files.entry(0)
        assert head.position == begin
        group.port.follow()
        files.restart(begin, 0)
        files.append([(replace(head, term=head.term + 1), body)])
        group.port.committed(0)
        until(lambda: store.max_offset("orders", 0) == len(before) + 1)
        assert files.begin == files.end == 0
        entry = store._host.entry("orders", 0, len(before))
        assert entry is not None and entry.physical_offset == begin + ENTRY_HEAD_SIZE
        assert [message.body for message in store.get("orders", 0, 0).messages] == [*before, b"first"]
        group.port.stop()


def test_a_plain_store_has_no_door_and_a_ledger_takes_no_bytes(tmp_path: Path, group: ScriptedGroup) -> None:
    plain = CONFIG.with_changes(enable_dledger_commit_log=False)
    with open_store(tmp_path / "plain", plain) as store, pytest.raises(InvalidConfig):
        _ = store.replication.ledger
    with pytest.raises(StoreClosed):
        group.store._engine.log.append_raw(0, b"x")


@pytest.mark.parametrize("is_taken", [False, True])
def test_a_put_that_is_interrupted_is_withdrawn_or_outstanding(group: ScriptedGroup, is_taken: bool) -> None:
    """Otherwise the next put gets the same queue offset, and the group commits both."""
    group.lead()
    answers: list[Future[ProposalAnswer]] = []

    def propose(_: Sequence[bytes], answer: Future[ProposalAnswer]) -> None:
        answers.append(answer)
        if is_taken:
            answer.set_running_or_notify_cancel()
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(group, "propose", propose)
        with pytest.raises(KeyboardInterrupt):
            group.store.put(Message("orders", b"interrupted"))
    (answer,) = answers
    if is_taken:
        time.sleep(0.2)
        assert not group.port.is_serving
        answer.set_result(ProposalAnswer(PutStatus.SERVICE_NOT_AVAILABLE))
    else:
        assert not answer.set_running_or_notify_cancel()
    until(lambda: group.port.is_serving)
    group.is_quick = True
    assert group.store.put(Message("orders", b"next")).check().queue_offset == 0
