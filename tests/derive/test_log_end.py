"""The end of a file of which only ranges can be read: the same as that of a mapped file, from few bytes."""

from __future__ import annotations

import random

import pytest
from tests.derive.test_splits import BASE, FILE_BYTES, build_log, offsets, record

from flintlog import kernel
from flintlog.derive import log_end, splits
from flintlog.derive.log_end import fetched_end, records_end
from flintlog.derive.log_files import LogFile

LOOK_BACK = 8_000


class Fetched:
    """A file that notes how much of it was asked for; the rest reads as zeros."""

    def __init__(self, log: bytes) -> None:
        self.log = log
        self.start, self.stop = len(log), 0

    def __call__(self, start: int, stop: int) -> memoryview:
        assert 0 <= start <= stop <= len(self.log)
        self.start, self.stop = min(self.start, start), max(self.stop, stop)
        return memoryview(bytes(start) + self.log[start:stop] + bytes(len(self.log) - stop))


def find(log: bytes, start: int = BASE, written: int | None = None) -> tuple[int, Fetched]:
    fetched = Fetched(log)
    known = kernel.written_end(log, 0, len(log)) if written is None else written
    return fetched_end(fetched, LogFile("x", BASE, len(log)), start, BASE + known), fetched


@pytest.fixture(autouse=True)
def small_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (splits, log_end):
        monkeypatch.setattr(module, "LOOK_BACK_BYTES", LOOK_BACK)
    monkeypatch.setattr(log_end, "FETCH_BYTES", 1_000)
    monkeypatch.setattr(log_end, "HEAD_BYTES", 100)


def torn_log(whole: bytes, seed: int) -> bytes:
    """The log up to one of its later records, and the first part of a record without forged ones in it."""
    chance = random.Random(seed)
    places = [place for place in offsets(kernel.scan(whole, 0, len(whole), BASE)) if 60_000 < place - BASE < 80_000]
    place = chance.choice(places)
    torn = record(chance.randbytes(3_000), place)
    return (whole[: place - BASE] + torn[: chance.randrange(1, len(torn) - 30)]).ljust(FILE_BYTES, b"\x00")


@pytest.mark.parametrize("seed", range(30))
def test_the_end_is_that_of_a_whole_walk_and_little_is_read(seed: int) -> None:
    whole = build_log(seed)
    for log in (whole, torn_log(whole, seed)):
        end, fetched = find(log)
        assert end == records_end(memoryview(log), BASE, BASE)
        assert fetched.stop - fetched.start < 3 * LOOK_BACK


@pytest.mark.parametrize("seed", range(10))
def test_a_walk_goes_on_after_a_last_byte_that_was_found_too_early(seed: int) -> None:
    """Samples that all lie in long bodies of zeros make the data seem to end early."""
    log = build_log(seed)
    chance = random.Random(seed)
    end, _ = find(log, written=chance.randrange(0, 50_000))
    assert end == BASE + FILE_BYTES


def test_a_record_longer_than_what_was_fetched_is_fetched_whole() -> None:
    first = record(b"a", BASE)
    log = first + record(bytes(LOOK_BACK + 500), BASE + len(first))
    log = log.ljust(FILE_BYTES, b"\x00")
    end, fetched = find(log, written=len(first) + 60)
    assert end == records_end(memoryview(log), BASE, BASE) > BASE + LOOK_BACK
    assert fetched.stop < end - BASE + 2_000


def test_records_after_a_damaged_place_near_the_end_count() -> None:
    records = [record(b"x" * 300, BASE)]
    for _ in range(5):
        records.append(record(b"x" * 300, BASE + sum(map(len, records))))
    log = bytearray(b"".join(records))
    log[len(records[0]) * 3 + 4] ^= 1  # a magic
    assert find(bytes(log).ljust(4096, b"\x00"))[0] == BASE + len(log)


def test_without_a_record_near_the_end_the_walk_begins_at_the_start() -> None:
    log = record(b"first", BASE)
    end, fetched = find((log + b"x" * (2 * LOOK_BACK)).ljust(FILE_BYTES, b"\x00"))
    assert end == BASE + len(log)
    assert fetched.start == 0


def test_a_file_without_a_record_ends_where_it_begins() -> None:
    end, fetched = find(bytes(FILE_BYTES))
    assert (end, fetched.stop) == (BASE, 100)


def test_a_known_end_is_walked_from() -> None:
    first = record(b"first", BASE)
    second = record(b"second", BASE + len(first))
    end, fetched = find((first + second).ljust(FILE_BYTES, b"\x00"), start=BASE + len(first))
    assert end == BASE + len(first) + len(second)
    assert fetched.start == len(first)


def test_a_torn_last_record_does_not_count() -> None:
    first = record(b"first", BASE)
    torn = record(b"second" * 20, BASE + len(first))
    for start, stop in ((len(torn) - 20, len(torn)), (100, 150)):  # its end; a part of its body
        written = bytearray(torn)
        written[start:stop] = bytes(stop - start)
        assert find((first + written).ljust(FILE_BYTES, b"\x00"))[0] == BASE + len(first)
