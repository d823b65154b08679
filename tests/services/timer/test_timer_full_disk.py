"""A timer whose disk is full for a while: once it has room again, each message is delivered once, without a put."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.services.timer_store import CONFIG, numbers, timed, timer_store

from flintlog import Message, PutStatus, Receipt, Store
from flintlog.disk.faulty.faulty_disk import FaultyMedium
from flintlog.errors import DiskFull
from flintlog.testing import FakeClock

ROOT = Path("/store")
UNITS_A_FILE = 10


@pytest.mark.parametrize("entered", [0, UNITS_A_FILE // 2])
def test_there_is_no_room_for_a_file_of_the_timer_log(entered: int) -> None:
    """The first units of a page may have found room in the file before."""
    clock = FakeClock()
    medium = FaultyMedium(clock_ms=clock.now_ms)
    with timer_store(ROOT, clock, CONFIG.with_changes(mapped_file_size_commit_log=16 * 1024), medium) as store:
        for number in range(entered):
            store.put(timed(number, clock.now_ms() + 5000)).check()
        clock.advance(100)
        for number in range(entered, entered + 8):
            store.put(timed(number, clock.now_ms() + 5000)).check()
        medium.capacity = medium._used() + 100
        with pytest.raises(DiskFull):
            clock.advance(1000)
        medium.capacity = None
        clock.advance(30_000)
        assert numbers(store) == list(range(entered + 8))


def put_late(store: Store, clock: FakeClock, *messages: Message) -> None:
    """Put messages by a clock that is behind the timer's: their slots are over when they are entered."""
    store.put(timed(0, clock.now_ms() + 35_000)).check()
    clock.advance(40_000)
    clock._now_ms -= 30_000
    for message in messages:
        store.put(message).check()
    clock._now_ms += 30_000


def test_a_late_message_is_refused_for_a_while() -> None:
    clock = FakeClock()
    with timer_store(ROOT, clock, medium=FaultyMedium(clock_ms=clock.now_ms)) as store:
        put_late(store, clock, timed(1, clock.now_ms() + 12_000))
        put = store._host.put_rebuilt
        store._host.put_rebuilt = lambda *_, **__: Receipt(PutStatus.OS_PAGE_CACHE_BUSY)  # type: ignore[method-assign]
        clock.advance(5_000)
        store._host.put_rebuilt = put  # type: ignore[method-assign]
        clock.advance(5_000)
        assert numbers(store) == [0, 1]


def test_a_late_message_is_not_delivered_again_when_the_rest_of_its_page_finds_no_room() -> None:
    clock = FakeClock()
    medium = FaultyMedium(clock_ms=clock.now_ms)
    with timer_store(ROOT, clock, medium=medium) as store:
        start_ms = clock.now_ms()
        later = [timed(number, start_ms + 60_000) for number in range(2, 2 + UNITS_A_FILE)]
        put_late(store, clock, *later, timed(1, start_ms + 12_000))
        medium.capacity = medium._used() + 100
        with pytest.raises(DiskFull):
            clock.advance(2000)
        medium.capacity = None
        clock.advance(60_000)
        assert numbers(store) == [0, 1, *range(2, 2 + UNITS_A_FILE)]
