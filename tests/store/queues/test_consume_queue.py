"""One consume queue: appending, recovery, cutting, expiry, the search by time."""

from __future__ import annotations

import struct
import threading
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flintlog.disk.faulty.faulty_disk import FaultyMedium
from flintlog.disk.media.local import LocalMedium
from flintlog.disk.media.medium import Medium
from flintlog.disk.segments.segment_queue import SegmentQueue
from flintlog.kernel import DispatchStop, FastDispatch
from flintlog.store.queues.consume_queue import ConsumeQueue
from flintlog.store.queues.logical_queue import Boundary, StoreTimeOf
from flintlog.store.queues.queue_tail import TailKeeper

ENTRIES_PER_FILE = 8
FILE_SIZE = ENTRIES_PER_FILE * 20
RECORD_SIZE = 100
PREFILL = struct.pack(">qiq", 0, 0x7FFFFFFF, 0)
NOW_MS = 1_800_000_000_000


def make_queue(directory: Path, medium: Medium | None = None, tails: TailKeeper | None = None) -> ConsumeQueue:
    segments = SegmentQueue([directory], FILE_SIZE, LocalMedium() if medium is None else medium)
    return ConsumeQueue("orders", 0, segments, None, tails)


def reopen(queue: ConsumeQueue, directory: Path) -> ConsumeQueue:
    again = make_queue(directory, queue.segments.medium)
    again.load()
    again.recover()
    return again


def fill(queue: ConsumeQueue, start: int, stop: int) -> None:
    """Message q of the queue is record q of the log."""
    for number in range(start, stop):
        assert queue.put(number * RECORD_SIZE, RECORD_SIZE, number, number, 0)


def physical_offsets(queue: ConsumeQueue) -> list[int]:
    found: list[int] = []
    offset = queue.min_offset
    while (entries := queue.entries_from(offset)) is not None:
        with entries:
            found += [unit.physical_offset for unit in entries]
        offset = queue.min_offset + len(found)
    return found


def records(start: int, stop: int) -> list[int]:
    return [number * RECORD_SIZE for number in range(start, stop)]


def test_entry_lies_at_twenty_times_its_queue_offset(tmp_path: Path) -> None:
    queue = make_queue(tmp_path)
    assert (queue.min_offset, queue.max_offset, queue.max_physical_offset) == (0, 0, -1)
    fill(queue, 0, 10)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["00000000000000000000", "00000000000000000160"]
    second = (tmp_path / "00000000000000000160").read_bytes()
    assert second[:40] == struct.pack(">qiqqiq", 800, 100, 8, 900, 100, 9)
    assert second[40:] == bytes(120)
    assert (queue.max_offset, queue.max_physical_offset, queue.last_physical_offset) == (10, 1000, 900)


def test_range_ends_with_its_file_and_roll_next_goes_on(tmp_path: Path) -> None:
    queue = make_queue(tmp_path)
    fill(queue, 0, 10)
    entries = queue.entries_from(5)
    assert entries is not None
    with entries:
        assert [unit.queue_offset for unit in entries] == [5, 6, 7]
        assert len(entries.view) == 60
    assert queue.entries_from(10) is None
    assert queue.entries_from(-1) is None
    assert queue.entry(9) is not None
    assert [queue.roll_next(offset) for offset in (0, 7, 8)] == [8, 8, 16]


def test_queue_that_starts_in_the_middle_is_filled_up_before(tmp_path: Path) -> None:
    queue = make_queue(tmp_path)
    fill(queue, 11, 13)
    (file,) = tmp_path.iterdir()
    assert file.name == "00000000000000000160"
    data = file.read_bytes()
    assert data[:60] == PREFILL * 3
    assert data[60:80] == struct.pack(">qiq", 1100, 100, 11)
    assert (queue.min_offset, queue.max_offset) == (11, 13)
    assert queue.entries_from(10) is None
    assert physical_offsets(queue) == records(11, 13)
    assert queue.segments.flushed_where == 0, "fillers are not durable before a flush"


