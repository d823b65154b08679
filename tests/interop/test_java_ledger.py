"""The driver of real DLedger nodes: a group elects a leader, takes entries, and holds the same bytes everywhere."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from flintlog.testing.free_ports import ledger_addresses
from interop.java_ledger import QUICK_LEDGER, SMALL_LEDGER, JavaLedger

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("java"), pytest.mark.timeout(300)]


def data_files(node: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted((node / "data").iterdir())}


def test_three_java_nodes_hold_the_same_files(tmp_path: Path) -> None:
    addresses = ledger_addresses("n0", "n1", "n2")
    bodies = [b"%d-" % number + b"x" * (number % 700) for number in range(400)]
    with JavaLedger("orders", addresses, SMALL_LEDGER) as java:
        for node_id in addresses:
            java.start(node_id, tmp_path)
        leader = java.wait_for_leader()
        receipts = java.append(leader, bodies)
        assert {receipt.code for receipt in receipts} == {200}
        assert [receipt.index for receipt in receipts] == list(range(400))
        entries = java.entries(leader)
        assert [entry.body for entry in entries] == bodies
        assert [entry.pos for entry in entries] == [receipt.pos for receipt in receipts]
        follower = next(node_id for node_id in addresses if node_id != leader)
        assert {receipt.code for receipt in java.append(follower, [b"not here"])} == {404}
    files = [data_files(tmp_path / f"dledger-{node_id}") for node_id in addresses]
    assert len(files[0]) > 1
    majority = [each for each in files if each == files[int(leader[1:])]]
    assert len(majority) >= 2  # the third may have been stopped before the last entries reached it
    magic, size, index, term, pos = struct.unpack_from(">iiqqq", files[int(leader[1:])]["0" * 20])
    assert (magic, size, index, term, pos) == (1, 48 + len(bodies[0]), 0, receipts[0].term, 0)


@pytest.mark.slow
def test_a_java_leader_hands_over_and_a_killed_node_comes_back(tmp_path: Path) -> None:
    addresses = ledger_addresses("n0", "n1")
    with JavaLedger("orders", addresses, QUICK_LEDGER) as first:
        with JavaLedger("orders", addresses, QUICK_LEDGER) as second:
            first.start("n0", tmp_path)
            second.start("n1", tmp_path)
            at = {"n0": first, "n1": second}
            leader = first.wait_for_leader()
            other = "n1" if leader == "n0" else "n0"
            assert {receipt.code for receipt in at[leader].append(leader, [b"one", b"two"])} == {200}
            assert at[leader].transfer(leader, other) == 200
            assert at[other].info(other).role == "LEADER"
            second.kill()
        with JavaLedger("orders", addresses, QUICK_LEDGER) as second:
            second.start("n1", tmp_path)
            at["n1"] = second
            leader = second.wait_for_leader()
            assert {receipt.code for receipt in at[leader].append(leader, [b"three"])} == {200}
            assert [entry.body for entry in second.entries("n1")][:2] == [b"one", b"two"]
