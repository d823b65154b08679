"""Puts that lead a sync and are interrupted, fail or hang: what was acknowledged is durable, and nobody waits for ever.

A plan says what happens at each sync of a log in memory. Interruptions come in threads that put, as those of a signal's
handler do; `tests/signals/test_leaders.py` has real signals at every point of a put.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.store.small_store import SMALL

from flintlog import Message, PutStatus, Receipt, open_store
from flintlog.disk.faulty.faulty_disk import FaultyMedium
from flintlog.disk.media.local_file import LocalFile
from flintlog.errors import SyncFailed
from flintlog.store.flush.group_commit import GroupCommit
from flintlog.store.flush.waiters import WaitingThread

pytestmark = pytest.mark.timeout(300)

ROOT = Path("/store")
MESSAGE = Message("orders", b"x")
SOON_S: Final = 15.0
NO_WATCHER_MS: Final = 3_600_000
"""The watcher, which looks every tenth of it, would hide a wake-up that was lost."""
SIZE: Final = 100
EVENTS: Final = ("before", "in", "after", "counting", "fail", "odd", "hang", "fine", "fine", "fine")


class Interruption(BaseException):
    """What the handler of a signal raises."""


class PlannedLog:
    """A log of which each sync goes as planned: only what it says is durable, whatever becomes of its caller."""

    def __init__(self, plan: list[str]) -> None:
        self.flushed_where = 0
        self.has_failed = False
        self.may_go = threading.Event()
        self._end = 0
        self._lock = threading.Lock()
        self._plan: Iterator[str] = iter(plan)
        self._now = "fine"

    def append(self) -> Receipt:
        with self._lock:
            self._end += SIZE
            return Receipt(PutStatus.PUT_OK, self._end - SIZE, 0, SIZE, 0, "")

    def before_flush(self) -> None:
        self._now = next(self._plan, "fine")
        self._interrupt("before")

    def flush(self, least_pages: int) -> bool:
        end = self._end
        if self.has_failed:
            raise SyncFailed("the disk did not take the data")
        if self._now == "fail":
            self.has_failed = True
            raise SyncFailed("the disk did not take the data")
        if self._now == "odd":
            self._now = "fine"
            raise ValueError("odd")
        if self._now == "hang":
            self.may_go.wait(0.05)
        self._interrupt("in")
        is_unmoved = end == self.flushed_where
        self.flushed_where = end
        return is_unmoved

    def after_flush(self) -> None:
        self._interrupt("after")

    def took(self, *_: object) -> None:
        self._interrupt("counting")

    def failed(self, _: int) -> None:
        """Not interrupted."""

    def _interrupt(self, where: str) -> None:
        if self._now == where and not threading.current_thread().name.startswith("flintlog-"):
            self._now = "fine"
            raise Interruption


class Producers:
    """Threads, futures and a loop's tasks that put at the same time; each notes what it was acknowledged."""

    def __init__(self, log: PlannedLog, timeout_ms: int) -> None:
        self.log = log
        self.interrupted = 0
        self.statuses: list[PutStatus] = []
        self.commit = GroupCommit(
            log,
            timeout_ms=timeout_ms,
            before_flush=log.before_flush,
            after_flush=log.after_flush,
            on_failure=lambda _: None,
            counted=log,
        )

    def noted(self, receipt: Receipt) -> None:
        assert receipt.status is not PutStatus.PUT_OK or receipt.end_offset <= self.log.flushed_where, "not durable yet"
        self.statuses.append(receipt.status)

    def put(self, count: int) -> None:
        for _ in range(count):
            try:
                self.noted(self.commit.wait(self.log.append(), MESSAGE))  # type: ignore[arg-type]
            except (Interruption, ValueError):
                self.interrupted += 1

    def put_futures(self, count: int) -> None:
        for _ in range(count):
            futures = [self.commit.future(self.log.append(), MESSAGE, check=False) for _ in range(3)]
            for future in futures:
                self.noted(future.result(SOON_S))  # type: ignore[arg-type]

    def put_from_loop(self, count: int) -> None:
        async def put_each() -> None:
            for _ in range(count):
                receipt = await asyncio.wait_for(self.commit.task(self.log.append(), MESSAGE), SOON_S)
                self.noted(receipt)  # type: ignore[arg-type]

        async def put_all() -> None:
            await asyncio.gather(*(put_each() for _ in range(3)))

        asyncio.run(put_all())

    def run(self, count: int, *, only_threads: bool) -> None:
        self.commit.start()
        works: list[Callable[[int], None]] = [self.put] * 4
        if not only_threads:
            works += [self.put_futures, self.put_from_loop]
        with ThreadPoolExecutor(len(works), thread_name_prefix="putter") as pool:
            puts = [pool.submit(work, count) for work in works]
            try:
                for put in puts:
                    put.result(SOON_S)
            finally:
                self.log.may_go.set()
                self.commit._call_all()  # lets the pool end when the test has failed
        stopping = threading.Thread(target=self.commit.stop, daemon=True)
        stopping.start()
        stopping.join(SOON_S)
        assert not stopping.is_alive()


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.sampled_from(EVENTS), max_size=30),
    st.sampled_from((NO_WATCHER_MS, NO_WATCHER_MS, 20)),
    st.integers(1, 8),
    st.booleans(),
)
def test_nothing_is_acknowledged_before_its_sync_and_nobody_waits_for_ever(
    plan: list[str], timeout_ms: int, count: int, only_threads: bool
) -> None:
    log = PlannedLog(plan)
    producers = Producers(log, timeout_ms)
    producers.run(count, only_threads=only_threads)
    assert len(producers.statuses) + producers.interrupted == count * (4 if only_threads else 4 + 3 + 3)
    commit = producers.commit
    assert not commit._putters and not commit._futures and not commit._tasks and not commit._given_up


