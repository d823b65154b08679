"""Files that somebody deleted, moved or added between two runs: what is lost is said, what is not is built again."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.store.small_store import ASYNC, SMALL, bytes_of, read_all

from flintlog import DamagedRecord, DamagedStore, GetStatus, Message, Store, StoreConfig, open_store
from flintlog.checks.finding import Finding
from flintlog.errors import DiskError

FILE_BYTES = SMALL.mapped_file_size_commit_log
COUNT = 300
UNCLEAN = pytest.mark.parametrize("is_clean", [True, False], ids=["clean", "unclean"])


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three log files, three files of one queue, all of it after a clean stop."""
    root = tmp_path_factory.mktemp("made") / "store"
    with open_store(root, ASYNC) as store:
        for number in range(COUNT):
            store.put(Message("orders", b"%d" % number + bytes(500), keys=[f"k{number}"])).check()
    return root


@pytest.fixture
def root(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made, tmp_path / "store")
    return tmp_path / "store"


def log_files(root: Path) -> list[Path]:
    return sorted((root / "commitlog").iterdir())


def queue_files(root: Path) -> list[Path]:
    return sorted((root / "consumequeue" / "orders" / "0").iterdir())


def ids(store: Store) -> list[str]:
    return [finding.id for finding in store.recovery]


def crash(root: Path) -> None:
    (root / "abort").write_text("1")


# The log


@UNCLEAN
def test_the_last_log_file_is_missing(root: Path, is_clean: bool) -> None:
    end = int(log_files(root)[-1].name)
    log_files(root)[-1].unlink()
    if not is_clean:
        crash(root)
    with open_store(root, ASYNC) as store:
        (found,) = [finding for finding in store.recovery if finding.severity == "error"]
        assert (found.id, found.physical_offset) == ("short-log", end)
        assert found.size > 20_000
        assert store.max_physical_offset == end + found.size
        assert store.max_offset("orders", 0) == COUNT
        with pytest.raises(DamagedRecord):
            store.get("orders", 0, COUNT - 1, 1)
        receipt = store.put(Message("orders", b"next")).check()
        assert (receipt.queue_offset, receipt.physical_offset) == (COUNT, end + found.size)
    with open_store(root, ASYNC) as store:
        (again,) = store.recovery
        assert (again.id, again.physical_offset, again.size) == ("damaged-range", end, found.size)
        assert [message.body for message in store.get("orders", 0, COUNT).messages] == [b"next"]


class Loss(NamedTuple):
    """What is done to each log file that is lost."""

    name: str
    change: Callable[[Path], object]


def _replace_by(make: Callable[[Path], object]) -> Callable[[Path], object]:
    def change(file: Path) -> None:
        file.unlink()
        make(file)

    return change


LOSSES = [
    Loss("gone", Path.unlink),
    Loss("zeros", lambda file: file.write_bytes(bytes(file.stat().st_size))),
    Loss("a directory", _replace_by(Path.mkdir)),
    Loss("a dangling link", _replace_by(lambda file: file.symlink_to("/nowhere/to/be/found"))),
]


@pytest.mark.parametrize("from_file", [0, 1, -1])
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
@pytest.mark.parametrize("notes", ["all", "no stop", "none"])
@UNCLEAN
def test_no_offset_is_given_again_when_the_log_lost_its_end(
    root: Path, is_clean: bool, loss: Loss, from_file: int, notes: str
) -> None:
    """By the marker of the stop, by the note of the checkpoint, or by the queues alone, as in a store of RocketMQ's."""
    for file in log_files(root)[from_file:]:
        loss.change(file)
    if not is_clean:
        crash(root)
    for name in {"all": (), "no stop": ("stop.json",), "none": ("stop.json", "queues.json")}[notes]:
        (root / "flintlog" / name).unlink()
    try:
        with open_store(root, ASYNC) as store:
            assert store.put(Message("orders", b"next")).check().queue_offset == COUNT
    except DamagedStore:
        assert from_file == 0 or loss.name.startswith("a ")
        return
    with open_store(root, ASYNC) as store:
        assert [message.body for message in store.get("orders", 0, COUNT).messages] == [b"next"]
        assert store.put(Message("orders", b"next")).check().queue_offset == COUNT + 1


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_no_offset_is_given_again_where_no_checkpoint_was_written(root: Path, loss: Loss) -> None:
    crash(root)
    for path in ("checkpoint", "flintlog/stop.json", "flintlog/queues.json"):
        (root / path).unlink()
    for file in log_files(root):
        loss.change(file)
    try:
        with open_store(root, ASYNC) as store:
            receipt = store.put(Message("orders", b"next"), check=False)
            assert receipt.queue_offset == COUNT or receipt.physical_offset < 0
    except DiskError:
        assert loss.name.startswith("a ")


