"""Puts at the leader of a group, interrupted in the caller's thread: the puts that follow are served."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from flintlog import Message
from flintlog.replication.ledger.core.interface import Role
from flintlog.replication.ledger.core.messages import ResponseCode
from flintlog.store.member.leadership import Leadership
from flintlog.testing.free_ports import ledger_addresses
from tests.replication.ledger_group import Group
from tests.replication.ledger_nodes import ThreadedNode, fast_config, wait_until
from tests.signals.interrupting import Interrupter
from tests.signals.scenes import SOON_S, soon
from tests.signals.test_every_point import interrupter

__all__ = ["interrupter"]
WAITING_POINTS = 150


@pytest.fixture
def leader(tmp_path: Path) -> Iterator[ThreadedNode]:
    made = ThreadedNode(tmp_path, fast_config("n0", ledger_addresses("n0")))
    wait_until(lambda: made.node.role is Role.LEADER)
    yield made
    made.stop()


def test_the_node_takes_proposals_after_one_that_was_interrupted(
    leader: ThreadedNode, interrupter: Interrupter
) -> None:
    node = leader.node
    interrupter.run(lambda: node.propose_from_thread(b"counted"))
    total, hits = interrupter.count, 0
    for point in range(1, total + 1):
        hits += interrupter.run(lambda: node.propose_from_thread(b"interrupted"), point)
        try:
            answer = node.propose_from_thread(b"next").result(SOON_S)
        except TimeoutError as failure:
            raise AssertionError(f"point {point} of {total}, interrupted at\n{interrupter.where}") from failure
        assert answer.code is ResponseCode.SUCCESS
    assert hits


def test_no_queue_offset_is_given_twice_after_a_put_that_was_interrupted(
    tmp_path: Path, interrupter: Interrupter
) -> None:
    group = Group(tmp_path, "n0")
    group.start()
    try:
        store = group.leader.store
        log, message = store._engine.log, Message("orders", b"x")
        store.put(message).check()
        interrupter.run(lambda: log.put(message))
        total = interrupter.count
        for point in range(1, total + 1):
            interrupter.run(lambda: log.put(message), point)
            where = f"point {point} of {total}, interrupted at\n{interrupter.where}"
            wait_until(lambda: store.replication.ledger.is_serving, where, SOON_S)
            receipt = store.put_async(message).result(SOON_S).check()
            store.wait_dispatched()
            entry = store._host.entry("orders", 0, receipt.queue_offset)
            assert entry is not None, where
            assert entry.physical_offset == receipt.physical_offset, where
    finally:
        soon(group.stop_all, 30)


@pytest.mark.parametrize("kind", ["put", "put_async"])
def test_others_are_served_after_a_put_that_was_interrupted_while_it_waited(
    tmp_path: Path, interrupter: Interrupter, kind: str
) -> None:
    group = Group(tmp_path, "n0")
    group.start()
    try:
        store, message = group.leader.store, Message("orders", b"x")

        def put() -> None:
            if kind == "put":
                store.put(message)
            else:
                with suppress(RuntimeError):  # of the future's own lock, which Python code takes and gives back
                    store.put_async(message).result(SOON_S)

        def put_both_ways() -> None:
            store.put(message).check()
            store.put_async(message).result(SOON_S).check()

        put()
        interrupter.run(put)
        total = interrupter.count
        for point in range(1, total + 1, max(1, total // WAITING_POINTS)):
            interrupter.run(put, point)
            where = f"point {point} of {total}, interrupted at\n{interrupter.where}"
            wait_until(lambda: store.replication.ledger.is_serving, where, SOON_S)
            try:
                soon(put_both_ways)
            except BaseException as failure:
                raise AssertionError(where) from failure
    finally:
        soon(group.stop_all, 30)


class Idle:
    """A leader without work."""

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def demote(self) -> None: ...


def test_a_leader_goes_on_after_it_was_interrupted_while_it_resigned(interrupter: Interrupter) -> None:
    total = resign_interrupted(interrupter, 0)
    for point in range(1, total + 1):
        resign_interrupted(interrupter, point)


def resign_interrupted(interrupter: Interrupter, point: int) -> int:
    """How many points there are."""
    leading = Leadership(Idle())
    leading.ask(leads=True, serves=True)
    wait_until(lambda: leading.is_ready)
    interrupter.run(leading.resign, point)
    try:
        soon(lambda: leading.ask(leads=False, serves=True))
        soon(leading.resign)
        assert leading.is_idle
        soon(leading.stop)
    except BaseException as failure:
        raise AssertionError(f"point {point}, interrupted at\n{interrupter.where}") from failure
    return interrupter.count
