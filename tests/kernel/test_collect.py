from __future__ import annotations

import struct
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from flintlog.errors import FormatError

LOG = bytes(range(200))


def entries(*values: tuple[int, int, int]) -> bytes:
    return b"".join(struct.pack("!qiq", *value) for value in values)


def test_records_in_the_order_of_the_entries(kernel: ModuleType) -> None:
    queue = entries((1000, 10, 1), (1100, 20, 2), (1050, 5, 1))
    assert kernel.collect(queue, 0, 60, LOG, 1000, 1200, 32, 1000) == ([LOG[:10], LOG[100:120], LOG[50:55]], 60)
    assert kernel.collect(queue, 20, 40, LOG, 1000, 1200, 32, 1000) == ([LOG[100:120]], 40)


def test_only_records_with_these_tags(kernel: ModuleType) -> None:
    queue = entries((1000, 10, 1), (1100, 20, -2), (1050, 5, 1))
    assert kernel.collect(queue, 0, 60, LOG, 1000, 1200, 32, 1000, {1}) == ([LOG[:10], LOG[50:55]], 60)
    assert kernel.collect(queue, 0, 60, LOG, 1000, 1200, 32, 1000, {-2}) == ([LOG[100:120]], 60)
    assert kernel.collect(queue, 0, 60, LOG, 1000, 1200, 32, 1000, frozenset()) == ([], 60)


def test_count_and_bytes_are_bounded_but_one_record_always_comes(kernel: ModuleType) -> None:
    queue = entries((1000, 10, 1), (1100, 20, 2), (1050, 5, 1))
    assert kernel.collect(queue, 0, 60, LOG, 1000, 1200, 2, 1000)[1] == 40
    assert kernel.collect(queue, 0, 60, LOG, 1000, 1200, 9, 29)[1] == 20
    assert kernel.collect(queue, 0, 60, LOG, 1000, 1200, 9, 30)[1] == 40
    assert kernel.collect(queue, 0, 60, LOG, 1000, 1200, 9, 0) == ([LOG[:10]], 20)
    assert kernel.collect(queue, 0, 60, LOG, 1000, 1200, 0, 1000) == ([], 0)


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
    assert kernel.collect(entries((1000, 4, 0), entry), 0, 40, LOG, 1000, 1200, 9, 99) == ([LOG[:4]], 20)


def test_the_readable_end_counts_not_the_buffers(kernel: ModuleType) -> None:
    queue = entries((1000, 10, 0))
    assert kernel.collect(queue, 0, 20, LOG, 1000, 1009, 9, 99) == ([], 0)
    assert kernel.collect(queue, 0, 20, LOG, 1000, 1010, 9, 99) == ([LOG[:10]], 20)
    assert kernel.collect(queue, 0, 20, LOG, 1000, 5000, 9, 99) == ([LOG[:10]], 20)


def test_buffers_are_given_back(kernel: ModuleType) -> None:
    log: Any = bytearray(LOG)
    kernel.collect(entries((1000, 10, 0)), 0, 20, log, 1000, 1200, 9, 99)
    log.append(1)


class Keeper:
    """An object that keeps a record."""

    def __init__(self, record: bytes) -> None:
        self.record = record


def body_of(kernel: ModuleType, record: bytes) -> bytes:
    kind = type("WithBody", (Keeper,), {"body": kernel.RecordBody()})
    return bytes(kind(record).body)


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
    assert kernel.collect(entries((0, size, 0)), 0, 20, log, 0, len(log), 9, 9999, None, True) == ([log[:size]], 20)
    for wrong in (size - 1, size + 1, len(log)):
        assert kernel.collect(entries((0, wrong, 0)), 0, 20, log, 0, len(log), 9, 9999, None, True) == ([], 0)


def test_with_a_home_a_record_is_taken_only_for_the_place_that_it_names(
    kernel: ModuleType, note: Callable[..., object], write_log: Callable[..., bytes]
) -> None:
    log = write_log([note(b"first", "t"), note(b"second", "t")])
    size = int.from_bytes(log[:4], "big")
    entry = entries((0, size, 0))
    queue_id, queue_offset = struct.unpack_from("!i4xq", log, 12)

    def collected(*home: object) -> list[bytes]:
        found: list[bytes] = kernel.collect(entry, 0, 20, log, 0, len(log), 9, 9999, None, 1, home)[0]
        return found

    assert collected(b"t", queue_id, queue_offset) == [log[:size]]
    assert collected(b"u", queue_id, queue_offset) == []
    assert collected(b"tt", queue_id, queue_offset) == []
    assert collected(b"t", queue_id + 1, queue_offset) == []
    assert collected(b"t", queue_id, queue_offset + 1) == []


def test_with_a_home_the_offset_counts_entries_that_a_filter_passes_over(
    kernel: ModuleType, note: Callable[..., object], write_log: Callable[..., bytes]
) -> None:
    log = bytearray(write_log([note(b"first", "t"), note(b"second", "t")]))
    size = int.from_bytes(log[:4], "big")
    queue_id = struct.unpack_from("!i", log, 12)[0]
    struct.pack_into("!q", log, size + 20, 6)
    second = int.from_bytes(log[size : size + 4], "big")
    queue = entries((0, size, 1), (size, second, 2))
    found = kernel.collect(queue, 0, 40, log, 0, len(log), 9, 9999, {2}, 1, (b"t", queue_id, 5))
    assert found == ([bytes(log[size : size + second])], 40)
