"""One batch consume queue."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from flintlog.disk.media.local import LocalMedium
from flintlog.disk.segments.segment import Segment
from flintlog.disk.segments.segment_queue import SegmentQueue
from flintlog.disk.segments.selected_range import SelectedRange
from flintlog.store.queues.batch_consume_queue import BatchConsumeQueue
from flintlog.store.queues.logical_queue import Boundary

FILE_SIZE = 4 * 46
NOW_MS = 1_800_000_000_000


def make_queue(directory: Path) -> BatchConsumeQueue:
    return BatchConsumeQueue("orders", 0, SegmentQueue([directory], FILE_SIZE, LocalMedium()))


def reopen(directory: Path) -> BatchConsumeQueue:
    queue = make_queue(directory)
    queue.load()
    queue.recover()
    return queue


def fill(queue: BatchConsumeQueue, start: int, stop: int) -> None:
    """Batch n is record n of the log, has three messages, and time 10 n."""
    for number in range(start, stop):
        assert queue.put(number * 100, 100, number, number * 3, number * 10, None, 3)


def bases(queue: BatchConsumeQueue) -> list[int]:
    found: list[int] = []
    offset = queue.min_offset
    while (entries := queue.entries_from(offset)) is not None:
        with entries:
            for unit in entries:
                assert unit.batch_count == 3
                found.append(unit.queue_offset)
        offset = found[-1] + 3
    return found


def test_entries_lie_one_after_another(tmp_path: Path) -> None:
    queue = make_queue(tmp_path)
    assert (queue.min_offset, queue.max_offset, queue.max_physical_offset) == (0, 0, -1)
    fill(queue, 2, 7)
    second = (tmp_path / "00000000000000000184").read_bytes()
    assert second[:46] == struct.pack(">qiqqqhii", 600, 100, 6, 60, 18, 3, -1, 0)
    assert (queue.min_offset, queue.max_offset, queue.max_physical_offset) == (6, 21, 600)
    assert bases(queue) == [6, 9, 12, 15, 18]
    assert queue.roll_next(7) == 0


@pytest.mark.parametrize(("offset", "base"), [(6, 6), (7, 6), (8, 6), (9, 9), (17, 15), (18, 18), (20, 18)])
def test_offset_inside_a_batch_finds_the_batch(tmp_path: Path, offset: int, base: int) -> None:
    queue = make_queue(tmp_path)
    fill(queue, 2, 7)
    unit = queue.entry(offset)
    assert unit is not None
    assert unit.queue_offset == base


def test_offsets_outside_find_nothing(tmp_path: Path) -> None:
    queue = make_queue(tmp_path)
    assert queue.entry(0) is None
    fill(queue, 2, 7)
    assert queue.entry(5) is None
    assert queue.entry(21) is None


def test_record_that_is_no_batch_or_was_built_is_ignored(tmp_path: Path) -> None:
    queue = make_queue(tmp_path)
    fill(queue, 0, 3)
    fill(queue, 1, 4)
    assert queue.put(400, 100, 0, -1, 0)
    assert bases(queue) == [0, 3, 6, 9]
    assert queue.max_physical_offset == 300


def test_recovery_ends_at_the_first_entry_that_is_none(tmp_path: Path) -> None:
    queue = make_queue(tmp_path)
    fill(queue, 0, 6)
    file = tmp_path / "00000000000000000184"
    data = bytearray(file.read_bytes())
    data[46 + 36 : 46 + 38] = bytes(2)  # a batch of no messages
    file.write_bytes(data)
    again = reopen(tmp_path)
    assert (again.min_offset, again.max_offset, again.max_physical_offset) == (0, 15, 400)
    fill(again, 5, 7)
    assert bases(reopen(tmp_path)) == [0, 3, 6, 9, 12, 15, 18]


@pytest.mark.parametrize(("cut", "count"), [(501, 6), (500, 5), (450, 5), (400, 4), (100, 1), (0, 0)])
def test_truncate_drops_batches_at_and_behind(tmp_path: Path, cut: int, count: int) -> None:
    queue = make_queue(tmp_path)
    fill(queue, 0, 6)
    queue.truncate(cut)
    assert queue.max_offset == count * 3
    assert queue.max_physical_offset == (count * 100 - 100 if count else cut - 1)
    fill(queue, count, 7)
    assert bases(reopen(tmp_path)) == [number * 3 for number in range(7)]


def test_min_offset_passes_batches_the_log_no_longer_has(tmp_path: Path) -> None:
    queue = make_queue(tmp_path)
    fill(queue, 0, 6)
    queue.correct_min_offset(150)
    assert queue.min_offset == 6
    queue.correct_min_offset(200)
    assert queue.min_offset == 6
    assert queue.delete_expired(301, NOW_MS) == 1
    assert (queue.min_offset, bases(queue)) == (12, [12, 15])


@pytest.mark.parametrize(
    ("timestamp", "lower", "upper"),
    [(5, 6, 6), (20, 6, 6), (25, 9, 6), (30, 9, 9), (60, 18, 18), (99, 18, 18)],
)
def test_search_by_time(tmp_path: Path, timestamp: int, lower: int, upper: int) -> None:
    queue = make_queue(tmp_path)
    fill(queue, 2, 7)
    answers = [queue.offset_by_time(timestamp, boundary, lambda *_: 0, 0) for boundary in Boundary]
    assert answers == [lower, upper]


def test_search_by_time_among_equals(tmp_path: Path) -> None:
    queue = make_queue(tmp_path)
    for number, time in enumerate((10, 20, 20, 30)):
        assert queue.put(number * 100, 100, 0, number * 3, time, None, 3)
    assert queue.offset_by_time(20, Boundary.LOWER, lambda *_: 0, 0) == 3
    assert queue.offset_by_time(20, Boundary.UPPER, lambda *_: 0, 0) == 6


def test_destroyed_queue_starts_again(tmp_path: Path) -> None:
    queue = make_queue(tmp_path / "0")
    fill(queue, 0, 6)
    queue.destroy()
    assert (queue.min_offset, queue.max_offset, queue.max_physical_offset) == (0, 0, -1)
    fill(queue, 0, 1)
    assert bases(queue) == [0]


def test_offset_that_no_entry_covers_reads_few_entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a ledger, RocketMQ's entry of an inner batch covers only the first of its offsets."""
    queue = BatchConsumeQueue("orders", 0, SegmentQueue([tmp_path], 256 * 46, LocalMedium()))
    for number in range(1000):
        assert queue.put(number * 100, 100, number, number * 3, number * 10, None, 1)
    reads = 0
    select = Segment.select

    def counted(segment: Segment, position: int, size: int | None = None) -> SelectedRange | None:
        nonlocal reads
        reads += 1
        return select(segment, position, size)

    monkeypatch.setattr(Segment, "select", counted)
    for offset in (1, 256 * 3 - 1, 256 * 3 + 1, 1700, 998 * 3 + 2):
        reads = 0
        unit = queue.entry(offset)
        assert unit is not None
        assert unit.queue_offset == offset // 3 * 3
        assert reads < 30


@pytest.mark.parametrize("damaged", range(10))
def test_damaged_entry_hides_no_other_batch(tmp_path: Path, damaged: int) -> None:
    queue = make_queue(tmp_path)
    fill(queue, 0, 10)
    file, place = tmp_path / f"{damaged // 4 * FILE_SIZE:020d}", damaged % 4 * 46
    whole = file.read_bytes()
    wrong = [(base, count) for base in (-1, *range(40), 1 << 40) for count in (1, 3)]
    for base, count in [*wrong, (0, 0), (damaged * 3, 1 << 14)]:
        data = bytearray(whole)
        struct.pack_into(">qh", data, place + 28, base, count)
        file.write_bytes(data)
        queue._file_bases.clear()
        for offset in range(30):
            unit = queue.entry(offset)
            if offset // 3 != damaged:
                assert unit is not None
                assert offset // 3 in {found.physical_offset // 100 for found in queue.covering(offset)}
                assert unit.queue_offset <= offset < unit.queue_offset + unit.batch_count
