"""Stores whose log is a ledger, as members of a group: puts through the leader, reads everywhere, leaders that go."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.replication.ledger_group import FILE_BYTES, PATIENCE_S, Group, bodies, config_of, until

from flintlog import InvalidConfig, Message, StoreConfig, open_store
from flintlog.errors import InvalidMessage
from flintlog.format.ledger import seal_record
from flintlog.maintenance.verify.verify import verify
from flintlog.replication.ledger import store_node
from flintlog.replication.ledger.core.interface import Role
from flintlog.replication.ledger.core.messages import AppendResponse
from flintlog.replication.ledger.store_node import (
    LedgerStoreNode,
    answer_of,
    leader_record,
    parse_peers,
)
from flintlog.store.model.message import PutStatus
from flintlog.testing.free_ports import ledger_addresses


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Callable[..., Group]]:
    with ExitStack() as stack:

        def make(*members: str) -> Group:
            made = Group(tmp_path, *members)
            stack.callback(made.stop_all)
            return made

        yield make


# ------------------------------------------------------------------ one member


def test_a_group_of_one_takes_puts_and_serves_them(group: Callable[..., Group]) -> None:
    one = group("n0")
    one.start()
    store = one.leader.store
    receipts = [store.put(Message("orders", b"%d" % number, keys=[f"k{number}"])).check() for number in range(300)]
    assert [receipt.queue_offset for receipt in receipts] == list(range(300))
    for receipt in receipts[::37]:
        message = store.message_at(receipt.physical_offset)
        assert message is not None
        assert (message.physical_offset, message.size) == (receipt.physical_offset, receipt.size)
        assert message.message_id == receipt.message_id
    assert bodies(one.leader) == [b"%d" % number for number in range(300)]
    assert [message.body for message in store.query("orders", "k17")] == [b"17"]


def test_batches_futures_and_tasks_get_their_places(group: Callable[..., Group]) -> None:
    one = group("n0")
    one.start()
    store = one.leader.store
    batch = store.put_batch([Message("orders", b"b%d" % number) for number in range(5)]).check()
    for number, receipt in enumerate(batch):
        message = store.message_at(receipt.physical_offset)
        assert message is not None
        assert (message.body, message.size, message.queue_offset) == (b"b%d" % number, receipt.size, number)
    later = [store.put_async(Message("orders", b"f%d" % number)) for number in range(20)]
    assert [future.result(PATIENCE_S).check().queue_offset for future in later] == list(range(5, 25))
    asyncio.run(_put_task(store))
    assert store.put(Message("orders", b"no wait", properties={"WAIT": "false"})).check().physical_offset > 0
    assert len(bodies(one.leader)) == 27


async def _put_task(store: object) -> None:
    receipt = await store.aput(Message("orders", b"task"))  # type: ignore[attr-defined]
    assert receipt.check().queue_offset == 25


def test_a_member_comes_back_with_everything(group: Callable[..., Group]) -> None:
    one = group("n0")
    for life in range(3):
        one.start()
        for number in range(100):
            one.put(Message("orders", b"%d-%d" % (life, number), keys=["all"]))
        assert len(bodies(one.leader)) == 100 * (life + 1)
        one.stop("n0")
        assert not (one.root / "n0/abort").exists()
        assert verify(one.root / "n0").findings == []
    with open_store(one.root / "n0", config_of(one.addresses, "n0"), read_only=True) as store:
        assert store.max_offset("orders", 0) == 300


def test_a_last_sync_that_never_ends_keeps_no_store_open(
    group: Callable[..., Group], monkeypatch: pytest.MonkeyPatch
) -> None:
    members = group("n0")
    members.start()
    node = members.nodes["n0"]

    really_stop = node.node.stop

    async def hang() -> None:
        await really_stop()
        await asyncio.sleep(3600)

    monkeypatch.setattr(store_node, "_STOP_TIMEOUT_S", 0.2)
    monkeypatch.setattr(node.node, "stop", hang)
    node.stop()
    assert not (members.root / "n0" / "abort").exists()


def test_before_it_leads_a_member_takes_no_puts(group: Callable[..., Group]) -> None:
    three = group("n0", "n1", "n2")
    three.start("n0")
    time.sleep(0.5)
    node = three.nodes["n0"]
    assert node.store.put(Message("orders", b"x"), check=False).status is PutStatus.SERVICE_NOT_AVAILABLE
    assert node.node.status().role is not Role.LEADER
    assert node.store.max_physical_offset == 0


def test_a_message_that_no_entry_holds_is_refused_and_the_rest_goes_on(group: Callable[..., Group]) -> None:
    one = group("n0")
    one.start()
    store = one.leader.store
    with pytest.raises(InvalidMessage):
        store.put(Message("orders", bytes(FILE_BYTES)))
    assert store.put(Message("orders", b"after")).check().queue_offset == 0


# ------------------------------------------------------------------ three members


def test_all_members_hold_the_same_bytes_and_serve_the_same_messages(group: Callable[..., Group]) -> None:
    three = group("n0", "n1", "n2")
    three.start()
    for number in range(300):
        three.put(Message("orders", b"%d" % number * 20, keys=["k"], queue_id=number % 2))
    three.settle()
    expected = [b"%d" % number * 20 for number in range(0, 300, 2)]
    for node in three.nodes.values():
        until(lambda node=node: node.store.max_offset("orders", 1) == 150, "dispatched")  # type: ignore[misc]
        assert bodies(node) == expected
    leader = three.name_of(three.leader)
    for member in [each for each in three.addresses if each != leader] + [leader]:
        three.stop(member)  # the leader last, so that nobody takes its place
    files = [
        {path.name: path.read_bytes() for path in (three.root / member / f"dledger-{member}/data").iterdir()}
        for member in three.addresses
    ]
    assert files[0] == files[1] == files[2]
    for member in three.addresses:
        assert verify(three.root / member).findings == []


def test_leaders_come_and_go_and_queue_offsets_have_no_gap(group: Callable[..., Group]) -> None:
    three = group("n0", "n1", "n2")
    three.start()
    acknowledged: dict[bytes, int] = {}
    for round_number in range(3):
        for number in range(40):
            body = b"%d-%d" % (round_number, number)
            acknowledged[body] = three.put(Message("orders", body))
        leader = three.name_of(three.leader)
        three.stop(leader)
        body = b"%d-without" % round_number
        acknowledged[body] = three.put(Message("orders", body))
        three.start(leader)
    three.settle()
    for node in three.nodes.values():
        until(lambda node=node: node.store.max_offset("orders", 0) >= len(acknowledged), "dispatched")  # type: ignore[misc]
        found = bodies(node)  # checks that offsets are consecutive
        assert set(acknowledged) <= set(found)
        for body, offset in acknowledged.items():
            message = node.store.message_at(offset)
            assert message is not None
            assert message.body == body


def test_without_a_majority_a_put_is_not_acknowledged_and_not_shown(group: Callable[..., Group]) -> None:
    three = group("n0", "n1", "n2")
    three.start()
    three.put(Message("orders", b"first"))
    three.settle()
    leader = three.leader
    for member in [member for member, node in three.nodes.items() if node is not leader]:
        three.stop(member)
    status = leader.store.put(Message("orders", b"alone"), check=False).status
    assert status in (PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH, PutStatus.SERVICE_NOT_AVAILABLE, PutStatus.UNKNOWN_ERROR)
    assert bodies(leader) == [b"first"]
    three.start(*(member for member in three.addresses if member not in three.nodes))
    three.put(Message("orders", b"last"))
    found = bodies(three.leader)
    assert found in ([b"first", b"last"], [b"first", b"alone", b"last"])


# ------------------------------------------------------------------ a plain log before


def test_a_plain_store_becomes_a_member_and_keeps_its_messages(group: Callable[..., Group]) -> None:
    one = group("n0")
    plain = config_of(one.addresses, "n0").with_changes(enable_dledger_commit_log=False)
    with open_store(one.root / "n0", plain) as store:
        before = [store.put(Message("orders", b"p%d" % number * 30, keys=["k"])).check() for number in range(900)]
        assert before[-1].physical_offset > FILE_BYTES
    one.start()
    after = [one.put(Message("orders", b"l%d" % number)) for number in range(50)]
    assert min(after) >= 2 * FILE_BYTES + 48
    assert after[0] % FILE_BYTES > 48  # behind the leader's own record
    found = bodies(one.leader)
    assert found == [b"p%d" % number * 30 for number in range(900)] + [b"l%d" % number for number in range(50)]
    one.stop("n0")
    assert verify(one.root / "n0").findings == []
    one.start()
    assert len(bodies(one.leader)) == 950


# ------------------------------------------------------------------ bad input


@pytest.mark.parametrize(
    "text", ["n0", "n0-", "n0-host", "n0-host:", "n0-host:x", "n0-host:70000", "n0-h:1;n0-h:2", "-h:1"]
)
def test_peers_that_cannot_be_are_refused(text: str) -> None:
    with pytest.raises(InvalidConfig):
        parse_peers(text)


def test_peers_are_read_as_rocketmq_writes_them() -> None:
    assert parse_peers("n0-a:1;n1-b-c:2; n2-[::1]:3;") == {"n0": "a:1", "n1": "b-c:2", "n2": "[::1]:3"}


@pytest.mark.parametrize(
    "changes",
    [{"dledger_group": None}, {"dledger_self_id": None}, {"dledger_self_id": "n9"}, {"enabled_append_prop_crc": True}],
)
def test_a_member_that_cannot_be_is_refused_before_anything_is_written(
    tmp_path: Path, changes: dict[str, object]
) -> None:
    config = config_of(ledger_addresses("n0"), "n0").with_changes(**changes)
    with pytest.raises(InvalidConfig):
        LedgerStoreNode(tmp_path / "store", config)
    assert not (tmp_path / "store/dledger-n0").exists()


@pytest.mark.parametrize(
    ("code", "status", "is_written"),
    [
        (200, PutStatus.PUT_OK, True),
        (404, PutStatus.SERVICE_NOT_AVAILABLE, False),
        (409, PutStatus.SERVICE_NOT_AVAILABLE, False),
        (415, PutStatus.SERVICE_NOT_AVAILABLE, False),
        (505, PutStatus.SERVICE_NOT_AVAILABLE, False),
        (506, PutStatus.SERVICE_NOT_AVAILABLE, False),
        (502, PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH, True),
        (503, PutStatus.OS_PAGE_CACHE_BUSY, False),
        (501, PutStatus.UNKNOWN_ERROR, False),
        (504, PutStatus.UNKNOWN_ERROR, False),
        (414, PutStatus.UNKNOWN_ERROR, False),
    ],
)
def test_what_the_group_answers_becomes_a_put_status(code: int, status: PutStatus, is_written: bool) -> None:
    answer = answer_of(AppendResponse(code, 1, positions=(4096,)))
    assert (answer.status, answer.is_written) == (status, is_written)


def test_a_leaders_record_is_sealed_and_harmless() -> None:
    from flintlog import kernel

    body = seal_record(leader_record(StoreConfig(), 1_700_000_000_000), 4096)
    seen = kernel.scan(body, 0, len(body), 4096 + 48, check_crc=True)
    assert (seen.count, seen.end) == (1, len(body))
    assert seen.row(0).sys_flag & 0xC == 0x4
    assert kernel.queue_runs(seen)[1] == []