def test_queue_that_starts_at_a_file_boundary_needs_no_filling(tmp_path: Path) -> None:
    queue = make_queue(tmp_path)
    fill(queue, 16, 17)
    assert (tmp_path / "00000000000000000320").read_bytes()[:20] == struct.pack(">qiq", 1600, 100, 16)
    assert queue.min_offset == 16


def test_filled_up_queue_finds_its_min_offset_again(tmp_path: Path) -> None:
    queue = make_queue(tmp_path)
    fill(queue, 11, 13)
    again = reopen(queue, tmp_path)
    assert again.min_offset == 0
    again.correct_min_offset(1)
    assert (again.min_offset, again.max_offset) == (11, 13)


def test_filling_is_no_record_that_was_built(tmp_path: Path) -> None:
    queue = make_queue(tmp_path)
    fill(queue, 11, 13)
    queue.truncate(1100)
    assert (queue.max_offset, queue.max_physical_offset) == (11, 1100)
    again = reopen(queue, tmp_path)
    assert (again.max_offset, again.max_physical_offset) == (11, -1)
    fill(again, 11, 13)
    again.correct_min_offset(1)
    assert (again.min_offset, physical_offsets(again)) == (11, records(11, 13))


def test_record_that_was_built_is_not_built_again(tmp_path: Path) -> None:
    queue = make_queue(tmp_path)
    fill(queue, 0, 5)
    fill(queue, 2, 6)
    assert physical_offsets(queue) == records(0, 6)


def test_later_record_at_a_taken_place_is_ignored(tmp_path: Path) -> None:
    queue = make_queue(tmp_path)
    fill(queue, 0, 5)
    assert queue.put(9000, 100, 0, 3, 0)
    assert physical_offsets(queue) == records(0, 5)
    assert queue.max_physical_offset == 500


def test_repeat_on_a_full_file_makes_no_new_one(tmp_path: Path) -> None:
    queue = make_queue(tmp_path)
    fill(queue, 0, 8)
    assert queue.put(9000, 100, 0, 3, 0)
    assert len(list(tmp_path.iterdir())) == 1


def test_record_out_of_step_goes_to_the_current_place(tmp_path: Path) -> None:
    queue = make_queue(tmp_path)
    fill(queue, 0, 3)
    assert queue.put(900, 100, 0, 9, 0)
    assert physical_offsets(queue) == [0, 100, 200, 900]
    assert queue.out_of_step_count == 1


def test_queue_offset_zero_is_never_taken_for_a_repeat(tmp_path: Path) -> None:
    queue = make_queue(tmp_path)
    fill(queue, 0, 3)
    assert queue.put(300, 100, 0, 0, 0)
    assert physical_offsets(queue) == [0, 100, 200, 300]
    assert queue.out_of_step_count == 0


@pytest.mark.parametrize("way", ["cut", "lost"])
@pytest.mark.parametrize("first", [0, 3])
def test_what_comes_to_a_queue_of_fillers_has_its_own_place(tmp_path: Path, first: int, way: str) -> None:
    """The queue of a topic that was made anew lost its messages, and those of the old one come back."""
    queue = make_queue(tmp_path)
    fill(queue, 3, 5)
    if way == "lost":
        (path,) = tmp_path.iterdir()
        path.write_bytes(PREFILL * 3 + bytes(FILE_SIZE - 60))
        queue = reopen(queue, tmp_path)
    else:
        queue.truncate(1)
    assert queue.max_offset == 3
    fill(queue, first, 6)
    again = reopen(queue, tmp_path)
    again.correct_min_offset(0)
    assert (again.min_offset, again.max_offset) == (queue.min_offset, queue.max_offset) == (first, 6)
    assert physical_offsets(again) == physical_offsets(queue) == records(first, 6)


def test_put_says_no_when_no_file_can_be_made() -> None:
    queue = make_queue(Path("/queue"), FaultyMedium(capacity=FILE_SIZE))
    fill(queue, 0, 8)
    assert not queue.put(800, 100, 0, 8, 0)
    assert (queue.max_offset, queue.max_physical_offset) == (8, 800)
    assert queue.segments.create_failure is not None