def test_after_a_crash_the_log_may_be_shorter_than_what_nobody_vouched_for(root: Path) -> None:
    log_files(root)[-1].unlink()
    crash(root)
    (root / "checkpoint").unlink()
    with open_store(root, ASYNC) as store:
        assert "short-log" not in ids(store)


def test_the_end_of_the_log_is_known_by_its_queues_where_no_stop_was_written_down(root: Path) -> None:
    (root / "flintlog" / "stop.json").unlink()
    log_files(root)[-1].unlink()
    with open_store(root, ASYNC) as store:
        assert ids(store) == ["short-log"]


def test_a_middle_log_file_is_missing(root: Path) -> None:
    log_files(root)[1].unlink()
    with open_store(root, ASYNC) as store:
        (found,) = store.recovery
        assert (found.id, found.severity) == ("missing-log-file", "error")
        assert (found.physical_offset, found.size) == (FILE_BYTES, FILE_BYTES)
        with pytest.raises(DamagedRecord, match="missing"):
            store.message_at(FILE_BYTES + 10)
        assert store.get("orders", 0, COUNT - 1).messages and store.get("orders", 0, 0).messages


@pytest.mark.parametrize("way", ["removed", "emptied"])
@UNCLEAN
def test_the_whole_log_is_missing(root: Path, is_clean: bool, way: str) -> None:
    shutil.rmtree(root / "commitlog")
    if way == "emptied":
        (root / "commitlog").mkdir()
    if not is_clean:
        crash(root)
    before = bytes_of(root)
    for read_only in (False, True):
        with pytest.raises(DamagedStore, match=r"the log is missing.*mounted"):
            open_store(root, ASYNC, read_only=read_only)
    assert bytes_of(root) == before


@pytest.mark.parametrize("gone", ["flintlog/stop.json", "checkpoint"])
def test_the_whole_log_is_missing_and_one_trace_of_it(root: Path, gone: str) -> None:
    shutil.rmtree(root / "commitlog")
    (root / gone).unlink()
    with pytest.raises(DamagedStore, match="the log is missing"):
        open_store(root, ASYNC)


def test_a_store_that_never_had_a_message_opens_without_a_log(tmp_path: Path) -> None:
    for _ in range(2):
        with open_store(tmp_path / "store", ASYNC) as store:
            assert ids(store) == []
        shutil.rmtree(tmp_path / "store" / "commitlog", ignore_errors=True)


def test_a_file_behind_the_log_is_kept_aside_and_told(root: Path) -> None:
    stray = root / "commitlog" / f"{10 * FILE_BYTES:020d}"
    content = b"no record" * 1000
    stray.write_bytes(content.ljust(FILE_BYTES, b"\0"))
    with open_store(root, ASYNC) as store:
        (found,) = store.recovery
        assert found.id == "torn-tail" and found.kept_in is not None
        assert Path(found.kept_in).read_bytes() == content
        assert not stray.exists()
        assert len(read_all(store, "orders")) == COUNT


def test_a_file_made_ahead_is_nothing_to_be_told(root: Path) -> None:
    (root / "commitlog" / f"{3 * FILE_BYTES:020d}").write_bytes(bytes(FILE_BYTES))
    with open_store(root, ASYNC) as store:
        assert ids(store) == []
    assert not (root / "flintlog" / "cut").exists()


# Queues


def _assert_built_again(root: Path, config: StoreConfig = ASYNC, reported: str = "missing-queues") -> Finding:
    with open_store(root, config) as store:
        found = next(finding for finding in store.recovery if finding.id == reported)
        assert len(read_all(store, "orders")) == COUNT
        assert [store.get("orders", 0, at, 1).status for at in range(0, COUNT, 50)] == [GetStatus.FOUND] * 6
        assert store.min_offset("orders", 0) == 0
    with open_store(root, config) as store:
        assert ids(store) == []
    return found


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_queue_file_is_missing_after_a_clean_stop(root: Path, place: int) -> None:
    queue_files(root)[place].unlink()
    assert "there were 3 queue files" in _assert_built_again(root).evidence


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("way", ["crashed", "no marker"])
def test_a_queue_file_is_missing_and_no_stop_says_how_many_there_were(root: Path, place: int, way: str) -> None:
    queue_files(root)[place].unlink()
    if way == "no marker":
        (root / "flintlog" / "stop.json").unlink()
        assert "orders/0 are missing" in _assert_built_again(root).evidence
        return
    crash(root)
    if place:
        assert "orders/0 had" in _assert_built_again(root, reported="damaged-queues").evidence
    else:
        assert "orders/0 lacks its first files" in _assert_built_again(root).evidence


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("content", [b"\0", b"\xff"], ids=["zeros", "ones"])
def test_a_queue_file_lost_its_content_after_a_clean_stop(root: Path, content: bytes, place: int) -> None:
    """Its queue seemed to end there, and what was put next got offsets that had been given."""
    file = queue_files(root)[place]
    file.write_bytes(content * file.stat().st_size)
    _assert_built_again(root, reported="damaged-queues")


