"""Retention: the oldest first, never the last, never a hole."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from flintlog.disk.faulty.faulty_disk import FaultyMedium
from flintlog.disk.segments.segment import Segment
from flintlog.disk.segments.segment_queue import SegmentQueue

SEGMENT_SIZE = 16384

MakeQueue = Callable[[int], SegmentQueue]


def fill(segment: Segment | None, data: bytes) -> None:
    assert segment is not None
    assert segment.append(data)
    segment.wrote_position = segment.size


HOUR_MS = 3_600_000


@pytest.fixture
def aged() -> SegmentQueue:
    """Five segments, last written at hours 0, 1, 2, 3 and 4."""
    medium = FaultyMedium(clock_ms=lambda: 0)
    queue = SegmentQueue([Path("/log")], SEGMENT_SIZE, medium)
    for number in range(5):
        segment = queue.last_or_new()
        assert segment is not None
        fill(segment, b"x")
        medium.set_modified(segment.path, number * HOUR_MS)
    return queue


def bases(queue: SegmentQueue) -> list[int]:
    return [segment.base // SEGMENT_SIZE for segment in queue.segments]


def test_expired_files_are_deleted_and_younger_ones_stay(aged: SegmentQueue) -> None:
    assert aged.delete_expired(HOUR_MS, now_ms=2 * HOUR_MS) == 2
    assert bases(aged) == [2, 3, 4]


def test_a_file_expires_exactly_when_its_time_is_over(aged: SegmentQueue) -> None:
    assert aged.delete_expired(HOUR_MS, now_ms=HOUR_MS - 1) == 0
    assert aged.delete_expired(HOUR_MS, now_ms=HOUR_MS) == 1


def test_the_last_file_is_never_deleted(aged: SegmentQueue) -> None:
    assert aged.delete_expired(0, now_ms=100 * HOUR_MS, at_once=True) == 4
    assert bases(aged) == [4]
    assert aged.delete_expired(0, now_ms=100 * HOUR_MS, at_once=True) == 0


@pytest.mark.parametrize(("batch_max", "deleted"), [(0, 1), (1, 1), (3, 3), (10, 4)])
def test_a_run_deletes_at_most_a_batch(aged: SegmentQueue, batch_max: int, deleted: int) -> None:
    assert aged.delete_expired(0, now_ms=100 * HOUR_MS, batch_max=batch_max) == deleted


def test_a_young_file_protects_all_later_ones(aged: SegmentQueue) -> None:
    first = aged.first
    assert first is not None
    assert isinstance(aged.medium, FaultyMedium)
    aged.medium.set_modified(first.path, 50 * HOUR_MS)
    assert aged.delete_expired(HOUR_MS, now_ms=10 * HOUR_MS) == 0


def test_at_once_ignores_age(aged: SegmentQueue) -> None:
    assert aged.delete_expired(72 * HOUR_MS, now_ms=5 * HOUR_MS, at_once=True, batch_max=2) == 2


def test_deleting_stops_at_a_file_that_a_reader_holds(aged: SegmentQueue) -> None:
    second = aged.segments[1]
    assert second.hold()
    assert aged.delete_expired(0, now_ms=100 * HOUR_MS) == 1
    assert bases(aged) == [1, 2, 3, 4]


def test_files_after_one_that_hangs_are_flushed(aged: SegmentQueue) -> None:
    first = aged.first
    assert first is not None and first.hold()
    assert aged.delete_expired(0, now_ms=5 * HOUR_MS) == 0
    aged.flush_all()
    assert aged.flushed_where == 5 * SEGMENT_SIZE
    assert [segment.flushed_position for segment in aged.segments[1:]] == [SEGMENT_SIZE] * 4


def test_a_hanging_first_file_is_retried_and_forced(aged: SegmentQueue) -> None:
    first = aged.first
    assert first is not None
    assert first.hold()
    now_ms = 100 * HOUR_MS
    assert not aged.retry_delete_first(now_ms=now_ms), "it does not hang yet"
    assert aged.delete_expired(0, now_ms=now_ms) == 0
    assert not aged.retry_delete_first(now_ms=now_ms + 119_999)
    assert aged.retry_delete_first(now_ms=now_ms + 120_000)
    assert bases(aged) == [1, 2, 3, 4]


def test_deletions_survive_a_crash_in_order(aged: SegmentQueue) -> None:
    assert isinstance(aged.medium, FaultyMedium)
    aged.flush_all()
    aged.delete_expired(0, now_ms=100 * HOUR_MS, batch_max=2)
    for seed in range(10):
        assert len(aged.medium.crash(seed).listing(Path("/log"))) == 3


def test_delete_before_an_offset_keeps_the_file_that_holds_it(make_queue: MakeQueue) -> None:
    queue = make_queue(4)
    assert queue.delete_before(2 * SEGMENT_SIZE + 1, now_ms=0) == 2
    assert bases(queue) == [2, 3]
    assert queue.delete_before(100 * SEGMENT_SIZE, now_ms=0) == 1
    assert bases(queue) == [3]


def test_delete_before_looks_at_the_last_unit_of_a_queue_file(make_queue: MakeQueue) -> None:
    queue = make_queue(3)
    for number, segment in enumerate(queue.segments):
        buffer = segment.tail.buffer
        assert isinstance(buffer, memoryview)
        buffer[SEGMENT_SIZE - 20 : SEGMENT_SIZE - 12] = (1000 * (number + 1)).to_bytes(8, "big")
    assert queue.delete_before(1000, now_ms=0, unit_size=20) == 0
    assert queue.delete_before(1001, now_ms=0, unit_size=20) == 1
    assert queue.delete_before(5000, now_ms=0, unit_size=20) == 1
    assert bases(queue) == [2]


def test_delete_before_retries_a_file_that_a_reader_held(make_queue: MakeQueue) -> None:
    queue = make_queue(3)
    first = queue.first
    assert first is not None
    assert first.hold()
    assert queue.delete_before(5000, now_ms=0, unit_size=20, force_after_ms=60_000) == 0
    assert queue.delete_before(5000, now_ms=60_000, unit_size=20, force_after_ms=60_000) == 2
