"""All queues of a store: finding them, their kinds, next offsets, cutting and deleting."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from tests.store.small_store import SMALL

from flintlog import Message, open_store
from flintlog.disk.faulty.faulty_disk import FaultyMedium
from flintlog.disk.media.local import LocalMedium
from flintlog.disk.media.local_file import LocalFile
from flintlog.disk.media.map_cache import LOOKS_PER_MAP
from flintlog.disk.media.medium import Medium
from flintlog.disk.media.overlay import OverlayMedium
from flintlog.disk.segments.mapped_segment import MappedSegment
from flintlog.errors import DamagedStore, InvalidConfig, SyncFailed, WrongFileSize
from flintlog.store.log.queue_offsets import apply_moves
from flintlog.store.queues.consume_queue import ConsumeQueue
from flintlog.store.queues.logical_queue import QueueType
from flintlog.store.queues.queue_data import QueueData
from flintlog.store.queues.queue_files import QueueFiles
from flintlog.store.queues.queue_sync import QueueSync
from flintlog.store.queues.queue_table import QueueTable
from flintlog.store.queues.queue_tail import TailKeeper

FILES = QueueFiles(160, 184)
NOW_MS = 1_800_000_000_000


class CountingMedium(LocalMedium):
    """Counts how many files were mapped."""

    def __init__(self, max_maps: int = 64) -> None:
        super().__init__(max_maps)
        self.open_count = 0

    def open(self, path: Path, writable: bool = False, *, in_steps: bool = False) -> LocalFile:
        self.open_count += 1
        return super().open(path, writable, in_steps=in_steps)


def make_table(root: Path, types: dict[str, str] | None = None, medium: Medium | None = None) -> QueueTable:
    medium = LocalMedium() if medium is None else medium
    return QueueTable(root, medium, FILES, topic_queue_types=types, now_ms=lambda: NOW_MS)


def advance(table: QueueTable, topic: str, queue_id: int, by: int = 1, light: Sequence[str] = ()) -> None:
    """What the kernel does when it appends a message."""
    _, moves = table.offsets.plan((topic, queue_id), by, light)
    apply_moves(moves)


def reopen(root: Path, types: dict[str, str] | None = None, medium: LocalMedium | None = None) -> QueueTable:
    table = make_table(root, types, medium)
    table.load()
    table.recover()
    return table


def put(table: QueueTable, topic: str, queue_id: int, physical_offset: int, queue_offset: int) -> None:
    assert table.get_or_create(topic, queue_id).put(physical_offset, 10, 0, queue_offset, 1, None, 1)


@pytest.mark.parametrize("stop", ["clean", "unclean"])
def test_a_folder_whose_name_is_not_utf_8_is_no_queue_to_note(tmp_path: Path, stop: str) -> None:
    with open_store(tmp_path, SMALL) as store:
        store.put(Message("orders", b"")).check()
    queues = tmp_path / "consumequeue"
    shutil.copytree(queues / "orders", queues / os.fsdecode(b"caf\xe9"))
    (tmp_path / "flintlog" / "stop.json").unlink()
    if stop == "unclean":
        (tmp_path / "abort").touch()
    for offset in (1, 2):
        with open_store(tmp_path, SMALL) as store:
            assert store.put(Message("orders", b"")).check().queue_offset == offset


def test_queues_are_found_again_with_their_next_offsets(tmp_path: Path) -> None:
    table = make_table(tmp_path, {"batched": "BatchCQ"})
    for number in range(3):
        put(table, "orders", 4, number * 10, number)
        put(table, "batched", 0, 100 + number * 10, number)
    put(table, "%LMQ%dev", 0, 200, 0)
    again = reopen(tmp_path, {"batched": "BatchCQ"})
    again.rebuild_offsets(0)
    assert {(queue.topic, queue.queue_id, queue.type) for queue in again.all()} == {
        ("orders", 4, QueueType.SIMPLE),
        ("batched", 0, QueueType.BATCH),
        ("%LMQ%dev", 0, QueueType.SIMPLE),
    }
    assert again.offsets.next("orders", 4) == 3
    assert again.offsets.next("batched", 0) == 3
    assert again.offsets.next("orders", 5) == 0
    assert again.offsets.next_light("%LMQ%dev") == 1
    assert again.offsets.next_light("%LMQ%other") == 0
    assert again.offsets.light_count == 1
    assert again.max_physical_offset() == 210


def test_next_offsets_of_each_kind_move_alone(tmp_path: Path) -> None:
    table = make_table(tmp_path, {"batched": "BatchCQ"})
    advance(table, "orders", 1)
    advance(table, "orders", 1, 4)
    advance(table, "batched", 1, 7)
    advance(table, "orders", 2, light=["%LMQ%dev"])
    assert (table.offsets.next("orders", 1), table.offsets.next("batched", 1)) == (5, 7)
    assert (table.offsets.next_light("%LMQ%dev"), table.offsets.next("%LMQ%dev", 0)) == (1, 0)
    table.offsets.set("%LMQ%dev", 0, 9)
    assert (table.offsets.next_light("%LMQ%dev"), table.offsets.next("%LMQ%dev", 0)) == (9, 9)
    table.rebuild_offsets(0)
    assert table.offsets.next("orders", 1) == 0


@pytest.mark.parametrize(("written", "configured"), [({}, {"orders": "BatchCQ"}), ({"orders": "BatchCQ"}, {})])
def test_topic_of_the_wrong_kind_is_refused(
    tmp_path: Path, written: dict[str, str], configured: dict[str, str]
) -> None:
    put(make_table(tmp_path, written), "orders", 0, 0, 0)
    with pytest.raises(DamagedStore, match="'orders' has queues of type") as error:
        make_table(tmp_path, configured).load()
    assert error.value.path is not None
    assert error.value.path.endswith("/orders")


def test_unknown_queue_type_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="RocksDBCQ"):
        make_table(tmp_path, {"orders": "RocksDBCQ"}).type_of("orders")


@pytest.mark.parametrize("name", ["x", "-1", "+1", "01", "1.5", "99999999999", "٣"])
def test_directory_that_is_no_queue_id_is_skipped(tmp_path: Path, name: str) -> None:
    put(make_table(tmp_path), "orders", 3, 0, 0)
    (tmp_path / "consumequeue" / "orders" / name).mkdir()
    (tmp_path / "consumequeue" / "stray-file").touch()
    assert [queue.queue_id for queue in reopen(tmp_path).all()] == [3]


def test_file_of_the_wrong_size_is_named(tmp_path: Path) -> None:
    put(make_table(tmp_path), "orders", 3, 0, 0)
    table = QueueTable(tmp_path, LocalMedium(), QueueFiles(200), now_ms=lambda: NOW_MS)
    with pytest.raises(WrongFileSize, match=r"orders/3/0{20}"):
        table.load()


def test_consume_queue_files_are_rounded_up_to_whole_entries() -> None:
    assert QueueFiles(161).consume_queue == 180
    assert QueueFiles(160).consume_queue == 160
    assert QueueFiles() == QueueFiles(6_000_000, 13_800_000, None)
    with pytest.raises(InvalidConfig):
        QueueFiles(160, 100)


def test_opening_many_queues_maps_none_of_them(tmp_path: Path) -> None:
    count = 300
    table = make_table(tmp_path)
    for number in range(count):
        put(table, "orders", number, number * 10, 0)
    medium = CountingMedium()
    again = make_table(tmp_path, medium=medium)
    again.load()
    assert len(again.all()) == count
    assert medium.open_count == 0
    again.recover()
    again.rebuild_offsets(0)
    assert sum(segment.is_mapped for queue in again.all() for segment in queue.segments.segments) <= 64


def test_truncate_looks_at_no_queue_when_none_goes_so_far(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    for number in range(4):
        put(table, "orders", number % 2, number * 10, number // 2)
    table.truncate(41)
    assert [queue.max_offset for queue in table.all()] == [2, 2]
    table.truncate(30)
    assert [queue.max_offset for queue in table.all()] == [2, 1]
    assert table.max_physical_offset() == 30
    table.truncate(0)
    assert [queue.max_offset for queue in table.all()] == [0, 0]


def test_truncate_drops_a_batch_that_starts_at_the_cut(tmp_path: Path) -> None:
    table = make_table(tmp_path, {"batched": "BatchCQ"})
    for number in range(3):
        put(table, "batched", 0, number * 10, number)
    table.truncate(20)
    assert [queue.max_offset for queue in table.all()] == [2]


def test_min_offsets_follow_the_log_when_offsets_are_rebuilt(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    for number in range(6):
        put(table, "orders", number % 2, number * 10, number // 2)
    table.rebuild_offsets(25)
    assert [(queue.min_offset, queue.max_offset) for queue in table.all()] == [(2, 3), (1, 3)]


def test_files_whose_records_the_log_no_longer_has_are_deleted(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    for number in range(24):
        put(table, "orders", 0, number * 10, number)
    put(table, "orders", 1, 240, 0)
    assert table.delete_expired(160) == 2
    queue = table.get("orders", 0)
    assert queue is not None
    assert queue.min_offset == 16


def test_a_queue_is_expired_when_the_log_has_none_of_its_records_and_none_is_on_its_way(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    put(table, "old", 0, 0, 0)
    put(table, "new", 0, 100, 0)
    table.get_or_create("empty", 0)
    advance(table, "old", 0)
    assert [topic for topic in ("old", "new", "empty", "none") if table.is_expired(topic, 0, 50)] == ["old"]
    advance(table, "old", 0)
    assert not table.is_expired("old", 0, 50)


@pytest.mark.parametrize(("topic", "next_offset"), [("old", 1), ("%LMQ%old", 0)])
def test_a_removed_queue_leaves_nothing_but_where_it_goes_on(tmp_path: Path, topic: str, next_offset: int) -> None:
    table = make_table(tmp_path)
    put(table, topic, 0, 0, 0)
    advance(table, topic, 0)
    table.remove(topic, 0)
    assert table.get(topic, 0) is None
    assert table.offsets.next(topic, 0) == next_offset
    assert not (tmp_path / "consumequeue" / topic / "0").exists()


def test_removed_topic_leaves_nothing(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    put(table, "orders", 0, 0, 0)
    put(table, "orders", 1, 10, 0)
    put(table, "orders2", 0, 20, 0)
    table.remove_topic("orders", 30)
    assert [path.name for path in (tmp_path / "consumequeue").iterdir()] == ["orders2"]
    table.destroy()
    assert not list((tmp_path / "consumequeue").iterdir())


def test_flush_reaches_every_queue(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    put(table, "orders", 0, 0, 0)
    put(table, "orders", 1, 10, 0)
    assert not table.sync.flush(0)
    assert table.sync.flush(0)
    assert [queue.segments.flushed_where for queue in table.all()] == [20, 20]


def test_reading_a_store_changes_nothing(tmp_path: Path) -> None:
    put(make_table(tmp_path), "orders", 0, 0, 0)
    empty = tmp_path / "consumequeue" / "orders" / "0" / "00000000000000000160"
    empty.touch()
    table = make_table(tmp_path, medium=OverlayMedium(LocalMedium()))
    table.load()
    table.recover()
    assert empty.exists()
    queue = table.get("orders", 0)
    assert queue is not None
    assert queue.max_offset == 1


def test_shut_down_unmaps(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    put(table, "orders", 0, 0, 0)
    table.shut_down()
    assert not any(segment.is_mapped for queue in table.all() for segment in queue.segments.segments)


@pytest.mark.parametrize("log_end", [90, 1000], ids=["cut", "whole"])
def test_opening_maps_no_queue_that_has_little_in_it(tmp_path: Path, log_end: int) -> None:
    table = make_table(tmp_path)
    for queue_id in range(8):
        for number in range(3):
            put(table, "orders", queue_id, 10 * (queue_id + 8 * number), number)
    table.sync.flush_all()
    table.shut_down()
    medium = CountingMedium(max_maps=2)
    again = reopen(tmp_path, medium=medium)
    again.truncate(1000)
    again.rebuild_offsets(0)
    assert medium.open_count == 0
    again.truncate(log_end)
    again.rebuild_offsets(0)
    assert [queue.max_offset for queue in again.all()] == ([2] + [1] * 7 if log_end == 90 else [3] * 8)
    assert [queue.min_offset for queue in again.all()] == [0] * 8


def test_opening_maps_each_file_of_other_queues_once_however_few_maps_there_may_be(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    for queue_id in range(8):
        for number in range(10):  # eight fill a file
            put(table, "orders", queue_id, 10 * (queue_id + 8 * number), number)
    table.sync.flush_all()
    table.shut_down()
    medium = CountingMedium(max_maps=2)
    again = reopen(tmp_path, medium=medium)
    again.truncate(1000)
    again.rebuild_offsets(0)
    assert medium.open_count == 16
    assert [queue.max_offset for queue in again.all()] == [10] * 8


def test_a_queue_is_found_alike_at_a_glance_and_mapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for count in (0, 1, 7, 8):
        table = make_table(tmp_path / str(count))
        for number in range(count):
            put(table, "orders", 0, 1000 + 10 * number, number)
        table.get_or_create("orders", 0)
        table.sync.flush_all()
        table.shut_down()
        found = []
        for glance_bytes in (4096, 0):
            monkeypatch.setattr("flintlog.store.queues.queue_data._GLANCE_BYTES", glance_bytes)
            queue = reopen(tmp_path / str(count)).get_or_create("orders", 0)
            found.append((queue.max_offset, queue.max_physical_offset, queue.last_physical_offset, queue.broken_offset))
        assert found[0] == found[1]


def test_a_flush_looks_only_at_queues_that_were_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make_table(tmp_path)
    for queue_id in range(5):
        put(table, "orders", queue_id, 10 * queue_id, 0)
    table.sync.flush_all()
    for queue in table.all():
        assert isinstance(queue, ConsumeQueue)
        queue.detach()
    table.sync.flush_all()
    asked: list[int] = []

    def note(queue: ConsumeQueue, least_pages: int) -> bool:
        asked.append(queue.queue_id)
        return True

    monkeypatch.setattr(ConsumeQueue, "flush", note)
    table.sync.flush(0)
    assert asked == []
    put(table, "orders", 3, 50, 1)
    table.sync.flush(2)
    table.sync.flush(0)
    table.sync.flush(0)
    assert asked == [3, 3, 3], "fast dispatch may write it at any time"
    queue = table.get_or_create("orders", 3)
    assert isinstance(queue, ConsumeQueue)
    queue.detach()
    table.sync.flush(0)
    table.sync.flush(0)
    assert asked == [3, 3, 3, 3]


def test_a_remembered_first_entry_does_not_outlive_its_message(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    for number in range(10):  # eight fill a file
        put(table, "orders", 0, 10 * number, number)
    table.sync.flush_all()
    table.shut_down()
    again = reopen(tmp_path)
    again.rebuild_offsets(0)
    assert again.get_or_create("orders", 0).min_offset == 0
    again.delete_expired(30)
    assert again.get_or_create("orders", 0).min_offset == 3
    again.delete_expired(85)
    assert again.get_or_create("orders", 0).min_offset == 9
    assert reopen(tmp_path).get_or_create("orders", 0).max_offset == 10


def test_a_file_that_lost_all_its_entries_counts_for_nothing(tmp_path: Path) -> None:
    """A replica's queue may begin with any file; a power loss may leave nothing in it."""
    put(make_table(tmp_path), "orders", 0, 500, 19)
    (file,) = (tmp_path / "consumequeue" / "orders" / "0").iterdir()
    assert (int(file.name), reopen(tmp_path).wrote_bytes) == (320, 400)
    file.write_bytes(bytes(160))
    assert reopen(tmp_path).wrote_bytes == 0


