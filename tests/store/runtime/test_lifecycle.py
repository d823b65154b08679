"""Opening and closing: states, flags, marker files, checkpoint, several paths, read-only, statistics."""

from __future__ import annotations

import logging
import os
import signal
import threading
from pathlib import Path

import pytest
from tests.store.small_store import ASYNC, SMALL, bodies, bytes_of, fill, other_process, read_all, wait_until

from flintlog import Message, PutStatus, StoreClosed, open_store
from flintlog.disk.faulty.faulty_disk import FaultyMedium
from flintlog.format.checkpoint import parse_checkpoint
from flintlog.store.flush.queue_flush import QueueFlush
from flintlog.store.runtime.lifecycle import Flag, Lifecycle, State
from flintlog.testing import FakeClock

ROOT = Path("/store")


# States and flags


def test_states_only_move_forward() -> None:
    lifecycle = Lifecycle(lambda: None)
    for state in State:
        if state is not State.INIT:
            lifecycle.move_to(state)
    with pytest.raises(StoreClosed):
        lifecycle.move_to(State.RUNNING)
    with pytest.raises(StoreClosed):
        lifecycle.move_to(State.SHUTDOWN_OK)


def test_each_flag_but_one_forbids_writing() -> None:
    lifecycle = Lifecycle(lambda: None)
    assert (lifecycle.is_writeable, lifecycle.is_readable) == (False, False)
    lifecycle.move_to(State.RUNNING)
    for flag in Flag:
        lifecycle.set(flag)
        assert lifecycle.is_writeable == (flag is Flag.NOT_READABLE)
        assert lifecycle.is_readable == (flag is not Flag.NOT_READABLE)
        lifecycle.clear(flag)
        assert (lifecycle.is_writeable, lifecycle.is_readable) == (True, True)


def test_a_store_passes_through_its_states() -> None:
    store = open_store(ROOT, SMALL, medium=FaultyMedium())
    assert store._engine.lifecycle.is_writeable and store._engine.lifecycle.is_readable
    store._engine.lifecycle.set(Flag.DISK_FULL)
    assert store.put(Message("orders", b"x"), check=False).status is PutStatus.SERVICE_NOT_AVAILABLE
    store._engine.lifecycle.clear(Flag.DISK_FULL)
    assert store.put(Message("orders", b"x"))
    store._engine.lifecycle.set(Flag.NOT_READABLE)
    with pytest.raises(StoreClosed):
        store.get("orders", 0, 0)
    store.shutdown()
    assert store._engine.lifecycle.state is State.SHUTDOWN_OK
    store.shutdown()
    store.close()


