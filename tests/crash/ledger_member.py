"""A member of a ledger's group that puts for as long as it leads, and says what was acknowledged, a line each."""

from __future__ import annotations

import signal
import sys
import threading
import time
from pathlib import Path

from flintlog import Message, StoreConfig
from flintlog.replication.ledger.store_node import LedgerStoreNode
from flintlog.store.model.message import PutStatus


def config_of(member: str, peers: str) -> StoreConfig:
    return StoreConfig(
        mapped_file_size_commit_log=64 * 1024,
        mapped_file_size_consume_queue=100 * 20,
        max_hash_slot_num=100,
        max_index_num=400,
        enable_dleger_commit_log=True,
        dleger_group="orders",
        dleger_peers=peers,
        dleger_self_id=member,
        ledger_index_file_size=32 * 256,
    )


def main(root: Path, member: str, peers: str, life: str) -> None:
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    with LedgerStoreNode(root / member, config_of(member, peers), fast=True) as node:
        number = 0
        while not stop.is_set():
            if not node.is_serving:
                time.sleep(0.01)
                continue
            body = f"{member}.{life}.{number:06d}"
            receipt = node.store.put(Message("orders", body.encode() * 8, keys=["k"]))
            if receipt.status is PutStatus.PUT_OK:
                sys.stdout.write(f"{body} {receipt.physical_offset} {receipt.queue_offset}\n")
                sys.stdout.flush()
            number += 1


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:5])
