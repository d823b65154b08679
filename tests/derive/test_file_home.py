"""Where a file of the log belongs, from its bytes alone."""

from __future__ import annotations

import pytest

from flintlog.derive.file_home import Home, find_home
from flintlog.format.record import Record, body_crc, encode_blank, encode_record

SIZE = 4000
TIME = 1_700_000_000_000


def record_at(offset: int, body: bytes = b"x" * 100) -> bytes:
    record = Record(
        topic_bytes=b"t", body=body, body_crc=body_crc(body), physical_offset=offset, store_timestamp=TIME + offset
    )
    return encode_record(record)


def file_at(base: int, count: int = 5) -> bytearray:
    data = bytearray()
    for _ in range(count):
        data += record_at(base + len(data))
    return data.ljust(SIZE, b"\0")


def home(data: bytes | bytearray, base: int | None, *, search: bool = True) -> int | None:
    found = find_home(memoryview(bytes(data)), len(data), base, search=search)
    return None if found is None else found.base


@pytest.mark.parametrize("base", [0, SIZE, 7 * SIZE])
@pytest.mark.parametrize("named", [None, 0, SIZE, 12 * SIZE, 1])
def test_the_first_record_names_the_home(base: int, named: int | None) -> None:
    assert find_home(memoryview(bytes(file_at(base))), SIZE, named) == Home(base, TIME + base, is_sure=True)


@pytest.mark.parametrize("bit", range(63))
def test_a_single_record_does_not_contradict_a_possible_name(bit: int) -> None:
    """A bit of its own offset may be wrong: that loses the message, and must not move the file."""
    data = file_at(4 * SIZE, count=1)
    data[28 + 7 - bit // 8] ^= 1 << bit % 8
    assert home(data, 4 * SIZE) is None


def test_a_single_record_contradicts_an_impossible_name() -> None:
    data = file_at(4 * SIZE, count=1)
    assert (home(data, None), home(data, 4 * SIZE + 1), home(data, 3 * SIZE)) == (4 * SIZE, 4 * SIZE, None)


def test_two_records_that_agree_win_over_an_earlier_single_one() -> None:
    data = file_at(SIZE)
    data[: len(record_at(0))] = record_at(2 * SIZE)
    assert home(data, 3 * SIZE) == home(data, None) == SIZE


def test_the_first_intact_record_names_the_home() -> None:
    data = file_at(SIZE)
    data[40:60] = b"\xff" * 20
    assert home(data, 3 * SIZE) == home(data, None) == SIZE
    assert home(data, 3 * SIZE, search=False) == SIZE


@pytest.mark.parametrize("data", [bytes(SIZE), b"x" * SIZE, encode_blank(SIZE).ljust(SIZE, b"\0")])
def test_without_a_record_there_is_no_home(data: bytes) -> None:
    assert home(data, 0) is None and home(data, None) is None


def test_after_a_blank_at_the_begin_nothing_counts() -> None:
    data = encode_blank(SIZE) + bytes(file_at(0)[8:])
    assert home(data, SIZE) is None


def test_zeros_at_the_begin_mean_a_file_made_ahead_unless_searched() -> None:
    data = file_at(SIZE)
    data[:200] = bytes(200)
    assert home(data, 0, search=False) is None
    assert home(data, 0) == SIZE


def test_one_record_in_its_place_is_enough() -> None:
    """The records before it belong to another file: a block was written to a wrong place."""
    size = len(record_at(0))
    data = file_at(SIZE)
    data[:size] = record_at(0)
    assert home(data, SIZE) == SIZE
    assert home(data, 0) == 0


def test_a_record_in_a_body_does_not_count() -> None:
    """A message may hold a piece of a log; its place is no multiple of the file's size away from its offset."""
    inner = record_at(10 * SIZE + 3)
    data = bytearray(record_at(0, body=b"12345" + inner)).ljust(SIZE, b"\0")
    data[8:12] = b"\xff" * 4  # the CRC of the outer one
    assert home(data, None) is None


def test_a_record_whose_body_is_damaged_does_not_count() -> None:
    data = bytearray(record_at(SIZE)).ljust(SIZE, b"\0")
    place = bytes(data).index(b"xxxx")
    data[place] ^= 1
    assert home(data, 0) is None


def test_bytes_cut_off_in_a_head_are_no_record() -> None:
    head = record_at(0)[:12]
    assert home(bytes(SIZE - len(head)) + head, None) is None
