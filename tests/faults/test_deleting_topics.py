"""A topic is deleted and made anew while the power goes at any step: no acknowledged message of the new one is lost."""

from __future__ import annotations

from contextlib import suppress

import pytest

from flintlog import FlintlogError, Message, Store, open_store
from flintlog.disk.faulty import FaultyMedium
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
