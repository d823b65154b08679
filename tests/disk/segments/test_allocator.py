"""Files made ahead of time, and what becomes of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from flintlog.disk.faulty.faulty_disk import FaultyMedium
from flintlog.disk.media.medium import Medium
from flintlog.disk.segments.allocator import SegmentAllocator
from flintlog.disk.segments.buffer_pool import TransientStorePool
from flintlog.disk.segments.segment import Segment
from flintlog.disk.segments.segment_queue import SegmentQueue
from flintlog.errors import DiskError, DiskFull
from flintlog.format.names import segment_name

SIZE = 16384


@pytest.fixture
def allocator(medium: Medium) -> Iterator[SegmentAllocator]:
    allocator = SegmentAllocator(medium)
    allocator.start()
    yield allocator
    allocator.shut_down()


@pytest.fixture
def queue(medium: Medium, folder: Path, allocator: SegmentAllocator) -> SegmentQueue:
    return SegmentQueue([folder / "log"], SIZE, medium, allocator=allocator)


def names(queue: SegmentQueue, folder: Path) -> list[str]:
    return [info.name for info in queue.medium.listing(folder / "log")]


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.002)


def fill(segment: Segment | None) -> None:
    assert segment is not None
    segment.wrote_position = SIZE


def test_the_next_file_is_made_ahead(queue: SegmentQueue, folder: Path) -> None:
    assert queue.last_or_new() is not None
    wait_until(lambda: len(names(queue, folder)) == 2)
    assert names(queue, folder)[-1] == segment_name(SIZE)
    assert len(queue.segments) == 1


def test_the_file_made_ahead_is_the_one_used_next(queue: SegmentQueue, folder: Path) -> None:
    for number in range(4):
        segment = queue.last_or_new()
        assert segment is not None
        assert segment.base == number * SIZE
        fill(segment)
    wait_until(lambda: len(names(queue, folder)) == 5)


def test_unused_files_are_deleted_at_shutdown(queue: SegmentQueue, allocator: SegmentAllocator, folder: Path) -> None:
    queue.last_or_new()
    wait_until(lambda: len(names(queue, folder)) == 2)
    allocator.shut_down()
    assert names(queue, folder) == [segment_name(0)]


def test_without_its_thread_it_makes_what_is_asked_for(medium: Medium, folder: Path) -> None:
    queue = SegmentQueue([folder / "log"], SIZE, medium, allocator=SegmentAllocator(medium))
    assert queue.last_or_new() is not None
    assert names(queue, folder) == [segment_name(0)]


def test_a_caller_that_waits_too_long_gets_an_error_and_the_file_later(tmp_path: Path) -> None:
    medium = FaultyMedium()
    gate = threading.Event()

    def slowly(path: Path) -> None:
        gate.wait(10)

    medium.before_sync = slowly
    allocator = SegmentAllocator(medium, timeout_ms=20)
    allocator.start()
    queue = SegmentQueue([tmp_path], SIZE, medium, allocator=allocator)
    assert queue.last_or_new() is None
    assert isinstance(queue.create_failure, DiskError)
    gate.set()
    wait_until(lambda: queue.last_or_new() is not None)
    assert [segment.base for segment in queue.segments] == [0]
    allocator.shut_down()


def test_a_full_disk_while_working_ahead_harms_nothing(tmp_path: Path) -> None:
    medium = FaultyMedium(capacity=SIZE)
    allocator = SegmentAllocator(medium)
    allocator.start()
    queue = SegmentQueue([tmp_path], SIZE, medium, allocator=allocator)
    fill(queue.last_or_new())
    assert queue.last_or_new() is None
    assert isinstance(queue.create_failure, DiskFull)
    medium.capacity = 10 * SIZE
    assert queue.last_or_new() is not None, "an old failure is not remembered"
    allocator.shut_down()
    assert len(medium.listing(tmp_path)) == 2


def test_a_file_handed_over_is_durable_already(tmp_path: Path) -> None:
    medium = FaultyMedium()
    allocator = SegmentAllocator(medium)
    allocator.start()
    SegmentQueue([tmp_path / "log"], SIZE, medium, allocator=allocator).last_or_new()
    for seed in range(10):
        assert medium.crash(seed).exists(tmp_path / "log" / segment_name(0))
    allocator.shut_down()


def test_a_path_that_fills_up_meanwhile_does_not_make_two_files_of_one_name(tmp_path: Path) -> None:
    medium = FaultyMedium()
    allocator = SegmentAllocator(medium)
    allocator.start()
    full: set[Path] = set()
    paths = [tmp_path / "a", tmp_path / "b"]
    queue = SegmentQueue(paths, SIZE, medium, allocator=allocator, full_directories=lambda: full)
    fill(queue.last_or_new())
    wait_until(lambda: medium.exists(tmp_path / "b" / segment_name(SIZE)))
    full.add(tmp_path / "b")
    segment = queue.last_or_new()
    assert segment is not None
    assert segment.path == tmp_path / "b" / segment_name(SIZE)
    assert not medium.exists(tmp_path / "a" / segment_name(SIZE))
    allocator.shut_down()


def test_warm_up_touches_the_whole_file(medium: Medium, folder: Path) -> None:
    allocator = SegmentAllocator(medium, warm_up=True)
    segment = SegmentQueue([folder / "log"], SIZE, medium, allocator=allocator).last_or_new()
    assert segment is not None
    assert segment.warm_ahead(SIZE) == 0, "nothing is left to touch"


def test_fast_fail_makes_no_file_without_a_buffer(tmp_path: Path) -> None:
    medium = FaultyMedium()
    pool = TransientStorePool(1, SIZE)
    pool.start()
    allocator = SegmentAllocator(medium, pool=pool, fast_fail_if_no_buffer=True)
    queue = SegmentQueue([tmp_path], SIZE, medium, allocator=allocator)
    first = queue.last_or_new()
    assert first is not None
    first.wrote_position = SIZE
    assert queue.last_or_new() is None
    assert queue.create_failure is not None
    assert "buffer" in str(queue.create_failure)
    assert len(medium.listing(tmp_path)) == 1
    queue.commit()
    assert queue.last_or_new() is not None


def test_without_fast_fail_a_file_without_a_buffer_is_a_plain_one(tmp_path: Path) -> None:
    medium = FaultyMedium()
    pool = TransientStorePool(0, SIZE)
    pool.start()
    segment = SegmentQueue([tmp_path], SIZE, medium, allocator=SegmentAllocator(medium, pool=pool)).last_or_new()
    assert segment is not None
    segment.append(b"abc")
    assert segment.read_position == 3
