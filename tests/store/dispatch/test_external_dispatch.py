"""A store whose dispatcher is outside: what it shows, when, and what it leaves behind."""

from __future__ import annotations

import shutil
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.store.outside import dispatching
from tests.store.small_store import wait_until

from flintlog import Message, Store, StoreConfig, StoredMessage, open_store
from flintlog.disk.faulty.faulty_disk import FaultyMedium
from flintlog.disk.media.local import LocalMedium
from flintlog.errors import DiskError, ServiceNotEnabled, StoreInUse
from flintlog.maintenance.repair.repair import repair
from flintlog.maintenance.verify.verify import verify
from flintlog.pipeline.building.dispatch_core import DispatchCore
from flintlog.store.dispatch.external.dispatch_claim import Claim
from flintlog.store.dispatch.external.dispatch_journal import DispatchJournal, Published, ReadableEndFile
from flintlog.store.model.stored_message import Arrival
from flintlog.store.queues.consume_queue import ConsumeQueue

SIZES = StoreConfig(
    flush="async",
    mapped_file_size_commit_log=16 * 1024,
    mapped_file_size_consume_queue=20 * 16,
    max_hash_slot_num=50,
    max_index_num=120,
    dispatch_poll_ms=2,
    dispatch_patience_ms=20_000,
)
EXTERNAL = SIZES.with_changes(dispatch="external")


def put(store: Store, count: int, first: int = 0) -> None:
    for n in range(first, first + count):
        keys = [f"k{n}", f"all{n % 3}"] if n % 4 else []
        message = Message("orders" if n % 3 else "payments", b"%d" % n * (n % 30), queue_id=n % 2, keys=keys, tags="t")
        store.put(message).check()


def bodies(store: Store, topic: str = "orders", queue_id: int = 0) -> list[bytes]:
    found: list[bytes] = []
    offset = store.min_offset(topic, queue_id)
    while (page := store.get(topic, queue_id=queue_id, offset=offset)).messages:
        found += [message.body for message in page.messages]
        offset = page.next_offset
    return found


