"""Files that a killed process left in the page cache, and that the next one takes over: durable once it says so.

Each test is the same story: a first life is killed, a second opens what it left and vouches for it (by a flush, a
checkpoint, an acknowledgement), the power is cut, and a third life must find all of it.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from flintlog import Message, Store, open_store
from flintlog.disk.media.local import LocalMedium
from flintlog.replication.ledger.store_node import LedgerStoreNode
from flintlog.testing.free_ports import free_ports
from tests.power import found_files_lives as lives
from tests.power.conftest import MakeDevice
from tests.power.lives import run_life, run_life_until_cut


def bodies(store: Store, filter: str | None = None) -> list[bytes]:
    found, offset = list[bytes](), 0
    while offset < store.max_offset("t", 0):
        page = store.get("t", 0, offset, filter=filter)
        found += [message.body for message in page.messages]
        offset = max(page.next_offset, offset + 1)
    return found


SYNCS: dict[str, Callable[[Path], None]] = {
    "opened read-only": lambda path: LocalMedium().open(path).sync(),
    "opened for writing": lambda path: LocalMedium().open(path, writable=True).sync(),
    "by its name": lambda path: LocalMedium().sync(path),
}


@pytest.mark.parametrize("how", SYNCS)
def test_bytes_in_the_page_cache_are_durable_after_a_sync(make_device: MakeDevice, how: str) -> None:
    disk = make_device(size_mib=64)
    path = disk.mount / "file"
    path.write_bytes(bytes(65536))
    os.sync()
    with open(path, "r+b") as other:
        other.write(b"found")
    SYNCS[how](path)
    disk.cut()
    disk.restore()
    assert path.read_bytes()[:5] == b"found"


def test_log_of_a_killed_process_is_durable_once_flush_has_returned(make_device: MakeDevice) -> None:
    disk = make_device(size_mib=64)
    folder = disk.mount / "store"
    assert run_life(lives, "put_and_die", folder) == lives.COUNT
    assert run_life_until_cut(disk, lives, "open_and_flush", folder) == lives.COUNT + 1

    with open_store(folder, lives.ASYNC) as store:
        assert len(bodies(store)) == lives.COUNT + 1


def test_delayed_message_delivered_as_the_process_died_is_not_lost(make_device: MakeDevice) -> None:
    disk = make_device(size_mib=64)
    folder = disk.mount / "store"
    run_life(lives, "deliver_and_die", folder)
    assert run_life_until_cut(disk, lives, "open_and_save_delays", folder) == 1

    with open_store(folder, lives.SMALL) as store:
        assert [body[:7] for body in bodies(store)] == [b"wake up"]


def test_extension_units_that_an_opening_built_are_durable_once_the_checkpoint_covers_them(
    make_device: MakeDevice,
) -> None:
    disk = make_device(size_mib=64)
    folder = disk.mount / "store"
    run_life(lives, "put_tags_and_die", folder)
    assert run_life_until_cut(disk, lives, "open_with_tags", folder)

    with open_store(folder, lives.EXTENDED) as store:
        for _ in range(10):  # in the places of units that are missing
            store.put(Message("t", b"another", tags="b")).check()
        store.wait_dispatched()
        assert bodies(store, filter="a") == [b"%d" % number for number in range(0, 50, 2)]


@pytest.mark.parametrize("how", ["close", "checkpoint"])
def test_queue_files_that_were_unmapped_before_their_flush_are_durable(make_device: MakeDevice, how: str) -> None:
    disk = make_device(size_mib=64)
    folder = disk.mount / "store"
    run_life_until_cut(disk, lives, "fill_more_queues_than_maps", folder, how)

    entry = struct.Struct(">qiq")
    sizes = [
        [size for _, size, _ in entry.iter_unpack(file.read_bytes()[: 5 * entry.size])]
        for file in folder.glob("consumequeue/t/*/*")
    ]
    assert len(sizes) == lives.QUEUES
    assert all(size for queue in sizes for size in queue)


def test_ledger_index_that_was_found_is_durable_when_a_file_is_full(make_device: MakeDevice) -> None:
    disk = make_device(size_mib=400)
    folder, (port,) = disk.mount / "store", free_ports(1)
    run_life(lives, "lead_and_die", folder, port)
    files = run_life_until_cut(disk, lives, "lead_on", folder, port)
    assert isinstance(files, int) and files > 4

    node = LedgerStoreNode(folder, lives.ledger_config(str(port)), fast=True)
    node.start()
    try:
        ledger = node.store.replication.ledger.files
        assert [ledger.entry(index)[0].index for index in range(ledger.end + 1)] == list(range(ledger.end + 1))
    finally:
        node.stop()
