"""Flushing: what a put waits for, what happens when the disk hangs or fails, write buffers."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.store.small_store import ASYNC, SMALL, bodies, read_all, wait_until

from flintlog import Message, PutStatus, Store, StoreConfig, open_store
from flintlog.disk.faulty.faulty_disk import FaultyMedium
from flintlog.disk.faulty.faulty_file import FaultyFile
from flintlog.errors import DiskError
from flintlog.store.flush.group_commit import GroupCommit
from flintlog.store.flush.periodic_flush import Commit
from flintlog.store.model.message import Receipt
from flintlog.store.runtime.lifecycle import Flag

pytestmark = pytest.mark.timeout(60)

ROOT = Path("/store")
POOL = ASYNC.with_changes(
    transient_store_pool_enable=True,
    transient_store_pool_size=3,
    commit_interval_commit_log=60_000,
    wake_commit_when_put_message=False,
)
NOT_WAITING = {"WAIT": "false"}
MESSAGE = Message("orders", b"x")


class HangingDisk(FaultyMedium):
    """Syncs of the log wait until `let_go`."""

    def __init__(self) -> None:
        super().__init__()
        self._may_go = threading.Event()
        self._may_go.set()
        self.log_syncs = 0
        self.before_sync = self._wait

    def hang(self) -> None:
        self._may_go.clear()

    def let_go(self) -> None:
        self._may_go.set()

    def _wait(self, path: Path) -> None:
        if path.parent.name == "commitlog":
            self.log_syncs += 1
            self._may_go.wait(10)


@pytest.fixture
def disk() -> Iterator[HangingDisk]:
    made = HangingDisk()
    yield made
    made.let_go()


def _open(disk: FaultyMedium, config: StoreConfig) -> Store:
    return open_store(ROOT, config, medium=disk)


def _put_first(store: Store, disk: FaultyMedium) -> None:
    """One message, so that the log has its first file and the one ahead: making them needs the disk too."""
    store.put(Message("orders", b"first")).check()
    wait_until(lambda: len(disk.listing(ROOT / "commitlog")) == 2)
    time.sleep(0.01)


# Sync flush


def test_an_acknowledged_message_survives_power_loss() -> None:
    disk = FaultyMedium()
    store = _open(disk, SMALL)
    for number in range(50):
        store.put(Message("orders", b"%d" % number)).check()
    after = disk.crash(seed=7)
    with _open(after, SMALL) as again:
        assert bodies(read_all(again, "orders")) == [b"%d" % number for number in range(50)]
    store.shutdown()


def test_one_sync_covers_all_who_waited(disk: HangingDisk) -> None:
    with _open(disk, SMALL) as store:
        _put_first(store, disk)
        disk.hang()
        before = disk.log_syncs
        with ThreadPoolExecutor(16) as pool:
            puts = [pool.submit(store.put, Message("orders", b"x")) for _ in range(16)]
            wait_until(lambda: store._engine.parts.queues.offsets.next("orders", 0) == 17)
            disk.let_go()
            assert all(put.result(10) for put in puts)
        assert disk.log_syncs - before <= 4


def test_a_disk_that_hangs_gives_a_status_in_time(disk: HangingDisk) -> None:
    with _open(disk, SMALL.with_changes(sync_flush_timeout=100)) as store:
        _put_first(store, disk)
        disk.hang()
        began = time.monotonic()
        receipt = store.put(Message("orders", b"late"), check=False)
        assert receipt.status is PutStatus.FLUSH_DISK_TIMEOUT and not receipt
        assert 0.1 <= time.monotonic() - began < 2
        assert receipt.queue_offset == 1 and receipt.message_id, "it is stored, only not known to be durable"
        assert (
            store.put_async(Message("orders", b"late too"), check=False).result(5).status
            is PutStatus.FLUSH_DISK_TIMEOUT
        )
        assert store.max_offset("orders", 0) == 1, "what is not flushed is not shown"
        disk.let_go()
        assert store.put(Message("orders", b"fine again"))
        assert bodies(read_all(store, "orders")) == [b"first", b"late", b"late too", b"fine again"]
        assert store.stats()["putMessageFailedTimes"] == 2
        assert int(store.stats()["putMessageEntireTimeMax"]) >= 100


def test_what_is_done_behind_a_put_may_put_again(disk: HangingDisk) -> None:
    """A late put is given up by the watcher, which runs the callbacks of its future; others go on meanwhile."""
    with _open(disk, SMALL.with_changes(sync_flush_timeout=100)) as store:
        _put_first(store, disk)
        disk.hang()
        again: list[PutStatus] = []
        future = store.put_async(Message("orders", b"late"), check=False)
        future.add_done_callback(lambda _: again.append(store.put(Message("orders", b"again"), check=False).status))
        wait_until(lambda: store._engine.parts.queues.offsets.next("orders", 0) == 3)
        disk.let_go()
        wait_until(lambda: again)
        assert future.result(5).status is PutStatus.FLUSH_DISK_TIMEOUT
        assert again == [PutStatus.PUT_OK]


def test_after_a_failed_sync_nothing_is_acknowledged_and_all_is_served() -> None:
    disk = FaultyMedium()
    store = _open(disk, SMALL)
    store.put(Message("orders", b"safe")).check()
    wait_until(lambda: len(disk.listing(ROOT / "commitlog")) == 2)
    disk.fail_next_syncs(1)
    assert store.put(Message("orders", b"doubtful"), check=False).status is PutStatus.FLUSH_DISK_TIMEOUT
    assert store._engine.lifecycle.flags & Flag.NOT_WRITEABLE
    assert store.put(Message("orders", b"refused"), check=False).status is PutStatus.SERVICE_NOT_AVAILABLE
    assert bodies(read_all(store, "orders")) == [b"safe"]
    store.shutdown()
    assert disk.exists(ROOT / "abort"), "such a stop is no clean one"
    with _open(disk.crash(seed=1), SMALL) as again:
        assert bodies(read_all(again, "orders"))[0] == b"safe"


# Puts that do not wait


@pytest.mark.parametrize("how", ["put", "put_async"])
def test_a_message_that_does_not_wait_is_flushed_and_shown_soon(disk: HangingDisk, how: str) -> None:
    with _open(disk, SMALL) as store:
        _put_first(store, disk)
        before = disk.log_syncs
        disk.hang()
        message = Message("orders", b"x", properties=NOT_WAITING)
        receipt = store.put(message) if how == "put" else store.put_async(message).result(0)
        assert receipt.status is PutStatus.PUT_OK
        wait_until(lambda: disk.log_syncs > before)
        store.put(message).check()  # while a sync runs that does not cover it
        disk.let_go()
        wait_until(lambda: store.max_offset("orders", 0) == 3)


def test_what_nobody_waited_for_is_found_by_key_after_a_clean_stop(disk: HangingDisk) -> None:
    store = _open(disk, SMALL)
    _put_first(store, disk)
    syncs = disk.log_syncs
    disk.hang()
    store.put_async(Message("orders", b"second"))
    wait_until(lambda: disk.log_syncs > syncs)  # the flush under way does not cover what comes now
    store.put(Message("orders", b"last", keys=["o-2"], properties=NOT_WAITING)).check()
    stopping = threading.Thread(target=store.shutdown)
    stopping.start()
    commit = store._engine.flushing.waiting
    assert isinstance(commit, GroupCommit)
    wait_until(commit._stopped.is_set)
    disk.let_go()
    stopping.join()
    with _open(disk, SMALL) as again:
        assert again.recovery.clean and not len(again.recovery)
        assert bodies(read_all(again, "orders")) == [b"first", b"second", b"last"]
        assert bodies(again.query("orders", "o-2")) == [b"last"]


def test_a_callback_of_a_put_that_timed_out_may_put(disk: HangingDisk) -> None:
    store = _open(disk, SMALL.with_changes(sync_flush_timeout=200))
    _put_first(store, disk)
    disk.hang()
    reported: list[PutStatus] = []

    def put_again(_: object) -> None:
        threading.Timer(0.3, disk.let_go).start()
        reported.append(store.put(Message("orders", b"from a callback"), check=False).status)

    store.put_async(Message("orders", b"late")).add_done_callback(put_again)
    wait_until(lambda: reported)
    assert store.put(Message("orders", b"after")).status is PutStatus.PUT_OK
    store.shutdown()


def test_a_commit_that_fails_once_is_tried_again() -> None:
    tries: list[int] = []

    def commit(least_pages: int) -> bool:
        tries.append(least_pages)
        if len(tries) == 1:
            raise DiskError("for once")
        return True

    tide = Commit(commit, interval_ms=5, least_pages=4, thorough_interval_ms=1000, after_commit=lambda: None)
    tide.start()
    wait_until(lambda: len(tries) > 2)
    tide.stop()


class _OddSegments:
    """Its flush fails in a way that nobody thought of."""

    flushed_where = 0

    def flush(self, least_pages: int) -> bool:
        raise ValueError("odd")


def test_a_flush_that_fails_oddly_leaves_nobody_waiting() -> None:
    commit = GroupCommit(_OddSegments(), timeout_ms=60_000, after_flush=lambda: None, on_failure=lambda _: None)
    commit.start()
    with ThreadPoolExecutor(4) as pool:
        waiting = [
            pool.submit(commit.wait, Receipt(PutStatus.PUT_OK, 100 * n, n, 100, 0, ""), MESSAGE) for n in range(8)
        ]
        assert {done.result(10).status for done in waiting} == {PutStatus.FLUSH_DISK_TIMEOUT}
    commit.stop()


def test_from_asyncio_too(disk: HangingDisk) -> None:
    with _open(disk, SMALL) as store:
        _put_first(store, disk)
        disk.hang()
        assert asyncio.run(store.aput(Message("orders", b"x", properties=NOT_WAITING)))
        disk.let_go()
        wait_until(lambda: store.max_offset("orders", 0) == 2)


def test_a_disk_that_hangs_gives_asyncio_a_status_in_time(disk: HangingDisk) -> None:
    async def late(store: Store) -> list[PutStatus]:
        receipts = await asyncio.gather(*(store.aput(Message("orders", b"late"), check=False) for _ in range(3)))
        return [receipt.status for receipt in receipts]

    with _open(disk, SMALL.with_changes(sync_flush_timeout=100)) as store:
        _put_first(store, disk)
        disk.hang()
        assert asyncio.run(late(store)) == [PutStatus.FLUSH_DISK_TIMEOUT] * 3
        disk.let_go()
        assert asyncio.run(late(store)) == [PutStatus.PUT_OK] * 3
        assert store.stats()["putMessageFailedTimes"] == 3


def test_a_loop_rings_when_all_that_were_ready_have_put(disk: HangingDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    waiting_at_ring: list[int] = []
    ring = GroupCommit._ring

    def watched(commit: GroupCommit) -> None:
        waiting_at_ring.append(len(commit._tasks))
        ring(commit)

    async def together(store: Store) -> list[Receipt]:
        return await asyncio.gather(*(store.aput(Message("orders", b"x")) for _ in range(16)))

    with _open(disk, SMALL) as store:
        _put_first(store, disk)
        commit = store._engine.flushing.waiting
        assert isinstance(commit, GroupCommit)
        wait_until(lambda: commit._sleeping)
        before = disk.log_syncs
        monkeypatch.setattr(GroupCommit, "_ring", watched)
        assert all(asyncio.run(together(store)))
        assert waiting_at_ring == [16] and disk.log_syncs - before == 1


def _put_and_stop(loop: asyncio.AbstractEventLoop, store: Store) -> asyncio.Task[Receipt]:
    """Let a loop append a message and stop before it comes to ring for the flush thread."""
    putting = loop.create_task(store.aput(Message("orders", b"x")))
    loop.call_soon(loop.stop)
    loop.run_forever()
    return putting


def test_what_a_stopped_loop_put_is_synced_by_the_watcher(disk: HangingDisk) -> None:
    loop = asyncio.new_event_loop()
    with _open(disk, SMALL.with_changes(sync_flush_timeout=2000)) as store:
        _put_first(store, disk)
        putting = _put_and_stop(loop, store)
        wait_until(lambda: store.max_offset("orders", 0) == 2)
        assert loop.run_until_complete(putting)
    loop.close()


def test_a_stopped_loop_holds_up_no_other(disk: HangingDisk) -> None:
    loop = asyncio.new_event_loop()
    with _open(disk, SMALL.with_changes(sync_flush_timeout=600_000)) as store:
        _put_first(store, disk)
        putting = _put_and_stop(loop, store)
        assert asyncio.run(asyncio.wait_for(store.aput(Message("orders", b"x")), 20))
        assert store.max_offset("orders", 0) == 3, "one sync for both"
        assert loop.run_until_complete(putting)
    loop.close()


class _SlowSegments:
    """A log that flushes a little each time, and says how far it had come."""

    def __init__(self) -> None:
        self.flushed_where = 0

    def flush(self, least_pages: int) -> bool:
        self.flushed_where += 50
        return False


@pytest.mark.parametrize("thread_end", [100, 300, 500])
def test_threads_and_asyncio_in_one_group_all_wait_for_their_own_record(thread_end: int) -> None:
    segments = _SlowSegments()
    reached: list[tuple[int, int]] = []
    commit = GroupCommit(segments, timeout_ms=60_000, after_flush=lambda: None, on_failure=lambda _: None)

    async def tasks() -> None:
        receipt = Receipt(PutStatus.PUT_OK, 200, 2, 100, 0, "")
        waiting = commit.task(receipt, MESSAGE)
        commit.start()
        await waiting
        reached.append((receipt.end_offset, segments.flushed_where))

    def thread() -> None:
        receipt = Receipt(PutStatus.PUT_OK, thread_end - 100, 0, 100, 0, "")
        commit.wait(receipt, MESSAGE)
        reached.append((receipt.end_offset, segments.flushed_where))

    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(thread)
        asyncio.run(tasks())
        done.result(10)
    commit.stop()
    assert len(reached) == 2
    assert all(flushed >= end for end, flushed in reached)


# Async flush


def test_async_flush_acknowledges_before_the_disk(disk: HangingDisk) -> None:
    with _open(disk, ASYNC) as store:
        _put_first(store, disk)
        disk.hang()
        assert store.put(Message("orders", b"x"))
        assert store.max_offset("orders", 0) == 2
        disk.let_go()


def test_async_flush_reaches_the_disk_by_itself() -> None:
    config = ASYNC.with_changes(
        flush_interval_commit_log=10, flush_commit_log_least_pages=0, flush_commit_log_thorough_interval=0
    )
    with _open(FaultyMedium(), config) as store:
        receipt = store.put(Message("orders", b"x"))
        wait_until(lambda: store.flushed_offset >= receipt.end_offset)


WOKEN = {
    "flush_interval_commit_log": 600_000,
    "flush_commit_log_least_pages": 0,
    "flush_commit_log_thorough_interval": 600_000,
    "wake_flush_when_put_message": True,
    "flush_commit_log_timed": False,
}


def test_puts_wake_the_async_flush_if_told_to() -> None:
    config = ASYNC.with_changes(**WOKEN)
    with _open(FaultyMedium(), config) as store:
        for number in range(1, 6):
            end = store.put(Message("orders", b"x")).end_offset
            wait_until(lambda end=end: store.flushed_offset >= end)  # type: ignore[misc]
            assert store.max_offset("orders", 0) == number


def test_a_timed_async_flush_sleeps_its_whole_pause_but_a_close_does_not_wait_for_it() -> None:
    disk = FaultyMedium()
    config = ASYNC.with_changes(**{**WOKEN, "flush_commit_log_timed": True})
    with _open(disk, config) as store:
        flushed = store.flushed_offset
        store.put(Message("orders", b"x")).check()
        time.sleep(0.2)
        assert store.flushed_offset == flushed
    with _open(disk.crash(seed=1), ASYNC) as again:
        assert bodies(read_all(again, "orders")) == [b"x"]


def test_a_commit_of_write_buffers_wakes_an_async_flush_that_is_not_timed() -> None:
    config = POOL.with_changes(**{**WOKEN, "wake_flush_when_put_message": False})
    with _open(FaultyMedium(), config) as store:
        end = store.put(Message("orders", b"x")).check().end_offset
        store.wait_dispatched()  # which commits
        wait_until(lambda: store.flushed_offset >= end)


def test_a_failed_async_flush_stops_writing() -> None:
    disk = FaultyMedium()
    config = ASYNC.with_changes(flush_interval_commit_log=10, flush_commit_log_least_pages=0)
    store = _open(disk, config)
    store.put(Message("orders", b"x")).check()
    wait_until(lambda: len(disk.listing(ROOT / "commitlog")) == 2 and store.flushed_offset)
    disk.fail_next_syncs(1)
    store.put(Message("orders", b"x"))
    wait_until(lambda: store.put(Message("orders", b"x"), check=False).status is PutStatus.SERVICE_NOT_AVAILABLE)
    store.shutdown()
    assert disk.exists(ROOT / "abort")


# Write buffers


def test_write_buffers_show_messages_after_the_commit() -> None:
    with _open(FaultyMedium(), POOL) as store:
        receipt = store.put(Message("orders", b"x")).check()
        assert store.max_offset("orders", 0) == 0
        assert store.message_at(receipt.physical_offset) is None
        store.wait_dispatched()
        assert bodies(read_all(store, "orders")) == [b"x"]


def test_write_buffers_are_committed_by_the_clock_and_by_puts() -> None:
    by_clock = POOL.with_changes(commit_interval_commit_log=5, commit_commit_log_thorough_interval=0)
    by_puts = POOL.with_changes(wake_commit_when_put_message=True, commit_commit_log_least_pages=0)
    for config in (by_clock, by_puts):
        with _open(FaultyMedium(), config) as store:
            store.put(Message("orders", b"x")).check()
            wait_until(lambda store=store: store.max_offset("orders", 0) == 1)  # type: ignore[misc]


def test_shutdown_commits_all_write_buffers() -> None:
    disk = FaultyMedium()
    config = POOL.with_changes(mapped_file_size_commit_log=4096)
    with _open(disk, config) as store:
        for number in range(40):
            assert store.put(Message("orders", b"%02d" % number * 100))
    with _open(disk.crash(seed=3), config) as again:
        assert again.recovery.clean
        assert bodies(read_all(again, "orders")) == [b"%02d" % number * 100 for number in range(40)]


def test_write_buffers_under_sync_flush_wait_for_commit_and_flush() -> None:
    disk = FaultyMedium()
    config = POOL.with_changes(flush="sync", mapped_file_size_commit_log=4096)
    store = _open(disk, config)
    for number in range(40):
        store.put(Message("orders", b"%02d" % number * 100)).check()
    with _open(disk.crash(seed=3), SMALL.with_changes(mapped_file_size_commit_log=4096)) as again:
        assert len(read_all(again, "orders")) == 40
    store.shutdown()


def test_write_buffers_on_a_real_disk(tmp_path: Path) -> None:
    config = POOL.with_changes(mapped_file_size_commit_log=16384)
    with open_store(tmp_path, config) as store:
        for number in range(100):
            store.put(Message("orders", b"%03d" % number * 100)).check()
    with open_store(tmp_path, config.with_changes(transient_store_pool_enable=False)) as again:
        assert bodies(read_all(again, "orders")) == [b"%03d" % number * 100 for number in range(100)]


# Preparing files


@pytest.mark.parametrize("flush", ["sync", "async"])
def test_pages_are_prepared_for_syncs_where_puts_wait_for_them(monkeypatch: pytest.MonkeyPatch, flush: str) -> None:
    prepared: list[tuple[int, int]] = []

    def prepare(_: FaultyFile, start: int, stop: int) -> bool:
        prepared.append((start, stop))
        return True

    monkeypatch.setattr(FaultyFile, "prepare", prepare)
    with _open(FaultyMedium(), SMALL.with_changes(flush=flush)) as store:
        store.put(Message("orders", b"x")).check()
        assert bool(prepared) is (flush == "sync")


@pytest.mark.parametrize(("pages", "steps"), [(1, 4), (3, 2), (4, 1), (4096, 1)])
def test_a_warm_up_for_syncs_writes_out_so_many_pages_at_a_time(
    monkeypatch: pytest.MonkeyPatch, pages: int, steps: int
) -> None:
    prepared: list[tuple[int, int]] = []

    def prepare(_: FaultyFile, start: int, stop: int) -> bool:
        prepared.append((start, stop))
        return True

    monkeypatch.setattr(FaultyFile, "prepare", prepare)
    config = SMALL.with_changes(
        mapped_file_size_commit_log=16384,
        warm_mapped_file_enable=True,
        flush_least_pages_when_warm_mapped_file=pages,
        warm_ahead_bytes=0,
    )
    with _open(FaultyMedium(), config) as store:
        store.put(Message("orders", b"x")).check()
        first = prepared[:steps]
    assert [start for start, _ in first] == [4096 * pages * step for step in range(steps)]
    assert [stop for _, stop in first] == [*(start for start, _ in first[1:]), 16384]
    prepared.clear()
    with _open(FaultyMedium(), config.with_changes(flush="async")) as store:
        store.put(Message("orders", b"x")).check()
    assert prepared == [], "nobody waits for a sync"


@pytest.mark.parametrize(
    "changed", [{"warm_mapped_file_enable": True}, {"warm_ahead_bytes": 0}, {"warm_ahead_bytes": 4096}]
)
def test_files_made_ready_ahead_hold_the_same(tmp_path: Path, changed: dict[str, int]) -> None:
    with open_store(tmp_path, ASYNC.with_changes(mapped_file_size_commit_log=16384, **changed)) as store:
        for number in range(100):
            store.put(Message("orders", b"%03d" % number * 100)).check()
        assert bodies(read_all(store, "orders")) == [b"%03d" % number * 100 for number in range(100)]
