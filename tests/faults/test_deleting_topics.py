"""A topic is deleted and made anew while the power goes at any step: no acknowledged message of the new one is lost."""

from __future__ import annotations

from contextlib import suppress

import pytest

from flintlog import FlintlogError, Message, Store, open_store
from flintlog.disk.faulty.faulty_disk import FaultyMedium
from flintlog.testing import FakeClock
from tests.faults.stopping import PowerLost, StoppingMedium
from tests.faults.world import ROOT, small_config

CONFIG = small_config()
STEPS = 120


def delete_and_make_anew(store: Store, acknowledged: list[bytes]) -> None:
    for number in range(3):
        store.put(Message("orders", b"old %d" % number)).check()
    for round_number in range(2):
        store.topics.delete("orders")
        store.topics.create("orders")
        for number in range(2):
            body = b"new %d %d" % (round_number, number)
            store.put(Message("orders", body)).check()
            acknowledged.append(body)
        if round_number == 0:
            acknowledged.clear()  # the next deletion is theirs


def visible(store: Store) -> list[bytes]:
    found = []
    for offset in range(store.min_offset("orders", 0), store.max_offset("orders", 0)):
        (message,) = store.get("orders", 0, offset, 1).messages
        assert message.queue_offset == offset
        found.append(message.body)
    return found


@pytest.mark.parametrize("seed", [0, 2, 6, 9, 42])
def test_a_deletion_of_which_the_power_took_a_part_gives_no_offset_twice(seed: int) -> None:
    """Of the queue's two files one may come back, or only its folder: it ends before offsets that were given."""
    config = CONFIG.with_changes(message_index_enable=False)  # or the index has all of the log dispatched again
    clock = FakeClock()
    medium = FaultyMedium(clock_ms=clock.now_ms)
    store = open_store(ROOT, config, medium=medium, clock=clock)
    store.put(Message("events", b"")).check()
    for number in range(50):
        store.put(Message("orders", b"old %d" % number)).check()
    for _ in range(20):
        store.put(Message("events", bytes(2000))).check()
    store._engine.flushing.queue_flush.flush_all()  # type: ignore[union-attr]
    store.topics.delete("orders")
    store.put(Message("events", b"")).check()
    after = medium.crash(seed)
    store.shutdown()
    with open_store(ROOT, config, medium=after, clock=clock) as store:
        assert store.put(Message("orders", b"new")).check().queue_offset == 50
        assert visible(store)[-1] == b"new"
        again = after.kill()
    again.remove_tree(ROOT / "consumequeue")
    with open_store(ROOT, config, medium=again, clock=clock) as store:
        assert visible(store)[-1] == b"new", "built from the log alone, the queue has it no more"


@pytest.mark.parametrize("power", [True, False], ids=["power", "process"])
def test_the_disk_goes_at_each_step(power: bool) -> None:
    for step in range(STEPS):
        clock = FakeClock()
        base = FaultyMedium(clock_ms=clock.now_ms)
        with open_store(ROOT, CONFIG, medium=base, clock=clock) as store:
            store.topics.create("orders")
            store.put(Message("events", b"")).check()
        medium = StoppingMedium.over(base, 10_000)
        store = open_store(ROOT, CONFIG, medium=medium, clock=clock)
        acknowledged: list[bytes] = []
        medium.left = step
        with suppress(PowerLost, FlintlogError):
            delete_and_make_anew(store, acknowledged)
        is_done = not medium.is_off
        medium.left = 10_000
        after = medium.crash(step) if power else medium.kill()
        with suppress(FlintlogError):
            store.shutdown()
        for _ in range(2):
            with open_store(ROOT, CONFIG, medium=after, clock=clock) as store:
                found = visible(store)
                assert [body for body in found if body in acknowledged] == acknowledged, f"step {step}: {found}"
                body = b"another %d" % len(found)
                store.put(Message("orders", body)).check()
                acknowledged.append(body)
                assert visible(store) == [*found, body]
        if is_done:
            break
    assert is_done, "more steps than were tried"
    assert step > 10
