"""The faulty disk keeps to its fault model: what was synced survives, the rest may or may not."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flintlog.disk.faulty.faulty_disk import FaultyMedium
from flintlog.disk.faulty.faulty_state import SECTOR_BYTES
from flintlog.disk.segments.segment_queue import SegmentQueue
from flintlog.errors import DiskFull, SyncFailed, WrongFileSize

SIZE = 16384
FILE = Path("/store/log/f")
SEEDS = range(30)


@pytest.fixture
def medium() -> FaultyMedium:
    medium = FaultyMedium()
    medium.make_directories(FILE.parent)
    return medium


def outcomes(medium: FaultyMedium, path: Path = FILE) -> set[bytes | None]:
    """What may be under a name after a crash now."""
    disks = [medium.crash(seed) for seed in SEEDS]
    return {disk.read(path) if disk.exists(path) else None for disk in disks}


def test_what_was_synced_survives_with_its_name(medium: FaultyMedium) -> None:
    file = medium.create(FILE, SIZE)
    file.buffer[:5] = b"hello"
    file.sync()
    assert outcomes(medium) == {b"hello" + bytes(SIZE - 5)}


def test_a_file_that_was_not_synced_may_be_lost(medium: FaultyMedium) -> None:
    medium.create(FILE, 512)
    assert outcomes(medium) == {None, bytes(512)}


def test_each_sector_that_was_not_synced_is_old_or_new(medium: FaultyMedium) -> None:
    file = medium.create(FILE, 4 * SECTOR_BYTES)
    file.buffer[:] = b"o" * file.size
    file.sync()
    file.buffer[:] = b"n" * file.size
    found = outcomes(medium)
    assert len(found) > 5
    for content in found:
        assert content is not None
        for at in range(0, len(content), SECTOR_BYTES):
            assert content[at : at + SECTOR_BYTES] in (b"o" * SECTOR_BYTES, b"n" * SECTOR_BYTES)


def test_a_sync_of_a_range_covers_its_pages_only(medium: FaultyMedium) -> None:
    file = medium.create(FILE, SIZE)
    file.sync()
    file.buffer[:] = b"n" * SIZE
    file.sync(5000, 5001)
    for content in outcomes(medium):
        assert content is not None
        assert content[4096:8192] == b"n" * 4096
    assert len(outcomes(medium)) > 1


def test_the_same_seed_gives_the_same_disk(medium: FaultyMedium) -> None:
    file = medium.create(FILE, SIZE)
    file.sync()
    file.buffer[:] = bytes(random.Random(5).randbytes(SIZE))
    assert medium.crash(7).read(FILE) == medium.crash(7).read(FILE)
    assert medium.crash(7).read(FILE) != medium.crash(8).read(FILE)


def test_the_old_disk_cannot_harm_the_new_one(medium: FaultyMedium) -> None:
    file = medium.create(FILE, SIZE)
    file.sync()
    after = medium.crash(1)
    file.buffer[:3] = b"bad"
    file.sync()
    medium.remove(FILE)
    assert after.read(FILE) == bytes(SIZE)


def test_a_rename_is_whole_or_not_at_all(medium: FaultyMedium) -> None:
    medium.write(FILE, b"old")
    other = FILE.with_name("g")
    medium.write(other, b"new")
    medium.rename(other, FILE)
    for seed in SEEDS:
        disk = medium.crash(seed)
        state = (disk.read(FILE), disk.exists(other))
        assert state in ((b"old", True), (b"new", False))
    assert outcomes(medium) == {b"old", b"new"}
    medium.sync_directory(FILE.parent)
    assert outcomes(medium) == {b"new"}


def test_a_rename_between_directories_never_loses_the_file(medium: FaultyMedium) -> None:
    medium.make_directories(Path("/store/elsewhere"))
    medium.write(Path("/store/elsewhere/g"), b"x")
    medium.write(FILE, b"y")
    medium.remove(FILE)
    medium.rename(Path("/store/elsewhere/g"), FILE)
    seen = set()
    for seed in SEEDS:
        disk = medium.crash(seed)
        moved = disk.exists(FILE) and disk.read(FILE) == b"x"
        assert moved != disk.exists(Path("/store/elsewhere/g"))
        seen.add(moved)
    assert seen == {True, False}


def test_a_removed_file_may_come_back_until_the_directory_is_synced(medium: FaultyMedium) -> None:
    medium.write(FILE, b"x")
    medium.remove(FILE)
    assert outcomes(medium) == {b"x", None}
    medium.sync_directory(FILE.parent)
    assert outcomes(medium) == {None}


def test_operations_in_a_directory_survive_in_order(medium: FaultyMedium) -> None:
    for name in "abc":
        medium.create(FILE.with_name(name), 1)
    found = set()
    medium.sync_directory(Path("/store"))
    medium.sync_directory(Path("/"))
    for seed in range(100):
        found.add("".join(info.name for info in medium.crash(seed).listing(FILE.parent)))
    assert found == {"", "a", "ab", "abc"}


def test_a_synced_file_in_a_lost_directory_is_not_lost(medium: FaultyMedium) -> None:
    deep = Path("/store/x/y/z/f")
    medium.make_directories(deep.parent)
    medium.write(deep, b"kept")
    assert outcomes(medium, deep) == {b"kept"}


def test_a_replaced_file_is_old_or_new_never_a_mix(medium: FaultyMedium) -> None:
    medium.replace(FILE, b"o" * 2000)
    medium.fail_next_syncs(1)
    with pytest.raises(SyncFailed):
        medium.replace(FILE, b"n" * 2000)
    assert outcomes(medium) == {b"o" * 2000}
    medium.replace(FILE, b"n" * 2000)
    assert outcomes(medium) == {b"n" * 2000}


def test_a_file_written_in_place_may_be_torn(medium: FaultyMedium) -> None:
    medium.write(FILE, b"o" * 1024)
    medium.fail_next_syncs(1)
    with pytest.raises(SyncFailed):
        medium.write(FILE, b"n" * 1024)
    assert b"o" * 512 + b"n" * 512 in outcomes(medium)


def test_a_failed_sync_fails_for_ever_and_a_new_handle_lies(medium: FaultyMedium) -> None:
    file = medium.create(FILE, SIZE)
    file.sync()
    file.buffer[:3] = b"new"
    medium.fail_next_syncs(1)
    for _ in range(2):
        with pytest.raises(SyncFailed):
            file.sync()
    again = medium.open(FILE, writable=True)
    again.sync()
    assert bytes(SIZE) in outcomes(medium), "reported as durable, and lost"
    again.buffer[3:4] = b"!"
    again.sync()
    assert outcomes(medium) == {b"new!" + bytes(SIZE - 4)}, "a page that was written again is written out"


def test_space_ends_where_it_was_said_to(medium: FaultyMedium) -> None:
    medium.capacity = 3 * SIZE
    for number in range(3):
        medium.create(FILE.with_name(str(number)), SIZE)
    with pytest.raises(DiskFull):
        medium.create(FILE, 1)
    with pytest.raises(DiskFull):
        medium.write(FILE, b"x")
    assert not medium.exists(FILE)
    assert medium.usage(FILE.parent).used_ratio == 1.0
    medium.remove(FILE.with_name("0"))
    medium.create(FILE, SIZE)


def test_a_flipped_bit_is_on_the_disk_too(medium: FaultyMedium) -> None:
    medium.write(FILE, b"\x00\x00")
    medium.flip_bit(FILE, 1, 3)
    assert medium.read(FILE) == b"\x00\x08"
    assert outcomes(medium) == {b"\x00\x08"}


def test_pages_may_be_written_early(medium: FaultyMedium) -> None:
    file = medium.create(FILE, SIZE)
    file.sync()
    file.buffer[:] = b"a" * SIZE
    medium.drift(seed=1, share=1.0)
    file.buffer[:] = b"b" * SIZE
    for content in outcomes(medium):
        assert content is not None
        assert b"\0" not in content


def test_a_torn_create_leaves_an_empty_file_that_a_queue_tolerates_at_its_end() -> None:
    medium = FaultyMedium(torn_creates=True)
    queue = SegmentQueue([FILE.parent], SIZE, medium)
    first = queue.last_or_new()
    assert first is not None
    first.append(b"x")
    queue.flush_all()
    queue.roll()
    lengths = set()
    for seed in SEEDS:
        disk = medium.crash(seed)
        lengths.add(tuple(info.size for info in disk.listing(FILE.parent)))
        again = SegmentQueue([FILE.parent], SIZE, disk)
        again.load()
        assert again.segments[0].base == 0
    assert lengths == {(SIZE,), (SIZE, 0), (SIZE, SIZE)}


def test_a_slow_sync_runs_without_the_lock(medium: FaultyMedium) -> None:
    seen: list[Path] = []
    medium.before_sync = seen.append
    medium.create(FILE, SIZE).sync()
    assert seen == [FILE]


@settings(max_examples=60, deadline=None)
@given(
    steps=st.lists(st.tuples(st.integers(1, 3000), st.booleans(), st.booleans()), min_size=1, max_size=25),
    seed=st.integers(0, 2**32),
)
def test_a_log_keeps_every_byte_that_was_flushed(steps: list[tuple[int, bool, bool]], seed: int) -> None:
    """Append, flush, let pages drift, crash: up to flushed_where the log reads as it was written."""
    medium = FaultyMedium()
    queue = SegmentQueue([Path("/log")], 8192, medium)
    wrote = bytearray()
    chance = random.Random(seed)
    for size, is_flushed, drifts in steps:
        segment = queue.last_or_new()
        assert segment is not None
        data = chance.randbytes(min(size, 8192 - segment.wrote_position))
        assert segment.append(data)
        wrote += data
        if is_flushed:
            queue.flush_all()
        if drifts:
            medium.drift(chance.randrange(1000))
    again = SegmentQueue([Path("/log")], 8192, medium.crash(seed))
    try:
        again.load()
    except WrongFileSize as error:
        raise AssertionError("a file lost its length") from error
    read = b"".join(again.medium.read(segment.path) for segment in again.segments)
    assert read[: queue.flushed_where] == wrote[: queue.flushed_where]