def test_the_queue_of_a_topic_that_was_made_anew_has_lost_nothing(root: Path) -> None:
    with open_store(root, ASYNC) as store:
        store.topics.delete("orders")
        assert store.put(Message("orders", b"anew")).queue_offset == COUNT
        store.wait_dispatched()
        store.flush()
        store._engine.flushing.queue_flush.flush_all()  # type: ignore[union-attr]
    crash(root)
    with open_store(root, ASYNC) as store:
        assert ids(store) == []


@pytest.mark.parametrize("kind", ["SimpleCQ", "BatchCQ"])
@pytest.mark.parametrize("place", [0, 1, -1])
def test_a_queue_file_that_a_power_loss_left_empty_is_as_good_as_missing(tmp_path: Path, place: int, kind: str) -> None:
    root = tmp_path / "store"
    config = ASYNC.with_changes(topic_queue_types={"orders": kind}, mapped_file_size_batch_consume_queue=46 * 100)
    with open_store(root, config) as store:
        for _ in range(COUNT):
            store.put(Message("orders", b"")).check()
    folder = root / ("consumequeue" if kind == "SimpleCQ" else "batchconsumequeue") / "orders" / "0"
    files = sorted(folder.iterdir())
    assert len(files) > 2
    files[place].write_bytes(b"")
    crash(root)
    with open_store(root, config) as store:
        assert store.max_offset("orders", 0) == COUNT
        assert all(len(store.get("orders", 0, number, 1).messages) == 1 for number in range(COUNT))


# The index


@pytest.mark.parametrize("way", ["missing", "empty"])
@pytest.mark.parametrize("place", [0, -1])
def test_an_index_file_is_gone_after_a_clean_stop(tmp_path: Path, place: int, way: str) -> None:
    root, config = tmp_path / "store", ASYNC.with_changes(max_index_num=100)
    with open_store(root, config) as store:
        for number in range(COUNT):
            store.put(Message("orders", b"", keys=[f"k{number}"])).check()
    files = sorted((root / "index").iterdir())
    before = [file.read_bytes() for file in files]
    assert len(before) > 1
    if way == "missing":
        files[place].unlink()
    else:
        files[place].write_bytes(b"")
    with open_store(root, config) as store:
        (found,) = store.recovery
        assert (found.id, f"there were {len(files)} index files" in found.evidence) == ("missing-index", True)
        assert all(store.query("orders", f"k{number}") for number in range(COUNT))
    assert [file.read_bytes() for file in sorted((root / "index").iterdir())] == before
    with open_store(root, config) as store:
        assert ids(store) == []


# The marker


def _as_after_another_program(root: Path) -> None:
    """Two runs, and the marker of the first: RocketMQ does not remove it."""
    marker = root / "flintlog" / "stop.json"
    with open_store(root, ASYNC) as store:
        store.put(Message("orders", b"without a key")).check()
        store.put(Message("gone", b"x")).check()
    old = marker.read_bytes()
    with open_store(root, ASYNC) as store:
        for number in range(50):
            store.put(Message("orders", b"x", keys=[f"k{number}"])).check()
    marker.write_bytes(old)


def test_after_a_damaged_marker_the_stop_counts_as_unclean(tmp_path: Path) -> None:
    with open_store(tmp_path, ASYNC) as store:
        for number in range(20):
            store.put(Message("orders", b"x", keys=[f"k{number}"])).check()
    marker = tmp_path / "flintlog" / "stop.json"
    marker.write_bytes(marker.read_bytes().replace(b"log_end", b"log_ene"))
    with open_store(tmp_path, ASYNC, read_only=True) as store:
        assert not (tmp_path / "abort").exists()
    with open_store(tmp_path, ASYNC) as store:
        assert ids(store) == ["damaged-note"]
        assert not store.recovery.clean
        assert store.max_offset("orders", 0) == 20
    with open_store(tmp_path, ASYNC) as store:
        assert store.recovery.clean
        assert not ids(store)


def test_an_old_marker_does_not_say_that_there_was_no_index(tmp_path: Path) -> None:
    _as_after_another_program(tmp_path)
    shutil.rmtree(tmp_path / "index")
    with open_store(tmp_path, ASYNC) as store:
        assert ids(store) == ["missing-index"]
        assert len(store.query("orders", "k5")) == 1


def test_an_old_marker_does_not_bring_back_what_another_program_deleted(tmp_path: Path) -> None:
    _as_after_another_program(tmp_path)
    shutil.rmtree(tmp_path / "consumequeue" / "gone")
    with open_store(tmp_path, ASYNC) as store:
        assert ids(store) == []
        assert store.max_offset("gone", 0) == 0
