"""A put makes a handful of small objects, keeps none of them, and copies no body on its way."""

from __future__ import annotations

import gc
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from flintlog import Message, Receipt, Store, StoreConfig, encoded_batch, kernel, open_store
from tests.scale.process_cost import MIB

PUTS = 10_000
CONFIG = StoreConfig(
    flush="async",
    mapped_file_size_commit_log=64 * MIB,
    mapped_file_size_consume_queue=20 * 100_000,
    max_hash_slot_num=50_000,
    max_index_num=200_000,
    flush_interval_commit_log=3_600_000,
    flush_interval_consume_queue=3_600_000,
)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(tmp_path / "store", CONFIG) as opened:
        for number in range(1000):  # makes the files, and brings queue offsets beyond the small numbers
            opened.put(message(number)).check()
        opened.wait_dispatched()
        gc.collect()
        yield opened


def message(number: int) -> Message:
    return Message("orders", b"42 pieces", tags="paid", keys=("o-17",), queue_id=number % 4)


def blocks_kept(work: Callable[[], None]) -> int:
    """How many blocks of memory the work leaves behind."""
    gc.collect()
    before = sys.getallocatedblocks()
    work()
    gc.collect()
    return sys.getallocatedblocks() - before


def test_puts_leave_nothing_behind(store: Store) -> None:
    messages = [message(number) for number in range(PUTS)]

    def put_all() -> None:
        for each in messages:
            store.put(each)

    assert blocks_kept(put_all) < 100
    tracemalloc.start()
    try:
        put_all()
        before, _ = tracemalloc.get_traced_memory()
        put_all()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 10_000


def test_a_receipt_that_is_kept_is_a_few_small_objects(store: Store) -> None:
    messages = [message(number) for number in range(PUTS)]
    receipts: list[Receipt | None] = [None] * PUTS

    def put_all() -> None:
        for place, each in enumerate(messages):
            receipts[place] = store.put(each)

    # Itself, its physical offset, its queue offset and its time.
    assert blocks_kept(put_all) <= 4 * PUTS + 100


@pytest.mark.parametrize("size", [10, 1000, 1_000_000])
def test_a_put_needs_no_room_beside_its_message(store: Store, size: int) -> None:
    big = Message("orders", bytes(size), tags="paid", keys=("o-17",))
    store.put(big).check()
    tracemalloc.start()
    try:
        peaks = [_peak_of_one_put(store, big) for _ in range(10)]
    finally:
        tracemalloc.stop()
    # The plain kernel puts a record together before it writes it.
    beside = 4096 if kernel.name == "native" else 4096 + 3 * size
    assert sorted(peaks)[len(peaks) // 2] < beside


def _peak_of_one_put(store: Store, big: Message) -> int:
    tracemalloc.reset_peak()
    before, _ = tracemalloc.get_traced_memory()
    store.put(big)
    _, peak = tracemalloc.get_traced_memory()
    return peak - before


def test_messages_and_receipts_are_no_work_for_the_collector(store: Store) -> None:
    gc.collect()
    gc.disable()
    try:
        before = gc.get_count()[0]
        kept = [store.put(message(number)) for number in range(1000)]
        made = gc.get_count()[0] - before
    finally:
        gc.enable()
    assert len(kept) == 1000
    assert made < 200


@pytest.mark.parametrize("how", ["put_batch", "put_encoded"])
def test_a_batch_that_meets_the_end_of_a_file_takes_no_more_than_itself(store: Store, how: str) -> None:
    """It goes to the next file as a whole; what it leaves of this one is not gone through in memory."""
    file_bytes = CONFIG.mapped_file_size_commit_log
    filler = Message("orders", bytes(3 * MIB))
    while file_bytes - store.max_physical_offset % file_bytes > 4 * MIB:
        store.put(filler).check()
    while file_bytes - store.max_physical_offset > MIB:
        store.put(Message("orders", bytes(10_000))).check()
    batch = [Message("orders", b"x", keys=[f"k{number}"]) for number in range(20_000)]  # 2 MiB of records
    put: Callable[[], object] = {
        "put_batch": lambda: store.put_batch(batch),
        "put_encoded": lambda: store.put_encoded(encoded_batch(batch)),
    }[how]
    before = anonymous_bytes()
    tracemalloc.start()
    put()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert store.max_physical_offset > file_bytes
    assert peak < 16 * MIB, f"{peak / MIB:.1f} MiB"
    assert anonymous_bytes() - before < 24 * MIB


def anonymous_bytes() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon:")), 0)