def delete_five(root: Path, log_end: int) -> QueueTable:
    """A queue of five messages is deleted while the log was dispatched up to there."""
    table = make_table(root)
    for number in range(5):
        put(table, "orders", 0, number * 10, number)
        advance(table, "orders", 0)
    table.remove_topic("orders", log_end)
    return table


@pytest.mark.parametrize("count", [0, 1, 4])
def test_what_came_back_of_a_deleted_queue_is_taken_away(tmp_path: Path, count: int) -> None:
    table = delete_five(tmp_path, 50)
    (tmp_path / "consumequeue" / "orders" / "0").mkdir(parents=True)
    for number in range(count):
        put(table, "orders", 0, number * 10, number)
    again = reopen(tmp_path)
    again.finish_deletions(0)
    again.rebuild_offsets(0)
    assert (again.all(), again.offsets.next("orders", 0)) == ([], 5)
    assert not (tmp_path / "consumequeue" / "orders").exists()


def test_a_deleted_queue_that_another_program_made_anew_stays(tmp_path: Path) -> None:
    """RocketMQ counts from 0 again: its records lie behind the deletion."""
    table = delete_five(tmp_path, 50)
    put(table, "orders", 0, 60, 0)
    again = reopen(tmp_path)
    again.finish_deletions(0)
    assert [queue.max_offset for queue in again.all()] == [1]


