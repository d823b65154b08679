"""One segment: positions, flushing by pages, selecting, reference counting, leaving."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

from flintlog.disk.faulty.faulty_disk import FaultyMedium
from flintlog.disk.media.local import LocalMedium
from flintlog.disk.media.medium import PAGE_BYTES, Medium
from flintlog.disk.segments.segment import Segment
from flintlog.errors import InvalidOffset, StoreClosed, SyncFailed, WrongFileSize

SEGMENT_SIZE = 16384


def fill(segment: Segment | None, data: bytes) -> None:
    assert segment is not None
    assert segment.append(data)
    segment.wrote_position = segment.size


@pytest.fixture
def segment(medium: Medium, folder: Path) -> Segment:
    path = folder / "00000000000000016384"
    return Segment(path, SEGMENT_SIZE, SEGMENT_SIZE, medium, raw=medium.create(path, SEGMENT_SIZE))


def test_a_new_segment_is_empty(segment: Segment) -> None:
    assert (segment.wrote_position, segment.committed_position, segment.flushed_position) == (0, 0, 0)
    assert not segment.is_full
    assert segment.select(0) is None


def test_what_was_appended_can_be_selected(segment: Segment) -> None:
    segment.append(b"first")
    segment.append(b"second")
    with segment.select(5, 6) as selected:  # type: ignore[union-attr]
        assert bytes(selected.view) == b"second"
        assert selected.base == SEGMENT_SIZE + 5
        assert selected.view.readonly
    with segment.select(3) as selected:  # type: ignore[union-attr]
        assert bytes(selected.view) == b"stsecond"


def test_a_segment_on_its_way_out_does_not_count_as_flushed(segment: Segment) -> None:
    segment.append(b"first")
    assert segment.hold()
    assert not segment.shut_down(60_000, 0)
    assert segment.flush() == segment.flushed_position == 0
    segment.release()


@pytest.mark.parametrize(("position", "size"), [(-1, 2), (0, 6), (5, 1), (5, None), (-1, None), (0, -1), (99, None)])
def test_a_range_that_was_not_written_cannot_be_selected(segment: Segment, position: int, size: int | None) -> None:
    segment.append(b"first")
    assert segment.select(position, size) is None
    assert segment.references == 1


def test_an_empty_range_at_the_end_is_selected(segment: Segment) -> None:
    segment.append(b"first")
    with segment.select(5, 0) as selected:  # type: ignore[union-attr]
        assert selected.size == 0


def test_flush_waits_for_enough_dirty_pages(segment: Segment) -> None:
    segment.append(bytes(2 * PAGE_BYTES - 1))
    assert segment.flush(2) == 0
    segment.append(b"x")
    assert segment.flush(2) == 2 * PAGE_BYTES
    segment.append(b"y")
    assert segment.flush(1) == 2 * PAGE_BYTES
    assert segment.flush(0) == 2 * PAGE_BYTES + 1


def test_a_full_segment_is_flushed_however_few_pages_are_dirty(segment: Segment) -> None:
    fill(segment, b"a")
    assert segment.flush(1000) == SEGMENT_SIZE


def test_flush_counts_whole_pages_from_the_last_flush(segment: Segment) -> None:
    segment.append(bytes(PAGE_BYTES - 1))
    segment.flush(0)
    segment.append(b"xx")  # crosses one page border with two bytes
    assert segment.flush(1) == PAGE_BYTES + 1


def test_without_a_write_buffer_commit_only_moves_the_position(segment: Segment) -> None:
    segment.append(b"abc")
    assert segment.commit(4) == 3
    assert segment.committed_position == 3


def test_positions_outside_of_the_segment_are_refused(segment: Segment) -> None:
    with pytest.raises(InvalidOffset):
        segment.set_positions(SEGMENT_SIZE + 1)
    with pytest.raises(InvalidOffset):
        segment.set_positions(-1)


def test_an_idle_segment_is_destroyed_at_once(segment: Segment, medium: Medium) -> None:
    assert segment.destroy(1000, now_ms=0)
    assert not medium.exists(segment.path)
    assert not segment.available
    assert not segment.hold()
    assert segment.select(0, 0) is None
    with pytest.raises(StoreClosed):
        segment.tail  # noqa: B018


def test_a_held_segment_waits_for_its_holder(segment: Segment, medium: Medium) -> None:
    segment.append(b"held")
    selected = segment.select(0)
    assert selected is not None
    assert not segment.destroy(120_000, now_ms=1_000)
    assert segment.select(0) is None, "it is served no more"
    assert medium.exists(segment.path)
    selected.release()
    selected.release()  # a second release must not count
    assert segment.references == 0
    assert segment.destroy(120_000, now_ms=1_001)
    assert not medium.exists(segment.path)


def test_a_held_segment_is_destroyed_by_force_and_its_view_lives_on(segment: Segment, medium: Medium) -> None:
    segment.append(b"still here")
    selected = segment.select(0)
    assert selected is not None
    assert not segment.destroy(120_000, now_ms=1_000)
    assert not segment.destroy(120_000, now_ms=120_999)
    assert segment.destroy(120_000, now_ms=121_000)
    assert not medium.exists(segment.path)
    gc.collect()
    assert bytes(selected.view) == b"still here"
    selected.release()
    assert not segment.hold(), "a late release must not bring it back"


def test_the_wait_for_a_holder_counts_from_the_first_try(segment: Segment) -> None:
    assert segment.hold()
    assert not segment.destroy(100, now_ms=1_000)
    assert not segment.destroy(100, now_ms=1_099)
    assert segment.destroy(100, now_ms=1_100)


def test_a_segment_that_was_unmapped_comes_back_with_its_bytes(segment: Segment) -> None:
    fill(segment, b"abc")
    segment.flush()
    assert segment.try_unmap()
    assert not segment.is_mapped
    assert segment.is_full
    with segment.select(0, 3) as selected:  # type: ignore[union-attr]
        assert bytes(selected.view) == b"abc"


def test_a_reader_may_have_the_map_that_a_writer_replaces(segment: Segment) -> None:
    segment.append(b"here")
    segment.set_positions(segment.size)
    segment.flushed_position = segment.size
    assert segment.try_unmap()
    for_reading = segment.raw()
    assert segment.raw(writable=True) is not for_reading
    assert bytes(for_reading.buffer[:4]) == b"here"


def test_a_segment_in_use_is_not_unmapped(segment: Segment) -> None:
    segment.append(b"growing")
    assert not segment.try_unmap(), "its tail is in use"
    fill(segment, b"full")
    assert not segment.try_unmap(), "not yet flushed"
    segment.flush()
    assert segment.hold()
    assert not segment.try_unmap(), "held"
    segment.release()
    assert segment.try_unmap()


def test_an_owner_can_give_an_idle_tail_up(segment: Segment) -> None:
    segment.append(b"12345")
    tail = segment.tail
    segment.give_up_tail = lambda: False
    assert not segment.try_unmap()
    segment.give_up_tail = lambda: True
    assert segment.try_unmap()
    assert tail.capacity == 0
    assert segment.wrote_position == 5
    segment.append(b"678")
    with segment.select(0) as selected:  # type: ignore[union-attr]
        assert bytes(selected.view) == b"12345678"


def test_a_file_that_changed_its_length_is_refused(segment: Segment, medium: Medium) -> None:
    segment.set_positions(SEGMENT_SIZE)
    assert segment.try_unmap()
    medium.remove(segment.path)
    medium.write(segment.path, b"short")
    with pytest.raises(WrongFileSize, match="5 bytes"):
        segment.select(0, 1)
    assert segment.references == 1


def test_clearing_the_unwritten_bytes_removes_old_records(segment: Segment, medium: Medium) -> None:
    fill(segment, b"k" * SEGMENT_SIZE)
    segment.set_positions(5000)
    segment.clear_unwritten()
    assert medium.read(segment.path) == b"k" * 5000 + bytes(SEGMENT_SIZE - 5000)


def test_after_a_failed_flush_success_is_never_reported_again(tmp_path: Path) -> None:
    medium = FaultyMedium()
    medium.make_directories(tmp_path)
    path = tmp_path / "00000000000000000000"
    segment = Segment(path, 0, SEGMENT_SIZE, medium, raw=medium.create(path, SEGMENT_SIZE))
    segment.give_up_tail = lambda: True
    segment.append(b"lost")
    medium.fail_next_syncs(1)
    with pytest.raises(SyncFailed):
        segment.flush()
    assert segment.flushed_position == 0
    # A new handle of the file would say that all is well; the segment must not believe it.
    assert segment.try_unmap()
    with pytest.raises(SyncFailed):
        segment.flush()
    assert segment.flushed_position == 0
    # The segment has touched the lost pages, so that the next sync of the file writes them.
    medium.sync(path)
    assert all(medium.crash(seed).read(path).startswith(b"lost") for seed in range(8))


def test_pages_are_touched_ahead_of_the_writer_in_steps(segment: Segment) -> None:
    assert segment.warm_ahead(8192) == 8192
    segment.append(bytes(1000))
    assert segment.warm_ahead(8192) == 0, "too little to be worth a call"
    segment.append(bytes(4000))
    assert segment.warm_ahead(8192) == 5000
    segment.wrote_position = SEGMENT_SIZE - 10
    segment.warm_ahead(8192)
    assert segment.warm_ahead(8192) == 0


def test_touching_changes_no_byte(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000"
    medium = LocalMedium()
    segment = Segment(path, 0, SEGMENT_SIZE, medium, raw=medium.create(path, SEGMENT_SIZE))
    fill(segment, b"\x07" * SEGMENT_SIZE)
    raw = segment.raw(writable=True)
    raw.touch(0, SEGMENT_SIZE)
    raw.touch(100, 5000)
    assert path.read_bytes() == b"\x07" * SEGMENT_SIZE


def test_warm_up_says_whether_memory_is_locked_instead_of_raising(segment: Segment) -> None:
    assert segment.warm_up() in (True, False)
    segment.unlock_memory()


def test_a_look_stays_valid_when_the_segment_is_destroyed(segment: Segment) -> None:
    segment.append(b"still here")
    view = segment.peek()
    assert view is not None
    assert segment.references == 1, "a look holds nothing"
    assert segment.destroy(0, now_ms=1)
    assert bytes(view[:10]) == b"still here"
    assert segment.peek() is None