def test_recovery_ends_at_the_first_entry_without_a_size(tmp_path: Path) -> None:
    queue = make_queue(tmp_path)
    fill(queue, 0, 5)
    file = tmp_path / "00000000000000000000"
    data = bytearray(file.read_bytes())
    data[60:80] = struct.pack(">qiq", 300, 0, 3)
    file.write_bytes(data)
    again = reopen(queue, tmp_path)
    assert (again.max_offset, again.max_physical_offset) == (3, 300)
    assert file.read_bytes() == data  # only positions change
    fill(again, 3, 5)
    assert physical_offsets(again) == records(0, 5)


def test_recovery_deletes_the_files_behind_a_hole(tmp_path: Path) -> None:
    queue = make_queue(tmp_path)
    fill(queue, 0, 20)
    hole = tmp_path / "00000000000000000160"
    hole.write_bytes(hole.read_bytes()[:40] + bytes(120))
    again = reopen(queue, tmp_path)
    assert (again.max_offset, again.max_physical_offset) == (10, 1000)
    assert not (tmp_path / "00000000000000000320").exists()


def test_after_a_clean_stop_all_files_but_the_last_three_are_trusted(tmp_path: Path) -> None:
    queue = make_queue(tmp_path)
    fill(queue, 0, 26)
    (tmp_path / "00000000000000000000").write_bytes(bytes(FILE_SIZE))
    again = make_queue(tmp_path)
    again.load()
    again.recover(was_clean=True)
    assert again.max_offset == 26
    (tmp_path / "00000000000000000160").write_bytes(bytes(FILE_SIZE))
    again.recover(was_clean=True)
    assert again.max_offset == 8


@pytest.mark.parametrize("place", range(4))
def test_after_an_unclean_stop_a_file_that_lost_its_content_ends_the_queue(tmp_path: Path, place: int) -> None:
    queue = make_queue(tmp_path)
    fill(queue, 0, 26)
    (tmp_path / f"{place * FILE_SIZE:020d}").write_bytes(bytes(FILE_SIZE))
    again = make_queue(tmp_path)
    again.load()
    again.find_end(was_clean=False)
    after = again.offset_after_end()
    assert after == (None if place == 3 else (place + 1) * 8 * RECORD_SIZE)
    assert len(list(tmp_path.iterdir())) == 4  # so far it is only looked at
    again.cut_end(was_clean=False)
    assert (again.max_offset, again.end_byte) == (place * 8, place * FILE_SIZE)


def test_recovery_of_full_files_ends_at_their_end(tmp_path: Path) -> None:
    queue = make_queue(tmp_path)
    fill(queue, 0, 16)
    again = reopen(queue, tmp_path)
    assert (again.max_offset, again.max_physical_offset) == (16, 1600)
    fill(again, 16, 17)
    assert physical_offsets(again) == records(0, 17)


def test_empty_queue_recovers_to_nothing(tmp_path: Path) -> None:
    again = reopen(make_queue(tmp_path / "none"), tmp_path / "none")
    assert (again.max_offset, again.max_physical_offset, again.last_physical_offset) == (0, -1, -1)
    again.truncate(0)
    again.correct_min_offset(50)
    assert again.delete_expired(50, NOW_MS) == 0
    assert again.offset_by_time(1, Boundary.LOWER, time_lookup({}), 0) == 0


@pytest.mark.parametrize(
    ("cut", "kept", "files"),
    [(1900, 19, 3), (1901, 20, 3), (1600, 16, 2), (900, 9, 2), (850, 9, 2), (800, 8, 1), (1, 1, 1), (0, 0, 0)],
)
def test_truncate_drops_entries_at_and_behind(tmp_path: Path, cut: int, kept: int, files: int) -> None:
    queue = make_queue(tmp_path)
    fill(queue, 0, 20)
    queue.truncate(cut)
    assert queue.max_offset == kept
    assert queue.max_physical_offset == (kept * RECORD_SIZE if kept else cut)
    assert len(list(tmp_path.iterdir())) == files
    assert physical_offsets(queue) == records(0, kept)
    fill(queue, kept, 22)
    assert physical_offsets(queue) == records(0, 22)


