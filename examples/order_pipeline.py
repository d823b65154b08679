"""Orders through three stages, killed in the middle and finished after a new start: nothing is lost, nothing is double.

    customers (asyncio) -> orders -> a thread that takes payments -> payments -> a coroutine that packs -> parcels

A stage acknowledges a message after it has stored the next one. If the process dies between the two, the message comes
again; the stage finds by its key what it has already stored. So each order becomes one parcel.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path

from flintlog import Message, Store, StoreConfig, open_store

CONFIG = StoreConfig(mapped_file_size_commit_log=1 << 20, max_hash_slot_num=1000, max_index_num=4000)
ORDERS, LAST_BEFORE_THE_KILL = 12, 5


def is_new(store: Store, topic: str, key: str) -> bool:
    """Whether a stage has not stored this message before."""
    return not store.query(topic, key)


async def order(store: Store) -> None:
    """Put all orders at once: puts that wait for the disk at the same time share a sync."""
    missing = [key for key in (f"o-{number}" for number in range(ORDERS)) if is_new(store, "orders", key)]
    await asyncio.gather(*(store.aput(Message("orders", key.encode(), keys=[key])) for key in missing))


def take_payments(store: Store, stop: threading.Event) -> None:
    """A stage in a thread."""
    with store.consumer("cashier", "orders") as consumer:
        while not stop.is_set():
            message = consumer.poll(0.05)
            if message is None:
                continue
            if is_new(store, "payments", message.keys[0]):
                store.put(Message("payments", message.body, keys=message.keys))
            consumer.acknowledge(message)


async def pack(store: Store, is_killed: bool) -> None:
    """A stage in the event loop, which goes on while this waits for a message or for the disk."""
    async with store.consumer("packer", "payments", timeout_s=30) as consumer:
        async for message in consumer:
            if is_new(store, "parcels", message.keys[0]):
                await store.aput(Message("parcels", message.body, keys=message.keys))
            packed = store.max_offset("parcels", 0)
            if is_killed and packed == LAST_BEFORE_THE_KILL:
                os.kill(os.getpid(), signal.SIGKILL)
            consumer.acknowledge(message)
            if packed == ORDERS:
                break


async def order_and_pack(store: Store, is_killed: bool) -> None:
    """Run the stages of asyncio."""
    await asyncio.gather(order(store), pack(store, is_killed))


def run(path: Path, is_killed: bool = False) -> None:
    """Run all stages until every order is packed."""
    with open_store(path, CONFIG) as store:
        print(f"at the start: {store.max_offset('orders', 0)} orders, {store.max_offset('parcels', 0)} parcels")
        stop = threading.Event()
        cashier = threading.Thread(target=take_payments, args=(store, stop))
        cashier.start()
        asyncio.run(order_and_pack(store, is_killed))
        stop.set()
        cashier.join()


def main() -> None:
    """Kill a process in its work, go on in another, and count."""
    if len(sys.argv) > 1:
        run(Path(sys.argv[1]), is_killed=True)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store"
        first = subprocess.run([sys.executable, __file__, str(path)], stdout=subprocess.DEVNULL, check=False)
        print("the first process ended with", signal.Signals(-first.returncode).name)
        run(path)
        with open_store(path, read_only=True) as store:
            parcels = Counter(message.keys[0] for message in store.messages("parcels", 0))
        print(f"at the end: {len(parcels)} parcels, at most {max(parcels.values())} of one order")


if __name__ == "__main__":
    main()
