"""A real RocketMQ store (`DLedgerCommitLog`) and ours, one after the other over the files of one ledger's member."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from flintlog import Message, StoreConfig
from flintlog.replication.ledger.store_node import LedgerStoreNode
from flintlog.testing.free_ports import ledger_addresses
from interop.java_store import JavaStore
from interop.store_view import view_of

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("java"), pytest.mark.timeout(300)]

PATIENCE_S = 90.0


def options_of(addresses: dict[str, str], member: str) -> dict[str, str]:
    return {
        "mappedFileSizeCommitLog": "65536",
        "mappedFileSizeConsumeQueue": "2000",
        "maxHashSlotNum": "100",
        "maxIndexNum": "400",
        "enableDLegerCommitLog": "true",
        "dLegerGroup": "orders",
        "dLegerPeers": ";".join(f"{each}-{address}" for each, address in addresses.items()),
        "dLegerSelfId": member,
    }


def until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"never: {what}")
        time.sleep(0.05)


def served(node: LedgerStoreNode) -> list[bytes]:
    found: list[bytes] = []
    while page := node.store.get("orders", 0, len(found), 32).messages:
        found += [message.body for message in page]
    return found


def test_java_opens_what_ours_wrote_and_goes_on(tmp_path: Path) -> None:
    addresses = ledger_addresses("n0")
    config = StoreConfig.from_rocketmq(options_of(addresses, "n0"))
    bodies = [b"%d" % number * 50 for number in range(300)]
    with LedgerStoreNode(tmp_path / "store", config, fast=True) as node:
        until(lambda: node.is_serving, "it serves")
        for body in bodies:
            node.store.put(Message("orders", body, keys=["k"])).check()
        expected = view_of(node.store)
    with JavaStore(tmp_path / "store", options_of(addresses, "n0")) as theirs:
        theirs.verify_against(expected)
        until(lambda: theirs.put([Message("orders", b"java's")])[0].status == "PUT_OK", "Java takes a put")
    with LedgerStoreNode(tmp_path / "store", config, fast=True) as node:
        until(lambda: node.is_serving, "it serves again")
        assert node.store.max_offset("orders", 0) == 301
        assert node.store.put(Message("orders", b"ours")).check().queue_offset == 301
        node.store.wait_dispatched()
        assert served(node) == [*bodies, b"java's", b"ours"]
