"""Splits may be cut anywhere: together they yield each record of a serial scan once, whatever bodies hold."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flintlog import Message, kernel
from flintlog.derive import log_end, splits
from flintlog.derive.log_end import late_record, records_end
from flintlog.derive.log_files import LogFile, log_files
from flintlog.derive.splits import Gap, Split, Window, plan_splits, scan_split
from flintlog.errors import DamagedStore, WrongFileSize
from flintlog.format.record import BLANK_MAGIC
from flintlog.kernel import ROW, Encoder, ScanStop, Tail

FILE_BYTES = 96 * 1024
BASE = 3 * FILE_BYTES
HEADER_BYTES = 88
"""The bytes of an IPv4 record before its body."""

MAX_BODY = 6_000


def record(body: bytes, physical_offset: int, queue_offset: int = 0) -> bytes:
    """One record as a put at this offset would write it."""
    room = bytearray(len(body) + 1024)
    tail = Tail(room, physical_offset)
    encoder = Encoder(Message, store_host="127.0.0.1:10911", max_message_size=1 << 22)
    assert encoder.append(tail, Message("orders", body, keys=["k"]), queue_offset, 1_700_000_000_000)
    return bytes(room[: tail.position])


def deceiving_body(chance: random.Random, place: int, room: int) -> bytes:
    """A body with forged records, each with the offset of its place, and blanks up to the file's end."""
    body = bytearray()
    while len(body) < room:
        kind = chance.randrange(4)
        at = place + HEADER_BYTES + len(body)
        if kind == 0:
            body += chance.randbytes(chance.randrange(1, 40))
        elif kind == 1:
            rest = max(8, BASE + FILE_BYTES - at)
            body += rest.to_bytes(4, "big") + BLANK_MAGIC.to_bytes(4, "big", signed=True)
        else:
            body += record(chance.randbytes(chance.randrange(0, 300)), at, chance.randrange(1000))
    return bytes(body)


def build_log(seed: int) -> bytes:
    """A file of records of all sizes, many with forged records in their bodies, closed by a blank."""
    chance = random.Random(seed)
    log = bytearray()
    while True:
        size = chance.choice((0, 10, 200, 1500, 5000))
        place = BASE + len(log)
        body = deceiving_body(chance, place, size) if chance.random() < 0.7 else chance.randbytes(size)
        made = record(body[:MAX_BODY], place, len(log))
        if len(log) + len(made) + 8 > FILE_BYTES:
            break
        log += made
    rest = FILE_BYTES - len(log)
    log += rest.to_bytes(4, "big") + BLANK_MAGIC.to_bytes(4, "big", signed=True)
    return bytes(log.ljust(FILE_BYTES, b"\x00"))


def offsets(scan: kernel.Scan) -> list[int]:
    return [fields[0] for fields in ROW.iter_unpack(scan.rows)]