def test_what_is_put_where_the_log_was_cut_is_of_no_deleted_queue(tmp_path: Path) -> None:
    """A power loss took the log's end, and with it the place up to which the deletion knew the log."""
    table = delete_five(tmp_path, 50)
    table.deleted.end_at(20)
    put(table, "orders", 0, 30, 0)
    again = reopen(tmp_path)
    again.finish_deletions(0)
    assert [queue.max_offset for queue in again.all()] == [1]


def test_an_expired_queue_that_another_program_made_anew_stays(tmp_path: Path) -> None:
    """Its note knows no place in the log: what the log still has is not of the queue that expired."""
    table = make_table(tmp_path)
    for number in range(5):
        put(table, "orders", 0, number * 10, number)
        advance(table, "orders", 0)
    table.remove("orders", 0)
    put(table, "orders", 0, 90, 0)
    again = reopen(tmp_path)
    again.finish_deletions(80)
    assert [queue.max_offset for queue in again.all()] == [1]
    again.finish_deletions(100)
    assert again.all() == []


def test_a_flush_of_more_queues_than_maps_looks_at_each_map_a_few_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 300
    config = SMALL.with_changes(max_mapped_files=60, message_index_enable=False, flush="async")
    with open_store(tmp_path / "store", config) as store:
        for number in range(count):
            store.put(Message("orders", b"x", queue_id=number)).check()
        looks = 0
        try_unmap = MappedSegment.try_unmap

        def counted(segment: MappedSegment) -> bool:
            nonlocal looks
            looks += 1
            return try_unmap(segment)

        monkeypatch.setattr(MappedSegment, "try_unmap", counted)
        store._engine.parts.queues.sync.flush_all()
        assert looks <= LOOKS_PER_MAP * count


def test_a_deletion_whose_folder_cannot_be_synced_is_synced_later(monkeypatch: pytest.MonkeyPatch) -> None:
    medium, tails = FaultyMedium(), TailKeeper()
    sync, folder = QueueSync(Path("/store"), medium, tails), Path("/store/consumequeue/orders")
    queue = SimpleNamespace(parts=[SimpleNamespace(segments=[SimpleNamespace(path=folder / "0" / "file")])])
    medium.make_directories(folder / "0")
    sync.note_emptied([folder / "0", folder])

    def fail(path: Path) -> None:
        raise SyncFailed("no", path=path)

    with monkeypatch.context() as patched:
        patched.setattr(medium, "sync_directory", fail)
        with pytest.raises(SyncFailed):
            sync.sync_names([cast(QueueData, queue)])
    assert tails.emptied == {folder / "0", folder}
    sync.sync_names([cast(QueueData, queue)])
    assert not tails.emptied