def test_an_interrupted_leader_leaves_its_record_to_the_next_one() -> None:
    """Its put is over for its caller, who knows nothing of the record; others are not held up by it."""
    log = PlannedLog(["in"])
    producers = Producers(log, NO_WATCHER_MS)
    producers.commit.start()
    producers.put(1)
    receipt = producers.commit.future(log.append(), MESSAGE, check=False).result(SOON_S)
    assert producers.interrupted == 1 and receipt.status is PutStatus.PUT_OK and log.flushed_where == 2 * SIZE
    producers.commit.stop()


def test_followers_are_served_when_their_leader_is_interrupted() -> None:
    log = PlannedLog([])
    producers = Producers(log, NO_WATCHER_MS)
    entered = threading.Event()

    def interrupted_once() -> None:
        log.after_flush = producers.commit._after_flush = lambda: None  # type: ignore[method-assign]
        entered.set()
        log.may_go.wait(SOON_S)
        raise Interruption

    producers.commit._after_flush = interrupted_once
    producers.commit.start()
    with ThreadPoolExecutor(5) as pool:
        leading = pool.submit(producers.put, 1)
        assert entered.wait(SOON_S)
        following = [pool.submit(producers.put, 1) for _ in range(4)]
        while len(producers.commit._putters) < 5:
            threading.Event().wait(0.001)
        log.may_go.set()
        for put in [leading, *following]:
            put.result(SOON_S)
    assert producers.interrupted == 1 and producers.statuses == [PutStatus.PUT_OK] * 4
    producers.commit.stop()


def test_one_that_came_after_puts_that_were_given_up_leads_next() -> None:
    log = PlannedLog([])
    producers = Producers(log, 100)
    commit = producers.commit
    gone = WaitingThread(log.append(), MESSAGE, 0.0)
    gone.decide(PutStatus.FLUSH_DISK_TIMEOUT)
    with ThreadPoolExecutor(1) as pool:
        commit._turn.take()
        commit._putters.append(gone)
        following = pool.submit(producers.put, 1)
        while len(commit._putters) < 2:
            threading.Event().wait(0.001)
        commit._turn.owner = None
        commit._call_next()
        following.result(SOON_S)
    assert producers.statuses == [PutStatus.PUT_OK] and not commit._putters


