"""Deliveries that a crash left unrecorded: found where they were made, and nothing else taken for one."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from flintlog import Message, Store, open_store
from flintlog.services.delay import delay_resume
from flintlog.store.runtime.note_file import encode_note, parse_note
from flintlog.testing import SMALL_FILES, FakeClock

CONFIG = SMALL_FILES.with_changes(services={"schedule"}, message_delay_level="1s 5s")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def put_equal(store: Store) -> int:
    """One of several messages that differ in nothing but their place; where it lies."""
    return store.put(Message("orders", b"equal", born_timestamp=1, delay_level=1)).check().physical_offset


def count(store: Store) -> int:
    return store.max_offset("orders", 0)


def killed(root: Path, target: Path) -> Path:
    """The files that a process killed now leaves."""
    shutil.copytree(root, target, ignore=shutil.ignore_patterns("lock"))
    return target


def test_delivered_messages_are_not_delivered_again(tmp_path: Path, clock: FakeClock) -> None:
    with open_store(tmp_path / "store", CONFIG, clock=clock) as store:
        for _ in range(3):
            put_equal(store)
        clock.advance(500)
        put_equal(store)
        clock.advance(500)
        assert count(store) == 3
        root = killed(tmp_path / "store", tmp_path / "killed")
    with open_store(root, CONFIG, clock=clock) as store:
        store.run_due()
        assert count(store) == 3
        clock.advance(500)
        assert count(store) == 4


def test_a_message_that_only_looks_delivered_is_not_taken_for_it(tmp_path: Path, clock: FakeClock) -> None:
    with open_store(tmp_path / "store", CONFIG, clock=clock) as store:
        store.put(Message("orders", b"first", delay_level=1)).check()
        clock.advance(1000)  # the first delivery makes the note
        store.put(Message("orders", b"real", born_timestamp=1, delay_level=1)).check()
        fake = {"DELAY": "1", "REAL_TOPIC": "orders", "REAL_QID": "0"}
        store.put(Message("orders", b"real", born_timestamp=2, properties=fake)).check()
        root = killed(tmp_path / "store", tmp_path / "killed")
    with open_store(root, CONFIG, clock=clock) as store:
        clock.advance(1000)
        assert [message.body for message in store.get("orders", 0, 0).messages] == [b"first", b"real", b"real"]


def test_a_note_of_another_table_is_not_believed(tmp_path: Path, clock: FakeClock) -> None:
    root = tmp_path / "store"
    with open_store(root, CONFIG, clock=clock) as store:
        put_equal(store)
        clock.advance(500)
        put_equal(store)
        clock.advance(500)
        assert count(store) == 1
    (root / "flintlog" / "delay.json").write_bytes(encode_note({"offsets": {"1": 0}, "log_end": 0}))
    with open_store(root, CONFIG, clock=clock) as store:
        clock.advance(500)
        assert count(store) == 2


def test_a_note_without_a_checksum_is_not_believed(tmp_path: Path, clock: FakeClock) -> None:
    """If a flipped bit lowered the end, an older equal message would be taken for a delivery."""
    with open_store(tmp_path / "store", CONFIG, clock=clock) as store:
        put_equal(store)
        clock.advance(1000)
        assert count(store) == 1
        put_equal(store)
    root = tmp_path / "store"
    (root / "flintlog" / "delay.json").write_text('{"offsets":{"1":1},"log_end":0}')
    with open_store(root, CONFIG, clock=clock) as store:
        clock.advance(1000)
        assert count(store) == 2


def test_after_an_unreadable_message_no_message_counts_as_delivered(tmp_path: Path, clock: FakeClock) -> None:
    with open_store(tmp_path / "store", CONFIG, clock=clock) as store:
        place = put_equal(store)
        clock.advance(500)
        put_equal(store)
        clock.advance(500)
        assert count(store) == 1
        root = killed(tmp_path / "store", tmp_path / "killed")
    log = root / "commitlog" / ("0" * 20)
    data = bytearray(log.read_bytes())
    data[data.index(b"equal", place)] ^= 1
    log.write_bytes(data)
    with open_store(root, CONFIG, clock=clock) as store:
        clock.advance(500)
        assert count(store) == 2


def test_the_note_is_renewed_when_the_log_has_outgrown_it(
    tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delay_resume, "STALE_BYTES", 1000)
    note = tmp_path / "store" / "flintlog" / "delay.json"
    with open_store(tmp_path / "store", CONFIG, clock=clock) as store:
        put_equal(store)
        clock.advance(1000)
        (delivery,) = store.get("orders", 0, 0).messages
        assert parse_note(note.read_bytes(), dict).checked == {"offsets": {}, "log_end": delivery.physical_offset}
        store.put(Message("others", bytes(2000))).check()
        put_equal(store)
        clock.advance(1000)
        (delivery,) = store.get("orders", 0, 1).messages
        assert parse_note(note.read_bytes(), dict).checked == {"offsets": {"1": 1}, "log_end": delivery.physical_offset}
