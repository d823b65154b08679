"""A killed process, an opening, a power loss: what the opening vouched for is on the disk."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from flintlog import Message, Store, StoreConfig, open_store
from flintlog.disk.faulty.faulty_disk import FaultyMedium
from flintlog.disk.media.durable_names import sync_files
from flintlog.disk.segments.segment_queue import SegmentQueue
from flintlog.format.names import segment_name
from flintlog.format.timer import Slot
from flintlog.maintenance.backup.backup import backup, verify_backup
from flintlog.services.timer.timer_log import TimerLog
from flintlog.services.timer.timer_wheel import TimerWheel
from flintlog.store.log.set_aside import keep_aside
from tests.faults.world import ROOT, small_config

COUNT = 130
SEEDS = range(12)
KINDS = {
    "plain": small_config("async"),
    "extension": small_config("async", enable_consume_queue_ext=True, mapped_file_size_consume_queue_ext=1024),
    "batch": small_config("async", topic_queue_types={"t": "BatchCQ"}, mapped_file_size_batch_consume_queue=46 * 20),
}


def put(store: Store, kind: str, number: int) -> None:
    message = Message("t", b"%d" % number, tags="ab"[number % 2], keys=[f"k{number}"])
    store.put(message).check()


def tagged(store: Store, tag: str | None) -> list[int]:
    found, offset = list[int](), store.min_offset("t", 0)
    while offset < store.max_offset("t", 0):
        page = store.get("t", 0, offset, filter=tag)
        found += [int(message.body) for message in page.messages]
        offset = max(page.next_offset, offset + 1)
    return found


@contextmanager
def running(medium: FaultyMedium, config: StoreConfig) -> Iterator[Store]:
    """A store that is left as it is: whatever its end would sync is synced on a disk that nobody looks at."""
    store = open_store(ROOT, config, medium=medium)
    try:
        yield store
    finally:
        store.close()


@pytest.mark.parametrize("kind", KINDS)
def test_files_of_a_killed_store_survive_a_power_loss_after_the_next_opening(kind: str) -> None:
    config = KINDS[kind]
    first = FaultyMedium()
    with running(first, config) as store:
        for number in range(COUNT):
            put(store, kind, number)
        killed = first.kill()
    second = killed.kill()
    with running(second, config):
        lost_power = [second.crash(seed) for seed in SEEDS]
    for seed, medium in zip(SEEDS, lost_power, strict=True):
        with open_store(ROOT, config, medium=medium) as store:
            assert [found.id for found in store.recovery] == [], seed
            put(store, kind, COUNT)  # in the place of a unit that is missing, of the other tag
            store.wait_dispatched()
            assert tagged(store, None) == list(range(COUNT + 1)), seed
            assert tagged(store, "b") == list(range(1, COUNT, 2)), seed
            assert all(store.query("t", f"k{number}") for number in range(COUNT)), seed


def test_end_that_a_slave_reports_after_a_kill_is_durable() -> None:
    first = FaultyMedium()
    with running(first, KINDS["plain"]) as store:
        for number in range(COUNT):
            put(store, "plain", number)
        killed = first.kill()
    second = killed.kill()
    slave = small_config("sync", broker_role="SLAVE")
    with running(second, slave) as store:
        end = store.replication.raw_log.end
        lost_power = [second.crash(seed) for seed in SEEDS]
    assert end > COUNT * 50
    for medium in lost_power:
        with open_store(ROOT, slave, medium=medium) as store:
            assert store.replication.raw_log.end == end


def test_opening_after_a_clean_stop_syncs_no_queue_file() -> None:
    medium = FaultyMedium()
    with open_store(ROOT, KINDS["plain"], medium=medium) as store:
        for number in range(COUNT):
            put(store, "plain", number)
    synced: list[str] = []
    after = medium.kill()
    after.before_sync = lambda path: synced.append(str(path))
    with open_store(ROOT, KINDS["plain"], medium=after):
        pass
    assert not [path for path in synced if "/consumequeue/" in path or "/commitlog/" in path]


@pytest.mark.parametrize("by", ["another program", "an earlier version"])
def test_opening_after_a_clean_stop_of_another_program_syncs_what_it_found(by: str) -> None:
    medium = FaultyMedium()
    with open_store(ROOT, KINDS["plain"], medium=medium) as store:
        put(store, "plain", 0)
    marker = ROOT / "flintlog" / "stop.json"
    if by == "another program":
        medium.remove(marker)
    else:
        medium.replace(marker, medium.read(marker).split(b" ")[0])  # without a checksum
    synced: list[str] = []
    after = medium.kill()
    after.before_sync = lambda path: synced.append(str(path))
    with open_store(ROOT, KINDS["plain"], medium=after) as store:
        assert store.recovery.clean
        assert [path for path in synced if "/commitlog/" in path]
        assert [path for path in synced if "/index/" in path]
    assert [path for path in synced if "/consumequeue/" in path]


def test_bytes_that_were_kept_aside_before_a_kill_keep_their_name() -> None:
    before = FaultyMedium()
    before.make_directories(ROOT / "log")
    before.make_directories(ROOT / "cut")
    before.create(ROOT / "log" / segment_name(0), 4096).buffer[100:105] = b"stray"
    for folder in (ROOT.parent, ROOT, ROOT / "log"):
        before.sync_directory(folder)
    before.write(ROOT / "cut" / "new", b"stray")
    before.rename(ROOT / "cut" / "new", ROOT / "cut" / segment_name(100))  # killed before it has synced the name
    medium = before.kill()
    segments = SegmentQueue([ROOT / "log"], 4096, medium)
    segments.load()
    (kept,) = keep_aside(segments, 100, ROOT / "cut", medium)
    assert kept == ROOT / "cut" / segment_name(100)
    assert all(medium.crash(seed).exists(kept) for seed in SEEDS)


def test_slots_of_a_timer_wheel_that_were_found_are_durable() -> None:
    path, before = ROOT / "timerwheel", FaultyMedium()
    before.make_directories(ROOT)
    wheel = TimerWheel.make(path, 64, 1000, before)
    wheel.put(Slot(5, 0, 0))
    wheel.flush()
    before.open(path, writable=True).buffer[9 * 32 : 9 * 32 + 8] = (9).to_bytes(8, "big")  # killed in the next flush
    medium = before.kill()
    assert TimerWheel.open(path, 64, 1000, medium) is not None
    assert all(medium.crash(seed).read(path)[9 * 32 + 7] == 9 for seed in SEEDS)


def test_timer_log_that_was_found_is_durable_after_its_flush() -> None:
    before = FaultyMedium()
    before.make_directories(ROOT / "timerlog")
    written = TimerLog(ROOT / "timerlog", 5200, before)
    written.load()
    written.room()
    written.append(b"u" * 52)
    medium = before.kill()
    found = TimerLog(ROOT / "timerlog", 5200, medium)
    assert found.load()
    found.cut(52)
    found.flush()
    path = ROOT / "timerlog" / segment_name(0)
    assert all(medium.crash(seed).read(path).rstrip(b"\0") == b"u" * 52 for seed in SEEDS)


def test_backup_in_directories_of_a_killed_one_keeps_them() -> None:
    medium = FaultyMedium()
    with open_store(ROOT, KINDS["plain"], medium=medium) as store:
        put(store, "plain", 0)
    medium.sync_directory(ROOT.parent)
    target = Path("/backups/today")
    medium.make_directories(target / "files")
    after = medium.kill()
    backup(ROOT, target, medium=after)
    for seed in SEEDS:
        assert verify_backup(target, medium=after.crash(seed))[1] == [], seed


def test_files_of_folders_are_made_durable_with_their_names() -> None:
    medium = FaultyMedium()
    medium.make_directories(ROOT / "log")
    medium.create(ROOT / "log" / "0", 4096).buffer[:5] = b"found"
    after = medium.kill()
    sync_files([ROOT / "log", ROOT / "missing"], after)
    assert all(after.crash(seed).head(ROOT / "log" / "0", 5) == b"found" for seed in SEEDS)
