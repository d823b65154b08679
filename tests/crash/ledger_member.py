"""A member of a ledger's group that puts for as long as it leads, and says what was acknowledged, a line each."""

from __future__ import annotations

import signal
import sys
import threading
import time
from pathlib import Path

from flintlog import Message, Receipt, Store, StoreConfig
from flintlog.replication.ledger.store_node import LedgerStoreNode
from flintlog.store.model.message import PutStatus

LATER = "later"


def config_of(member: str, peers: str) -> StoreConfig:
    return StoreConfig(
        mapped_file_size_commit_log=64 * 1024,
        mapped_file_size_consume_queue=100 * 20,
        max_hash_slot_num=100,
        max_index_num=400,
        enable_dledger_commit_log=True,
        dledger_group="orders",
        dledger_peers=peers,
        dledger_self_id=member,
        ledger_index_file_size=32 * 256,
    )


def mixed(config: StoreConfig) -> StoreConfig:
    return config.with_changes(services={"schedule"}, message_delay_level="1s 1s")


def put(store: Store, name: str, number: int) -> list[str]:
    """One message; what was acknowledged."""
    body = f"{name}.{number:06d}"
    receipt = store.put(Message("orders", body.encode() * 8, keys=["k"]), check=False)
    return [_line(body, receipt)] if receipt.status is PutStatus.PUT_OK else []


def put_mixed(store: Store, name: str, number: int) -> list[str]:
    """A batch, or a message for later, whose line ends with that word instead of an offset."""
    bodies = [f"{name}.{number:06d}.{place}" for place in range(1 + number % 4)]
    if number % 5 == 4:
        receipt = store.put(Message(LATER, bodies[0].encode(), delay_level=1), check=False)
        return [f"{bodies[0]} {receipt.physical_offset} {LATER}\n"] if receipt.status is PutStatus.PUT_OK else []
    receipts = store.put_batch([Message("orders", body.encode() * 8, keys=["k"]) for body in bodies], check=False)
    reported = zip(bodies, receipts, strict=True)
    return [_line(body, receipt) for body, receipt in reported if receipt.status is PutStatus.PUT_OK]


def _line(body: str, receipt: Receipt) -> str:
    return f"{body} {receipt.physical_offset} {receipt.queue_offset}\n"


def main(root: Path, member: str, peers: str, life: str, kind: str = "plain") -> None:
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    config, put_one = config_of(member, peers), put
    if kind == "mixed":
        config, put_one = mixed(config), put_mixed
    with LedgerStoreNode(root / member, config, fast=True) as node:
        number = 0
        while not stop.is_set():
            if not node.is_serving:
                time.sleep(0.01)
                continue
            for line in put_one(node.store, f"{member}.{life}", number):
                sys.stdout.write(line)
                sys.stdout.flush()
            number += 1


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
