"""The message index: filling files, queries, expiry, rolling back, damage."""

from __future__ import annotations

import struct
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flintlog.disk.faulty.faulty_disk import FaultyMedium
from flintlog.disk.media.local import LocalMedium
from flintlog.disk.media.medium import Medium
from flintlog.disk.media.overlay import OverlayMedium
from flintlog.errors import DiskFull, SyncFailed, WrongFileSize
from flintlog.format.index_file import IndexHeader, IndexLayout
from flintlog.kernel import index_hash
from flintlog.store.index.index_file import IndexFile
from flintlog.store.index.index_service import IndexService

LAYOUT = IndexLayout(4, 6)  # five keys a file
FOREVER = 2**63 - 1
START_MS = 1_700_000_000_000


class Clock:
    """A clock that stands still unless it is moved."""

    def __init__(self) -> None:
        self.now_ms = START_MS

    def __call__(self) -> int:
        return self.now_ms


def make_index(directory: Path, medium: Medium | None = None, **options: Any) -> IndexService:  # noqa: ANN401
    medium = LocalMedium() if medium is None else medium
    return IndexService(directory, medium, LAYOUT, now_ms=options.pop("clock", Clock()), **options)


def put(index: IndexService, number: int, *keys: str) -> None:
    """Record n lies at 100 n and was stored n seconds after the start."""
    hashes = [index_hash(f"orders#{key}") for key in keys]
    assert index.put(hashes, number * 100, START_MS + number * 1000)


def store_time_of(physical_offset: int) -> int:
    return START_MS + physical_offset * 10


def find(index: IndexService, key: str, max_count: int = 64, begin: int = 0, end: int = FOREVER) -> list[int]:
    return index.query_offsets("orders", key, max_count, begin, end)


def contents(directory: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted(directory.iterdir())]


def test_index_without_files_finds_nothing(tmp_path: Path) -> None:
    index = make_index(tmp_path / "index")
    assert index.load(True, 0) == []
    assert index.query_offsets("orders", "a", 10, 0, FOREVER) == []
    assert index.fast_dispatch_buffer() == (None, 4, 0)
    assert index.put([], 100, START_MS)
    assert index.files == ()


def test_a_store_time_before_1970_hides_no_other_message(tmp_path: Path) -> None:
    """One bit of a record's store time is its sign. Its file begins then, and its entries have no times."""
    index = make_index(tmp_path)
    for number in range(5):
        put(index, number, "a")
    assert index.put([index_hash("orders#a")], 500, START_MS + 5000 - 2**63)
    put(index, 6, "a")
    assert find(index, "a") == [600, 500, 400, 300, 200, 100, 0]
    assert find(index, "a", begin=START_MS + 3000, end=START_MS + 6000)[:2] == [600, 500]
    assert find(index, "a", begin=START_MS + 3000)[2:] == [400, 300]


def test_newest_comes_first_over_all_files(tmp_path: Path) -> None:
    index = make_index(tmp_path)
    for number in range(8):
        put(index, number, "a", "b")
    assert len(index.files) == 4
    assert find(index, "a") == [700, 600, 500, 400, 300, 200, 100, 0]
    assert find(index, "a", 3) == [700, 600, 500]
    assert find(index, "c") == []
    assert (index.last_header.end_timestamp, index.last_header.end_physical_offset) == (START_MS + 7000, 700)


def test_a_query_is_never_answered_with_more_than_the_bound(tmp_path: Path) -> None:
    index = make_index(tmp_path, max_query_count=2)
    for number in range(8):
        put(index, number, "a")
    assert find(index, "a", 100) == [700, 600]


def test_time_bounds_are_inclusive(tmp_path: Path) -> None:
    index = make_index(tmp_path)
    for number in range(8):
        put(index, number, "a")
    assert find(index, "a", begin=START_MS + 2000, end=START_MS + 6000) == [600, 500, 400, 300, 200]
    assert find(index, "a", begin=START_MS + 2001, end=START_MS + 4999) == [400, 300]
    assert find(index, "a", begin=START_MS + 7001) == []
    assert find(index, "a", end=START_MS - 1) == []


def test_first_key_of_a_later_file_is_judged_late(tmp_path: Path) -> None:
    index = make_index(tmp_path)
    for number in range(8):
        put(index, number, "a")
    # Its time is counted from the end of the file before, but added to its own file's begin: 5 s + (5 s - 4 s).
    assert find(index, "a", begin=START_MS + 5000, end=START_MS + 5999) == []
    assert find(index, "a", begin=START_MS + 5000, end=START_MS + 6000) == [600, 500]


