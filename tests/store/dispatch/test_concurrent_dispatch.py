"""The concurrent dispatcher builds the same files as the serial one."""

from __future__ import annotations

import random
from collections.abc import Generator, Iterable, Sequence
from pathlib import Path

import pytest
from tests.store.put.test_golden_replay import ReplayClock, files

from flintlog import Message, StoreConfig, open_store
from flintlog.derive.ordered_ring import OrderedRing
from flintlog.derive.parallel_scan import Batch, scan_in_order
from flintlog.kernel import Scan
from flintlog.store.dispatch import concurrent_dispatch


def config(**changes: object) -> StoreConfig:
    return StoreConfig(
        flush="async",
        mapped_file_size_commit_log=1 << 20,
        mapped_file_size_consume_queue=20 * 500,
        max_hash_slot_num=100,
        max_index_num=1000,
    ).with_changes(**changes)


def messages(count: int) -> list[Message]:
    chance = random.Random(3)
    return [
        Message(
            f"t{chance.randrange(3)}",
            chance.randbytes(chance.randrange(3000)),
            tags=chance.choice([None, "a", "b"]),
            keys=[f"k{chance.randrange(50)}"],
            queue_id=chance.randrange(4),
        )
        for _ in range(count)
    ]


def test_it_builds_the_same_files_as_the_serial_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(concurrent_dispatch, "WORTH_BYTES", 1)
    monkeypatch.setattr(concurrent_dispatch, "BATCH_BYTES", 8192)
    for name, is_concurrent in (("serial", False), ("crew", True)):
        clock = ReplayClock()
        options = config(enable_build_consume_queue_concurrently=is_concurrent)
        with open_store(tmp_path / name, options, clock=clock) as store:
            for place, message in enumerate(messages(3000)):
                clock.now = 1_700_000_000_000 + 700 * place
                store.put(message).check()
            store.wait_dispatched()
            assert sum(info.max_offset for info in store.queues()) == 3000
    for folder in ("commitlog", "consumequeue"):
        assert files(tmp_path / "serial" / folder) == files(tmp_path / "crew" / folder)
    ours, theirs = (sorted(files(tmp_path / name / "index").values()) for name in ("serial", "crew"))
    assert ours == theirs


@pytest.mark.parametrize(("asked", "used"), [(1, {1}), (3, {1, 2, 3})])
def test_no_more_threads_parse_than_asked_for_and_than_there_are_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: int, used: set[int]
) -> None:
    seen: set[int] = set()

    def noting(
        batches: Iterable[Batch], *, threads: int, check_crc: bool, delay_levels_ms: Sequence[int]
    ) -> Generator[tuple[Batch, Scan], None, None]:
        seen.add(threads)
        return scan_in_order(batches, threads=threads, check_crc=check_crc, delay_levels_ms=delay_levels_ms)

    monkeypatch.setattr(concurrent_dispatch, "WORTH_BYTES", 1)
    monkeypatch.setattr(concurrent_dispatch, "BATCH_BYTES", 8192)
    monkeypatch.setattr(concurrent_dispatch, "scan_in_order", noting)
    options = config(enable_build_consume_queue_concurrently=True, batch_dispatch_request_thread_pool_nums=asked)
    with open_store(tmp_path / "store", options) as store:
        for count in (1, 8, 100):
            store.put_batch([Message("t", bytes(1000)) for _ in range(count)]).check()
            store.wait_dispatched()
        assert store.max_offset("t", 0) == 109
    assert seen == used


def test_puts_wake_the_reader(tmp_path: Path) -> None:
    with open_store(tmp_path / "store", config(enable_build_consume_queue_concurrently=True)) as store:
        seen = []
        store.on_arrival(lambda arrival: seen.append(arrival.queue_offset))
        for offset in range(5):
            store.put(Message("t", b"x")).check()
            store.wait_dispatched()
            assert store.max_offset("t", 0) == offset + 1
        assert seen == list(range(5))


def test_results_leave_the_ring_in_order_whatever_order_they_come_in() -> None:
    ring: OrderedRing[int] = OrderedRing(4)
    for number in (2, 0, 3, 1):
        assert ring.put(number, number * 10)
    assert [ring.take() for _ in range(4)] == [0, 10, 20, 30]


def test_a_closed_ring_takes_and_gives_nothing() -> None:
    ring: OrderedRing[int] = OrderedRing(1)
    ring.close()
    assert not ring.put(1, 1)
    assert ring.take() is None
