"""Verification of the timer's files: slots and their chains, units and their records, the checkpoint."""

from __future__ import annotations

import random
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.services.timer_store import CONFIG, SLOTS, timed, timer_store

from flintlog import Message, StoreConfig
from flintlog.checks.finding import Finding
from flintlog.format.timer import SLOT_SIZE, UNIT, UNIT_SIZE, parse_slot, parse_timer_checkpoint
from flintlog.maintenance.repair.repair import repair
from flintlog.maintenance.verify.verify import verify
from flintlog.services.timer.timer_service import TimerService
from flintlog.testing import FakeClock

Golden = Callable[[str], Path]


class Timer:
    """The files of a timer, to be damaged."""

    def __init__(self, root: Path, config: StoreConfig | None = None) -> None:
        self.root, self.config = root, config
        self.wheel, self.check = root / "timerwheel", root / "config" / "timercheck"
        self.slots = self._used_slots()

    def _used_slots(self) -> list[int]:
        """Where the slots lie that hold something; a wheel of Java's is large and mostly empty."""
        content, chunk = self.wheel.read_bytes(), 1 << 16
        starts = [start for start in range(0, len(content), chunk) if any(content[start : start + chunk])]
        places = (place for start in starts for place in range(start, min(start + chunk, len(content)), SLOT_SIZE))
        return [place for place in places if any(content[place : place + SLOT_SIZE])]

    @property
    def log(self) -> Path:
        return min((self.root / "timerlog").iterdir())

    def flip(self, path: Path, place: int, bit: int) -> None:
        with path.open("r+b") as file:
            file.seek(place)
            was = file.read(1)[0]
            file.seek(place)
            file.write(bytes([was ^ 1 << bit]))

    def write(self, path: Path, place: int, content: bytes) -> None:
        with path.open("r+b") as file:
            file.seek(place)
            file.write(content)

    def found(self) -> list[Finding]:
        return verify(self.root, self.config).findings


@pytest.fixture
def java(golden: Golden, tmp_path: Path) -> Timer:
    """Java's files, at a time before anything was due."""
    shutil.copytree(golden("delay") / "store", tmp_path / "store")
    timer = Timer(tmp_path / "store")
    assert parse_timer_checkpoint(timer.check.read_bytes()).read_ms > 0
    timer.write(timer.check, 0, struct.pack("!q", 0))
    return timer


@pytest.fixture
def ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Timer:
    monkeypatch.setattr(TimerService, "wheel_slots", SLOTS)
    clock = FakeClock(1_700_000_000_000)
    start = clock.now_ms()
    with timer_store(tmp_path / "s", clock) as store:
        for number in range(60):
            store.put(timed(number, start + 1000 * (5 + number % 7))).check()
        clock.advance(1000)
        over = Message("orders", b"x", properties={"TIMER_DEL_UNIQKEY": "U13"}, deliver_at_ms=start + 11_000)
        store.put(over).check()
        clock.advance(6000)  # two slots are delivered, five are still to come
    return Timer(tmp_path / "s", CONFIG)


def test_the_files_of_java_are_whole_by_a_full_check(java: Timer) -> None:
    assert java.found() == []
    assert len(java.slots) > 10
    assert sum(parse_slot(java.wheel.read_bytes(), place).number for place in java.slots) > 40


def test_the_files_of_our_timer_are_whole(ours: Timer) -> None:
    assert ours.found() == []
    ours.config = None
    assert ours.found() == []  # the precision is read from the files
    assert verify(ours.root, mode="quick").findings == []


def test_a_flipped_bit_in_a_slot_is_found(java: Timer) -> None:
    chance = random.Random(3)
    for slot in java.slots:
        place, bit = slot + chance.randrange(SLOT_SIZE), chance.randrange(8)
        java.flip(java.wheel, place, bit)
        (found,) = java.found()
        assert (found.id, found.file, found.offset) == ("damaged-timer", str(java.wheel), slot)
        java.flip(java.wheel, place, bit)
    assert java.found() == []


@pytest.mark.parametrize(
    ("field", "name"), [(0, "size"), (4, "previous"), (12, "magic"), (28, "physical offset"), (36, "record's size")]
)
def test_a_damaged_unit_is_named_once(java: Timer, field: int, name: str) -> None:
    chance = random.Random(name)
    width = 8 if name in ("previous", "physical offset") else 4
    for _ in range(4):
        unit = chance.randrange(45) * UNIT_SIZE
        place, bit = unit + field + chance.randrange(1, width), chance.randrange(8)
        java.flip(java.log, place, bit)
        found = java.found()
        assert {finding.id for finding in found} <= {"damaged-timer", "timer-beyond-log"}
        places = [(finding.file, finding.offset) for finding in found]
        assert places == [(str(java.log), unit)] or (name in ("previous", "magic") and len(places) == 1), places
        java.flip(java.log, place, bit)


