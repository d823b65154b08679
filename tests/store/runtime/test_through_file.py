"""A store whose large batches go through the log's file: what it holds is what the map would hold."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from tests.store.small_store import SMALL, bytes_of, wait_until

from flintlog import Message, Store, StoreConfig, encoded_batch, kernel, open_store
from flintlog.disk.faulty.faulty_disk import FaultyMedium
from flintlog.disk.segments import segment as disk_segment
from flintlog.disk.segments.segment import Segment
from flintlog.errors import DiskError

pytestmark = pytest.mark.skipif(kernel.name != "native", reason="the plain kernel writes into the map")

CONFIG = SMALL.with_changes(mapped_file_size_commit_log=256 * 1024, max_message_size=64 * 1024)
BATCHES = 40


def messages(number: int, body_bytes: int) -> list[Message]:
    return [
        Message(
            "orders",
            bytes([number, place]) * (body_bytes // 2),
            queue_id=number % 3,
            keys=[f"{number}-{place}"],
            born_timestamp=1,
        )
        for place in range(6)
    ]


def fill(store: Store) -> None:
    """Large and small batches, ready ones, and single messages, over several files."""
    for number in range(BATCHES):
        store.put_batch(messages(number, 4000)).check()
        store.put_encoded(encoded_batch(messages(number, 4000 if number % 2 else 40))).check()
        if number % 5 == 0:
            store.put_batch(messages(number, 40)).check()
            store.put(messages(number, 4000)[0]).check()


def log_of(store: Store) -> bytes:
    raw, parts, offset = store.replication.raw_log, [], 0
    while offset < raw.end:
        parts.append(raw.read(offset, 1 << 20))
        offset += len(parts[-1])
    return b"".join(parts)


def tail_of(store: Store) -> Segment:
    segment = store._engine.parts.segments.last
    assert segment is not None
    return segment


def open_files(directory: Path) -> list[str]:
    names = (os.path.realpath(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd"))
    return [name for name in names if name.startswith(str(directory))]


@pytest.mark.parametrize("flush", ["async", "sync"])
def test_the_log_is_the_one_that_a_map_would_hold(tmp_path: Path, flush: str) -> None:
    config = CONFIG.with_changes(flush=flush)
    with (
        open_store(tmp_path / "file", config, clock=lambda: 5000) as store,
        open_store(Path("/map"), config, medium=FaultyMedium(), clock=lambda: 5000) as beside,
    ):
        for each in (store, beside):
            fill(each)
            each.flush()
            each.wait_dispatched()
        store.put_batch(messages(0, 4000)).check()
        beside.put_batch(messages(0, 4000)).check()
        assert tail_of(store).tail.is_through_file and not tail_of(beside).tail.is_through_file
        store.flush()
        beside.flush()
        assert log_of(store) == log_of(beside)
        assert store.max_physical_offset > 4 * config.mapped_file_size_commit_log
    with open_store(tmp_path / "file", config) as store:
        assert not store.recovery.findings
        for queue_id in range(3):
            count = store.max_offset("orders", queue_id)
            assert all(store.get("orders", queue_id, offset, 1).messages for offset in range(count))
        assert sum(batch.num_rows for batch in store.scan()) == sum(
            store.max_offset("orders", each) for each in range(3)
        )


def test_only_the_file_at_the_logs_end_is_kept_open(tmp_path: Path) -> None:
    logs = tmp_path / "commitlog"
    with open_store(tmp_path, CONFIG.with_changes(flush="async")) as store:
        fill(store)
        assert len(list(logs.iterdir())) > 3
        # The next file may just be being made, and its name synced.
        wait_until(lambda: open_files(logs) == [str(tail_of(store).path)])
    assert open_files(logs) == []


def test_pages_are_not_touched_for_a_writer_through_the_file(tmp_path: Path) -> None:
    config = StoreConfig(flush="async", mapped_file_size_commit_log=64 << 20, warm_ahead_bytes=0)
    with open_store(tmp_path, config) as store:
        for body_bytes, is_needed in ((4000, False), (40, True), (4000, False)):
            store.put_batch(messages(0, body_bytes)).check()
            assert bool(tail_of(store).warm_ahead(1 << 20)) is is_needed
        for _ in range(8):
            store.put_batch(messages(0, 4000)).check()
        assert tail_of(store).warm_ahead(2 << 20, for_syncs=True)  # a sync does: of space that was written before


def test_the_long_way_makes_no_pages_ready_for_the_file(tmp_path: Path) -> None:
    config = StoreConfig(flush="async", mapped_file_size_commit_log=64 << 20, warm_ahead_bytes=0)
    with open_store(tmp_path, config) as store:
        store.put_batch(messages(0, 4000)).check()
        ready = tail_of(store).make_ready(1)
        for number in range(200):
            store.put_batch(tuple(messages(number, 4000))).check()
        assert tail_of(store).wrote_position > ready == tail_of(store)._touched_until


@pytest.mark.parametrize("is_dear", [True, False], ids=["dear", "cheap"])
def test_a_writer_writes_through_the_file_where_pages_are_expensive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_dear: bool
) -> None:
    monkeypatch.setattr(disk_segment, "DEAR_PAGE_NS", -1 if is_dear else 10**12)
    config = StoreConfig(flush="async", mapped_file_size_commit_log=64 << 20, warm_ahead_bytes=0)
    with open_store(tmp_path, config) as store:
        store.put_batch(messages(0, 800)).check()
        store.put_batch(messages(0, 800)).check()
        assert tail_of(store).tail.is_through_file is is_dear
        assert len(store.get("orders", 0, 0).messages) == 2 * len(messages(0, 800))
        store.put(messages(0, 800)[0]).check()
        assert not tail_of(store).tail.is_through_file


@pytest.mark.parametrize("flush", ["async", "sync"])
def test_a_store_stays_where_it_was_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flush: str) -> None:
    (tmp_path / "here").mkdir()
    with open_store(tmp_path / "elsewhere" / "store", CONFIG) as other:
        fill(other)
    before = bytes_of(tmp_path / "elsewhere")
    monkeypatch.chdir(tmp_path / "here")
    with open_store("store", CONFIG.with_changes(flush=flush)) as store:
        monkeypatch.chdir(tmp_path / "elsewhere")
        fill(store)
        store.wait_dispatched()
        counts = [store.max_offset("orders", queue_id) for queue_id in range(3)]
        assert sum(batch.num_rows for batch in store.scan()) == sum(counts)
    assert bytes_of(tmp_path / "elsewhere") == before


def test_another_file_under_the_logs_next_name_is_left_alone(tmp_path: Path) -> None:
    """As a restore may put one there, behind our back, after ours was made ahead."""
    with open_store(tmp_path / "store", CONFIG.with_changes(flush="async")) as store:
        store.put_batch(messages(0, 4000)).check()
        ahead = tmp_path / "store" / "commitlog" / f"{CONFIG.mapped_file_size_commit_log:020}"
        while not ahead.exists():
            time.sleep(0.01)
        foreign = tmp_path / "foreign"
        foreign.write_bytes(b"f" * CONFIG.mapped_file_size_commit_log)
        foreign.rename(ahead)
        acknowledged = [store.put_batch(messages(0, 4000))]
        with pytest.raises(DiskError, match="cannot make room"):
            acknowledged.extend(store.put_batch(messages(number, 4000)) for number in range(100))
        store.wait_dispatched()
        assert sum(store.max_offset("orders", queue_id) for queue_id in range(3)) == (1 + len(acknowledged)) * 6
        assert not ahead.read_bytes().strip(b"f")