def read_splits(log: bytes, cuts: list[int]) -> list[int]:
    file = LogFile("x", BASE, FILE_BYTES)
    window = Window(memoryview(log), BASE)
    found: list[int] = []
    for start, stop in pairwise([BASE, *cuts, BASE + FILE_BYTES]):
        for piece in scan_split(window, Split(file, start, stop)):
            assert not isinstance(piece, Gap), piece
            found += offsets(piece)
    return found


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), data=st.data())
def test_splits_at_any_place_give_what_a_serial_scan_gives(seed: int, data: st.DataObject) -> None:
    log = build_log(seed)
    serial = kernel.scan(log, 0, FILE_BYTES, BASE)
    assert serial.reason is ScanStop.BLANK
    cuts = sorted(data.draw(st.lists(st.integers(BASE, BASE + FILE_BYTES), max_size=12)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(splits, "LOOK_BACK_BYTES", MAX_BODY + 1024)
        assert read_splits(log, cuts) == offsets(serial)


def test_without_looking_back_a_forged_record_is_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    inner = record(b"fake", BASE + 400 + HEADER_BYTES + 20)
    first = record(bytes(400 - len(record(b"", BASE))), BASE)
    assert len(first) == 400
    second = record(bytes(20) + inner + bytes(50), BASE + 400)
    log = (first + second).ljust(FILE_BYTES, b"\x00")
    cut = BASE + 400 + HEADER_BYTES + 5
    window, split = Window(memoryview(log), BASE), Split(LogFile("x", BASE, FILE_BYTES), cut, BASE + 400 + len(second))
    assert splits.first_record(window, split) == split.stop
    monkeypatch.setattr(splits, "LOOK_BACK_BYTES", 0)
    assert splits.first_record(window, split) == BASE + 400 + HEADER_BYTES + 20


def test_damage_is_a_gap_and_what_follows_is_read() -> None:
    parts = [record(b"one", BASE)]
    for body in (b"two", b"three"):
        parts.append(record(body, BASE + sum(map(len, parts))))
    broken = parts[0] + bytes(len(parts[1])) + parts[2]
    stop = BASE + len(broken)
    window = Window(memoryview(broken), BASE)
    found = list(scan_split(window, Split(LogFile("x", BASE, FILE_BYTES), BASE, stop)))
    assert [type(piece).__name__ for piece in found] == ["Scan", "Gap", "Scan"]
    gap = found[1]
    assert isinstance(gap, Gap)
    assert (gap.start, gap.stop) == (BASE + len(parts[0]), BASE + len(parts[0]) + len(parts[1]))


@given(
    sizes=st.integers(1, 6),
    start=st.integers(0, 6 * FILE_BYTES),
    length=st.integers(0, 6 * FILE_BYTES),
    split_bytes=st.integers(1000, 2 * FILE_BYTES),
    least=st.integers(1, 9),
)
def test_planned_splits_cover_the_range_once(sizes: int, start: int, length: int, split_bytes: int, least: int) -> None:
    files = [LogFile(str(n), n * FILE_BYTES, FILE_BYTES) for n in range(sizes)]
    planned = plan_splits(files, start, start + length, split_bytes=split_bytes, least_count=least)
    covered = sorted((split.start, split.stop) for split in planned)
    assert all(a_stop == b_start for (_, a_stop), (b_start, _) in pairwise(covered))
    assert all(0 < split.size <= split_bytes for split in planned)
    assert all(split.file.base <= split.start < split.stop <= split.file.end for split in planned)
    if covered:
        assert (covered[0][0], covered[-1][1]) == (start, min(start + length, sizes * FILE_BYTES))
    else:
        assert length == 0 or start >= sizes * FILE_BYTES


def test_the_end_is_before_a_record_that_is_still_being_written() -> None:
    first = record(b"first", BASE)
    second = bytearray(record(b"second", BASE + len(first)))
    whole = (first + bytes(second)).ljust(4096, b"\x00")
    assert records_end(memoryview(whole), BASE, BASE) == BASE + len(first) + len(second)
    second[HEADER_BYTES] ^= 1
    torn = (first + bytes(second)).ljust(4096, b"\x00")
    assert records_end(memoryview(torn), BASE, BASE) == BASE + len(first)


def test_the_end_is_after_damage_only_with_search() -> None:
    first, lost = record(b"first", BASE), len(record(b"lost", BASE))
    last = record(b"last", BASE + len(first) + lost)
    log = (first + bytes(lost) + last).ljust(4096, b"\x00")
    assert records_end(memoryview(log), BASE, BASE) == BASE + len(first) + lost + len(last)
    assert records_end(memoryview(log), BASE, BASE, search=False) == BASE + len(first)


def test_the_records_of_a_full_file_end_where_it_ends() -> None:
    log = build_log(7)
    assert records_end(memoryview(log), BASE, BASE) == BASE + FILE_BYTES


@pytest.mark.parametrize("seed", range(20))
def test_a_walk_from_a_late_record_ends_where_the_whole_walk_ends(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (splits, log_end):
        monkeypatch.setattr(module, "LOOK_BACK_BYTES", 8_000)
    monkeypatch.setattr(log_end, "LONG_WALK_BYTES", 30_000)
    whole = build_log(seed)
    cut = random.Random(seed).randrange(60_000, FILE_BYTES)
    for log in (whole, whole[:cut].ljust(FILE_BYTES, b"\x00")):  # full; or with a torn record at its end
        view = memoryview(log)
        late = late_record(view, BASE, BASE, FILE_BYTES)
        assert late - BASE >= 60_000 - 3 * 8_000
        assert records_end(view, BASE, late) == records_end(view, BASE, BASE)


def test_without_an_intact_record_near_the_end_the_whole_file_is_walked(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (splits, log_end):
        monkeypatch.setattr(module, "LOOK_BACK_BYTES", 1_000)
    monkeypatch.setattr(log_end, "LONG_WALK_BYTES", 4_000)
    log = record(b"first", BASE) + b"x" * 5_000
    assert late_record(memoryview(log), BASE, BASE, len(log)) == BASE


def name(base: int) -> str:
    return f"{base:020d}"


def test_a_listing_with_a_file_of_another_size_is_refused_by_name() -> None:
    listing = [(name(0), 100), (name(100), 100), (name(200), 60)]
    with pytest.raises(WrongFileSize, match=f"60 bytes, the others have 100.*log/{name(200)}"):
        log_files(listing, "log/")
    assert [file.size for file in log_files(listing, strict=False)] == [100, 100, 60]


def test_of_two_files_of_different_length_the_shorter_one_is_wrong() -> None:
    with pytest.raises(WrongFileSize, match=f"60 bytes, the others have 100.*log/{name(0)}"):
        log_files([(name(0), 60), (name(100), 100)], "log/")


def test_a_listing_with_a_missing_file_is_refused() -> None:
    with pytest.raises(DamagedStore, match="bytes 100 to 200 are missing"):
        log_files([(name(0), 100), (name(200), 100)])


def test_other_names_and_empty_files_are_no_files_of_a_log() -> None:
    assert [file.base for file in log_files([(name(0), 100), ("lost+found", 5), (name(100), 0)])] == [0]
