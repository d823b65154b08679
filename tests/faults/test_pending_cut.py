"""A cut that was asked for, and the power goes before every step of it: the next opening ends the log there."""

from __future__ import annotations

import pytest

from flintlog import Message, open_store
from flintlog.disk.faulty.faulty_disk import FaultyMedium
from tests.faults.stopping import PowerLost, StoppingMedium
from tests.faults.world import ROOT, small_config

MAX_STEPS = 400
COUNT = 120
CONFIG = small_config()


def make_past() -> tuple[FaultyMedium, int, int]:
    """A stopped store of several files with the wish to cut it; how many messages stay, and where the log shall end."""
    medium = FaultyMedium(clock_ms=lambda: 1_700_000_000_000)
    with open_store(ROOT, CONFIG, medium=medium) as store:
        receipts = [
            store.put(Message("orders", b"%04d" % number * 100, keys=[f"k{number}"])).check() for number in range(COUNT)
        ]
        assert len(store._engine.parts.segments.segments) > 3
        stay = COUNT // 3
        end = receipts[stay].physical_offset
        store.replication.raw_log.ask_for_cut(end)
    return medium, stay, end


def check(medium: FaultyMedium, stay: int, end: int) -> None:
    with open_store(ROOT, CONFIG, medium=medium) as store:
        assert store.max_physical_offset == end
        assert store.max_offset("orders", 0) == stay
        assert not [found for found in store.recovery.findings if found.id == "damage"]
        assert store.query("orders", f"k{stay}") == []
        assert len(store.query("orders", f"k{stay - 1}")) == 1
        assert store.put(Message("orders", b"goes on")).check().physical_offset == end
    cut = ROOT / "flintlog" / "cut"
    kept = b"".join(medium.read(cut / info.name, 1 << 20) for info in medium.listing(cut))
    for number in range(stay, COUNT):
        assert b"%04d" % number * 100 in kept
    assert not medium.exists(ROOT / "flintlog" / "cut.json")


@pytest.mark.parametrize("ending", ["crash", "kill"])
def test_a_crash_at_every_step_of_a_cut(ending: str) -> None:
    medium, stay, end = make_past()
    for step in range(MAX_STEPS):
        dying = StoppingMedium.over(medium, step)
        try:
            store = open_store(ROOT, CONFIG, medium=dying)
        except PowerLost:
            check(dying.kill() if ending == "kill" else dying.crash(step), stay, end)
            continue
        left = dying.kill() if ending == "kill" else dying.crash(step)
        dying.left = MAX_STEPS * 10
        store.shutdown()
        check(left, stay, end)
        assert step > 8
        return
    raise AssertionError("a cut that does not end")
