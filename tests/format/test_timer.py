"""Wheel slots, units and checkpoint against bytes that the real TimerMessageStore wrote."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flintlog.errors import FormatError
from flintlog.format.timer import (
    BLANK_MAGIC,
    TIMER_CHECKPOINT_SIZE,
    UNIT_SIZE,
    Slot,
    TimerCheckpoint,
    TimerUnit,
    encode_slot,
    encode_timer_blank,
    encode_timer_checkpoint,
    encode_unit,
    parse_slot,
    parse_timer_checkpoint,
    parse_unit,
    units_per_file,
)

VECTORS = json.loads((Path(__file__).parent / "vectors" / "timer.json").read_text())

i64 = st.integers(-(1 << 63), (1 << 63) - 1)
i32 = st.integers(-(1 << 31), (1 << 31) - 1)
offsets = st.integers(0, (1 << 63) - 1)


@pytest.mark.parametrize("case", VECTORS["slots"])
def test_a_slot_that_java_wrote_is_read_and_written_back(case: dict[str, object]) -> None:
    data = bytes.fromhex(str(case["hex"]))
    slot = parse_slot(data)
    assert encode_slot(slot) == data
    assert slot.time % VECTORS["wheelSlots"] == case["index"]


def test_the_units_that_java_wrote_are_chained_as_its_slots_say() -> None:
    data = bytes.fromhex(VECTORS["timerLog"])
    units = {place: parse_unit(data, place) for place in range(0, len(data), UNIT_SIZE)}
    assert b"".join(encode_unit(unit) for unit in units.values()) == data
    for case in VECTORS["slots"]:
        slot, seen = parse_slot(bytes.fromhex(str(case["hex"]))), []
        place = slot.last
        while place != -1:
            seen.append(place)
            assert units[place].slot_ms == slot.time * VECTORS["precisionMs"]
            place = units[place].previous
        assert seen[-1] == slot.first
        assert slot.number == sum(-1 if units[place].magic & 4 else 1 for place in seen)


def test_the_checkpoint_that_java_wrote_is_read_and_written_back() -> None:
    data = bytes.fromhex(VECTORS["timerCheck"])
    checkpoint = parse_timer_checkpoint(data)
    assert encode_timer_checkpoint(checkpoint) == data.ljust(TIMER_CHECKPOINT_SIZE, b"\0")
    assert checkpoint.queue_offset == VECTORS["queueOffset"]
    assert checkpoint.master_queue_offset == checkpoint.queue_offset


@given(st.builds(Slot, i64, i64, i64, i32, i32))
def test_any_slot_is_read_back(slot: Slot) -> None:
    assert parse_slot(encode_slot(slot)) == slot


@given(st.builds(TimerUnit, st.integers(-1, 1 << 62), st.sampled_from([1, 3, 5, 7]), i64, i32, offsets,
                 st.integers(1, (1 << 31) - 1), i32))  # fmt: skip
def test_any_unit_is_read_back(unit: TimerUnit) -> None:
    assert parse_unit(b"\xff" * 7 + encode_unit(unit) + b"\xff", 7) == unit


@given(st.builds(TimerCheckpoint, *[offsets] * 3, *[i64] * 4))
def test_any_checkpoint_is_read_back(checkpoint: TimerCheckpoint) -> None:
    assert parse_timer_checkpoint(encode_timer_checkpoint(checkpoint)) == checkpoint


@given(st.binary(max_size=80), st.integers(-5, 90))
def test_random_bytes_are_a_unit_or_a_format_error(data: bytes, position: int) -> None:
    try:
        unit = parse_unit(data, position)
    except FormatError:
        return
    assert data[position : position + UNIT_SIZE] == encode_unit(unit)


@pytest.mark.parametrize(
    "change",
    [
        {"size": 51}, {"magic": 0}, {"magic": 16 | 1}, {"previous": -2}, {"physical_offset": -1}, {"record_size": 0},
    ],
)  # fmt: skip
def test_units_that_no_timer_writes_are_refused(change: dict[str, int]) -> None:
    values = {"size": 52, "previous": -1, "magic": 1, "physical_offset": 0, "record_size": 100, **change}
    data = struct.pack(
        "!iqiqiqiiq", values["size"], values["previous"], values["magic"], 0, 0, values["physical_offset"],
        values["record_size"], 0, 0,
    )  # fmt: skip
    with pytest.raises(FormatError):
        parse_unit(data)


@pytest.mark.parametrize(
    "make",
    [
        lambda: encode_slot(Slot(1 << 63, 0, 0)),
        lambda: encode_unit(TimerUnit(-1, 1, 0, 1 << 31, 0, 1, 0)),
        lambda: encode_timer_checkpoint(TimerCheckpoint(read_ms=1 << 63)),
        lambda: parse_slot(b"\0" * 31),
        lambda: parse_timer_checkpoint(b"\0" * 55),
        lambda: parse_timer_checkpoint(b"\xff" * 4096),
    ],
)
def test_values_out_of_range_are_format_errors(make: object) -> None:
    with pytest.raises(FormatError):
        make()  # type: ignore[operator]


def test_a_file_is_closed_with_what_is_left() -> None:
    assert units_per_file(52 * 3 + 16) == 3
    assert units_per_file(52 * 3 + 15) == 2
    assert encode_timer_blank(40) == struct.pack("!iqi", 40, 0, BLANK_MAGIC)
    assert encode_timer_blank(16) == struct.pack("!iqi", 16, 0, BLANK_MAGIC)
