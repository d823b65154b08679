"""Where a log ends for a reader beside a writer: half-written records, damage, batches that are not closed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from flintlog import Message, StoreConfig, open_store
from flintlog.disk.media.local import LocalMedium
from flintlog.maintenance.inspect.log_reader import LogReader, Wanted
from flintlog.maintenance.inspect.store_files import look_at
from flintlog.maintenance.verify.verify import verify

SMALL = StoreConfig(mapped_file_size_commit_log=65536, max_hash_slot_num=100, max_index_num=400)
COUNT = 20


class WrittenStore:
    """A store whose lock somebody holds, and whose log is written byte by byte."""

    def __init__(self, root: Path) -> None:
        with open_store(root, SMALL) as store:
            receipts = [store.put(Message("orders", b"body %d" % number)).check() for number in range(COUNT)]
        self.root = root
        self.places = [receipt.physical_offset for receipt in receipts]
        self.end = receipts[-1].physical_offset + receipts[-1].size
        self.log = root / "commitlog" / f"{0:020d}"
        self.whole = self.log.read_bytes()

    def write(self, start: int, data: bytes) -> None:
        with self.log.open("r+b") as file:
            file.seek(start)
            file.write(data)

    def cut(self, start: int) -> None:
        self.write(start, bytes(self.end - start))


@pytest.fixture
def written(tmp_path: Path) -> Iterator[WrittenStore]:
    store = WrittenStore(tmp_path / "store")
    lock = LocalMedium().lock(store.root / "lock")
    yield store
    lock.release()


def read(store: WrittenStore) -> tuple[list[int], list[tuple[int, int]]]:
    """The records that a reader shows, and what it passes over."""
    damage: list[tuple[int, int]] = []
    reader = LogReader(look_at(store.root), lambda begin, end, _: damage.append((begin, end)))
    return [message.physical_offset for message in reader.messages()], damage


@pytest.mark.parametrize("kept", [0, 4, 8, 40, 90, -3])
def test_a_record_that_is_being_written_is_neither_shown_nor_judged(written: WrittenStore, kept: int) -> None:
    last = written.places[-1]
    begun = last + kept if kept >= 0 else written.end + kept
    written.cut(begun)
    assert read(written) == (written.places[:-1], [])
    assert verify(written.root, SMALL).findings == []
    assert look_at(written.root).end == last


def test_size_and_magic_come_last(written: WrittenStore) -> None:
    written.write(written.places[-1], bytes(8))
    assert read(written) == (written.places[:-1], [])
    assert verify(written.root, SMALL).findings == []


def test_damage_before_a_whole_record_is_reported_beside_a_writer(written: WrittenStore) -> None:
    written.write(written.places[10] + 4, b"????")
    shown, damage = read(written)
    assert shown == written.places[:10] + written.places[11:]
    assert damage == [(written.places[10], written.places[11])]
    assert [found.id for found in verify(written.root, SMALL).findings] == ["damaged-range"]


def test_a_reader_goes_on_exactly_where_it_ended(written: WrittenStore) -> None:
    shown: list[int] = []
    position = 0
    for whole in (3, 3, 7, 12, COUNT):
        middle = [*written.places, written.end][whole] + (30 if whole < COUNT else 0)
        written.cut(0)
        written.write(0, written.whole[:middle])
        files = look_at(written.root)
        position = files.fix_end(position) if not shown else position
        files.fix_end(position)
        reader = LogReader(files)
        reader.position = position if shown else 0
        shown += [message.physical_offset for message in reader.more(Wanted())]
        position = reader.position
        assert shown == written.places[:whole]


def test_a_batch_that_is_not_closed_is_not_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from flintlog.store.recovery.batch_notes import BatchNotes

    monkeypatch.setattr(BatchNotes, "close", lambda self: None)  # the note says that it is open
    with open_store(tmp_path, SMALL) as store:
        first = store.put(Message("orders", b"before")).check()
        store.put_closed([Message("orders", b"in the batch")])
        files = look_at(tmp_path)
        assert [message.body for message in LogReader(files).messages()] == [b"before"]
        assert files.end == first.physical_offset + first.size
        assert verify(tmp_path, SMALL).findings == []