def test_shutdown_from_several_threads_happens_once() -> None:
    store = open_store(ROOT, SMALL, medium=FaultyMedium())
    store.put(Message("orders", b"x")).check()
    failures: list[BaseException] = []

    def stop() -> None:
        try:
            store.shutdown()
            assert store._engine.lifecycle.state is State.SHUTDOWN_OK, "it returns when the store is shut down"
        except BaseException as failure:  # noqa: BLE001 - whatever it is, the test must see it
            failures.append(failure)

    threads = [threading.Thread(target=stop) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert failures == []


def test_no_thread_of_a_store_remains() -> None:
    before = set(threading.enumerate())
    for config in (SMALL, ASYNC, ASYNC.with_changes(transient_store_pool_enable=True)):
        with open_store(ROOT, config, medium=FaultyMedium()) as store:
            store.put(Message("orders", b"x")).check()
            assert set(threading.enumerate()) > before
        assert set(threading.enumerate()) == before


# Files


def test_abort_and_lock_tell_a_running_store_from_a_stopped_one(tmp_path: Path) -> None:
    with open_store(tmp_path, SMALL) as store:
        assert (tmp_path / "abort").read_text() == str(os.getpid())
        assert (tmp_path / "lock").read_text() == "lock"
        store.put(Message("orders", b"x")).check()
    assert not (tmp_path / "abort").exists()
    assert (tmp_path / "lock").exists()
    assert sorted(path.name for path in (tmp_path / "commitlog").iterdir()) == [f"{0:020d}"], "the file ahead is gone"


def test_the_checkpoint_after_a_clean_stop(tmp_path: Path) -> None:
    clock = FakeClock(1_700_000_000_000)
    with open_store(tmp_path, SMALL, clock=clock) as store:
        store.put(Message("orders", b"x", keys=["k"])).check()
        clock.advance(1000)
        last = store.put(Message("orders", b"y", keys=["k"])).check()
    content = (tmp_path / "checkpoint").read_bytes()
    values = parse_checkpoint(content)
    assert len(content) == 4096
    assert values.physic_msg_timestamp == values.logics_msg_timestamp == 1_700_000_001_000
    assert values.index_msg_timestamp == 1_700_000_001_000
    assert values.logics_physical_offset == last.physical_offset


def test_opening_and_closing_without_a_put_changes_no_message(tmp_path: Path) -> None:
    fill(tmp_path)
    before = bytes_of(tmp_path)
    for _ in range(2):
        with open_store(tmp_path, SMALL) as store:
            assert store.recovery.clean and len(store.recovery) == 0
    assert bytes_of(tmp_path) == before


def test_a_store_continues_where_it_stopped(tmp_path: Path) -> None:
    for round_number in range(3):
        with open_store(tmp_path, SMALL) as store:
            assert store.max_offset("orders", 0) == round_number * 10
            for number in range(10):
                assert store.put(Message("orders", b"x")).queue_offset == round_number * 10 + number


def test_several_commit_log_paths_take_turns(tmp_path: Path) -> None:
    places = [tmp_path / name for name in ("a", "b", "c")]
    config = SMALL.with_changes(mapped_file_size_commit_log=1024, store_path_commit_log=",".join(map(str, places)))
    expected = [b"%02d" % number * 100 for number in range(20)]
    with open_store(tmp_path / "store", config) as store:
        for body in expected:
            store.put(Message("orders", body)).check()
    files = {place.name: sorted(int(path.name) // 1024 % 3 for path in place.iterdir()) for place in places}
    assert {name: set(turns) for name, turns in files.items()} == {"a": {0}, "b": {1}, "c": {2}}
    assert not (tmp_path / "store" / "commitlog").exists()
    with open_store(tmp_path / "store", config) as store:
        assert bodies(read_all(store, "orders")) == expected
        assert {f"commitLogDiskRatio_{place}" for place in places} <= store.stats().keys()
    frozen = config.with_changes(read_only_commit_log_store_paths=str(places[0]))
    before = bytes_of(places[0])
    with open_store(tmp_path / "store", frozen) as store:
        for body in expected:
            store.put(Message("orders", body)).check()
        assert bodies(read_all(store, "orders")) == expected * 2
    assert bytes_of(places[0]).keys() == before.keys(), "a read-only path gets no new file"


def test_an_opening_that_fails_half_way_leaves_no_thread_and_no_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: QueueFlush) -> None:
        raise MemoryError

    disk = FaultyMedium()
    before = set(threading.enumerate())
    with monkeypatch.context() as patched:
        patched.setattr(QueueFlush, "start", fail)
        with pytest.raises(MemoryError):
            open_store(ROOT, SMALL, medium=disk)
    assert set(threading.enumerate()) == before
    with open_store(ROOT, SMALL, medium=disk) as store:
        assert store.put(Message("orders", b"x"))


# Processes

WRITER = """
store = open_store(sys.argv[1], SMALL)
for number in range(200):
    store.put(Message("orders", b"%d" % number, keys=["k%d" % number])).check()
print("ready", flush=True)
for line in sys.stdin:
    store.put(Message("orders", line.strip().encode())).check()
    print("done", flush=True)
"""


def test_read_only_beside_a_running_process(tmp_path: Path) -> None:
    with other_process(WRITER, tmp_path) as writer:
        assert writer.stdin is not None and writer.stdout is not None
        before = bytes_of(tmp_path)
        with open_store(tmp_path, SMALL, read_only=True) as reader:
            assert bodies(read_all(reader, "orders")) == [b"%d" % number for number in range(200)]
            assert bodies(reader.query("orders", "k77")) == [b"77"]
            assert sum(batch.num_rows for batch in reader.scan()) == 200
            assert not reader.recovery.clean
        assert bytes_of(tmp_path) == before, "reading wrote nothing"
        writer.stdin.write("more\n")
        writer.stdin.flush()
        assert writer.stdout.readline() == "done\n"
        with open_store(tmp_path, SMALL, read_only=True) as reader:
            assert bodies(read_all(reader, "orders"))[-1] == b"more"


def test_a_killed_process_loses_nothing_that_it_acknowledged(tmp_path: Path) -> None:
    with other_process(WRITER, tmp_path) as writer:
        writer.send_signal(signal.SIGKILL)
        writer.wait(10)
    assert (tmp_path / "abort").exists()
    with open_store(tmp_path, SMALL) as store:
        assert not store.recovery.clean
        assert bodies(read_all(store, "orders")) == [b"%d" % number for number in range(200)]
        assert bodies(store.query("orders", "k199")) == [b"199"]
        assert store.put(Message("orders", b"next")).queue_offset == 200


# Statistics


def test_statistics_have_rocketmqs_names_and_are_read_off_the_log() -> None:
    with open_store(ROOT, SMALL, medium=FaultyMedium()) as store:
        empty = store.stats()
        assert (empty["putMessageTimesTotal"], empty["putMessageSizeTotal"]) == (0, 0)
        receipts = [store.put(Message("orders", b"x" * 1000, queue_id=number % 4)) for number in range(100)]
        receipts += store.put_batch([Message("others", b"y")] * 7)
        store.get("orders", 0, 0)
        store.get("orders", 0, 1000)
        stats = store.stats()
        assert stats["putMessageTimesTotal"] == 107
        assert stats["putMessageSizeTotal"] == sum(receipt.size for receipt in receipts)
        assert stats["putMessageAverageSize"] == pytest.approx(sum(receipt.size for receipt in receipts) / 107)
        assert stats["putMessageFailedTimes"] == 0
        assert (stats["commitLogMinOffset"], stats["commitLogMaxOffset"]) == (0, receipts[-1].end_offset)
        assert 0 <= float(stats["commitLogDiskRatio"]) <= 1 and 0 <= float(stats["consumeQueueDiskRatio"]) <= 1
        names = {"bootTimestamp", "runtime", "putTps", "getFoundTps", "getMissTps", "getTotalTps", "getTransferredTps"}
        assert (
            names | {"putMessageDistributeTime", "putLatency99", "putLatency999", "dispatchMaxBuffer"} <= stats.keys()
        )
        assert (store._engine.figures.counters.get_found_times, store._engine.figures.counters.get_miss_times) == (1, 1)


def test_statistics_count_from_the_opening() -> None:
    disk = FaultyMedium()
    for expected in (3, 5):
        with open_store(ROOT, SMALL, medium=disk) as store:
            for _ in range(expected):
                store.put(Message("orders", b"x")).check()
            assert store.stats()["putMessageTimesTotal"] == expected
    with open_store(ROOT, SMALL, medium=disk, read_only=True) as store:
        assert store.stats()["putMessageTimesTotal"] == 0
        assert store.stats()["commitLogMaxOffset"] == store.max_physical_offset > 0


def test_rates_come_from_a_sample_each_second() -> None:
    clock = FakeClock()
    with open_store(ROOT, ASYNC, medium=FaultyMedium(), clock=clock) as store:
        store._engine.figures.counters.sample()
        for _ in range(10):
            for _ in range(20):
                store.put(Message("orders", b"x")).check()
            clock.advance(1000)
            store._engine.figures.counters.sample()
        assert str(store.stats()["putTps"]).split(" ")[0] == "20.0"


def test_the_store_samples_by_itself() -> None:
    with open_store(ROOT, ASYNC.with_changes(flush_interval_consume_queue=5), medium=FaultyMedium()) as store:
        wait_until(lambda: len(store._engine.figures.counters._samples) > 0)


@pytest.mark.parametrize(
    ("role", "copies", "said"), [("SYNC_MASTER", 1, 1), ("SYNC_MASTER", 2, 0), ("ASYNC_MASTER", 1, 0)]
)
def test_a_sync_master_that_waits_for_no_slave_says_so_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, role: str, copies: int, said: int
) -> None:
    config = SMALL.with_changes(broker_role=role, in_sync_replicas=copies)
    with caplog.at_level(logging.WARNING, "flintlog"), open_store(tmp_path, config):
        pass
    with open_store(tmp_path, config, read_only=True):  # it takes no puts
        pass
    assert sum("waits for no slave" in record.message for record in caplog.records) == said
