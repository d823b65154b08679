"""A log over several disks: full and read-only ones get nothing new, and the oldest goes wherever it lies."""

from __future__ import annotations

import os
import shutil
from datetime import datetime
from pathlib import Path

import pytest
from tests.store.small_store import SMALL, bodies, read_all

from flintlog import Message, Store, StoreConfig, open_store
from flintlog.disk.media.local import LocalMedium
from flintlog.disk.media.medium import DiskUsage
from flintlog.errors import DamagedStore
from flintlog.store.model.message import PutStatus
from flintlog.testing import FakeClock

BODY = bytes(500)
NAMES = ("a", "b", "c")


class Disks(LocalMedium):
    """Real files on disks that say how full they are: by the name of the path, 10 % otherwise."""

    def __init__(self) -> None:
        super().__init__()
        self.ratios: dict[str, float] = {}

    def usage(self, path: Path) -> DiskUsage:
        return DiskUsage(1000, 500, self.ratios.get(path.name, 0.1))


@pytest.fixture
def config(tmp_path: Path) -> StoreConfig:
    places = ",".join(str(tmp_path / name) for name in NAMES)
    return SMALL.with_changes(mapped_file_size_commit_log=4096, store_path_commit_log=places, flush="async")


def put_files(store: Store, count: int) -> None:
    segments = store._engine.parts.segments
    wanted = len(segments.segments) + count
    while len(segments.segments) < wanted:
        store.put(Message("orders", BODY, keys=["k"])).check()


def places(store: Store) -> list[str]:
    return [segment.path.parent.name for segment in store._engine.parts.segments.segments]


def test_a_full_path_gets_nothing_while_there_are_others(tmp_path: Path, config: StoreConfig) -> None:
    disks = Disks()
    with open_store(tmp_path / "store", config, medium=disks) as store:
        put_files(store, 3)
        disks.ratios["b"] = 0.86
        put_files(store, 7)
        # The file behind the last was made ahead, before the disk was full.
        assert set(places(store)[4:]) == {"a", "c"}
        disks.ratios["b"] = 0.85
        put_files(store, 6)
        assert "b" in places(store)[10:]
        count = store.max_offset("orders", 0)
    with open_store(tmp_path / "store", config, medium=disks) as store:
        assert len(read_all(store, "orders")) == count


def test_when_all_are_full_they_are_used_all_the_same(tmp_path: Path, config: StoreConfig) -> None:
    disks = Disks()
    disks.ratios.update(dict.fromkeys((*NAMES, "store"), 0.89))
    with open_store(tmp_path / "store", config, medium=disks) as store:
        put_files(store, 6)
        assert set(places(store)) == set(NAMES)


def test_one_disk_with_room_is_enough_to_go_on(tmp_path: Path, config: StoreConfig) -> None:
    disks, clock = Disks(), FakeClock()
    disks.ratios.update(a=0.99, b=0.99, c=0.5)
    watched = config.with_changes(file_reserved_time=72)
    with open_store(tmp_path / "store", watched, medium=disks, clock=clock) as store:
        put_files(store, 4)
        clock.advance(60_000)
        assert len(places(store)) == 4, "nothing is deleted by force"
        assert store.put(Message("orders", b"x")).status is PutStatus.PUT_OK
        disks.ratios["c"] = 0.99
        clock.advance(60_000)
        assert store.put(Message("orders", b"x"), check=False).status is PutStatus.SERVICE_NOT_AVAILABLE


@pytest.mark.parametrize("read_only", ["", "a"])
def test_the_oldest_goes_wherever_it_lies(tmp_path: Path, config: StoreConfig, read_only: str) -> None:
    night_ms = int(datetime(2026, 3, 14, 4).timestamp() * 1000)
    clock = FakeClock(night_ms - 1_000_000)
    aging = config.with_changes(file_reserved_time=1, delete_commit_log_files_interval=0)
    with open_store(tmp_path / "store", aging, clock=clock) as store:
        put_files(store, 7)
    if read_only:
        aging = aging.with_changes(read_only_commit_log_store_paths=str(tmp_path / read_only))
    with open_store(tmp_path / "store", aging, clock=clock) as store:
        for segment in store._engine.parts.segments.segments:
            os.utime(segment.path, (0, 0))
        clock.set(night_ms)
        assert [segment.base for segment in store._engine.parts.segments.segments] == [6 * 4096]
        assert store.min_physical_offset == 6 * 4096
        assert bodies(read_all(store, "orders"))
    with open_store(tmp_path / "store", aging, clock=clock) as store:
        assert not list(store.recovery)
        assert store.min_physical_offset == 6 * 4096


@pytest.mark.parametrize("flush", ["sync", "async"])
def test_recovery_over_several_paths(tmp_path: Path, config: StoreConfig, flush: str) -> None:
    config = config.with_changes(flush=flush)
    with open_store(tmp_path / "store", config) as store:
        put_files(store, 8)
        expected = bodies(read_all(store, "orders"))
        for name in NAMES:
            shutil.copytree(tmp_path / name, tmp_path / "killed" / name)
        shutil.copytree(tmp_path / "store", tmp_path / "killed" / "store")
    moved = config.with_changes(store_path_commit_log=",".join(str(tmp_path / "killed" / name) for name in NAMES))
    with open_store(tmp_path / "killed" / "store", moved) as store:
        assert not store.recovery.clean
        assert bodies(read_all(store, "orders")) == expected
        assert len(store.query("orders", "k", max_count=64)) == min(64, len(expected))
        put_files(store, 3)
        assert set(places(store)) == set(NAMES)


def test_a_path_that_is_missing_costs_what_it_held(tmp_path: Path, config: StoreConfig) -> None:
    with open_store(tmp_path / "store", config) as store:
        put_files(store, 7)
        on_others = [message.body for message in read_all(store, "orders") if message.physical_offset // 4096 % 3 != 1]
    shutil.move(tmp_path / "b", tmp_path / "away")
    (tmp_path / "store/abort").write_text("1")
    with open_store(tmp_path / "store", config, read_only=True) as store:
        assert [finding.physical_offset for finding in store.recovery] == [4096, 4 * 4096]
        assert bodies(read_all(store, "orders")) == on_others


def test_one_file_on_two_paths_is_refused(tmp_path: Path, config: StoreConfig) -> None:
    with open_store(tmp_path / "store", config) as store:
        put_files(store, 4)
    name = min(os.listdir(tmp_path / "a"))
    shutil.copy(tmp_path / "a" / name, tmp_path / "b" / name)
    with pytest.raises(DamagedStore, match="two files for one offset"):
        open_store(tmp_path / "store", config)
