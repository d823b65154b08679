"""A master and a slave of ours on loopback, for tests."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.store.small_store import SMALL

from flintlog import Message, Store, StoreConfig, open_store
from flintlog.replication.ha.master import HaMaster
from flintlog.replication.ha.slave import HaSlave
from flintlog.replication.loop_thread import LoopThread

LOOPBACK = "127.0.0.1"
MASTER = SMALL.with_changes(broker_role="SYNC_MASTER", in_sync_replicas=2, ha_send_heartbeat_interval=200)
SLAVE = SMALL.with_changes(broker_role="SLAVE", ha_send_heartbeat_interval=200)


def wait_until(holds: Callable[[], bool], timeout_s: float = 10.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.005)


def fill(store: Store, count: int, first: int = 0) -> None:
    for number in range(first, first + count):
        message = Message("orders", bytes(number % 700), tags="t", keys=[f"k{number}"], queue_id=number % 3)
        store.put(message).check()


def files(path: Path, folder: str = "commitlog") -> dict[str, bytes]:
    root = path / folder
    return {str(file.relative_to(root)): file.read_bytes() for file in sorted(root.rglob("*")) if file.is_file()}


@contextmanager
def running_master(path: Path, config: StoreConfig = MASTER, port: int = 0) -> Iterator[tuple[Store, HaMaster, int]]:
    with open_store(path, config) as store:
        thread = LoopThread()
        master = HaMaster(store)
        try:
            yield store, master, thread.call(master.start(LOOPBACK, port))
        finally:
            thread.call(master.stop())
            thread.stop()


@contextmanager
def running_slave(path: Path, port: int, config: StoreConfig = SLAVE) -> Iterator[tuple[Store, HaSlave]]:
    with open_store(path, config) as store:
        thread = LoopThread()
        slave = HaSlave(store, f"{LOOPBACK}:{port}", reconnect_s=0.05)
        try:
            thread.call(slave.start())
            yield store, slave
        finally:
            thread.call(slave.stop())
            thread.stop()
