"""The lives of `test_found_files`: what they leave is found by the next one in the page cache."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace

from flintlog import Message, StoreConfig, open_store
from flintlog.replication.ledger.store_node import LedgerStoreNode
from flintlog.services.delay.schedule import ScheduleService
from tests.power.lives import die, main, say, wait_for_the_cut

COUNT = 200
QUEUES = 60
FIRST_LEDGER_COUNT = 150
SMALL = StoreConfig(
    mapped_file_size_commit_log=1 << 20,
    mapped_file_size_consume_queue=20 * 100,
    max_hash_slot_num=100,
    max_index_num=4000,
)
ASYNC = replace(SMALL, flush="async")
DELAYED = replace(SMALL, services=frozenset({"schedule"}), message_delay_level="1s", flush_delay_offset_interval=50)
EXTENDED = replace(SMALL, enable_consume_queue_ext=True)
FEW_MAPS = replace(SMALL, max_mapped_files=16)


def ledger_config(port: str) -> StoreConfig:
    return replace(
        SMALL,
        mapped_file_size_commit_log=64 * 1024,
        enable_dledger_commit_log=True,
        dledger_group="g",
        dledger_peers=f"n0-127.0.0.1:{port}",
        dledger_self_id="n0",
    )


def put_and_die(folder: str) -> None:
    """Acknowledged under async flush, and killed before the flush."""
    store = open_store(Path(folder), ASYNC)
    for number in range(COUNT):
        store.put(Message("t", b"first life %d" % number)).check()
    say(store.max_offset("t", 0))
    die()


def open_and_flush(folder: str) -> None:
    store = open_store(Path(folder), ASYNC)
    store.put(Message("t", b"second life")).check()
    store.flush()
    say(store.max_offset("t", 0))
    wait_for_the_cut()


def deliver_and_die(folder: str) -> None:
    """Killed between the append of what the schedule delivers and its flush."""

    def killed(service: ScheduleService) -> None:
        say("delivered")
        die()

    setattr(ScheduleService, "_make_visible", killed)  # noqa: B010 - the moment of death, and nothing else
    store = open_store(Path(folder), DELAYED)
    store.put(Message("t", b"wake up" + b"." * 30_000, delay_level=1)).check()
    time.sleep(30)


def open_and_save_delays(folder: str) -> None:
    store = open_store(Path(folder), DELAYED)
    _wait_until(lambda: "1:1" in "".join((Path(folder) / "config" / "delayOffset.json").read_text().split()))
    say(store.max_offset("t", 0))
    wait_for_the_cut()


def put_tags_and_die(folder: str) -> None:
    store = open_store(Path(folder), EXTENDED)
    for number in range(50):
        store.put(Message("t", b"%d" % number, tags="ab"[number % 2])).check()
    say("put")
    die()


def open_with_tags(folder: str) -> None:
    """Opening has built the extension again, and lets the checkpoint vouch for its units."""
    store = open_store(Path(folder), EXTENDED)
    say(store._engine.parts.checkpoint.values.logics_physical_offset)
    wait_for_the_cut()


def fill_more_queues_than_maps(folder: str, how: str) -> None:
    """The tails of queues are unmapped before they are flushed, and some are mapped again for a reader."""
    store = open_store(Path(folder), FEW_MAPS)
    for turn in range(5):
        for queue_id in range(QUEUES):
            store.put_async(Message("t", b"%d.%d" % (queue_id, turn), queue_id=queue_id))
        for queue_id in range(QUEUES):
            store.get("t", queue_id, max(0, turn - 2), 4)
    store.flush()
    store.wait_dispatched()
    flush = store._engine.flushing.queue_flush
    assert flush is not None
    store.close() if how == "close" else flush.flush_all()
    say("vouched for")
    wait_for_the_cut()


def lead_and_die(folder: str, port: str) -> None:
    node = _leader(folder, port)
    for number in range(FIRST_LEDGER_COUNT):
        node.store.put(Message("t", b"first life %d" % number)).check()
    say("put")
    die()


def lead_on(folder: str, port: str) -> None:
    """So many more files that no later opening reads the first."""
    node = _leader(folder, port)
    for number in range(60):
        node.store.put(Message("t", b"second life %d" % number + bytes(6000))).check()
    say(len(list((Path(folder) / "dledger-n0" / "data").iterdir())))
    wait_for_the_cut()


def _leader(folder: str, port: str) -> LedgerStoreNode:
    node = LedgerStoreNode(Path(folder), ledger_config(port), fast=True)
    node.start()
    _wait_until(lambda: node.is_serving)
    return node


def _wait_until(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.02)


if __name__ == "__main__":
    main(globals())
