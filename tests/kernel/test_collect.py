from __future__ import annotations

import pickle
import struct
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from flintlog.errors import FormatError

LOG = bytes(range(200))
LEVELS = (1000, 5000)


def entries(*values: tuple[int, int, int]) -> bytes:
    return b"".join(struct.pack("!qiq", *value) for value in values)


def collect(kernel: ModuleType, *arguments: object) -> tuple[list[bytes], int]:
    """The records of the messages that were found, and where it stopped."""
    messages, position = kernel.collect(kernel.KeptRecord, LEVELS, *arguments)
    assert {message.delay_levels_ms for message in messages} <= {LEVELS}
    return [message.record for message in messages], position


def test_records_in_the_order_of_the_entries(kernel: ModuleType) -> None:
    queue = entries((1000, 10, 1), (1100, 20, 2), (1050, 5, 1))
    assert collect(kernel, queue, 0, 60, LOG, 1000, 1200, 32, 1000) == ([LOG[:10], LOG[100:120], LOG[50:55]], 60)
    assert collect(kernel, queue, 20, 40, LOG, 1000, 1200, 32, 1000) == ([LOG[100:120]], 40)


def test_count_and_bytes_are_bounded_but_one_record_always_comes(kernel: ModuleType) -> None:
    queue = entries((1000, 10, 1), (1100, 20, 2), (1050, 5, 1))
    assert collect(kernel, queue, 0, 60, LOG, 1000, 1200, 2, 1000)[1] == 40
    assert collect(kernel, queue, 0, 60, LOG, 1000, 1200, 9, 29)[1] == 20
    assert collect(kernel, queue, 0, 60, LOG, 1000, 1200, 9, 30)[1] == 40
    assert collect(kernel, queue, 0, 60, LOG, 1000, 1200, 9, 0) == ([LOG[:10]], 20)
    assert collect(kernel, queue, 0, 60, LOG, 1000, 1200, 0, 1000) == ([], 0)


@pytest.mark.parametrize(
    "entry",
    [
        (999, 10, 0),
        (1191, 10, 0),
        (1200, 1, 0),
        (1000, 0, 0),
        (1000, -5, 0),
        (-(1 << 63), 10, 0),
        ((1 << 63) - 1, 10, 0),
    ],
)
def test_an_entry_that_points_elsewhere_ends_it(kernel: ModuleType, entry: tuple[int, int, int]) -> None:
    assert collect(kernel, entries((1000, 4, 0), entry), 0, 40, LOG, 1000, 1200, 9, 99) == ([LOG[:4]], 20)


def test_the_readable_end_counts_not_the_buffers(kernel: ModuleType) -> None:
    queue = entries((1000, 10, 0))
    assert collect(kernel, queue, 0, 20, LOG, 1000, 1009, 9, 99) == ([], 0)
    assert collect(kernel, queue, 0, 20, LOG, 1000, 1010, 9, 99) == ([LOG[:10]], 20)
    assert collect(kernel, queue, 0, 20, LOG, 1000, 5000, 9, 99) == ([LOG[:10]], 20)


def test_buffers_are_given_back(kernel: ModuleType) -> None:
    log: Any = bytearray(LOG)
    collect(kernel, entries((1000, 10, 0)), 0, 20, log, 1000, 1200, 9, 99)
    log.append(1)


def body_of(kernel: ModuleType, record: bytes) -> bytes:
    return bytes(kernel.KeptRecord(record).body)


@pytest.mark.parametrize("hosts", [0, 0x10, 0x20, 0x30])
@pytest.mark.parametrize("body", [b"", b"x", bytes(range(256)) * 5])
def test_the_body_of_a_record_wherever_its_hosts_move_it(kernel: ModuleType, hosts: int, body: bytes) -> None:
    moved = 12 * hosts.bit_count()
    record = bytes(39) + bytes([hosts]) + bytes(44 + moved) + struct.pack("!i", len(body)) + body + b"\x01t\0\0"
    assert body_of(kernel, record) == body


@pytest.mark.parametrize("size", [-1, 4, 1 << 30])
def test_a_body_that_goes_past_its_record(kernel: ModuleType, size: int) -> None:
    with pytest.raises(FormatError, match="past its record"):
        body_of(kernel, bytes(84) + struct.pack("!i", size) + b"abc")


def test_bytes_that_are_too_few_for_a_record(kernel: ModuleType) -> None:
    with pytest.raises(FormatError, match="90 bytes are no record"):
        body_of(kernel, bytes(90))


def test_with_checks_a_record_is_taken_only_at_the_size_that_its_entry_says(
    kernel: ModuleType, note: Callable[..., object], write_log: Callable[..., bytes]
) -> None:
    log = write_log([note(b"first", "t"), note(b"second", "t")])
    size = int.from_bytes(log[:4], "big")
    assert collect(kernel, entries((0, size, 0)), 0, 20, log, 0, len(log), 9, 9999, True) == ([log[:size]], 20)
    for wrong in (size - 1, size + 1, len(log)):
        assert collect(kernel, entries((0, wrong, 0)), 0, 20, log, 0, len(log), 9, 9999, True) == ([], 0)


def test_with_a_home_a_record_is_taken_only_for_the_place_that_it_names(
    kernel: ModuleType, note: Callable[..., object], write_log: Callable[..., bytes]
) -> None:
    log = write_log([note(b"first", "t"), note(b"second", "t")])
    size = int.from_bytes(log[:4], "big")
    entry = entries((0, size, 0))
    queue_id, queue_offset = struct.unpack_from("!i4xq", log, 12)

    def collected(*home: object) -> list[bytes]:
        found: list[bytes] = collect(kernel, entry, 0, 20, log, 0, len(log), 9, 9999, 1, home)[0]
        return found

    assert collected(b"t", queue_id, queue_offset) == [log[:size]]
    assert collected(b"u", queue_id, queue_offset) == []
    assert collected(b"tt", queue_id, queue_offset) == []
    assert collected(b"t", queue_id + 1, queue_offset) == []
    assert collected(b"t", queue_id, queue_offset + 1) == []


def test_messages_are_of_the_kind_that_was_asked_for(kernel: ModuleType) -> None:
    kind: Any = type("Kind", (kernel.KeptRecord,), {"__slots__": ()})
    message: Any
    (message,), _ = kernel.collect(kind, LEVELS, entries((1000, 10, 0)), 0, 20, LOG, 1000, 1200, 9, 99)
    assert type(message) is kind
    assert (message.record, message.delay_levels_ms) == (LOG[:10], LEVELS)
    assert message._parsed is message._properties is None


def test_kept_records_are_equal_by_kind_record_and_levels(kernel: ModuleType) -> None:
    kept = kernel.KeptRecord(LOG, LEVELS)
    assert kept == kernel.KeptRecord(LOG, LEVELS)
    assert hash(kept) == hash(kernel.KeptRecord(LOG, LEVELS))
    assert kept != kernel.KeptRecord(LOG[1:], LEVELS)
    assert kept != kernel.KeptRecord(LOG)
    assert kept != type("Kind", (kernel.KeptRecord,), {"__slots__": ()})(LOG, LEVELS)


def test_a_kept_record_survives_pickling_without_what_was_parsed(kernel: ModuleType) -> None:
    kept = kernel.KeptRecord(LOG, LEVELS)
    kept._parsed = object()
    again = pickle.loads(pickle.dumps(kept))
    assert again == kept
    assert again._parsed is None
