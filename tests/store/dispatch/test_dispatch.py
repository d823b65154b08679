"""Dispatch: what was put becomes visible, in order, and listeners hear of it."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

import pytest
from tests.store.small_store import ASYNC, SMALL, bodies, bytes_of, read_all

from flintlog import Arrival, Message, PutStatus, Store, StoreConfig, open_store
from flintlog.disk.faulty.faulty_disk import FaultyMedium
from flintlog.format.record import MAGIC_V1, MAGIC_V2, Record, body_crc, encode_record
from flintlog.store.runtime.lifecycle import Flag

ROOT = Path("/store")
BOTH = pytest.mark.parametrize("config", [SMALL, ASYNC], ids=["sync", "async"])


def _open(config: StoreConfig, disk: FaultyMedium | None = None) -> Store:
    return open_store(ROOT, config, medium=FaultyMedium() if disk is None else disk)


@BOTH
def test_a_message_is_visible_when_its_put_returns(config: StoreConfig) -> None:
    with _open(config) as store:
        for number in range(20):
            store.put(Message("orders", b"%d" % number, keys=[f"k{number}"])).check()
            assert store.max_offset("orders", 0) == number + 1
            assert bodies(store.query("orders", f"k{number}")) == [b"%d" % number]


def test_queues_and_index_files_roll(tmp_path: Path) -> None:
    with open_store(tmp_path, ASYNC) as store:
        for number in range(1000):
            store.put(Message("orders", b"%d" % number, keys=[f"k{number}"])).check()
        assert bodies(read_all(store, "orders")) == [b"%d" % number for number in range(1000)]
        assert all(bodies(store.query("orders", f"k{number}")) == [b"%d" % number] for number in range(0, 1000, 37))
    assert len(list((tmp_path / "consumequeue" / "orders" / "0").iterdir())) == 10
    assert len(list((tmp_path / "index").iterdir())) == 3


@BOTH
def test_without_an_index_queues_are_filled_all_the_same(config: StoreConfig) -> None:
    with _open(config.with_changes(message_index_enable=False)) as store:
        store.put(Message("orders", b"x", keys=["k"])).check()
        assert bodies(read_all(store, "orders")) == [b"x"]
        assert store.query("orders", "k") == []


# Listeners


@BOTH
def test_listeners_hear_of_every_message_in_the_logs_order(config: StoreConfig) -> None:
    heard: list[Arrival] = []
    with _open(config) as store:
        store.put(Message("orders", b"before anyone listened")).check()
        store.on_arrival(heard.append)
        receipts = [store.put(Message("orders", b"x", queue_id=number % 3)) for number in range(9)]
        receipts += store.put_batch([Message("others", b"x", tags="t")] * 3)
        store.put(Message("orders", b"prepared", sys_flag=0x4)).check()
        assert [arrival.physical_offset for arrival in heard] == [receipt.physical_offset for receipt in receipts]
        assert [arrival.queue_offset for arrival in heard] == [receipt.queue_offset for receipt in receipts]
        assert {(arrival.topic, arrival.queue_id) for arrival in heard} == {
            *(("orders", queue_id) for queue_id in range(3)),
            ("others", 0),
        }
        assert heard[-1].tags_code == ord("t") and heard[-1].store_timestamp == receipts[-1].store_timestamp


@BOTH
def test_a_listener_may_read_what_it_heard_of(config: StoreConfig) -> None:
    seen: list[bytes] = []
    with _open(config) as store:
        store.on_arrival(lambda a: seen.extend(bodies(store.get(a.topic, a.queue_id, a.queue_offset, 1).messages)))
        for number in range(5):
            store.put(Message("orders", b"%d" % number)).check()
        assert seen == [b"0", b"1", b"2", b"3", b"4"]


@BOTH
def test_a_listener_that_fails_disturbs_nobody(config: StoreConfig, caplog: pytest.LogCaptureFixture) -> None:
    heard: list[int] = []

    def fail(arrival: Arrival) -> None:
        raise ValueError("mine")

    with _open(config) as store:
        store.on_arrival(fail)
        store.on_arrival(lambda arrival: heard.append(arrival.queue_offset))
        with caplog.at_level(logging.ERROR):
            assert all(store.put(Message("orders", b"x")) for _ in range(3))
        assert heard == [0, 1, 2]
        assert store.max_offset("orders", 0) == 3
    assert "listener failed" in caplog.text


@BOTH
@pytest.mark.timeout(20)
def test_a_listener_may_put(config: StoreConfig) -> None:
    statuses: list[PutStatus] = []
    heard: list[str] = []

    def answer(arrival: Arrival) -> None:
        heard.append(arrival.topic)
        if arrival.topic == "questions":
            statuses.append(store.put(Message("answers", b"x"), check=False).status)
            statuses.append(store.put_async(Message("answers", b"x"), check=False).result(5).status)
            store.wait_dispatched()  # nothing to wait for: what follows cannot be dispatched before this returns

    with _open(config) as store:
        store.on_arrival(answer)
        for _ in range(3):
            store.put(Message("questions", b"x")).check()
        store.wait_dispatched()
        assert statuses == [PutStatus.PUT_OK] * 6
        assert store.max_offset("answers", 0) == 6
        assert heard == ["questions", "answers", "answers"] * 3


@BOTH
def test_listeners_among_threads_hear_everything_once(config: StoreConfig) -> None:
    heard: list[int] = []
    with _open(config) as store:
        store.on_arrival(lambda arrival: heard.append(arrival.physical_offset))
        threads = [
            threading.Thread(target=lambda: [store.put(Message("orders", b"x")) for _ in range(100)]) for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        store.wait_dispatched()
        assert len(heard) == 400 and heard == sorted(set(heard))


def test_wait_dispatched_waits_for_what_other_threads_put() -> None:
    with _open(SMALL) as store:
        futures = [store.put_async(Message("orders", b"x")) for _ in range(50)]
        store.wait_dispatched()
        assert store.max_offset("orders", 0) == 50
        assert all(future.result(5) for future in futures)


# What dispatch cannot do


def test_a_full_disk_stalls_dispatch_and_not_the_log() -> None:
    disk = FaultyMedium()
    config = ASYNC.with_changes(message_index_enable=False)
    with _open(config, disk) as store:
        store.put(Message("orders", b"0")).check()
        disk.capacity = 1
        for number in range(1, 150):
            assert store.put(Message("orders", b"%d" % number))
        assert store.max_offset("orders", 0) == 100, "the second queue file could not be made"
        store._engine.tick()
        assert store._engine.lifecycle.flags & Flag.LOGICS_QUEUE_ERROR
        assert store.put(Message("orders", b"x"), check=False).status is PutStatus.SERVICE_NOT_AVAILABLE
        disk.capacity = None
        store._engine.tick()
        assert not store._engine.lifecycle.flags
        assert bodies(read_all(store, "orders")) == [b"%d" % number for number in range(150)]


@pytest.mark.parametrize("topic", ["../../outside", "..", "a/b", "x" * 300], ids=lambda topic: topic[:8])
@pytest.mark.parametrize("is_clean", [True, False], ids=["clean", "unclean"])
def test_a_foreign_record_cannot_lead_out_of_the_directory(tmp_path: Path, topic: str, is_clean: bool) -> None:
    root = tmp_path / "a" / "store"
    with open_store(root, ASYNC) as store:
        end = store.put(Message("orders", b"first", keys=["k"])).check().end_offset
    evil = _record(topic, b"evil", end)
    good = _record("orders", b"second", end + len(evil), queue_offset=1)
    log = root / "commitlog" / f"{0:020d}"
    content = bytearray(log.read_bytes())
    content[end : end + len(evil + good)] = evil + good
    log.write_bytes(content)
    if not is_clean:
        (root / "abort").write_text("7")
    with open_store(root, ASYNC) as store:
        assert bodies(read_all(store, "orders")) == [b"first", b"second"]
        evil_one = store.message_at(end)
        assert evil_one is not None and evil_one.topic == topic, "by its place it can be read"
        store.put(Message("orders", b"third")).check()
    names = {Path(name).parts[2] for name in bytes_of(tmp_path)}
    assert names <= {"commitlog", "consumequeue", "index", "checkpoint", "lock", "flintlog"}
    assert [path.name for path in (root / "consumequeue").iterdir()] == ["orders"]


def _record(topic: str, body: bytes, physical_offset: int, queue_offset: int = 0) -> bytes:
    host = bytes([127, 0, 0, 1, 0, 0, 0x2A, 0x9F])
    name = topic.encode()
    return encode_record(
        Record(
            topic_bytes=name,
            body=body,
            queue_id=0,
            queue_offset=queue_offset,
            physical_offset=physical_offset,
            flag=0,
            sys_flag=0,
            born_timestamp=1,
            born_host=host,
            store_timestamp=1,
            store_host=host,
            reconsume_times=0,
            prepared_transaction_offset=0,
            body_crc=body_crc(body),
            properties=b"",
            magic=MAGIC_V2 if len(name) > 127 else MAGIC_V1,
        )
    )


def test_a_bitmap_hook_that_fails_disturbs_nobody() -> None:
    config = ASYNC.with_changes(enable_consume_queue_ext=True, mapped_file_size_consume_queue_ext=4096)

    def fail(record: bytes) -> bytes:
        raise ValueError("mine")

    with _open(config) as store:
        store.set_bitmap_hook(fail)
        assert store.put(Message("orders", b"x"))
        assert bodies(read_all(store, "orders")) == [b"x"]