def derived(root: Path) -> tuple[dict[str, bytes], Counter[bytes]]:
    """Every file of the queues by its path, and those of the index, whose names are the clock's."""
    folder = root / "consumequeue"
    queues = {str(path.relative_to(root)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    return queues, Counter(path.read_bytes() for path in (root / "index").iterdir())


def embedded_twin(root: Path, twin: Path, config: StoreConfig = SIZES) -> tuple[dict[str, bytes], Counter[bytes]]:
    """What the embedded dispatcher makes of the same log."""
    (twin / "commitlog").mkdir(parents=True)
    for path in (root / "commitlog").iterdir():
        (twin / "commitlog" / path.name).write_bytes(path.read_bytes())
    with open_store(twin, config):
        pass
    return derived(twin)


def published(root: Path) -> Published | None:
    return DispatchJournal(root / "dispatch", LocalMedium()).load()


def dispatch_all(root: Path, config: StoreConfig = EXTERNAL) -> None:
    with DispatchCore(root, config, LocalMedium()) as core:
        while core.advance(4096):
            pass


@pytest.mark.parametrize("flush", ["async", "sync"])
def test_a_message_is_visible_when_it_was_published_and_not_before(tmp_path: Path, flush: str) -> None:
    config = EXTERNAL.with_changes(flush=flush)
    with open_store(tmp_path, config) as store:
        put(store, 40)
        assert store.max_offset("orders", 0) == 0
        assert store.query("orders", "k1", 0, 2**62, 10) == []
        assert store.message_at(0) is not None
        dispatch_all(tmp_path, config)
        store.wait_dispatched()
        assert store.max_offset("orders", 0) == 13
        assert [message.keys[0] for message in store.query("orders", "k1", 0, 2**62, 10)] == ["k1"]
        assert store.stats()["dispatchBehindBytes"] == 0


def test_bytes_are_those_of_the_embedded_dispatcher_after_every_way_to_stop(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with dispatching(root, EXTERNAL, batch_bytes=3000) as failures:
        for n in range(3):
            with open_store(root, EXTERNAL) as store:
                put(store, 150, 150 * n)
                if n == 1:
                    store.wait_dispatched()
    assert not failures
    assert derived(root) == embedded_twin(root, tmp_path / "twin")
    assert published(root) is None
    assert not (root / "abort").exists()


def test_without_a_dispatcher_the_store_finishes_what_is_left_before_it_stops(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with open_store(root, EXTERNAL) as store:
        put(store, 100)
    assert derived(root) == embedded_twin(root, tmp_path / "twin")
    with open_store(root, SIZES) as store:
        assert store.recovery.clean
        assert not store.recovery.findings
        assert len(bodies(store)) == 33


def test_nobody_dispatches_and_who_waits_is_told(tmp_path: Path) -> None:
    with open_store(tmp_path, EXTERNAL.with_changes(dispatch_patience_ms=50)) as store:
        put(store, 1)
        with pytest.raises(ServiceNotEnabled, match="nobody dispatches"):
            store.wait_dispatched()


def test_listeners_and_sleepers_hear_of_every_message_once_and_in_order(tmp_path: Path) -> None:
    with dispatching(tmp_path, EXTERNAL, batch_bytes=2000) as failures, open_store(tmp_path, EXTERNAL) as store:
        heard: list[Arrival] = []
        store.on_arrival(heard.append)
        wait = store._host.arrival_wait(["payments"])
        armed = wait.arm()
        put(store, 200)
        assert wait.wait(armed, 20)
        store.wait_dispatched()
        assert [arrival.physical_offset for arrival in heard] == sorted({a.physical_offset for a in heard})
        assert len(heard) == 200
        page = store.get("orders", queue_id=1, offset=heard[1].queue_offset)
        assert page.messages[0].physical_offset == heard[1].physical_offset
    assert not failures


def test_a_listener_may_put(tmp_path: Path) -> None:
    with dispatching(tmp_path, EXTERNAL) as failures, open_store(tmp_path, EXTERNAL) as store:
        done = threading.Event()

        def echo(arrival: Arrival) -> None:
            if arrival.topic == "orders":
                store.put(Message("echo", b"")).check()
                store.wait_dispatched()  # returns at once: it would wait for itself
            else:
                done.set()

        store.on_arrival(echo)
        store.put(Message("orders", b"")).check()
        assert done.wait(20)
    assert not failures


def test_after_a_crash_the_store_goes_on_from_what_was_published(tmp_path: Path) -> None:
    medium = FaultyMedium()
    root = Path("/store")
    store = open_store(root, EXTERNAL, medium=medium)
    put(store, 120)
    with DispatchCore(root, EXTERNAL, medium) as core:
        core.advance(6000)
        end = core.progress.end
        core.files.apply(end, end + 3000, end + 3000)  # written, and not published
    killed = medium.kill()
    store.shutdown()
    with open_store(root, EXTERNAL, medium=killed) as after:
        assert after.recovery.dispatched_from == end
        assert not after.recovery.findings
        assert len(bodies(after)) == 40
        put(after, 30, 120)
        with DispatchCore(root, EXTERNAL, killed) as core:
            while core.advance(6000):
                pass
    with open_store(root, SIZES, medium=killed) as embedded:
        assert embedded.recovery.clean
        assert len(bodies(embedded)) == 50


def test_a_log_that_lost_its_end_takes_what_was_published_beyond_it_along() -> None:
    medium, root = FaultyMedium(), Path("/store")
    store = open_store(root, EXTERNAL, medium=medium)
    put(store, 60)
    with DispatchCore(root, EXTERNAL, medium) as core:
        while core.advance():
            pass
        progress = core.progress
    crashed = medium.kill()
    store.shutdown()
    # The log ends after its 50th message now.
    with open_store(root, EXTERNAL, medium=crashed.kill(), read_only=True) as reader:
        offsets = [n for batch in reader.scan(include_body=False) for n in batch.column("physical_offset").to_pylist()]
    raw = crashed.open(root / "commitlog" / ("0" * 20), writable=True)
    raw.buffer[offsets[50] :] = bytes(len(raw.buffer) - offsets[50])
    with open_store(root, EXTERNAL, medium=crashed) as after:
        assert after.recovery.log_end == offsets[50]
        now = DispatchJournal(root / "dispatch", crashed).load()
        assert now is not None
        assert (now.end, now.epoch > progress.epoch) == (offsets[50], True)
        assert sum(mark.next_offset for mark in now.queues.values()) == 50
        put(after, 10, 50)
        with DispatchCore(root, EXTERNAL, crashed) as core:
            while core.advance():
                pass
        after.wait_dispatched()
        assert sum(after.max_offset(topic, n) for topic in ("orders", "payments") for n in (0, 1)) == 60


def test_queues_that_are_not_as_published_are_built_again() -> None:
    medium, root = FaultyMedium(), Path("/store")
    store = open_store(root, EXTERNAL, medium=medium)
    put(store, 60)
    with DispatchCore(root, EXTERNAL, medium) as core:
        while core.advance():
            pass
    killed = medium.kill()
    store.shutdown()
    killed.remove_tree(root / "consumequeue" / "orders" / "1")
    with open_store(root, EXTERNAL, medium=killed) as after:
        assert [finding.id for finding in after.recovery.findings][:1] == ["unpublished"]
        assert len(bodies(after, queue_id=1)) == 20


def test_back_to_the_embedded_dispatcher_needs_no_rebuild_even_after_a_crash() -> None:
    medium, root = FaultyMedium(), Path("/store")
    store = open_store(root, EXTERNAL, medium=medium)
    put(store, 60)
    with DispatchCore(root, EXTERNAL, medium) as core:
        core.advance(4000)
        end = core.progress.end
    killed = medium.kill()
    store.shutdown()
    with open_store(root, SIZES, medium=killed) as after:
        assert after.recovery.dispatched_from == end
        assert len(bodies(after)) == 20
        assert DispatchJournal(root / "dispatch", killed).load() is None
        with pytest.raises(StoreInUse, match="dispatches its messages itself"):
            DispatchCore(root, EXTERNAL, killed)


def test_a_dispatcher_that_does_not_let_go_keeps_the_store_closed(tmp_path: Path) -> None:
    config = EXTERNAL.with_changes(dispatch_patience_ms=50)
    with open_store(tmp_path, config):
        pass
    claim = Claim(tmp_path / "dispatch", LocalMedium())
    with pytest.raises(StoreInUse, match="another dispatcher holds the claim"):
        open_store(tmp_path, config)
    claim.release()
    store = open_store(tmp_path, config)
    put(store, 10)
    claim = Claim(tmp_path / "dispatch", LocalMedium())
    store.shutdown()
    assert (tmp_path / "abort").exists()
    claim.release()
    with open_store(tmp_path, config) as after:
        assert len(bodies(after)) == 3


def test_a_reader_in_another_process_follows(tmp_path: Path) -> None:
    with open_store(tmp_path, EXTERNAL) as store:
        put(store, 30)
        dispatch_all(tmp_path)
        with open_store(tmp_path, EXTERNAL, read_only=True) as reader:
            assert len(bodies(reader)) == 10
            heard = threading.Event()
            reader.on_arrival(lambda arrival: heard.set() if arrival.topic == "late" else None)
            put(store, 300, 30)
            assert len(bodies(reader)) == 10
            store.put(Message("late", b"!", keys=["late"])).check()
            dispatch_all(tmp_path)
            assert heard.wait(20)
            assert len(bodies(reader)) == 110
            assert [message.body for message in reader.query("late", "late", 0, 2**62, 10)] == [b"!"]
            assert sum(batch.num_rows for batch in reader.scan()) == 331


def test_a_reader_goes_on_when_the_store_was_opened_again(tmp_path: Path) -> None:
    with open_store(tmp_path, EXTERNAL) as store:
        put(store, 30)
    with open_store(tmp_path, EXTERNAL, read_only=True) as reader:
        assert len(bodies(reader)) == 10
        heard = threading.Event()
        reader.on_arrival(lambda arrival: heard.set())
        with open_store(tmp_path, EXTERNAL) as store:
            put(store, 30, 30)
            dispatch_all(tmp_path)
            assert heard.wait(20)
            wait_until(lambda: len(bodies(reader)) == 20)


def test_a_deleted_topic_is_gone_for_both_and_begins_anew(tmp_path: Path) -> None:
    with dispatching(tmp_path, EXTERNAL) as failures, open_store(tmp_path, EXTERNAL) as store:
        store.topics.create("orders")
        put(store, 60)
        store.topics.delete("orders")
        assert store._host.queue_ids("orders") == []
        assert not (tmp_path / "consumequeue" / "orders").exists()
        store.put(Message("orders", b"new")).check()
        store.wait_dispatched()
        assert bodies(store) == [b"new"]
        assert len(bodies(store, "payments")) == 10
    assert not failures


def test_retention_deletes_the_files_of_queues_under_the_dispatcher(tmp_path: Path) -> None:
    config = EXTERNAL.with_changes(mapped_file_size_commit_log=4096, retention="on", file_reserved_time=1)
    with dispatching(tmp_path, config) as failures, open_store(tmp_path, config) as store:
        put(store, 400)
        store.wait_dispatched()
        segments = store._engine.parts.segments
        while len(segments.segments) > 3:
            assert segments.delete_expired(0, now_ms=store._host.now_ms(), at_once=True)
        assert store._cleaning.retention is not None
        list(store._cleaning.retention._follow_log())
        first = min(int(path.name) for path in (tmp_path / "consumequeue" / "orders" / "0").iterdir())
        assert first > 0
        put(store, 100, 400)
        store.wait_dispatched()
        assert len(bodies(store)) == store.max_offset("orders", 0) - store.min_offset("orders", 0)
    assert not failures
    with open_store(tmp_path, SIZES.with_changes(mapped_file_size_commit_log=4096)) as store:
        assert store.recovery.clean
        assert not store.recovery.findings


def test_batch_queues_light_queues_and_extensions_are_followed(tmp_path: Path) -> None:
    config = EXTERNAL.with_changes(
        topic_queue_types={"batches": "BatchCQ"},
        mapped_file_size_batch_consume_queue=46 * 4,
        enable_consume_queue_ext=True,
        enable_lmq=True,
        enable_multi_dispatch=True,
    )
    with dispatching(tmp_path, config) as failures, open_store(tmp_path, config) as store:
        for n in range(20):
            store.put(Message("batches", b"two", sys_flag=0xC0, properties={"INNER_NUM": "2"})).check()
            light = {"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b"}
            store.put(Message("orders", b"%d" % n, tags="paid", properties=light)).check()
        store.wait_dispatched()
        assert store.max_offset("batches", 0) == 40
        assert len(bodies(store, "%LMQ%b")) == 20
        assert len(store.get("orders", queue_id=0, offset=0, filter="paid").messages) == 20
        assert not store.get("orders", queue_id=0, offset=0, filter="shipped").messages
    assert not failures


def test_verify_finds_nothing_wrong_with_what_is_only_late(tmp_path: Path) -> None:
    with open_store(tmp_path / "store", EXTERNAL) as store:
        put(store, 100)
        with DispatchCore(store.path, EXTERNAL, LocalMedium()) as core:
            core.advance(4000)
        store.flush()
        shutil.copytree(store.path, tmp_path / "copy")  # as a kill would leave it
        assert not verify(store.path, EXTERNAL).findings
    assert not [each for each in verify(tmp_path / "copy", EXTERNAL).findings if each.severity != "note"]
    with open_store(tmp_path / "copy", EXTERNAL):
        pass
    assert not verify(tmp_path / "copy", EXTERNAL).findings


def test_a_repair_takes_the_files_from_the_dispatcher_and_leaves_no_journal(tmp_path: Path) -> None:
    with open_store(tmp_path / "store", EXTERNAL) as store:
        put(store, 100)
        dispatch_all(store.path)
        store.flush()
        shutil.copytree(store.path, tmp_path / "copy")
    copy = tmp_path / "copy"
    entry = copy / "consumequeue" / "orders" / "0" / ("0" * 20)
    entry.write_bytes(b"\xff" * 8 + entry.read_bytes()[8:])
    with dispatching(copy, EXTERNAL):
        seen: list[Published | None] = []
        report = repair(copy, EXTERNAL, on_step=lambda _: seen.append(published(copy)))
        assert report.steps
        assert seen[0] is None
        assert published(copy) is None
    with open_store(copy, EXTERNAL) as after:
        assert len(bodies(after)) == 33


def test_what_may_be_read_is_shown_again_after_the_store_had_its_files(tmp_path: Path) -> None:
    with open_store(tmp_path, EXTERNAL) as store:
        put(store, 10)
        store.topics.create("orders")
        store.topics.delete("orders")
        assert store._host.queue_ids("orders") == []  # what was not dispatched yet went along
        readable = ReadableEndFile(tmp_path / "dispatch", LocalMedium()).load()
        assert readable is not None
        assert readable.end == store.max_physical_offset


def test_topics_deleted_by_several_threads_while_others_put(tmp_path: Path) -> None:
    with dispatching(tmp_path, EXTERNAL) as failures, open_store(tmp_path, EXTERNAL) as store:
        topics = [f"topic-{n}" for n in range(6)]
        for topic in topics:
            store.topics.create(topic)
            store.put(Message(topic, b"")).check()
        with ThreadPoolExecutor(4) as pool:
            putting = pool.submit(put, store, 300)
            list(pool.map(store.topics.delete, topics))
            putting.result()
        store.wait_dispatched()
        assert {info.topic for info in store.queues()} == {"orders", "payments"}
        assert len(bodies(store)) == 100
    assert not failures
    assert derived(tmp_path)[0].keys() == embedded_twin_of_topics(tmp_path, {"orders", "payments"})


def embedded_twin_of_topics(root: Path, topics: set[str]) -> set[str]:
    """The names of the queue files that some topics have when nothing else ever was."""
    with open_store(root.with_name(f"{root.name}-twin"), SIZES) as twin:
        put(twin, 300)
        return {name for name in derived(twin.path)[0] if name.split("/")[1] in topics}


def test_a_listener_that_deletes_a_topic_is_refused_and_nothing_stands_still(tmp_path: Path) -> None:
    with dispatching(tmp_path, EXTERNAL) as failures, open_store(tmp_path, EXTERNAL) as store:
        store.topics.create("orders")
        reported: list[str] = []

        def delete(_: Arrival) -> None:
            try:
                store._engine.dispatcher.remove_topic("orders")
            except StoreInUse as error:
                reported.append(error.what)

        store.on_arrival(delete)
        put(store, 3)
        store.wait_dispatched()
        assert reported == ["an arrival listener cannot delete queues"] * 3
    assert not failures


def test_a_reader_is_not_misled_by_files_that_were_not_published(tmp_path: Path) -> None:
    with open_store(tmp_path, EXTERNAL) as store:
        put(store, 90)
        with DispatchCore(tmp_path, EXTERNAL, LocalMedium()) as core:
            core.advance(3000)
            ahead = tmp_path / "consumequeue" / "orders" / "0" / f"{20 * 16:020d}"
            ahead.write_bytes(bytes(20 * 16))  # a task was faster than the one before it
            with open_store(tmp_path, EXTERNAL, read_only=True) as reader:
                seen = len(bodies(reader))
                assert 0 < seen < 16
                ahead.unlink()
                while core.advance():
                    pass
                wait_until(lambda: len(bodies(reader)) == 30)


def test_what_could_not_be_followed_is_looked_at_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failed = threading.Event()

    def fail_once(queue: ConsumeQueue, end: int) -> int:
        if not failed.is_set():
            failed.set()
            raise DiskError("not now")
        return follow(queue, end)

    follow = ConsumeQueue.follow
    with open_store(tmp_path, EXTERNAL) as store:
        put(store, 40)
        monkeypatch.setattr(ConsumeQueue, "follow", fail_once)
        with DispatchCore(tmp_path, EXTERNAL, LocalMedium()) as core:
            assert core.advance()
        assert failed.wait(20)
        store.wait_dispatched()
        assert len(bodies(store)) == 13


def test_what_is_written_and_not_published_is_not_served(tmp_path: Path) -> None:
    with open_store(tmp_path, EXTERNAL) as store:

        def indexed() -> list[StoredMessage]:
            return store.query("orders", "all2", 0, 2**62, 50) + store.query("orders", "all1", 0, 2**62, 50)

        put(store, 40)
        with DispatchCore(tmp_path, EXTERNAL, LocalMedium()) as core:
            core.advance(2000)
            wait_until(lambda: indexed() != [])  # the store takes the index after the queues
            seen, end = store.max_offset("orders", 0), core.progress.end
            core.files.apply(end, store.max_physical_offset, store.max_physical_offset)
            store._engine.dispatcher.advance()
            assert store.max_offset("orders", 0) == seen < 13
            found = indexed()
            assert found
            assert all(message.physical_offset < end for message in found)
