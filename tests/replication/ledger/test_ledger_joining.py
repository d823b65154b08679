"""A member without a log: of a new group, or one that lost what it had acknowledged."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.replication.ledger_group import FILE_BYTES, Group, bodies, config_of, until

from flintlog import Message, open_store
from flintlog.replication.ledger.store_node import LedgerStoreNode
from flintlog.store.model.message import PutStatus

IDS = ("n0", "n1", "n2")


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Group]:
    made = Group(tmp_path, *IDS)
    try:
        yield made
    finally:
        made.stop_all()


def lagging_and_lost(group: Group) -> tuple[str, str, str]:
    """Five messages are on the leader and one follower; both stop. Names: who led, who has them too, who lags."""
    group.start()
    group.put(Message("orders", b"before"))
    group.settle()
    leads = group.name_of(group.leader)
    lags, has = (name for name in IDS if name != leads)
    group.stop(lags)
    for number in range(5):
        group.put(Message("orders", b"acknowledged %d" % number))
    group.stop_all()
    return leads, has, lags


def test_a_member_that_lost_its_directory_elects_nobody_without_what_it_had(group: Group) -> None:
    leads, has, lags = lagging_and_lost(group)
    shutil.rmtree(group.root / has)
    group.start(has, lags)
    time.sleep(2)
    assert not any(node.is_serving for node in group.nodes.values())
    assert not group.nodes[has].node.status().is_voting
    group.start(leads)
    group.put(Message("orders", b"after"))
    expected = [b"before", *(b"acknowledged %d" % number for number in range(5)), b"after"]
    until(lambda: all(bodies(node) == expected for node in group.nodes.values()), "everything on all members")


def test_a_member_that_was_filled_again_votes_again(group: Group) -> None:
    leads, has, lags = lagging_and_lost(group)
    shutil.rmtree(group.root / has)
    group.start()
    until(lambda: group.nodes[has].node.status().is_voting, "the refilled member votes")
    assert bodies(group.leader) == [b"before", *(b"acknowledged %d" % number for number in range(5))]
    other = leads if group.name_of(group.leader) == leads else lags
    group.settle()
    group.stop(other)
    group.put(Message("orders", b"after"))
    assert bodies(group.leader)[-1] == b"after"


def test_a_member_that_is_stopped_while_it_is_filled_has_still_forgotten(group: Group) -> None:
    leads, has, lags = lagging_and_lost(group)
    ledger = group.root / has / f"dledger-{has}"
    shutil.rmtree(ledger)
    group.start(has)
    assert not group.nodes[has].node.status().is_voting
    group.stop(has)
    # As if some entries had come: the lagging member's, which are the beginning of the log.
    for folder in ("data", "index"):
        shutil.copytree(group.root / lags / f"dledger-{lags}" / folder, ledger / folder, dirs_exist_ok=True)
    (ledger / "currterm").write_bytes((group.root / lags / f"dledger-{lags}" / "currterm").read_bytes())
    group.start(has, lags)
    time.sleep(1.5)
    assert not any(node.is_serving for node in group.nodes.values())
    group.start(leads)
    until(lambda: group.nodes[has].node.status().is_voting, "the refilled member votes")
    assert len(bodies(group.leader)) == 6


def test_a_new_group_begins_once_all_members_were_there(group: Group) -> None:
    group.start("n0", "n1")
    time.sleep(1)
    assert not any(node.is_serving for node in group.nodes.values())
    group.start("n2")
    group.put(Message("orders", b"first"))
    until(lambda: all(node.node.status().is_voting for node in group.nodes.values()), "everybody votes")
    group.drop_leader()
    group.put(Message("orders", b"second"))


def test_a_new_group_begins_with_a_majority_that_was_started_as_new(tmp_path: Path) -> None:
    group = Group(tmp_path, *IDS)
    for member in ("n0", "n1"):
        config = config_of(group.addresses, member)
        group.nodes[member] = LedgerStoreNode(tmp_path / member, config, fast=True, new_group=True)
        group.nodes[member].start()
    try:
        group.put(Message("orders", b"first"))
    finally:
        group.stop_all()


def plain_store(path: Path, group: Group, count: int) -> None:
    plain = config_of(group.addresses, "n0").with_changes(enable_dledger_commit_log=False)
    with open_store(path, plain) as store:
        for number in range(count):
            store.put(Message("orders", b"%d" % number + bytes(2000))).check()


@pytest.mark.parametrize("counts", [(90, 0, 0), (90, 90, 10)], ids=["one plain store", "different plain stores"])
def test_members_with_different_plain_logs_do_not_begin_a_group(
    group: Group, counts: tuple[int, int, int], caplog: pytest.LogCaptureFixture
) -> None:
    for member, count in zip(IDS, counts, strict=True):
        if count:
            plain_store(group.root / member, group, count)
    group.start()
    until(lambda: "need a copy of the same store" in caplog.text, "somebody says why")
    time.sleep(1)
    assert not any(node.is_serving for node in group.nodes.values())
    assert all(node.node.status().halted is None for node in group.nodes.values())
    assert group.nodes["n0"].store.max_offset("orders", 0) == 90


def test_copies_of_one_plain_store_begin_a_group_after_its_log(group: Group) -> None:
    plain_store(group.root / "n0", group, 90)
    for member in ("n1", "n2"):
        shutil.copytree(group.root / "n0", group.root / member)
    group.start()
    receipt = group.leader.store.put(Message("orders", b"new"))
    assert (receipt.status, receipt.queue_offset) == (PutStatus.PUT_OK, 90)
    group.settle()
    until(lambda: all(len(bodies(node)) == 91 for node in group.nodes.values()), "91 messages on all members")
    assert group.leader.store.min_physical_offset == 0
    assert group.leader.node.status().begin == 0
    assert group.leader.store.max_physical_offset > 2 * FILE_BYTES
