"""One flipped bit in any note of a killed or stopped store: nothing acknowledged is lost, no offset is given again, no
part of a batch is seen, and no bare error escapes.

The store has all notes that a life leaves: deleted queues, counted queues, deliveries of delayed messages, a batch that
was being appended when the process was killed, and the last batches of writers.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from flintlog import Message, Store, StoreConfig, open_store
from flintlog.errors import DamagedStore
from flintlog.store.model.message import Receipt
from flintlog.store.put.appender import Prepared
from flintlog.store.runtime.note_file import parse_note

CONFIG = StoreConfig(
    mapped_file_size_commit_log=65536,
    mapped_file_size_consume_queue=2000,
    max_hash_slot_num=100,
    max_index_num=400,
    services=frozenset({"schedule"}),
    message_delay_level="1s",
)
KEPT = 30
GONE = 7
KILLED = ("batches.json", "deleted.json", "queues.json")
STOPPED = ("batches.json", "deleted.json", "queues.json", "delay.json", "stop.json")
QUICK = 4
MANY = 150
"""`test_note_file.py` flips every bit of a note; here a store is opened for each."""
NOTES = [*(("killed", name) for name in KILLED), *(("stopped", name) for name in STOPPED)]


class Killed(Exception):
    """The process ended here."""


def batch(count: int = 5) -> list[Message]:
    return [Message("kept", b"batch", queue_id=1) for _ in range(count)]


def live(store: Store) -> None:
    """All that leaves notes, with so many messages in "kept" at last."""
    store.topics.create("gone")
    for _ in range(GONE):
        store.put(Message("gone", b"old")).check()
    for number in range(KEPT):
        store.put(Message("kept", b"%d" % number, keys=[f"k{number}"])).check()
    store.put_closed([Message("kept", b"closed", queue_id=2)], writer_id="w", batch_id=3)
    store.topics.delete("gone")
    store.put(Message("kept", b"delayed", queue_id=3, delay_level=1)).check()
    store.wait_dispatched()
    queue_flush = store._engine.flushing.queue_flush
    assert queue_flush is not None
    queue_flush.flush_all()


def kill_in_batch(store: Store, target: Path) -> None:
    """Copy the store as it is when half of a batch is appended."""
    append, left = store._appender.append_held, iter(range(3))

    def until_killed(prepared: Prepared) -> Receipt:
        if next(left, None) is None:
            shutil.copytree(store.path, target)
            raise Killed
        return append(prepared)

    store._appender.append_held = until_killed  # type: ignore[method-assign]
    with pytest.raises(Killed):
        store.put_closed(batch(), writer_id="w", batch_id=4)


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A store that was killed inside a batch, and one that was stopped."""
    folder = tmp_path_factory.mktemp("stores")
    with open_store(folder / "stopped", CONFIG) as store:
        live(store)
    with open_store(folder / "store", CONFIG) as store:
        live(store)
        kill_in_batch(store, folder / "killed")
    return {"killed": folder / "killed", "stopped": folder / "stopped"}


def flips(size: int, count: int) -> Iterator[tuple[int, int]]:
    """Places of so many bits."""
    for place in sorted(random.Random(18).sample(range(8 * size), min(count, 8 * size))):
        yield divmod(place, 8)


def check(root: Path) -> None:
    """Nothing that was acknowledged is lost, and nothing else is there."""
    with open_store(root, CONFIG) as store:
        assert [message.body for message in store.get("kept", 0, 0, KEPT).messages] == [
            b"%d" % number for number in range(KEPT)
        ]
        assert store.max_offset("kept", 1) == 0, "a part of a batch is seen"
        assert store.max_offset("kept", 2) == 1
        assert not [found for found in store.recovery if found.severity == "error"]
        assert store.put(Message("kept", b"next")).check().queue_offset == KEPT
        assert store.put(Message("gone", b"next")).check().queue_offset == GONE
        assert store.put_closed(batch(), writer_id="w", batch_id=3) is None
        assert store.put_closed(batch(), writer_id="w", batch_id=4) is not None


def flip_and_check(root: Path, name: str, work: Path, count: int) -> None:
    data = (root / "flintlog" / name).read_bytes()
    assert parse_note(data, object).checked is not None
    for place, bit in flips(len(data), count):
        shutil.rmtree(work, ignore_errors=True)
        shutil.copytree(root, work)
        flipped = bytearray(data)
        flipped[place] ^= 1 << bit
        (work / "flintlog" / name).write_bytes(flipped)
        check(work)


@pytest.mark.parametrize(("how", "name"), NOTES)
def test_a_few_flipped_bits(stores: dict[str, Path], tmp_path: Path, how: str, name: str) -> None:
    flip_and_check(stores[how], name, tmp_path / "work", QUICK)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("how", "name"), NOTES)
def test_many_flipped_bits(stores: dict[str, Path], tmp_path: Path, how: str, name: str) -> None:
    flip_and_check(stores[how], name, tmp_path / "work", MANY)


@pytest.mark.parametrize(("how", "name"), [note for note in NOTES if note[1] != "batches.json"])
def test_a_note_that_is_all_damaged(stores: dict[str, Path], tmp_path: Path, how: str, name: str) -> None:
    """Without its note the store opens, and takes what it said from the log."""
    work = shutil.copytree(stores[how], tmp_path / "work")
    note = work / "flintlog" / name
    note.write_bytes(bytes(byte ^ 1 for byte in note.read_bytes()))
    check(work)


@pytest.mark.parametrize(("how", "name"), NOTES)
def test_notes_of_an_earlier_version_have_no_checksum(
    stores: dict[str, Path], tmp_path: Path, how: str, name: str
) -> None:
    """They are read; but nothing is cut on their word, so a part of a batch may stay."""
    work = shutil.copytree(stores[how], tmp_path / "work")
    note = work / "flintlog" / name
    note.write_bytes(note.read_bytes().split(b" ")[0])
    if (how, name) != ("killed", "batches.json"):
        check(work)
        return
    with open_store(work, CONFIG) as store:
        assert [found.id for found in store.recovery] == ["unclosed-batch"]
        assert store.max_offset("kept", 0) == KEPT


@pytest.mark.timeout(900)
@pytest.mark.parametrize("count", [QUICK, pytest.param(MANY, marks=pytest.mark.slow)], ids=["some", "many"])
@pytest.mark.parametrize(("how", "name"), NOTES)
def test_a_flipped_bit_in_a_note_of_an_earlier_version_costs_no_message(
    stores: dict[str, Path], tmp_path: Path, how: str, name: str, count: int
) -> None:
    """Nobody can tell the bit; but what it may change is no message."""
    data = (stores[how] / "flintlog" / name).read_bytes().split(b" ")[0]
    for place, bit in flips(len(data), count):
        work = shutil.copytree(stores[how], tmp_path / f"{place}-{bit}")
        flipped = bytearray(data)
        flipped[place] ^= 1 << bit
        (work / "flintlog" / name).write_bytes(flipped)
        try:
            opened = open_store(work, CONFIG)
        except DamagedStore:
            assert name == "batches.json"
        else:
            with opened as store:
                assert store.max_offset("kept", 0) == KEPT
                assert store.put(Message("kept", b"next")).check().queue_offset == KEPT
        shutil.rmtree(work)
