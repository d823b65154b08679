"""One flipped bit in the log's last record, after a kill: its queue offset was given, and is not given again."""

from __future__ import annotations

from pathlib import Path

import pytest

from flintlog import Message, PutStatus, Store, StoreConfig, open_store
from flintlog.disk.faulty.faulty_disk import FaultyMedium
from flintlog.testing import FakeClock

ROOT = Path("/store")
LOG_FILE = ROOT / "commitlog" / f"{0:020d}"
QUEUE_FILE = ROOT / "consumequeue" / "orders" / "1" / f"{0:020d}"
CONFIG = StoreConfig(
    flush="async",
    mapped_file_size_commit_log=16 * 1024,
    mapped_file_size_consume_queue=20 * 40,
    max_hash_slot_num=20,
    max_index_num=60,
)
SEALED = CONFIG.with_changes(enabled_append_prop_crc=True)
COUNT = 3
BEFORE_BODY = 84
"""The bytes of a record before the length of its body."""


def opened(medium: FaultyMedium, config: StoreConfig) -> Store:
    return open_store(ROOT, config, medium=medium, clock=FakeClock())


def clear(medium: FaultyMedium, path: Path, start: int, stop: int) -> None:
    file = medium.open(path, writable=True)
    file.clear(start, stop)
    file.close()


def killed(config: StoreConfig, *, is_dispatched: bool = True) -> tuple[FaultyMedium, int, int]:
    """A store that was killed after its last message was put into queue 1; where that record begins and ends."""
    medium = FaultyMedium()
    store = opened(medium, config)
    for number in range(COUNT):
        store.put(Message("orders", b"%d" % number * 30, queue_id=0, keys=["k"]))
        store.put(Message("orders", b"%d" % number * 30, queue_id=1, tags="t"))
    last = store.put(Message("orders", b"last" * 30, queue_id=1, tags="t"))
    assert last.queue_offset == COUNT
    left = medium.kill()
    store.shutdown()
    if not is_dispatched:
        clear(left, QUEUE_FILE, COUNT * 20, COUNT * 20 + 20)
    return left, last.physical_offset, last.end_offset


def check_goes_on(left: FaultyMedium, config: StoreConfig, where: str) -> None:
    """Nothing else is lost, and the last message's offset is not given again."""
    with opened(left, config) as store:
        for queue_id in (0, 1):
            for number in range(COUNT):
                (message,) = store.get("orders", queue_id, number, 1).messages
                assert message.body == b"%d" % number * 30, where
        again = store.put(Message("orders", b"again", queue_id=1))
        assert again.status is PutStatus.PUT_OK
        assert again.queue_offset > COUNT, where
        store.wait_dispatched()
        assert [message.body for message in store.get("orders", 1, again.queue_offset, 1).messages] == [b"again"]
    with opened(left, config) as store:
        assert not [found for found in store.recovery if found.id not in ("damaged-range", "damaged-record")], where
        assert store.put(Message("orders", b"more", queue_id=1)).queue_offset == again.queue_offset + 1, where


@pytest.mark.parametrize("config", [CONFIG, SEALED], ids=["plain", "sealed"])
def test_the_queue_entry_shows_that_the_offset_was_given(config: StoreConfig) -> None:
    whole, start, end = killed(config)
    names_another_place = set(range(start + 12, start + 28)) | set(range(end - 40, end))  # queue, offset, topic
    for at in range(start, end):
        if config is CONFIG and at in names_another_place:
            continue  # such a record is whole to all who read it
        left = whole.kill()
        left.flip_bit(LOG_FILE, at, at % 8)
        check_goes_on(left, config, f"bit {at % 8} of byte {at - start}")


def test_a_body_that_is_damaged_leaves_the_place_that_its_head_names() -> None:
    """The kill came before the record was dispatched, so its queue has no entry."""
    whole, start, _ = killed(CONFIG, is_dispatched=False)
    for at in range(start + BEFORE_BODY + 4, start + BEFORE_BODY + 4 + 120, 7):
        left = whole.kill()
        left.flip_bit(LOG_FILE, at, at % 8)
        check_goes_on(left, CONFIG, f"byte {at - start}")


def test_a_record_of_which_a_sector_has_not_arrived_is_a_torn_tail() -> None:
    """The crash tore it, so it was never durable: its offset is free."""
    medium = FaultyMedium()
    store = opened(medium, CONFIG)
    store.put(Message("orders", b"first"))
    last = store.put(Message("orders", b"x" * 2000))
    left = medium.kill()
    store.shutdown()
    clear(left, LOG_FILE, 1024, 1536)
    with opened(left, CONFIG) as store:
        assert [found.id for found in store.recovery] == ["torn-tail"]
        again = store.put(Message("orders", b"again"))
        assert (again.queue_offset, again.physical_offset) == (1, last.physical_offset)


def test_a_record_without_its_first_bytes_is_a_torn_tail_even_if_its_queue_entry_has_arrived() -> None:
    """A put writes size and magic last: the disk got the log's page before that, and the queue's page later."""
    left, start, _ = killed(CONFIG)
    clear(left, LOG_FILE, start, start + 8)
    with opened(left, CONFIG) as store:
        assert [found.id for found in store.recovery] == ["torn-tail"]
        again = store.put(Message("orders", b"again", queue_id=1))
        assert (again.queue_offset, again.physical_offset) == (COUNT, start)