def test_truncate_clears_what_is_behind_the_cut(tmp_path: Path) -> None:
    queue = make_queue(tmp_path)
    fill(queue, 0, 5)
    before = (tmp_path / "00000000000000000000").read_bytes()
    queue.truncate(200)
    assert (tmp_path / "00000000000000000000").read_bytes() == before[:40] + bytes(120)


def test_entries_that_were_cut_off_never_come_back(tmp_path: Path) -> None:
    queue = make_queue(tmp_path)
    fill(queue, 0, 7)
    queue.truncate(300)
    assert queue.put(350, 500, 0, 3, 0)
    assert physical_offsets(reopen(queue, tmp_path)) == [0, 100, 200, 350]


def test_entries_behind_a_hole_never_come_back(tmp_path: Path) -> None:
    queue = make_queue(tmp_path)
    fill(queue, 0, 7)
    file = tmp_path / "00000000000000000000"
    data = bytearray(file.read_bytes())
    data[60:80] = bytes(20)
    file.write_bytes(data)
    again = reopen(queue, tmp_path)
    assert file.read_bytes() == data  # nothing is changed before there is need
    assert again.put(350, 500, 0, 3, 0)
    assert physical_offsets(reopen(queue, tmp_path)) == [0, 100, 200, 350]


def test_truncate_does_not_touch_a_queue_that_ended_before(tmp_path: Path) -> None:
    queue = make_queue(tmp_path)
    fill(queue, 0, 5)
    queue.truncate(501)
    assert (queue.max_offset, queue.max_physical_offset) == (5, 500)


def test_truncate_takes_no_empty_file_for_a_message(tmp_path: Path) -> None:
    queue = make_queue(tmp_path)
    fill(queue, 0, 8)
    (tmp_path / "00000000000000000160").write_bytes(bytes(FILE_SIZE))
    again = reopen(queue, tmp_path)
    assert again.max_offset == 8
    again.truncate(700)
    assert (again.max_offset, again.max_physical_offset) == (7, 700)
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize(("minimum", "expected"), [(0, 0), (1, 1), (100, 1), (399, 4), (400, 4), (700, 7)])
def test_min_offset_is_the_first_record_the_log_still_has(tmp_path: Path, minimum: int, expected: int) -> None:
    queue = make_queue(tmp_path)
    fill(queue, 0, 20)
    queue.correct_min_offset(minimum)
    assert queue.min_offset == expected


def test_min_offset_never_goes_back(tmp_path: Path) -> None:
    queue = make_queue(tmp_path)
    fill(queue, 0, 20)
    queue.correct_min_offset(300)
    queue.correct_min_offset(100)
    assert queue.min_offset == 3
    queue.correct_min_offset(500)
    assert queue.min_offset == 5


def test_queue_without_any_record_in_the_log_is_empty_at_its_end(tmp_path: Path) -> None:
    queue = make_queue(tmp_path)
    fill(queue, 0, 20)
    queue.correct_min_offset(1901)
    assert (queue.min_offset, queue.max_offset) == (20, 20)
    assert queue.entries_from(19) is None


@pytest.mark.parametrize(("minimum", "deleted", "first"), [(700, 0, 7), (701, 1, 8), (1550, 2, 16), (9999, 2, 20)])
def test_files_expire_when_their_last_record_was_deleted(
    tmp_path: Path, minimum: int, deleted: int, first: int
) -> None:
    queue = make_queue(tmp_path)
    fill(queue, 0, 20)
    assert queue.delete_expired(minimum, NOW_MS) == deleted
    assert len(list(tmp_path.iterdir())) == 3 - deleted
    assert (queue.min_offset, queue.max_offset) == (first, 20)
    assert reopen(queue, tmp_path).max_offset == 20