def test_keys_of_a_type_are_apart(tmp_path: Path) -> None:
    index = make_index(tmp_path)
    put(index, 0, "T#paid")
    put(index, 1, "paid")
    assert index.query_offsets("orders", "paid", 9, 0, FOREVER, "T") == [0]
    assert find(index, "paid") == [100]


def test_first_key_of_a_later_file_is_timed_against_the_end_of_the_one_before(tmp_path: Path) -> None:
    index = make_index(tmp_path)
    for number in range(0, 14, 2):
        put(index, number, "a")
    first, second = index.files
    assert first.header == IndexHeader(START_MS, START_MS + 8000, 0, 800, 1, 6)
    assert second.header == IndexHeader(START_MS + 10000, START_MS + 12000, 1000, 1200, 1, 3)
    entries = second.path.read_bytes()[LAYOUT.entry_position(1) : LAYOUT.entry_position(3)]
    assert [entry[2] for entry in struct.iter_unpack(">iqii", entries)] == [2, 2]


def test_full_file_is_flushed_and_reported_before_the_next_is_used(tmp_path: Path) -> None:
    ends: list[int] = []
    index = make_index(tmp_path, on_full=ends.append)
    for number in range(5):
        put(index, number, "a")
    assert ends == []
    put(index, 5, "a")
    assert ends == [START_MS + 4000]


def test_record_that_was_indexed_is_not_indexed_again(tmp_path: Path) -> None:
    index = make_index(tmp_path)
    for number in range(4):
        put(index, number, "a")
    put(index, 2, "a")
    assert find(index, "a") == [300, 200, 100, 0]


def test_record_whose_keys_span_two_files(tmp_path: Path) -> None:
    index = make_index(tmp_path)
    put(index, 1, *"abcdefgh")
    assert [file.header.index_count for file in index.files] == [6, 4]
    assert [find(index, key) for key in "aeh"] == [[100], [100], [100]]


