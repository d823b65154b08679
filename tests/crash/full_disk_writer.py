"""Fills a small disk with messages, in a process of its own: a mistake here would end it with SIGBUS.

    python full_disk_writer.py STORE KIND

It says as JSON what it saw: the statuses of its puts, whether everything could be read while the disk was
full, and whether puts worked again when there was room.
"""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import suppress
from pathlib import Path

from msgspec.structs import replace

from flintlog import Message, Receipt, Store, StoreConfig, open_store
from flintlog.disk.media.local import LocalMedium
from flintlog.format.sys_flag import INNER_BATCH
from tests.crash.writer import body_of, config

MAX_PUTS = 20_000
PATIENCE = 50
GIVE_UP_S = 20

LARGE_FILES = StoreConfig(max_hash_slot_num=1000)
"""Each file is larger than the disk, so that it is the next step of a file that finds no space."""
KINDS = {
    "sync": config("sync"),
    "async": config("async"),
    "large files": LARGE_FILES,
    "extended queues": LARGE_FILES.with_changes(flush="async", enable_consume_queue_ext=True),
    "batch queues": LARGE_FILES.with_changes(flush="async", topic_queue_types={"orders": "BatchCQ"}),
    "write buffers": LARGE_FILES.with_changes(
        flush="async",
        mapped_file_size_commit_log=8 << 20,
        transient_store_pool_enable=True,
        transient_store_pool_size=3,
    ),
}


def put(store: Store, number: int) -> Receipt:
    key = f"f-{number}"
    # New queues all the time: files of queues and of the index need room too.
    message = Message("orders", body_of(key), queue_id=number // 40, keys=[key])
    if store.config.topic_queue_types:
        message = replace(message, sys_flag=INNER_BATCH, properties={"INNER_NUM": "1"})
    return store.put(message, check=False)


def fill(store: Store) -> tuple[dict[int, Receipt], list[str]]:
    """Put until nothing goes any more."""
    kept: dict[int, Receipt] = {}
    refused: list[str] = []
    for number in range(MAX_PUTS):
        receipt = put(store, number)
        if receipt:
            kept[number] = receipt
        else:
            refused.append(receipt.status.name)
            if len(refused) >= PATIENCE:
                break
    return kept, refused


def all_readable(store: Store, kept: dict[int, Receipt]) -> bool:
    found = {number: store.message_at(receipt.physical_offset) for number, receipt in kept.items()}
    return all(message is not None and message.body == body_of(f"f-{n}") for n, message in found.items())


def all_in_queues(store: Store, kept: dict[int, Receipt]) -> bool:
    def is_there(number: int, receipt: Receipt) -> bool:
        page = store.get("orders", number // 40, receipt.queue_offset, 1)
        return [m.physical_offset for m in page.messages] == [receipt.physical_offset]

    return all(is_there(number, receipt) for number, receipt in kept.items())


def stall(store: Store, filler: Path) -> dict[str, object]:
    """The log has room and the disk has none: queues cannot be made, and are made when there is room."""
    put(store, 0)
    with open(filler, "wb", buffering=0) as file, suppress(OSError):
        while True:
            os.posix_fallocate(file.fileno(), os.fstat(file.fileno()).st_size, 4096)
    receipts = [store.put(Message("stalled", b"x", queue_id=n), check=False) for n in range(3)]
    seen: dict[str, object] = {"acknowledged": sum(map(bool, receipts))}
    give_up_at = time.monotonic() + GIVE_UP_S
    while store._engine.dispatcher.failure is None and time.monotonic() < give_up_at:
        time.sleep(0.001)  # what is in a write buffer is dispatched a little later
    seen["visible"] = sum(store.max_offset("stalled", n) for n in range(3))
    seen["failure"] = type(store._engine.dispatcher.failure).__name__
    filler.unlink()
    wait_for_puts(store)
    seen["visible_with_room"] = sum(store.max_offset("stalled", n) for n in range(3))
    return seen


def wait_for_puts(store: Store) -> None:
    """There is room again: the queue flush thread finds that out by itself, and lets puts through."""
    give_up_at = time.monotonic() + GIVE_UP_S
    while store._engine.dispatcher.failure is not None or not store._engine.lifecycle.is_writeable:
        assert time.monotonic() < give_up_at, "the store never noticed that there is room"
        time.sleep(0.001)
    store.wait_dispatched()


def main(path: str, kind: str) -> None:
    ballast = Path(path).parent / "ballast"
    with open(ballast, "wb") as file:
        os.posix_fallocate(file.fileno(), 0, 1 << 20)
    store = open_store(path, KINDS[kind], medium=LocalMedium())
    seen: dict[str, object] = {"stalled": stall(store, ballast.with_name("filler"))}
    kept, refused = fill(store)
    seen |= {"kept": len(kept), "refused": sorted(set(refused))}
    store.flush()  # a write buffer has space in its file
    seen["readable_when_full"] = all_readable(store, kept)
    ballast.unlink()
    wait_for_puts(store)
    receipt = put(store, MAX_PUTS)
    seen["works_with_room"] = receipt.status.name
    kept[MAX_PUTS] = receipt
    store.wait_dispatched()
    seen["in_queues_with_room"] = all_in_queues(store, kept)
    store.shutdown()
    with open_store(path, KINDS[kind], medium=LocalMedium()) as store:
        seen["after_reopening"] = all_readable(store, kept) and all_in_queues(store, kept)
        seen["clean"] = store.recovery.clean
    sys.stdout.write(json.dumps(seen))


if __name__ == "__main__":
    main(*sys.argv[1:])
