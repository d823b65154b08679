"""Appending to memory, committing to the file."""

from __future__ import annotations

from pathlib import Path

import pytest

from flintlog.disk.media.medium import PAGE_BYTES, Medium
from flintlog.disk.segments.buffer_pool import TransientStorePool
from flintlog.disk.segments.segment import Segment

SIZE = 16384


@pytest.fixture
def pool() -> TransientStorePool:
    pool = TransientStorePool(2, SIZE)
    pool.start()
    return pool


@pytest.fixture
def segment(medium: Medium, folder: Path, pool: TransientStorePool) -> Segment:
    path = folder / "00000000000000000000"
    return Segment(path, 0, SIZE, medium, raw=medium.create(path, SIZE), write_buffer=pool.borrow())


def test_buffers_are_borrowed_until_none_is_left(pool: TransientStorePool) -> None:
    first, second = pool.borrow(), pool.borrow()
    assert first is not None
    assert second is not None
    assert pool.borrow() is None
    first.give_back()
    assert pool.available_buffers == 1


def test_uncommitted_bytes_are_neither_read_nor_in_the_file(segment: Segment, medium: Medium) -> None:
    segment.append(b"secret")
    assert (segment.wrote_position, segment.read_position) == (6, 0)
    assert segment.select(0) is None
    assert not any(medium.read(segment.path))
    assert segment.flush() == 0


def test_committed_bytes_are_read_and_flushed(segment: Segment, medium: Medium) -> None:
    segment.append(b"first")
    assert segment.commit() == 5
    segment.append(b"second")
    with segment.select(0) as selected:  # type: ignore[union-attr]
        assert bytes(selected.view) == b"first"
    assert segment.flush() == 5
    segment.commit()
    assert medium.read(segment.path)[:11] == b"firstsecond"


def test_commit_waits_for_enough_pages(segment: Segment) -> None:
    segment.append(bytes(PAGE_BYTES))
    assert segment.commit(2) == 0
    segment.append(bytes(PAGE_BYTES))
    assert segment.commit(2) == 2 * PAGE_BYTES


def test_the_buffer_is_returned_cleared_when_the_file_is_full(
    segment: Segment, pool: TransientStorePool, medium: Medium
) -> None:
    segment.append(b"x" * 100)
    segment.wrote_position = SIZE
    assert pool.available_buffers == 1
    assert segment.commit() == SIZE
    assert pool.available_buffers == 2
    assert segment.is_full
    assert segment.read_position == SIZE
    assert medium.read(segment.path) == b"x" * 100 + bytes(SIZE - 100)
    for _ in range(2):
        buffer = pool.borrow()
        assert buffer is not None
        assert not any(buffer.view)


def test_the_buffer_is_returned_when_the_segment_is_destroyed(segment: Segment, pool: TransientStorePool) -> None:
    segment.append(b"x")
    assert segment.destroy(0, 0)
    assert pool.available_buffers == 2


def test_a_segment_with_a_buffer_is_not_unmapped(segment: Segment) -> None:
    segment.give_up_tail = lambda: True
    assert not segment.try_unmap()


def test_buffers_that_come_back_after_shutdown_are_dropped(pool: TransientStorePool) -> None:
    buffer = pool.borrow()
    assert buffer is not None
    pool.shut_down()
    buffer.give_back()
    assert pool.available_buffers == 0
    assert pool.borrow() is None


def test_the_store_timestamp_is_of_the_last_record_that_was_written_to_the_file(segment: Segment) -> None:
    segment.append(b"x" * 100)
    segment.tail.store_timestamp = 77
    segment.commit(0)
    segment.append(b"y" * 100)
    segment.tail.store_timestamp = 78
    assert segment.store_timestamp == 77, "a flush makes durable what was committed, and nothing of the buffer"
    segment.append(b"z" * (SIZE - 200))
    segment.commit(0)
    assert segment.store_timestamp == 78, "also once the file is full and its buffer returned"
