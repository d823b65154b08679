"""How long puts took: measured where they wait, a group at a time, and reported by queue.

Behind replicas a group is counted just after those who waited were reported, so those stores are closed before anybody
looks.
"""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.store.small_store import SMALL

from flintlog import Message, Receipt, open_store
from flintlog.store.flush.put_timing import PutTiming
from flintlog.store.flush.waiters import Waiting
from flintlog.store.model.message import PutStatus
from flintlog.store.stats.broker_stats import BrokerStats
from flintlog.store.stats.store_stats import PutTotals, StoreStatsService

RECEIPT = Receipt(PutStatus.PUT_OK, 0, 0, 100)
REPLICATED = SMALL.with_changes(broker_role="SYNC_MASTER", in_sync_replicas=2, slave_timeout=60_000)


def latencies(figures: BrokerStats) -> dict[str, tuple[int, int]]:
    return {key: (item.times, item.value) for key, item in figures.items("TOPIC_PUT_LATENCY").items()}


@pytest.fixture
def counters() -> StoreStatsService:
    return StoreStatsService(lambda: 0, lambda: PutTotals(9, 900))


@pytest.fixture
def figures() -> BrokerStats:
    return BrokerStats(lambda: 0, list, lambda: 0, puts_wait=True)


@pytest.mark.parametrize(
    ("began", "shown"),
    [
        ([9.5, 9.5, 9.5], {"0@a": (2, 1000), "1@a": (1, 500)}),
        ([9.5, 9.5005, 9.5009], {"0@a": (2, 1000), "1@a": (1, 500)}),
        ([9.5, 9.9, 10.0], {"0@a": (2, 600), "1@a": (1, 0)}),
        ([], {}),
    ],
)
def test_a_group_is_added_up_by_queue(
    counters: StoreStatsService,
    figures: BrokerStats,
    monkeypatch: pytest.MonkeyPatch,
    began: list[float],
    shown: dict[str, tuple[int, int]],
) -> None:
    monkeypatch.setattr(time, "monotonic", lambda: 10.0001)
    waits = PutTiming(counters, figures)
    queues = (0, 0, 1)
    group = [Waiting(RECEIPT, Message("a", b"", queue_id=queue), at) for queue, at in zip(queues, began, strict=False)]
    waits.took(group, [])
    assert latencies(figures) == shown
    assert counters.put_entire_time_max_ms == (500 if began else 0)
    assert counters.put_latencies()[1] == sum(elapsed_ms for _, elapsed_ms in shown.values())


@pytest.mark.parametrize("flush", ["sync", "async"])
def test_each_put_is_there_once(tmp_path: Path, flush: str) -> None:
    with open_store(tmp_path, SMALL.with_changes(flush=flush)) as store:
        for number in range(5):
            store.put(Message("a", b"x", queue_id=number % 2)).check()
        store.put_async(Message("a", b"x")).result(10).check()
        asyncio.run(store.aput(Message("b", b"x"))).check()
    found = {key: times for key, (times, _) in latencies(store.broker_stats).items()}
    assert found == {"0@a": 4, "1@a": 2, "0@b": 1}


def test_who_is_told_finds_the_own_put_counted(tmp_path: Path) -> None:
    with open_store(tmp_path, SMALL) as store:
        for number in range(1, 20):
            store.put(Message("a", b"x")).check()
            assert latencies(store.broker_stats)["0@a"][0] == 2 * number - 1
            asyncio.run(store.aput(Message("a", b"x"))).check()
            assert latencies(store.broker_stats)["0@a"][0] == 2 * number


def test_a_batch_under_sync_flush_is_one_put(tmp_path: Path) -> None:
    with open_store(tmp_path, SMALL) as store:
        store.put_batch([Message("a", b"x")] * 3).check()
    assert {key: times for key, (times, _) in latencies(store.broker_stats).items()} == {"0@a": 1}


@pytest.mark.parametrize("flush", ["sync", "async"])
def test_waiting_for_replicas_is_in_it(tmp_path: Path, flush: str) -> None:
    with open_store(tmp_path, REPLICATED.with_changes(flush=flush)) as store, ThreadPoolExecutor(2) as pool:
        waiting = [pool.submit(store.put, Message("a", b"x", queue_id=n)) for n in range(2)]
        while store.replication.raw_log.end < store.max_physical_offset or store.max_physical_offset == 0:
            time.sleep(0.001)
        time.sleep(0.05)
        store.replication.set_replicas(confirmed_where=store.max_physical_offset, in_sync_count=2)
        for put in waiting:
            # The confirmed offset may have been reported before the second came to wait.
            store.replication.set_replicas(confirmed_where=1 << 40, in_sync_count=2)
            put.result(10).check()
    found = latencies(store.broker_stats)
    assert set(found) == {"0@a", "1@a"}
    assert max(elapsed_ms for _, elapsed_ms in found.values()) >= 50
    assert store.counters.put_entire_time_max_ms >= 50


def test_a_put_that_was_given_up_took_as_long_as_it_was_waited_for(tmp_path: Path) -> None:
    with open_store(tmp_path, REPLICATED.with_changes(slave_timeout=20)) as store:
        assert store.put(Message("a", b"x"), check=False).status is PutStatus.FLUSH_SLAVE_TIMEOUT
        assert store.counters.put_failed_times == 1
    ((times, elapsed_ms),) = latencies(store.broker_stats).values()
    assert times == 1 and elapsed_ms >= 20


class Unequal(str):
    """A topic of the caller's own type that refuses to be compared."""

    __slots__ = ()

    def __hash__(self) -> int:
        return hash("orders")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("not comparable")


def test_a_topic_of_an_odd_type_spoils_no_groups_figures(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with open_store(tmp_path, SMALL.with_changes(flush="sync")) as store:
        waiting = [store.put_async(Message(topic, b"x")) for topic in ("orders", Unequal("orders"), "orders") * 5]
        waiting += [store.put_async(Message("orders", b"x"))]
        for future in waiting:
            future.result(10).check()
        store.put(Message(Unequal("orders"), b"x")).check()
        store.put_batch([Message(Unequal("orders"), b"x")] * 2).check()

        async def from_a_loop() -> None:
            (await store.aput(Message(Unequal("orders"), b"x"))).check()
            (await store.aput_batch([Message(Unequal("orders"), b"x")] * 2)).check()

        asyncio.run(from_a_loop())
    assert "could not be counted" not in caplog.text
