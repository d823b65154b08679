"""A member of a group in a process of its own that, while it leads, puts messages for now and for later, and consumes.

    python -m tests.replication.ledger_services_process DIRECTORY ID PEERS TIMINGS RUN

It runs until SIGTERM. What it knows is written at once, a line each, so that a kill loses no more than the last:

    DIRECTORY/ID.acked     the body of every acknowledged put of a message for later
    DIRECTORY/ID.consumed  run and offset of every message of `orders` that was acknowledged by its consumer
    DIRECTORY/ID.kept      the offset of the group, each time a save of it has returned
    DIRECTORY/ID.status    role, term, end and committed index, ten times a second
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from pathlib import Path

from flintlog import Message, StoreConfig
from flintlog.errors import FlintlogError
from flintlog.replication.ledger.store_node import LedgerStoreNode
from flintlog.store.model.message import PutStatus

ORDERS, LATER, GROUP = "orders", "later", "billing"
SAVE_EVERY = 10
PAUSE_S = 0.005


def config_of(peers: str, member: str) -> StoreConfig:
    """Small files, so that there are some."""
    return StoreConfig(
        mapped_file_size_commit_log=256 * 1024,
        enable_dledger_commit_log=True,
        dledger_group="orders",
        dledger_peers=peers,
        dledger_self_id=member,
        services=frozenset({"schedule"}),
        message_delay_level="1s",
    )


def run(directory: Path, member: str, peers: str, number: str) -> None:
    """Take part until asked to stop."""
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    node = LedgerStoreNode(directory / member, config_of(peers, member), fast=True)
    node.start()
    work = [
        threading.Thread(target=_put, args=(node, directory / member, f"{member}-{number}", stop)),
        threading.Thread(target=_consume, args=(node, directory / member, f"{member}-{number}", stop)),
    ]
    for thread in work:
        thread.start()
    while not stop.wait(0.1):
        status = node.node.status()
        draft = directory / f"{member}.draft"
        draft.write_text(json.dumps([status.role.value, status.term, status.end, status.committed]))
        draft.replace(directory / f"{member}.status")
    for thread in work:
        thread.join()
    node.stop()


def _put(node: LedgerStoreNode, base: Path, name: str, stop: threading.Event) -> None:
    acked, count = _appending(base.with_suffix(".acked")), 0
    while not stop.is_set():
        if not node.is_serving or (base.parent / "quiet").exists():
            stop.wait(0.02)
            continue
        body = f"{name}-{count}"
        node.store.put(Message(ORDERS, body.encode()), check=False)
        if node.store.put(Message(LATER, body.encode(), delay_level=1), check=False).status is PutStatus.PUT_OK:
            os.write(acked, f"{body}\n".encode())
        count += 1
        stop.wait(PAUSE_S)


def _consume(node: LedgerStoreNode, base: Path, name: str, stop: threading.Event) -> None:
    consumed, kept = _appending(base.with_suffix(".consumed")), _appending(base.with_suffix(".kept"))
    while not stop.is_set():
        if not node.is_serving:
            stop.wait(0.02)
            continue
        try:
            with node.store.consumer(GROUP, ORDERS, timeout_s=0.5) as consumer:
                for count, message in enumerate(consumer):
                    consumer.acknowledge(message)
                    os.write(consumed, f"{name} {message.offset}\n".encode())
                    if count % SAVE_EVERY == 0:
                        offset = node.store.consumer_offsets.get(GROUP, ORDERS, 0)
                        node.store.consumer_offsets.save()
                        os.write(kept, f"{offset}\n".encode())
                    if stop.is_set():
                        return
            node.store.consumer_offsets.save()
        except FlintlogError:
            stop.wait(0.02)  # not the leader any more


def _appending(file: Path) -> int:
    return os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)


if __name__ == "__main__":
    run(Path(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[5])
