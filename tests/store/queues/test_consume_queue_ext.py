"""A consume queue with extension: units, file ends, lost units."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

from flintlog.disk.faulty.faulty_disk import FaultyMedium
from flintlog.disk.media.local import LocalMedium
from flintlog.disk.media.medium import Medium
from flintlog.disk.segments.segment_queue import SegmentQueue
from flintlog.store.queues.consume_queue import ConsumeQueue
from flintlog.store.queues.consume_queue_ext import ConsumeQueueExt

EXT_FILE_SIZE = 100
ADDRESS_BASE = -(2**63)


def make_queue(root: Path, medium: Medium | None = None) -> ConsumeQueue:
    medium = LocalMedium() if medium is None else medium
    ext = ConsumeQueueExt(SegmentQueue([root / "ext"], EXT_FILE_SIZE, medium))
    return ConsumeQueue("orders", 0, SegmentQueue([root / "queue"], 160, medium), ext)


def reopen(root: Path, medium: Medium | None = None) -> ConsumeQueue:
    queue = make_queue(root, medium)
    queue.load()
    queue.recover()
    return queue


def fill(queue: ConsumeQueue, start: int, stop: int, bitmap: bytes = b"") -> None:
    for number in range(start, stop):
        assert queue.put(number * 100, 100, number, number, 1000 + number, bitmap)


def units(queue: ConsumeQueue) -> list[tuple[int | None, int, bytes]]:
    found = []
    for offset in range(queue.min_offset, queue.max_offset):
        unit = queue.entry(offset)
        assert unit is not None
        assert unit.extension is not None
        found.append((unit.tags_code, unit.extension.store_timestamp, unit.extension.bitmap))
    return found


def test_entry_holds_the_address_and_the_unit_the_tags_code(tmp_path: Path) -> None:
    queue = make_queue(tmp_path)
    fill(queue, 0, 2, b"\x81\x01")
    ext = (tmp_path / "ext" / "00000000000000000000").read_bytes()
    assert ext[:44] == b"".join(struct.pack(">hqqh", 22, n, 1000 + n, 2) + b"\x81\x01" for n in (0, 1))
    data = (tmp_path / "queue" / "00000000000000000000").read_bytes()
    assert data[:40] == struct.pack(">qiqqiq", 0, 100, ADDRESS_BASE, 100, 100, ADDRESS_BASE + 22)
    assert units(queue) == [(0, 1000, b"\x81\x01"), (1, 1001, b"\x81\x01")]
    assert queue.end.tail is None  # fast dispatch knows nothing of extensions


def test_unit_that_does_not_fit_goes_to_the_next_file(tmp_path: Path) -> None:
    queue = make_queue(tmp_path)
    fill(queue, 0, 5)  # four units of 20 leave 20, of which 4 are never used
    first = (tmp_path / "ext" / "00000000000000000000").read_bytes()
    assert first[80:] == b"\xff\xff" + bytes(18)
    assert (tmp_path / "ext" / "00000000000000000100").exists()
    assert [code for code, _, _ in units(queue)] == [0, 1, 2, 3, 4]
    again = reopen(tmp_path)
    fill(again, 5, 6)
    assert [code for code, _, _ in units(again)] == [0, 1, 2, 3, 4, 5]


def test_bitmap_too_large_for_a_unit_leaves_the_plain_tags_code(tmp_path: Path) -> None:
    queue = make_queue(tmp_path)
    fill(queue, 0, 1, bytes(32748))
    fill(queue, 1, 2, bytes(90))  # never fits a file of 100 bytes
    for offset in (0, 1):
        unit = queue.entry(offset)
        assert unit is not None
        assert (unit.tags_code, unit.extension) == (offset, None)


def test_full_disk_leaves_the_plain_tags_code() -> None:
    root = Path("/store")
    queue = make_queue(root, FaultyMedium(capacity=160 + EXT_FILE_SIZE))
    fill(queue, 0, 6)
    plain = queue.entry(5)
    assert plain is not None
    assert (plain.tags_code, plain.extension) == (5, None)


def test_repeated_record_leaves_no_unit_without_an_entry(tmp_path: Path) -> None:
    queue = make_queue(tmp_path)
    fill(queue, 0, 2)
    fill(queue, 0, 2)
    assert queue.ext is not None
    assert queue.ext.segments.max_offset == 40


def test_recovery_drops_units_no_entry_refers_to(tmp_path: Path) -> None:
    queue = make_queue(tmp_path)
    fill(queue, 0, 6)
    file = tmp_path / "queue" / "00000000000000000000"
    file.write_bytes(file.read_bytes()[:60] + bytes(100))
    again = reopen(tmp_path)
    assert again.ext is not None
    assert again.ext.segments.max_offset == 60
    fill(again, 3, 4, b"x")
    assert units(again)[3] == (3, 1003, b"x")


def test_entries_that_are_cut_take_their_units_along(tmp_path: Path) -> None:
    queue = make_queue(tmp_path)
    fill(queue, 0, 7)
    again = reopen(tmp_path)
    again.truncate(300)
    fill(again, 3, 7)
    built = make_queue(tmp_path / "built")
    fill(built, 0, 7)
    for name in ("queue", "ext"):
        files = {file.name: file.read_bytes() for file in (tmp_path / name).iterdir()}
        assert files == {file.name: file.read_bytes() for file in (tmp_path / "built" / name).iterdir()}


def test_units_of_a_lost_queue_make_way_for_those_of_a_new_one(tmp_path: Path) -> None:
    fill(make_queue(tmp_path), 0, 7, b"old")
    shutil.rmtree(tmp_path / "queue")
    queue = make_queue(tmp_path)
    fill(queue, 0, 2, b"new")
    assert units(queue) == [(0, 1000, b"new"), (1, 1001, b"new")]
    assert queue.ext is not None
    assert queue.ext.segments.max_offset == 46


def test_lost_unit_makes_the_tag_unknown(tmp_path: Path) -> None:
    queue = make_queue(tmp_path)
    fill(queue, 0, 3)
    file = tmp_path / "ext" / "00000000000000000000"
    file.write_bytes(file.read_bytes()[:20] + bytes(80))
    again = reopen(tmp_path)
    second = again.entry(1)
    assert again.max_offset == 3
    assert second is not None
    assert (second.tags_code, second.extension, second.physical_offset) == (None, None, 100)


def test_torn_unit_is_cut_off(tmp_path: Path) -> None:
    queue = make_queue(tmp_path)
    fill(queue, 0, 3)
    file = tmp_path / "ext" / "00000000000000000000"
    file.write_bytes(file.read_bytes()[:40] + struct.pack(">hqqh", 32767, 2, 1002, 9) + bytes(40))
    ext = ConsumeQueueExt(SegmentQueue([tmp_path / "ext"], EXT_FILE_SIZE, LocalMedium()))
    ext.load()
    ext.recover()
    assert ext.segments.max_offset == 40


def test_files_before_the_min_offset_are_deleted(tmp_path: Path) -> None:
    queue = make_queue(tmp_path)
    fill(queue, 0, 8)
    queue.correct_min_offset(300, now_ms=1)
    assert (tmp_path / "ext" / "00000000000000000000").exists()
    queue.correct_min_offset(500, now_ms=1)
    assert not (tmp_path / "ext" / "00000000000000000000").exists()
    assert [code for code, _, _ in units(queue)] == [5, 6, 7]


def test_destroy_takes_the_extension_with_it(tmp_path: Path) -> None:
    queue = make_queue(tmp_path)
    fill(queue, 0, 2)
    assert not queue.flush(0)
    queue.destroy()
    assert not list(tmp_path.iterdir())
