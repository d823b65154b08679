"""A store as a member of a group, in a process of its own that puts while it leads and reads all the time.

    python -m tests.replication.ledger_store_process DIRECTORY ID PEERS TIMINGS RUN

It runs until SIGTERM. Each acknowledgement is written at once, a line each, so that a kill loses no more than the last:

    DIRECTORY/ID.sent     every body, before it is put
    DIRECTORY/ID.acked    queue offset and body of every acknowledged put
    DIRECTORY/ID.read     queue offset and body of every message that was read, from the first one on after each start
    DIRECTORY/ID.status   role, term, end and committed index, ten times a second
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from pathlib import Path

from flintlog import Message, StoreConfig
from flintlog.replication.ledger.store_node import LedgerStoreNode
from flintlog.store.model.message import PutStatus

TOPIC = "orders"
PAUSE_S = 0.002


def config_of(peers: str, member: str) -> StoreConfig:
    """Small files, so that there are some."""
    return StoreConfig(
        mapped_file_size_commit_log=256 * 1024,
        enable_dledger_commit_log=True,
        dledger_group="orders",
        dledger_peers=peers,
        dledger_self_id=member,
    )


def run(directory: Path, member: str, peers: str, number: str) -> None:
    """Take part until asked to stop."""
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    node = LedgerStoreNode(directory / member, config_of(peers, member), fast=True)
    node.start()
    work = [
        threading.Thread(target=_put, args=(node, directory / member, f"{member}-{number}", stop)),
        threading.Thread(target=_read, args=(node, directory / member, stop)),
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
    sent, acked = _appending(base.with_suffix(".sent")), _appending(base.with_suffix(".acked"))
    count = 0
    while not stop.is_set():
        if not node.is_serving or (base.parent / "quiet").exists():
            stop.wait(0.02)
            continue
        body = f"{name}-{count} {'x' * (count % 200)}"
        os.write(sent, f"{body}\n".encode())
        receipt = node.store.put(Message(TOPIC, body.encode()), check=False)
        if receipt.status is PutStatus.PUT_OK:
            os.write(acked, f"{receipt.queue_offset} {body}\n".encode())
        count += 1
        stop.wait(PAUSE_S)


def _read(node: LedgerStoreNode, base: Path, stop: threading.Event) -> None:
    read, offset = _appending(base.with_suffix(".read")), 0
    while not stop.is_set():
        messages = node.store.get(TOPIC, 0, offset).messages
        lines = [f"{message.queue_offset} {message.body.decode()}\n" for message in messages]
        os.write(read, "".join(lines).encode())
        offset += len(messages)
        if not messages:
            stop.wait(0.02)


def _appending(file: Path) -> int:
    return os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)


if __name__ == "__main__":
    run(Path(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[5])
