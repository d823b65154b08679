"""After an unclean stop the next opening keeps full index files that the checkpoint covers: damage in them is found."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.faults.world import ROOT, small_config

from flintlog import Message, open_store
from flintlog.disk.faulty.faulty_disk import FaultyMedium
from flintlog.maintenance.verify.verify import verify
from flintlog.testing import FakeClock

CONFIG = small_config("async", max_hash_slot_num=7, max_index_num=20)
ENTRIES_AT = 40 + 4 * 7
COUNT = 50


@pytest.fixture(scope="module")
def killed() -> tuple[FaultyMedium, list[Path]]:
    """A store with two full index files and one that is being filled, and its index files."""
    clock = FakeClock()
    medium = FaultyMedium(clock_ms=clock.now_ms)
    store = open_store(ROOT, CONFIG, medium=medium, clock=clock)
    for number in range(COUNT):
        store.put(Message("t", b"%d" % number, keys=[f"k{number}"])).check()
        clock.advance(10)
    store.wait_dispatched()
    assert store._engine.flushing.queue_flush is not None
    store._engine.flushing.queue_flush.flush_all()
    left = medium.kill()
    store.shutdown()
    return left, [ROOT / "index" / info.name for info in left.listing(ROOT / "index")]


def test_a_whole_store_has_no_findings(killed: tuple[FaultyMedium, list[Path]]) -> None:
    medium, files = killed
    assert len(files) == 3
    assert verify(ROOT, CONFIG, medium=medium).findings == []


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("field", [range(4), range(4, 12), range(12, 16), range(16, 20)], ids=str)
def test_every_entry_of_a_file_that_will_be_believed(
    killed: tuple[FaultyMedium, list[Path]], number: int, field: range
) -> None:
    medium, files = killed
    for entry in range(1, 20, 6):
        for at in field:
            damaged = medium.kill()
            damaged.flip_bit(files[number], ENTRIES_AT + 20 * entry + at, (entry + at) % 8)
            assert verify(ROOT, CONFIG, medium=damaged, threads=1).findings, (entry, at)


def test_a_file_that_will_be_built_again_may_run_ahead(killed: tuple[FaultyMedium, list[Path]]) -> None:
    medium, files = killed
    damaged = medium.kill()
    damaged.flip_bit(files[2], ENTRIES_AT + 20 * 3 + 6, 0)
    assert verify(ROOT, CONFIG, medium=damaged).findings == []
    with open_store(ROOT, CONFIG, medium=damaged, clock=FakeClock()) as store:
        found = [store.query("t", f"k{number}") for number in range(COUNT)]
    assert [[message.body for message in messages] for messages in found] == [[b"%d" % n] for n in range(COUNT)]


@pytest.mark.parametrize("bit", range(0, 64, 3))
def test_a_wrong_end_of_the_last_full_file_hides_no_message(killed: tuple[FaultyMedium, list[Path]], bit: int) -> None:
    """Dispatch goes on from the index's end. One bit beside a record's beginning cost that record its queue entry."""
    medium, files = killed
    damaged = medium.kill()
    damaged.flip_bit(files[1], 24 + bit // 8, bit % 8)
    with open_store(ROOT, CONFIG, medium=damaged, clock=FakeClock()) as store:
        assert [message.body for message in store.get("t", 0, 0, 64).messages] == [b"%d" % n for n in range(COUNT)]
        assert store.max_offset("t", 0) == COUNT
        assert store.put(Message("t", b"next")).check().queue_offset == COUNT
        assert [finding.id for finding in store.recovery] == ["wrong-index-header"]
        assert [message.body for message in store.query("t", "k7")] == [b"7"]
