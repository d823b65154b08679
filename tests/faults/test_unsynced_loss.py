"""Power losses that cost nothing that anybody could rely on: no finding, and no offset given again."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path

import pytest

from flintlog import Message, Store, open_store
from flintlog.disk.faulty.faulty_disk import FaultyMedium
from flintlog.format.checkpoint import parse_checkpoint
from flintlog.format.index_file import parse_index_header
from flintlog.testing import FakeClock
from tests.faults.stopping import PowerLost, StoppingMedium
from tests.faults.world import ROOT, small_config

NOON_MS = int(datetime(2026, 3, 10, 12).timestamp() * 1000)
NIGHT_MS = int(datetime(2026, 3, 14, 4).timestamp() * 1000)
EXPLAINED = {"torn-tail", "damaged-range"}
"""What a power loss leaves of records that were never synced."""


@pytest.mark.parametrize("flush", ["sync", "async"])
def test_queues_and_an_index_that_were_never_synced_are_not_missing(flush: str) -> None:
    for seed in range(30):
        medium = FaultyMedium()
        store = open_store(ROOT, small_config(flush), medium=medium)
        for number in range(20):
            store.put(Message("orders", b"%d" % number, keys=[f"k{number}"])).check()
        after = medium.crash(seed)
        store.shutdown()
        with open_store(ROOT, small_config(flush), medium=after) as again:
            found = {finding.id for finding in again.recovery}
            assert found <= EXPLAINED, f"seed {seed}: {found}"


def test_the_checkpoint_speaks_of_no_index_that_an_interrupted_opening_has_dropped() -> None:
    config, made = small_config(), FaultyMedium()
    for number in range(2):  # stopped cleanly with one file of the index, which grows in the next life
        store = open_store(ROOT, config, medium=made)
        for key in range(8):
            store.put(Message("orders", b"x", keys=[f"{number}-{key}"])).check()
        if number == 0:
            store.shutdown()
    killed = made.kill()
    store.shutdown()
    for step in range(60):
        dying = StoppingMedium.over(killed, step)
        try:
            opened = open_store(ROOT, config, medium=dying)
        except PowerLost:
            opened = None
        left = dying.crash(step)
        if opened is not None:
            dying.left = 10_000
            opened.shutdown()
        reached = [parse_index_header(left.read(ROOT / "index" / info.name)) for info in left.listing(ROOT / "index")]
        vouched = parse_checkpoint(left.read(ROOT / "checkpoint")).index_msg_timestamp
        assert vouched <= max((header.end_timestamp for header in reached), default=0), f"after {step} steps"
        with open_store(ROOT, config, medium=left) as again:
            assert not list(again.recovery), f"after {step} steps"
            assert len(again.query("orders", "1-7")) == 1


def filled(store: Store, *, files: int) -> dict[tuple[str, int], int]:
    """Messages in several files of the log, of which one queue has none in the last; the next offset of each queue."""
    ends: dict[tuple[str, int], int] = {}
    number = 0
    while len(store._engine.parts.segments.segments) < files:
        topic, queue_id = ("early", 0) if number < 7 else ("orders", number % 3)
        receipt = store.put(Message(topic, b"%d " % number + b"x" * 900, queue_id=queue_id)).check()
        ends[topic, queue_id] = receipt.queue_offset + 1
        number += 1
    store.wait_dispatched()
    return ends


@pytest.mark.parametrize("flush", ["sync", "async"])
def test_a_log_file_is_not_deleted_before_the_ends_of_its_queues_are_durable(flush: str) -> None:
    """The checkpoint was never written before: without the records nothing could tell which offsets were given."""
    for seed in range(6):
        config = small_config(flush, file_reserved_time=72, delete_commit_log_files_interval=0)
        medium, clock = FaultyMedium(clock_ms=lambda: NOON_MS), FakeClock(NOON_MS)
        store = open_store(ROOT, config, medium=medium, clock=clock)
        ends = filled(store, files=4)
        store.flush()
        clock.set(NIGHT_MS)
        assert store.min_physical_offset == 3 * config.mapped_file_size_commit_log
        after = medium.crash(seed)
        store.shutdown()
        with open_store(ROOT, config, medium=after, clock=clock) as again:
            assert not list(again.recovery)
            for (topic, queue_id), end in ends.items():
                assert again.max_offset(topic, queue_id) == end
                assert again.put(Message(topic, b"next", queue_id=queue_id)).queue_offset == end


def test_retention_does_not_call_durable_what_another_pass_is_syncing() -> None:
    """The queue flush has taken a queue, and its sync lasts: a thread that covers the log's files waits for it."""
    medium, is_syncing, go_on = FaultyMedium(), threading.Event(), threading.Event()

    def before_sync(path: Path) -> None:
        if "consumequeue" in path.parts and not is_syncing.is_set():
            is_syncing.set()
            go_on.wait(10)

    store = open_store(ROOT, small_config(flush_consume_queue_least_pages=0), medium=medium)
    queue_flush = store._engine.flushing.queue_flush
    assert queue_flush is not None
    store.put(Message("orders", b"x")).check()
    medium.before_sync = before_sync
    with ThreadPoolExecutor(2) as threads:
        passing = threads.submit(queue_flush._pass)
        assert is_syncing.wait(10)
        covering = threads.submit(queue_flush.cover, store.max_physical_offset)
        with pytest.raises(TimeoutError):
            covering.result(0.3)
        go_on.set()
        assert covering.result(10)
        passing.result(10)
    store.shutdown()


def test_a_log_that_was_never_synced_is_not_missed_by_the_opening_after_the_next(tmp_path: Path) -> None:
    """The queues reached the disk, nothing of the log did; the first opening deletes them and stops cleanly."""
    config = small_config("async")
    with open_store(tmp_path, config) as store:
        for number in range(3):
            store.put(Message("orders", b"%d" % number))
        store.wait_dispatched()
    for path in (tmp_path / "commitlog").iterdir():
        path.write_bytes(bytes(path.stat().st_size))
    (tmp_path / "checkpoint").write_bytes(bytes(4096))
    for name in ("stop.json", "queues.json"):
        (tmp_path / "flintlog" / name).unlink(missing_ok=True)
    (tmp_path / "abort").write_text("1")
    for _ in range(2):
        with open_store(tmp_path, config) as store:
            assert [str(finding) for finding in store.recovery] == []
    with open_store(tmp_path, config) as store:
        assert store.put(Message("orders", b"next")).queue_offset == 3, "an offset that a queue shows was given"
