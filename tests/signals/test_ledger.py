"""Puts at the leader of a group, interrupted in the caller's thread: the puts that follow are served."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from flintlog.replication.ledger.interface import Role
from flintlog.replication.ledger.messages import ResponseCode
from flintlog.testing.java_ledger import ledger_addresses
from tests.replication.ledger_nodes import ThreadedNode, fast_config, wait_until
from tests.signals.interrupting import Interrupter
from tests.signals.scenes import SOON_S
from tests.signals.test_every_point import interrupter

__all__ = ["interrupter"]


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