def test_names_are_local_times_and_always_grow(tmp_path: Path) -> None:
    clock = Clock()
    index = make_index(tmp_path, clock=clock)
    put(index, 0, *"abcde")
    put(index, 1, *"abcde")
    clock.now_ms -= 3_600_000
    put(index, 2, *"abcde")
    clock.now_ms += 7_200_000
    put(index, 3, "a")
    stamp = time.strftime("%Y%m%d%H%M%S", time.localtime(START_MS // 1000))
    later = time.strftime("%Y%m%d%H%M%S", time.localtime(START_MS // 1000 + 3600))
    assert [file.name for file in index.files] == [stamp + "000", stamp + "001", stamp + "002", later + "000"]


@pytest.mark.parametrize(
    ("last", "following"),
    [("20991231235959999", "21000101000000000"), ("20991399000000000", "20991399000000001")],
)
def test_name_after_one_of_the_future(tmp_path: Path, last: str, following: str) -> None:
    (tmp_path / last).write_bytes(bytes(LAYOUT.file_size))
    index = make_index(tmp_path)
    index.load(True, 0)
    put(index, 0, *"abcdef")
    assert [file.name for file in index.files] == [last, following]


def test_files_are_found_again_and_filled_up(tmp_path: Path) -> None:
    index = make_index(tmp_path)
    for number in range(7):
        put(index, number, "a")
    index.shut_down()
    again = make_index(tmp_path)
    assert again.load(True, 0) == []
    put(again, 7, "a")
    assert len(again.files) == 2
    assert find(again, "a") == [700, 600, 500, 400, 300, 200, 100, 0]


def test_after_a_crash_files_beyond_the_safe_time_are_dropped(tmp_path: Path) -> None:
    index = make_index(tmp_path)
    for number in range(12):
        put(index, number, "a")
    names = [file.name for file in index.files]
    index.shut_down()
    again = make_index(tmp_path)
    assert again.load(False, START_MS + 4000) == names[1:]
    assert find(again, "a") == [400, 300, 200, 100, 0]
    assert [path.name for path in tmp_path.iterdir()] == names[:1]


def test_a_file_is_not_believed_by_time_alone_if_it_was_filled_in_the_same_millisecond(tmp_path: Path) -> None:
    safe: list[int] = []
    index = make_index(tmp_path, on_full=safe.append)
    for number in range(12):
        assert index.put([index_hash("orders#a")], number * 100, START_MS)
    names = [file.name for file in index.files]
    assert make_index(tmp_path).load(False, safe[-1]) == names[2:], "the last file was never made durable"


@pytest.mark.parametrize("seed", range(5))
def test_file_that_was_dropped_does_not_come_back(seed: int) -> None:
    medium = FaultyMedium()
    index = make_index(Path("/index"), medium)
    for number in range(12):
        put(index, number, "a")
    index.flush()
    dropped = make_index(Path("/index"), medium).load(False, 0)
    assert len(dropped) == 3
    assert medium.crash(seed).listing(Path("/index")) == [], (
        "the file before it would be believed, although it was changed since"
    )


def test_full_file_that_cannot_be_made_durable_gets_no_successor() -> None:
    medium = FaultyMedium()
    index = make_index(Path("/index"), medium)
    for number in range(5):
        put(index, number, "a")
    medium.fail_next_syncs(1)
    for _ in range(2):
        with pytest.raises(SyncFailed):
            index.roll()
    assert len(index.files) == 1


def test_read_only_leaves_unsafe_files_on_the_disk(tmp_path: Path) -> None:
    index = make_index(tmp_path)
    for number in range(7):
        put(index, number, "a")
    index.shut_down()
    (tmp_path / "20991231235959999").touch()
    again = make_index(tmp_path, medium=OverlayMedium(LocalMedium()))
    assert len(again.load(False, START_MS + 4000)) == 1
    assert len(list(tmp_path.iterdir())) == 3


def test_empty_and_foreign_files_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "20991231235959999").touch()
    (tmp_path / "notes.txt").write_text("not an index")
    (tmp_path / "20991231235959998").mkdir()
    index = make_index(tmp_path)
    assert index.load(True, 0) == []
    assert index.files == ()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["20991231235959998", "notes.txt"]


def test_file_of_the_wrong_size_is_named_and_nothing_is_changed(tmp_path: Path) -> None:
    (tmp_path / "20231114221320000").write_bytes(bytes(LAYOUT.file_size - 1))
    (tmp_path / "20231114221320001").touch()
    with pytest.raises(WrongFileSize, match="20231114221320000"):
        make_index(tmp_path).load(True, 0)
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize(("minimum", "left"), [(0, 3), (400, 3), (401, 2), (901, 1), (99999, 1)])
def test_files_expire_when_their_last_record_was_deleted(tmp_path: Path, minimum: int, left: int) -> None:
    index = make_index(tmp_path)
    for number in range(12):
        put(index, number, "a")
    assert index.delete_expired(minimum) == 3 - left
    assert len(index.files) == len(list(tmp_path.iterdir())) == left


@pytest.mark.parametrize("kept", range(13))
def test_truncate_leaves_the_bytes_as_if_the_rest_had_never_come(tmp_path: Path, kept: int) -> None:
    index, expected = make_index(tmp_path / "a"), make_index(tmp_path / "b")
    for number in range(12):
        put(index, number, "a", f"k{number}")
        if number < kept:
            put(expected, number, "a", f"k{number}")
    index.truncate(kept * 100, store_time_of)
    index.flush()
    expected.flush()
    if kept:
        assert contents(tmp_path / "a") == contents(tmp_path / "b")
    else:
        assert contents(tmp_path / "a") == [struct.pack(">4q2i", 0, 0, 0, 0, 0, 1) + bytes(LAYOUT.file_size - 40)]
    assert find(index, "a") == find(expected, "a")


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.sampled_from("abcdefgh"), max_size=7), max_size=12), st.integers(0, 12))
def test_index_cut_and_filled_again_is_the_same(records: list[list[str]], cut: int) -> None:
    medium = FaultyMedium()
    once, twice = (make_index(Path(f"/{name}"), medium) for name in "ab")
    for number, keys in enumerate(records):
        put(once, number, *keys)
        put(twice, number, *keys)
    twice.truncate(cut * 100, store_time_of)
    for number in range(cut, len(records)):
        put(twice, number, *records[number])
    for index in (once, twice):
        index.flush()
        for key in "abcdefgh":
            carrying = [number * 100 for number, keys in enumerate(records) for each in keys if each == key]
            assert find(index, key) == carrying[::-1]
    files = [[bytes(file.buffer) for file in index.files] for index in (once, twice)]
    if files[1] != files[0]:
        assert not files[0]  # only the first file stays when it gets empty
        assert [file.header.next_entry for file in twice.files] == [1]


