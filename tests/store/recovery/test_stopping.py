"""Stopping from where one must not, and when a step of it fails: one clear error, and no thread left behind."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from operator import attrgetter
from pathlib import Path

import pytest
from tests.store.small_store import SMALL, wait_until

from flintlog import Message, PutStatus, Receipt, encoded_batch, open_store
from flintlog.disk.faulty.faulty_disk import FaultyMedium
from flintlog.disk.media.local_file import LocalFile
from flintlog.errors import DiskError, FlintlogError, StoreInUse
from flintlog.store.flush.group_commit import GroupCommit
from flintlog.store.runtime.lifecycle import State
from flintlog.store.runtime.service import Rewritten

SYNC = SMALL.with_changes(flush="sync")
POOLED = SYNC.with_changes(
    transient_store_pool_enable=True, commit_interval_commit_log=3_600_000, wake_commit_when_put_message=False
)


def _threads() -> set[str]:
    return {thread.name for thread in threading.enumerate() if thread.name.startswith("flintlog-")}


def test_a_futures_callback_cannot_shut_its_store_down(tmp_path: Path) -> None:
    reported: list[BaseException] = []
    done = threading.Event()
    with open_store(tmp_path / "store", SYNC) as store:

        def stop(_: Future[Receipt]) -> None:
            try:
                store.shutdown()
            except FlintlogError as error:
                reported.append(error)
            done.set()

        commit = store._engine.flushing.waiting
        assert isinstance(commit, GroupCommit)
        with commit._gate:  # nothing is finished before it calls
            store.put_async(Message("orders", b"x")).add_done_callback(stop)
        assert done.wait(10)
        assert store.put(Message("orders", b"y")).status is PutStatus.PUT_OK
    assert isinstance(reported[0], StoreInUse)
    with open_store(tmp_path / "store", SYNC) as store:
        assert store.recovery.clean


def test_a_callback_that_puts_again_does_not_keep_others_waiting_while_a_sync_hangs() -> None:
    medium, goes_on = FaultyMedium(), threading.Event()
    store = open_store("/store", SYNC.with_changes(sync_flush_timeout=300), medium=medium)
    store.put(Message("orders", b"first")).check()

    def hang(path: Path) -> None:
        if "commitlog" in str(path):
            goes_on.wait(60)

    medium.before_sync = hang
    again: list[Receipt] = []
    late: Future[Receipt] = store.put_async(Message("orders", b"late"), check=False)
    late.add_done_callback(lambda _: again.append(store.put(Message("orders", b"again"))))
    began = time.monotonic()
    assert store.put(Message("orders", b"other"), check=False).status is PutStatus.FLUSH_DISK_TIMEOUT
    assert time.monotonic() - began < 30
    goes_on.set()
    store.shutdown()


def test_a_stop_whose_last_commit_fails_leaves_no_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = _threads()
    store = open_store(tmp_path / "store", POOLED)
    store.put(Message("orders", b"1")).check()

    def fail(file: LocalFile, *_: object) -> None:
        raise DiskError("cannot write: Input/output error", path=file.path)

    monkeypatch.setattr(LocalFile, "write_at", fail)
    assert store.put(Message("orders", b"2"), check=False).status is PutStatus.FLUSH_DISK_TIMEOUT
    with pytest.raises(DiskError):
        store.shutdown()
    assert _threads() <= before
    assert (tmp_path / "store" / "abort").exists()


@pytest.mark.parametrize("failing", ["log.close", "flushing.stop", "dispatcher.finish", "flushing.note_flushed"])
def test_a_stop_that_fails_ends_each_thread_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str) -> None:
    store = open_store(tmp_path, SMALL)
    engine = store._engine
    ended: list[str] = []
    stop_queue_flush, shut_down = engine.flushing.stop_queue_flush, engine.parts.allocator.shut_down

    def noted(name: str, end: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            ended.append(name)
            end()

        return run

    monkeypatch.setattr(engine.flushing, "stop_queue_flush", noted("queues", stop_queue_flush))
    monkeypatch.setattr(engine.parts.allocator, "shut_down", noted("allocator", shut_down))
    owner, name = attrgetter(failing.rpartition(".")[0])(engine), failing.rpartition(".")[2]
    stop = getattr(owner, name)

    def fail() -> None:
        stop()
        raise DiskError("it fails")

    monkeypatch.setattr(owner, name, fail)
    with pytest.raises(DiskError, match="it fails"):
        store.shutdown()
    assert ended == ["queues", "allocator"]
    assert engine.lifecycle.state is State.SHUTDOWN_OK
    assert (tmp_path / "abort").exists()
    monkeypatch.undo()
    engine.flushing.stop()


@pytest.mark.parametrize("flush", ["sync", "async"])
def test_a_store_that_is_being_closed_takes_nothing_but_what_its_services_put(tmp_path: Path, flush: str) -> None:
    store = open_store(tmp_path / "store", SMALL.with_changes(flush=flush))
    refused = PutStatus.SERVICE_NOT_AVAILABLE
    is_stopping, may_stop = threading.Event(), threading.Event()

    def stop() -> None:
        is_stopping.set()
        assert may_stop.wait(60)

    store._services.stop = stop  # type: ignore[method-assign]
    closing = threading.Thread(target=store.close)
    closing.start()
    assert is_stopping.wait(60)
    message = Message("orders", b"late")
    assert store.put(message, check=False).status is refused
    assert store.put_batch([message], check=False).status is refused
    assert store.put_encoded(encoded_batch([message]), check=False).status is refused
    assert store.put_async(message, check=False).result(60).status is refused
    assert store._host.put_rewritten(message, Rewritten, check=False).status is refused
    assert asyncio.run(store.aput(message, check=False)).status is refused
    assert asyncio.run(store.aput_batch([message], check=False)).status is refused
    assert store._host.put_rebuilt(Rewritten(Message("orders", b"a service's"))).status is PutStatus.PUT_OK
    may_stop.set()
    closing.join(60)
    assert not closing.is_alive()
    with open_store(tmp_path / "store", SMALL) as store:
        assert store.recovery.clean
        assert [message.body for message in store.get("orders", 0, 0).messages] == [b"a service's"]


@pytest.mark.parametrize("flush", ["sync", "async"])
def test_closing_beside_threads_that_never_stop_putting_ends(tmp_path: Path, flush: str) -> None:
    config = SMALL.with_changes(flush=flush, services={"transaction"}, mapped_file_size_commit_log=1 << 20)
    store = open_store(tmp_path / "store", config)
    acknowledged: list[int] = []
    is_over = threading.Event()

    def put(queue_id: int) -> None:
        while not is_over.is_set():
            batch = [Message("orders", b"x" * 50, queue_id=queue_id, keys=["k"]) for _ in range(10)]
            if store.put_batch(batch, check=False).status is PutStatus.PUT_OK:
                acknowledged.append(queue_id)
            else:
                time.sleep(0.001)

    putting = [threading.Thread(target=put, args=(queue_id,), daemon=True) for queue_id in range(4)]
    for thread in putting:
        thread.start()
    wait_until(lambda: len(acknowledged) > 10)
    closing = threading.Thread(target=store.close, daemon=True)
    closing.start()
    closing.join(30)
    is_closed = not closing.is_alive()
    is_over.set()
    for thread in putting:
        thread.join(30)
    assert is_closed
    with open_store(tmp_path / "store", config) as store:
        assert store.recovery.clean
        assert all(store.max_offset("orders", queue_id) == 10 * acknowledged.count(queue_id) for queue_id in range(4))


@pytest.mark.parametrize("step", ["stop", "save"])
def test_offsets_are_saved_by_a_stop_that_was_interrupted_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    store = open_store(tmp_path, SMALL)
    store.put(Message("orders", b"0"))
    store.consumer_offsets.commit("billing", "orders", 0, 1)
    owner, name = (store._folder, "save") if step == "save" else (store._background, "stop")
    work, times = getattr(owner, name), iter(range(1))

    def interrupted_once() -> None:
        if next(times, None) is not None:
            raise KeyboardInterrupt
        work()

    monkeypatch.setattr(owner, name, interrupted_once)
    with pytest.raises(KeyboardInterrupt):
        store.close()
    store.close()
    with open_store(tmp_path, SMALL) as store:
        assert store.recovery.clean
        assert store.consumer_offsets.get("billing", "orders", 0) == 1


def test_write_buffers_are_written_by_a_stop_that_was_interrupted_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(tmp_path, POOLED.with_changes(flush="async"))
    store.put(Message("orders", b"0"))
    work, times = store._engine._stop_threads, iter(range(1))

    def interrupted_once() -> bool:
        if next(times, None) is not None:
            raise KeyboardInterrupt
        return work()

    monkeypatch.setattr(store._engine, "_stop_threads", interrupted_once)
    with pytest.raises(KeyboardInterrupt):
        store.close()
    store.close()
    with open_store(tmp_path, SMALL) as store:
        assert [message.body for message in store.get("orders", 0, 0).messages] == [b"0"]