def test_a_time_that_belongs_to_another_slot_breaks_the_chain(java: Timer) -> None:
    fields = list(UNIT.unpack(java.log.read_bytes()[52 : 2 * 52]))
    fields[4] += 1000
    java.write(java.log, 52, UNIT.pack(*fields))
    (found,) = java.found()
    assert found.id == "damaged-timer"
    assert "another time in its chain, at 52" in found.evidence


def test_a_log_that_lost_its_end_is_found(java: Timer) -> None:
    java.write(java.log, 40 * UNIT_SIZE, bytes(5 * UNIT_SIZE))
    found = java.found()
    assert {finding.id for finding in found} <= {"timer-beyond-log", "damaged-timer"}
    assert (str(java.check), 8) in [(finding.file, finding.offset) for finding in found]
    assert [finding.file for finding in found].count(str(java.wheel)) >= 1


def test_zeros_amid_the_log_are_found(java: Timer) -> None:
    java.write(java.log, 20 * UNIT_SIZE, bytes(UNIT_SIZE))
    assert [(finding.id, finding.offset) for finding in java.found()] == [("damaged-timer", 20 * UNIT_SIZE)]


def test_slots_that_were_delivered_may_point_anywhere(golden: Golden, tmp_path: Path) -> None:
    shutil.copytree(golden("delay") / "store", tmp_path / "store")
    timer = Timer(tmp_path / "store")
    timer.write(timer.wheel, timer.slots[0] + 8, struct.pack("!qqi", 52, 10**6, 99))
    assert timer.found() == []


@pytest.mark.parametrize("content", [b"", bytes(20), struct.pack("!7q", 0, -5, 0, 0, 0, 0, 0).ljust(4096, b"\0")])
def test_a_checkpoint_without_sense_is_found(java: Timer, content: bytes) -> None:
    java.check.write_bytes(content)
    (found,) = java.found()
    assert (found.id, found.file) == ("damaged-checkpoint", str(java.check))


def test_a_checkpoint_that_is_gone_is_found(java: Timer) -> None:
    java.check.unlink()
    assert [(finding.id, finding.file) for finding in java.found()] == [("damaged-timer", str(java.check))]


def test_a_checkpoint_inside_a_unit_is_found(java: Timer) -> None:
    java.write(java.check, 8, struct.pack("!q", 10 * UNIT_SIZE + 5))
    found = java.found()
    assert ("damaged-timer", str(java.check), 8) in [(each.id, each.file, each.offset) for each in found]


def test_a_damaged_slot_of_ours_is_found_and_mended(ours: Timer) -> None:
    content = ours.wheel.read_bytes()
    waiting = [place for place in ours.slots if parse_slot(content, place).number > 2]
    ours.write(ours.wheel, waiting[-1] + 24, struct.pack("!i", 1))
    (found,) = ours.found()
    assert (found.id, found.offset) == ("damaged-timer", waiting[-1])
    report = repair(ours.root, ours.config)
    assert [step.action for step in report.steps] == ["drop-timer", "settle"]
    assert ours.found() == []


def test_after_an_unclean_stop_the_wheel_may_be_further_than_the_checkpoint(ours: Timer) -> None:
    (ours.root / "abort").write_bytes(b"1")
    flushed = parse_timer_checkpoint(ours.check.read_bytes()).log_flushed
    ours.write(ours.check, 8, struct.pack("!q", flushed - UNIT_SIZE))
    assert [finding.id for finding in ours.found() if "timer" in finding.id] == []
    (ours.root / "abort").unlink()
    assert {finding.id for finding in ours.found() if "timer" in finding.id} == {"damaged-timer"}


@pytest.mark.parametrize("seed", range(3))
def test_a_timer_that_ran_and_was_stopped_again_and_again_is_whole(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TimerService, "wheel_slots", SLOTS)
    chance, clock = random.Random(seed), FakeClock(1_700_000_000_000)
    number = 0
    for _ in range(4):
        with timer_store(tmp_path / "s", clock) as store:
            for _ in range(40):
                number += 1
                # Some are due after the window, and are entered again before they are delivered.
                due = clock.now_ms() + chance.choice((1_000, 7_000, 90_000, 130_000, 400_000))
                store.put(timed(number, due)).check()
                if chance.random() < 0.2:
                    properties = {"TIMER_DEL_UNIQKEY": f"U{chance.randrange(1, number + 1)}"}
                    store.put(Message("orders", b"x", properties=properties, deliver_at_ms=due)).check()
                clock.advance(chance.choice((0, 500, 3_000, 20_000)))
        assert verify(tmp_path / "s", CONFIG).findings == []
        assert verify(tmp_path / "s").findings == []
