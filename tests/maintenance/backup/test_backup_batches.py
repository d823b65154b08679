"""Backups and closed batches: a restored store has each batch whole or not at all, and knows which it has."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.store.small_store import SMALL

from flintlog import Message, Store, open_store
from flintlog.checks.derived_files import DataFile
from flintlog.maintenance.backup import backup as backup_module
from flintlog.maintenance.backup.backup import backup
from flintlog.maintenance.backup.restore import restore
from flintlog.store.model.message import Receipt
from flintlog.store.put.appender import Prepared

COUNT = 200
"""Messages of a batch: more than a file of the log holds."""


def batch() -> Iterator[Message]:
    return (Message("orders", b"batch" + bytes(700)) for _ in range(COUNT))


def bodies(root: Path) -> list[bytes]:
    with open_store(root, SMALL) as store:
        assert not list(store.recovery)
        found: list[bytes] = []
        while messages := store.get("orders", 0, len(found)).messages:
            found += [message.body[:5] for message in messages]
        return found


def knows(root: Path, writer: str, batch_id: int) -> bool:
    """Whether a store skips a batch because it has it."""
    with open_store(root, SMALL) as store:
        return store.put_closed(batch(), writer_id=writer, batch_id=batch_id) is None


def back_up_inside(store: Store, target: Path, *, at: int) -> None:
    """Take a backup while a batch is appended."""
    append, left = store._appender.append_held, iter(range(at))

    def watched(prepared: Prepared) -> Receipt:
        receipt = append(prepared)
        if next(left, None) == at - 1:
            backup(store.path, target)
        return receipt

    store._appender.append_held = watched  # type: ignore[method-assign]


@pytest.mark.parametrize("at", [1, COUNT // 2, COUNT])
def test_a_backup_beside_an_open_batch_has_nothing_of_it(tmp_path: Path, at: int) -> None:
    with open_store(tmp_path / "store", SMALL) as store:
        store.put(Message("orders", b"first")).check()
        back_up_inside(store, tmp_path / "backup", at=at)
        store.put_closed(batch(), writer_id="etl", batch_id=3)
    restore(tmp_path / "backup", tmp_path / "restored")
    assert bodies(tmp_path / "restored") == [b"first"]
    assert not knows(tmp_path / "restored", "etl", 3)


def test_a_restored_store_knows_the_batches_that_it_has(tmp_path: Path) -> None:
    with open_store(tmp_path / "store", SMALL) as store:
        for number in range(3):
            store.put_closed(batch(), writer_id="etl", batch_id=number)
        backup(tmp_path / "store", tmp_path / "backup")
    restore(tmp_path / "backup", tmp_path / "restored")
    assert len(bodies(tmp_path / "restored")) == 3 * COUNT
    assert knows(tmp_path / "restored", "etl", 2)
    assert not knows(tmp_path / "restored", "etl", 3)


def test_a_batch_that_was_written_while_a_backup_looked_for_the_end_is_all_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    find_end, is_first = backup_module._Copying._end_of, [True]

    def end_of(self: backup_module._Copying, file: DataFile) -> int:
        end = find_end(self, file)
        if is_first.pop() if is_first else False:
            store.put_closed(batch(), writer_id="etl", batch_id=3)
            return end + size  # inside of the batch, as a look while it was written
        return end

    with open_store(tmp_path / "store", SMALL) as store:
        size = store.put(Message("orders", b"batch" + bytes(700))).check().size
        monkeypatch.setattr(backup_module._Copying, "_end_of", end_of)
        backup(tmp_path / "store", tmp_path / "backup")
    restore(tmp_path / "backup", tmp_path / "restored")
    assert len(bodies(tmp_path / "restored")) == COUNT + 1
    assert knows(tmp_path / "restored", "etl", 3)


@pytest.mark.parametrize("part", [1, COUNT // 2, COUNT])
def test_a_restore_to_the_middle_of_a_batch_ends_before_it(tmp_path: Path, part: int) -> None:
    with open_store(tmp_path / "store", SMALL) as store:
        store.put_closed(batch(), writer_id="etl", batch_id=3)
        store.put_closed(batch(), writer_id="once", batch_id=8)
        inside = store.put_closed(batch(), writer_id="etl", batch_id=4)
        assert inside is not None
        place = store.get("orders", 0, 2 * COUNT + part - 1).messages[0].physical_offset
        backup(tmp_path / "store", tmp_path / "backup")
    made = restore(tmp_path / "backup", tmp_path / "restored", to_offset=place + 1)
    assert made.end_offset == inside.start
    assert len(bodies(tmp_path / "restored")) == 2 * COUNT
    assert knows(tmp_path / "restored", "etl", 3)
    assert knows(tmp_path / "restored", "once", 8)
    assert not knows(tmp_path / "restored", "etl", 4)


def test_a_restore_to_before_all_batches_of_a_writer_knows_none_of_them(tmp_path: Path) -> None:
    with open_store(tmp_path / "store", SMALL) as store:
        first = store.put(Message("orders", b"first")).check()
        store.put_closed(batch(), writer_id="etl", batch_id=3)
        backup(tmp_path / "store", tmp_path / "backup")
    restore(tmp_path / "backup", tmp_path / "restored", to_offset=first.end_offset)
    assert bodies(tmp_path / "restored") == [b"first"]
    assert not knows(tmp_path / "restored", "etl", 3)


def test_a_restored_store_marks_a_part_that_was_left(tmp_path: Path) -> None:
    with open_store(tmp_path / "store", SMALL) as store:
        store.put(Message("orders", b"first")).check()
        store._engine.batch_notes.leave()
        end = store.max_physical_offset
    backup(tmp_path / "store", tmp_path / "backup")
    restore(tmp_path / "backup", tmp_path / "restored")
    with open_store(tmp_path / "store", SMALL) as store, open_store(tmp_path / "restored", SMALL) as restored:
        ends = (
            store.max_physical_offset,
            restored.max_physical_offset,
        )  # markers of two lengths: each has its own numbers
        assert min(ends) > end, "no empty batch follows the part"