def test_a_leader_waits_for_as_many_as_the_last_sync_covered_and_not_for_long() -> None:
    log = PlannedLog([])
    producers = Producers(log, NO_WATCHER_MS)
    commit = producers.commit
    commit._last_size, commit._last_sync_s = 2, 2 * SOON_S
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(producers.put, 1)
        while not commit._awaited:
            threading.Event().wait(0.001)
        assert log.flushed_where == 0
        for put in [pool.submit(producers.put, 1), first]:
            put.result(SOON_S / 2)
    assert log.flushed_where == 2 * SIZE and commit._last_size == 2
    commit._last_sync_s = 0.01
    producers.put(1)  # the other one does not come again
    assert commit._last_size == 1


class InterruptingDisk(FaultyMedium):
    """Raises in some syncs of threads that put: before the bytes are durable, or in the place of a failure."""

    def __init__(self, plan: list[str]) -> None:
        super().__init__()
        self._plan = iter(plan)
        self.is_armed = False
        self.before_sync = self._follow_plan

    def _follow_plan(self, path: Path) -> None:
        if not self.is_armed or path.parent.name != "commitlog":
            return
        event = next(self._plan, "fine")
        if event == "fail":
            self.fail_next_syncs(1)
        elif event == "interrupt" and threading.current_thread().name.startswith("putter"):
            raise Interruption


@settings(max_examples=25, deadline=None)
@given(st.lists(st.sampled_from(("fine", "fine", "interrupt", "interrupt", "fail")), max_size=20), st.integers(0, 99))
def test_what_a_store_acknowledged_beside_interrupted_leaders_survives_power_loss(plan: list[str], seed: int) -> None:
    disk = InterruptingDisk(plan)
    acknowledged: list[tuple[int, bytes]] = []
    store = open_store(ROOT, SMALL.with_changes(sync_flush_timeout=NO_WATCHER_MS), medium=disk)
    disk.is_armed = True

    def put(name: int) -> None:
        for number in range(6):
            body = b"%d-%d" % (name, number)
            try:
                receipt = store.put(Message("orders", body, queue_id=name), check=False)
            except Interruption:
                continue
            if receipt.status is PutStatus.PUT_OK:
                acknowledged.append((receipt.queue_offset, body))

    with ThreadPoolExecutor(3, thread_name_prefix="putter") as pool:
        for done in [pool.submit(put, name) for name in range(3)]:
            done.result(SOON_S)
    disk.is_armed = False
    after = disk.crash(seed)
    with open_store(ROOT, SMALL, medium=after) as again:
        for offset, body in acknowledged:
            (message,) = again.get("orders", int(body[:1]), offset, 1).messages
            assert message.body == body
    store.shutdown()


def test_a_signal_handler_may_put_while_its_thread_syncs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sync = LocalFile.sync
    receipts: list[Receipt | None] = []

    def sync_and_handle(file: LocalFile, start: int = 0, stop: int | None = None) -> None:
        sync(file, start, stop)
        if not receipts and file.path.parent.name == "commitlog":
            receipts.append(None)
            receipts[0] = store.put(Message("orders", b"of the handler"))

    with open_store(tmp_path, SMALL.with_changes(flush="sync")) as store:
        store.put(Message("orders", b"first"))
        monkeypatch.setattr(LocalFile, "sync", sync_and_handle)
        store.put(Message("orders", b"second"))
        flushed = store._engine.parts.segments.flushed_where
        assert flushed == store.max_physical_offset
        store.put(Message("orders", b"third"))
        bodies = [message.body for message in store.get("orders", 0, 0).messages]
    assert bodies == [b"first", b"second", b"of the handler", b"third"]
