"""A log in files: loading, finding, rolling, flushing, cutting."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from flintlog.disk.faulty.faulty_disk import FaultyMedium
from flintlog.disk.media.local import LocalMedium
from flintlog.disk.media.medium import Medium
from flintlog.disk.media.overlay import OverlayMedium
from flintlog.disk.segments.segment import Segment
from flintlog.disk.segments.segment_queue import SegmentQueue
from flintlog.errors import DamagedStore, DiskFull, InvalidConfig, SyncFailed, WrongFileSize
from flintlog.format.names import segment_name

SEGMENT_SIZE = 16384

MakeQueue = Callable[[int], SegmentQueue]


def fill(segment: Segment | None, data: bytes) -> None:
    assert segment is not None
    assert segment.append(data)
    segment.wrote_position = segment.size


def names(medium: Medium, folder: Path) -> list[str]:
    return [info.name for info in medium.listing(folder / "log")]


def load(medium: Medium, folder: Path) -> SegmentQueue:
    queue = SegmentQueue([folder / "log"], SEGMENT_SIZE, medium)
    queue.load()
    return queue


def test_a_queue_without_a_directory_is_empty(make_queue: MakeQueue) -> None:
    queue = make_queue(0)
    assert (queue.first, queue.last, queue.min_offset, queue.max_offset) == (None, None, -1, 0)
    assert queue.flush()
    assert queue.commit()
    assert queue.find(0) is None


def test_files_are_named_by_their_first_offset(make_queue: MakeQueue, medium: Medium, folder: Path) -> None:
    make_queue(3)
    assert names(medium, folder) == [segment_name(number * SEGMENT_SIZE) for number in range(3)]


def test_the_first_file_begins_at_a_multiple_of_the_size(make_queue: MakeQueue) -> None:
    queue = make_queue(0)
    segment = queue.last_or_new(start_offset=5 * SEGMENT_SIZE + 77)
    assert segment is not None
    assert segment.base == 5 * SEGMENT_SIZE


def test_the_last_segment_is_used_until_it_is_full(make_queue: MakeQueue) -> None:
    queue = make_queue(0)
    first = queue.last_or_new()
    assert first is not None
    first.append(b"x")
    assert queue.last_or_new() is first
    fill(first, b"y")
    second = queue.last_or_new()
    assert second is not None
    assert second.base == SEGMENT_SIZE


def test_rolling_closes_a_segment_that_has_room(make_queue: MakeQueue) -> None:
    queue = make_queue(0)
    first = queue.last_or_new()
    assert first is not None
    first.append(b"x")
    second = queue.roll()
    assert second is not None
    assert second.base == SEGMENT_SIZE
    assert first.is_full


def test_loaded_segments_are_full_and_not_mapped(make_queue: MakeQueue, medium: Medium, folder: Path) -> None:
    make_queue(3)
    queue = load(medium, folder)
    assert [segment.base for segment in queue.segments] == [0, SEGMENT_SIZE, 2 * SEGMENT_SIZE]
    assert all(segment.wrote_position == SEGMENT_SIZE for segment in queue.segments)
    assert not any(segment.is_mapped for segment in queue.segments)


def test_loaded_segments_are_dirty_until_they_are_taken_over(
    make_queue: MakeQueue, medium: Medium, folder: Path
) -> None:
    make_queue(3)
    queue = load(medium, folder)
    assert queue.flushed_where == 0
    assert all(segment.flushed_position == 0 for segment in queue.segments)
    queue.take_over()
    assert queue.flushed_where == queue.committed_where == 3 * SEGMENT_SIZE
    assert all(segment.flushed_position == SEGMENT_SIZE for segment in queue.segments)


def test_cut_segments_do_not_become_flushed(make_queue: MakeQueue, medium: Medium, folder: Path) -> None:
    make_queue(2)
    queue = load(medium, folder)
    queue.truncate(SEGMENT_SIZE + 100)
    assert queue.flushed_where == 0
    assert [segment.flushed_position for segment in queue.segments] == [0, 0]
    queue.flush_all()
    assert queue.flushed_where == SEGMENT_SIZE + 100
    queue.truncate(SEGMENT_SIZE + 50)
    assert queue.flushed_where == SEGMENT_SIZE + 50


def test_files_of_a_killed_process_survive_a_power_loss_once_they_were_taken_over() -> None:
    before = FaultyMedium()
    before.make_directories(Path("/log"))
    queue = SegmentQueue([Path("/log")], SEGMENT_SIZE, before)
    for _ in range(2):
        segment = queue.last_or_new()
        assert segment is not None
        segment.flush()
        segment.append(b"found")
        segment.wrote_position = segment.size
        before.sync_directory(Path("/log"))
    before.sync_directory(Path("/"))

    def is_kept(medium: FaultyMedium, seed: int) -> bool:
        after = medium.crash(seed)
        paths = [segment.path for segment in queue.segments]
        return all(after.exists(path) and after.head(path, 5) == b"found" for path in paths)

    assert not all(is_kept(before.kill(), seed) for seed in range(20)), "the bytes are in the page cache alone"
    medium = before.kill()
    found = SegmentQueue([Path("/log")], SEGMENT_SIZE, medium)
    found.load()
    assert found.first is not None and found.first.select(0) is not None, "mapped for reading, as recovery does"
    found.take_over()
    assert all(is_kept(medium, seed) for seed in range(20))


def test_load_with_a_file_of_another_size_names_it_and_changes_nothing(
    make_queue: MakeQueue, medium: Medium, folder: Path
) -> None:
    make_queue(2)
    wrong = folder / "log" / segment_name(2 * SEGMENT_SIZE)
    medium.write(wrong, b"short")
    empty = folder / "log" / segment_name(3 * SEGMENT_SIZE)
    medium.write(empty, b"")
    with pytest.raises(WrongFileSize) as caught:
        load(medium, folder)
    assert caught.value.path == str(wrong)
    assert medium.exists(empty)


def test_load_with_an_empty_last_file_removes_it(make_queue: MakeQueue, medium: Medium, folder: Path) -> None:
    make_queue(2)
    empty = folder / "log" / segment_name(2 * SEGMENT_SIZE)
    medium.write(empty, b"")
    assert len(load(OverlayMedium(medium), folder).segments) == 2
    assert medium.exists(empty), "a read-only opening changes nothing"
    assert len(load(medium, folder).segments) == 2
    assert not medium.exists(empty)


def test_load_with_an_empty_file_in_the_middle_fails(make_queue: MakeQueue, medium: Medium, folder: Path) -> None:
    make_queue(3)
    middle = folder / "log" / segment_name(SEGMENT_SIZE)
    medium.remove(middle)
    medium.write(middle, b"")
    with pytest.raises(WrongFileSize, match="0 bytes"):
        load(medium, folder)


def test_load_skips_directories(make_queue: MakeQueue, medium: Medium, folder: Path) -> None:
    make_queue(1)
    medium.make_directories(folder / "log" / "zzz")
    assert len(load(medium, folder).segments) == 1


@pytest.mark.parametrize("name", ["notes.txt", "123", "-0000000000000000001", "0000000000000000000\u0661"])
def test_load_refuses_a_name_that_is_no_offset(make_queue: MakeQueue, medium: Medium, folder: Path, name: str) -> None:
    make_queue(1)
    medium.create(folder / "log" / name, SEGMENT_SIZE)
    with pytest.raises(DamagedStore, match="not an offset"):
        load(medium, folder)


def test_load_refuses_two_files_for_one_offset(medium: Medium, folder: Path) -> None:
    for part in ("a", "b"):
        medium.make_directories(folder / part)
        medium.create(folder / part / segment_name(0), SEGMENT_SIZE)
    with pytest.raises(DamagedStore, match="two files"):
        SegmentQueue([folder / "a", folder / "b"], SEGMENT_SIZE, medium).load()


def test_find_gives_the_segment_of_each_offset(make_queue: MakeQueue) -> None:
    queue = make_queue(3)
    for offset in (0, 1, SEGMENT_SIZE - 1, SEGMENT_SIZE, 3 * SEGMENT_SIZE - 1):
        segment = queue.find(offset)
        assert segment is not None
        assert segment.base <= offset < segment.end
    assert queue.find(3 * SEGMENT_SIZE) is None
    assert queue.find(-1) is None


def test_find_after_the_first_files_were_deleted(make_queue: MakeQueue) -> None:
    queue = make_queue(4)
    queue.delete_before(2 * SEGMENT_SIZE, now_ms=0)
    segment = queue.find(3 * SEGMENT_SIZE + 1)
    assert segment is not None
    assert segment.base == 3 * SEGMENT_SIZE
    assert queue.find(SEGMENT_SIZE) is None
    assert queue.min_offset == 2 * SEGMENT_SIZE


def test_find_around_a_missing_file(make_queue: MakeQueue, medium: Medium, folder: Path) -> None:
    make_queue(4)
    medium.remove(folder / "log" / segment_name(SEGMENT_SIZE))
    queue = load(medium, folder)
    assert queue.gaps() == [(SEGMENT_SIZE, 2 * SEGMENT_SIZE)]
    assert queue.find(SEGMENT_SIZE + 5) is None
    segment = queue.find(3 * SEGMENT_SIZE)
    assert segment is not None
    assert segment.base == 3 * SEGMENT_SIZE


def test_flush_moves_one_segment_a_call(make_queue: MakeQueue) -> None:
    queue = make_queue(2)
    assert not queue.flush(0)
    assert queue.flushed_where == SEGMENT_SIZE
    assert not queue.flush(4)
    assert queue.flushed_where == 2 * SEGMENT_SIZE
    assert queue.flush(0), "nothing left to do"


def test_the_store_timestamp_is_taken_only_by_a_thorough_flush(make_queue: MakeQueue) -> None:
    queue = make_queue(1)
    segment = queue.last_or_new()
    assert segment is not None
    segment.append(b"x" * 5000)
    segment.tail.store_timestamp = 77
    queue.flush(0)
    queue.flush(1)
    assert queue.store_timestamp == 0
    queue.flush(0)
    assert queue.store_timestamp == 77


def test_flush_all_reaches_the_end(make_queue: MakeQueue) -> None:
    queue = make_queue(3)
    last = queue.last_or_new()
    assert last is not None
    last.append(b"tail")
    queue.flush_all()
    assert queue.flushed_where == queue.max_offset == 3 * SEGMENT_SIZE + 4


def test_flush_continues_when_unflushed_files_were_deleted(make_queue: MakeQueue) -> None:
    queue = make_queue(4)
    queue.flush(0)
    assert queue.delete_expired(0, now_ms=0, at_once=True, batch_max=2) == 2
    queue.flush_all()
    assert queue.flushed_where == 4 * SEGMENT_SIZE


def test_truncate_in_a_file_sets_its_positions_and_deletes_later_ones(
    make_queue: MakeQueue, medium: Medium, folder: Path
) -> None:
    queue = make_queue(4)
    queue.flush_all()
    queue.truncate(SEGMENT_SIZE + 100)
    assert names(medium, folder) == [segment_name(0), segment_name(SEGMENT_SIZE)]
    last = queue.last
    assert last is not None
    assert (last.wrote_position, last.committed_position, last.flushed_position) == (100, 100, 100)
    assert queue.flushed_where == SEGMENT_SIZE + 100
    assert queue.last_or_new() is last


def test_truncate_at_a_border_keeps_the_file_that_begins_there(make_queue: MakeQueue) -> None:
    queue = make_queue(3)
    queue.truncate(SEGMENT_SIZE)
    assert [segment.base for segment in queue.segments] == [0, SEGMENT_SIZE]
    assert queue.max_wrote == SEGMENT_SIZE


def test_truncate_with_clear_zeroes_the_bytes_after_the_cut(
    make_queue: MakeQueue, medium: Medium, folder: Path
) -> None:
    queue = make_queue(2)
    queue.truncate(4)
    assert medium.read(folder / "log" / segment_name(0))[4:8] == b"0000", "as Java leaves it"
    queue.truncate(2, clear=True)
    assert not any(medium.read(folder / "log" / segment_name(0))[2:])


def test_truncated_files_can_be_written_again_while_a_reader_holds_the_old_ones(make_queue: MakeQueue) -> None:
    queue = make_queue(2)
    held = queue.segments[1].select(0, 8)
    queue.truncate(10)
    segment = queue.roll()
    assert segment is not None
    assert segment.base == SEGMENT_SIZE
    segment.append(b"newbytes")
    assert held is not None
    assert bytes(held.view) == b"00000001"
    held.release()


def test_truncated_files_do_not_come_back_after_a_crash(tmp_path: Path) -> None:
    medium = FaultyMedium()
    queue = SegmentQueue([tmp_path], SEGMENT_SIZE, medium)
    for _ in range(4):
        fill(queue.last_or_new(), b"old")
    queue.flush_all()
    queue.truncate(10)
    for seed in range(20):
        assert len(medium.crash(seed).listing(tmp_path)) == 1


def test_destroy_leaves_nothing(make_queue: MakeQueue, medium: Medium, folder: Path) -> None:
    queue = make_queue(3)
    queue.destroy()
    assert not medium.exists(folder / "log")
    assert queue.segments == ()


def test_delete_last_removes_one_file(make_queue: MakeQueue) -> None:
    queue = make_queue(2)
    queue.delete_last()
    assert [segment.base for segment in queue.segments] == [0]


def test_what_is_written_in_the_place_of_a_deleted_segment_is_flushed(make_queue: MakeQueue) -> None:
    queue = make_queue(1)  # which is full
    queue.flush_all()
    queue.delete_last()
    again = queue.last_or_new()
    assert again is not None and again.append(b"new")
    queue.flush_all()
    assert (queue.flushed_where, again.flushed_position) == (3, 3)


def test_on_a_full_disk_no_segment_is_made_and_none_is_lost(tmp_path: Path) -> None:
    medium = FaultyMedium(capacity=2 * SEGMENT_SIZE)
    queue = SegmentQueue([tmp_path], SEGMENT_SIZE, medium)
    for _ in range(2):
        fill(queue.last_or_new(), bytes(SEGMENT_SIZE))
    assert queue.last_or_new() is None
    assert isinstance(queue.create_failure, DiskFull)
    assert len(medium.listing(tmp_path)) == 2
    medium.capacity = None
    assert queue.last_or_new() is not None
    assert queue.create_failure is None


def test_a_flush_that_fails_does_not_move_and_says_so(tmp_path: Path) -> None:
    medium = FaultyMedium()
    queue = SegmentQueue([tmp_path], SEGMENT_SIZE, medium)
    fill(queue.last_or_new(), b"x")
    medium.fail_next_syncs(1)
    for _ in range(3):
        with pytest.raises(SyncFailed):
            queue.flush(0)
    assert queue.flushed_where == 0


def test_several_paths_share_the_files_and_load_merges_them(medium: Medium, folder: Path) -> None:
    paths = [folder / "b", folder / "a"]
    queue = SegmentQueue(paths, SEGMENT_SIZE, medium)
    for _ in range(4):
        fill(queue.last_or_new(), b"x")
    assert [segment.path.parent.name for segment in queue.segments] == ["a", "b", "a", "b"]
    again = SegmentQueue([folder / "b"], SEGMENT_SIZE, medium, read_only_directories=[folder / "a"])
    again.load()
    assert [segment.base for segment in again.segments] == [segment.base for segment in queue.segments]
    new = again.last_or_new()
    assert new is not None
    assert new.path.parent.name == "b", "a read-only path gets no new file"


def test_a_size_of_zero_is_refused(medium: Medium, folder: Path) -> None:
    with pytest.raises(InvalidConfig):
        SegmentQueue([folder], 0, medium)


@pytest.fixture
def many_files(tmp_path: Path) -> Path:
    first = tmp_path / segment_name(0)
    first.write_bytes(bytes(4096))
    for number in range(1, 10_000):  # links: quicker made than files, and the same to load
        os.link(first, tmp_path / segment_name(number * 4096))
    return tmp_path


def test_ten_thousand_segments_load_without_a_map(many_files: Path) -> None:
    medium = LocalMedium(max_maps=100)
    queue = SegmentQueue([many_files], 4096, medium)
    queue.load()
    assert len(queue.segments) == 10_000
    assert not any(segment.is_mapped for segment in queue.segments)
    for segment in queue.segments[:1000]:
        with segment.select(0, 8) as selected:  # type: ignore[union-attr]
            assert selected.size == 8
    assert sum(segment.is_mapped for segment in queue.segments) <= 100
    assert len(medium.maps) <= 100