def test_roll_back_to_a_published_count(tmp_path: Path) -> None:
    index = make_index(tmp_path)
    for number in range(9):
        put(index, number, "a")
    name = index.files[0].name
    index.roll_back(name, 3, store_time_of)
    assert [file.name for file in index.files] == [name]
    assert find(index, "a") == [100, 0]
    assert index.last_header == IndexHeader(START_MS, START_MS + 1000, 0, 100, 1, 3)


def test_chain_that_runs_in_a_circle_ends(tmp_path: Path) -> None:
    index = make_index(tmp_path)
    for number in range(4):
        put(index, number, "a")
    position = LAYOUT.entry_position(1) + 16
    index.files[0].buffer[position : position + 4] = struct.pack(">i", 3)
    assert find(index, "a")[:4] == [300, 200, 100, 0]
    assert len(find(index, "a")) <= 6


@pytest.mark.parametrize("number", [-1, 6, 7, 2**31 - 1])
def test_slot_that_points_nowhere_finds_nothing(tmp_path: Path, number: int) -> None:
    index = make_index(tmp_path)
    put(index, 0, "a")
    index.files[0].buffer[40:56] = struct.pack(">4i", number, number, number, number)
    assert find(index, "a") == []


def test_full_disk_is_said_and_tried_again() -> None:
    medium = FaultyMedium(capacity=LAYOUT.file_size)
    index = make_index(Path("/index"), medium)
    put(index, 0, *"abcde")
    assert not index.put([1], 100, START_MS)
    assert isinstance(index.create_failure, DiskFull)
    medium.capacity = None
    put(index, 1, "f")
    assert find(index, "f") == [100]


@pytest.mark.parametrize("passed_ms", [0, 5])
def test_a_file_that_was_interrupted_before_it_was_listed_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, passed_ms: int
) -> None:
    """A signal handler may raise between the call that makes the file and the assignment of its result."""
    clock = Clock()
    index = make_index(tmp_path, clock=clock)
    put(index, 0, *"abcde")
    make = IndexFile.__init__

    def make_and_interrupt(*arguments: Any, **options: Any) -> None:  # noqa: ANN401
        make(*arguments, **options)
        raise KeyboardInterrupt

    with monkeypatch.context() as patches:
        patches.setattr(IndexFile, "__init__", make_and_interrupt)
        with pytest.raises(KeyboardInterrupt):
            put(index, 1, "f")
    assert len(list(tmp_path.iterdir())) == 2
    clock.now_ms += passed_ms
    put(index, 1, "f")
    assert [path.name for path in sorted(tmp_path.iterdir())] == [file.name for file in index.files]
    assert find(index, "f") == [100] and len(index.files) == 2


def test_sealed_files_survive_a_crash() -> None:
    medium = FaultyMedium()
    safe: list[int] = []
    index = make_index(Path("/index"), medium, on_full=safe.append)
    for number in range(12):
        put(index, number, "a")
    index.flush()
    after = make_index(Path("/index"), medium.crash(seed=3))
    after.load(False, safe[-1])
    assert find(after, "a") == [number * 100 for number in range(9, -1, -1)]


def test_a_query_continues_while_files_are_deleted(tmp_path: Path) -> None:
    index = make_index(tmp_path)
    for number in range(12):
        put(index, number, "a")
    again = make_index(tmp_path)
    again.load(True, 0)
    files = again.files
    again.delete_expired(99999)
    again._files = files  # what a query that began before still sees
    for file in files:
        file.close()
    assert find(again, "a") == [1100, 1000]


def test_destroyed_index_leaves_views_alone(tmp_path: Path) -> None:
    index = make_index(tmp_path / "index")
    put(index, 0, "a")
    view = index.files[0].buffer
    index.destroy()
    assert len(view) == LAYOUT.file_size
    assert index.files == ()
    assert not (tmp_path / "index").exists()


def test_a_stop_removes_a_file_that_was_interrupted_before_it_was_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = make_index(tmp_path)
    put(index, 0, *"abcde")
    make = IndexFile.__init__

    def make_and_interrupt(*arguments: Any, **options: Any) -> None:  # noqa: ANN401
        make(*arguments, **options)
        raise KeyboardInterrupt

    monkeypatch.setattr(IndexFile, "__init__", make_and_interrupt)
    with pytest.raises(KeyboardInterrupt):
        put(index, 1, "f")
    index.shut_down()
    assert len(list(tmp_path.iterdir())) == 1