def test_reader_keeps_a_file_that_expires(tmp_path: Path) -> None:
    queue = make_queue(tmp_path)
    fill(queue, 0, 20)
    entries = queue.entries_from(0)
    assert entries is not None
    with entries:
        assert queue.delete_expired(9999, NOW_MS) == 0
        assert [unit.physical_offset for unit in entries] == records(0, 8)
    assert queue.delete_expired(9999, NOW_MS) == 2


def time_of(*times: int) -> dict[int, int]:
    return {number * RECORD_SIZE: time for number, time in enumerate(times)}


def time_lookup(times: Mapping[int, int]) -> StoreTimeOf:
    return lambda offset, _size: times[offset]


TIMES = time_of(10, 20, 20, 20, 30, 40, 50, 60, 70, 80, 80, 90)


@pytest.mark.parametrize(
    ("timestamp", "lower", "upper"),
    [(5, 0, 0), (10, 0, 0), (15, 1, 0), (20, 1, 3), (25, 4, 3), (60, 7, 7), (65, 8, 7), (80, 9, 10), (95, 12, 11)],
)
def test_search_by_time(tmp_path: Path, timestamp: int, lower: int, upper: int) -> None:
    queue = make_queue(tmp_path)
    fill(queue, 0, 12)
    for _ in range(2):  # the second time with the files' times remembered
        assert queue.offset_by_time(timestamp, Boundary.LOWER, time_lookup(TIMES), 0) == lower
        assert queue.offset_by_time(timestamp, Boundary.UPPER, time_lookup(TIMES), 0) == upper


def test_search_by_time_stays_within_what_the_log_has(tmp_path: Path) -> None:
    queue = make_queue(tmp_path)
    fill(queue, 0, 12)
    queue.correct_min_offset(300)

    def time_in_log(offset: int, _size: int) -> int:
        return TIMES[offset] if offset >= 300 else -1

    assert queue.offset_by_time(5, Boundary.LOWER, time_in_log, 300) == 3
    assert queue.offset_by_time(5, Boundary.UPPER, time_in_log, 300) == 3
    assert queue.offset_by_time(45, Boundary.LOWER, time_in_log, 300) == 6


def test_search_by_time_forgets_a_file_that_was_cut(tmp_path: Path) -> None:
    queue = make_queue(tmp_path)
    fill(queue, 0, 12)
    assert queue.offset_by_time(70, Boundary.LOWER, time_lookup(TIMES), 0) == 8
    queue.truncate(500)
    for number in range(5, 12):
        assert queue.put(5000 + number, 1, 0, number, 0)
    times = {5000 + number: 100 + number for number in range(12)} | TIMES
    assert queue.offset_by_time(70, Boundary.LOWER, time_lookup(times), 0) == 5


def test_fast_dispatch_goes_on_where_put_left_off_and_stops_at_a_full_file(tmp_path: Path) -> None:
    queue = make_queue(tmp_path)
    fill(queue, 0, 1)
    tail = queue.end.tail
    assert tail is not None
    assert (tail.base, tail.position, tail.capacity) == (0, 20, FILE_SIZE)
    fill(queue, 1, 9)
    assert queue.end.tail is not None
    assert queue.end.tail.base == FILE_SIZE


def test_map_cache_takes_tails_back_only_inside_a_put(tmp_path: Path) -> None:
    medium = LocalMedium(max_maps=3)
    tails = TailKeeper()
    queues = [make_queue(tmp_path / str(number), medium, tails) for number in range(20)]
    for number in range(6):
        for queue in queues:
            fill(queue, number, number + 1)
        mapped = sum(segment.is_mapped for queue in queues for segment in queue.segments.segments)
        assert mapped <= 4
    assert all(physical_offsets(queue) == records(0, 6) for queue in queues)
    attached = [queue for queue in queues if queue.end.tail is not None]
    assert 0 < len(attached) <= 4
    for queue in queues:  # a reader needs maps too, but must leave the fast dispatch's tails alone
        physical_offsets(queue)
    assert [queue for queue in queues if queue.end.tail is not None] == attached


def test_only_the_putting_thread_may_take_tails() -> None:
    tails = TailKeeper()
    answers: list[bool] = []
    tails.writer = threading.get_ident()
    assert tails.may_take()
    other = threading.Thread(target=lambda: answers.append(tails.may_take()))
    other.start()
    other.join()
    tails.writer = None
    assert answers == [False]
    assert not tails.may_take()


def test_destroyed_queue_starts_again(tmp_path: Path) -> None:
    queue = make_queue(tmp_path / "0")
    fill(queue, 0, 9)
    queue.destroy()
    assert not (tmp_path / "0").exists()
    assert (queue.min_offset, queue.max_offset, queue.max_physical_offset, queue.end.tail) == (0, 0, -1, None)
    fill(queue, 0, 2)
    assert physical_offsets(queue) == records(0, 2)


def test_flush_makes_entries_survive_a_crash() -> None:
    medium = FaultyMedium()
    queue = make_queue(Path("/queue"), medium)
    fill(queue, 0, 20)
    while not queue.flush(0):
        pass
    fill(queue, 20, 22)
    after = make_queue(Path("/queue"), medium.crash(seed=1))
    after.load()
    after.recover()
    assert physical_offsets(after)[:20] == records(0, 20)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.one_of(st.integers(0, 30), st.sampled_from(["reopen", "cut"])), max_size=40), st.integers(0, 20))
def test_queue_holds_what_a_plain_list_would(actions: list[int | str], start: int) -> None:
    """Records come in order; any of them may come again; the queue may be reopened or cut at any time."""
    medium = FaultyMedium()
    directory = Path("/queue")
    queue = make_queue(directory, medium)
    count = start
    for action in actions:
        if action == "reopen":
            queue = reopen(queue, directory)
            queue.truncate(count * RECORD_SIZE)
            queue.correct_min_offset(start * RECORD_SIZE)
        elif action == "cut":
            count = max(start, count - 3)
            queue.truncate(count * RECORD_SIZE)
        else:
            again = min(int(action), count - start)
            fill(queue, count - again, count + 1)
            count += 1
        if count > start:
            assert (queue.min_offset, queue.max_offset) == (start, count)
        assert physical_offsets(queue) == records(start, count)


def test_fast_dispatch_stops_for_a_queue_whose_tail_was_taken(tmp_path: Path) -> None:
    queue = make_queue(tmp_path)
    fill(queue, 0, 1)
    fast_dispatch = FastDispatch()
    fast_dispatch.index_enabled = False
    fast_dispatch.set_queue("orders", 0, queue.end)
    record = _record(physical_offset=100, queue_offset=1)
    queue.detach()
    assert fast_dispatch.run(record, 0, len(record), 100) is DispatchStop.QUEUE
    assert queue.put(100, len(record), 0, 1, 0)
    following = _record(physical_offset=100 + len(record), queue_offset=2)
    assert fast_dispatch.run(following, 0, len(following), 100 + len(record)) is DispatchStop.DONE
    assert queue.max_offset == 3


def _record(physical_offset: int, queue_offset: int) -> bytes:
    head = struct.pack(">iiiiiqqiq", 97, -626843481, 0, 0, 0, queue_offset, physical_offset, 0, 1)
    return head + bytes(8) + struct.pack(">q", 1) + bytes(8) + struct.pack(">iqi", 0, 0, 0) + b"\x06orders" + bytes(2)


def test_first_entry_of_a_queue_whose_entries_were_lost_goes_to_its_own_place(tmp_path: Path) -> None:
    queue = make_queue(tmp_path / "q")
    fill(queue, 0, 2)
    (path,) = (tmp_path / "q").iterdir()
    path.write_bytes(bytes(FILE_SIZE))
    again = reopen(queue, tmp_path / "q")
    for number in (11, 12):
        assert again.put(number * RECORD_SIZE, RECORD_SIZE, 0, number, 0)
    assert (again.min_offset, again.max_offset) == (11, 13)
    assert physical_offsets(again) == records(11, 13)
