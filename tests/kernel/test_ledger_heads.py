"""Logs with DLedger's heads before their records, alone and after a plain part."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType

import pytest

from flintlog.format.ledger import EntryHead, encode_entry_blank, encode_entry_head
from flintlog.kernel import ScanStop, reference

HEAD = 48
Write = Callable[..., bytes]
Note = Callable[..., object]


def entry_log(records: Sequence[bytes], base: int = 0) -> bytes:
    """The same records as entries, each with its new physical offset."""
    log = bytearray()
    for index, record in enumerate(records):
        head = EntryHead(index, 3, base + len(log), len(record))
        moved = record[:28] + (head.position + HEAD).to_bytes(8, "big") + record[36:]
        log += encode_entry_head(head) + moved
    return bytes(log)


def cut_apart(log: bytes) -> list[bytes]:
    records, place = [], 0
    while place < len(log):
        size = int.from_bytes(log[place : place + 4], "big")
        records.append(log[place : place + size])
        place += size
    return records


def facts(kernel: ModuleType, log: bytes, base: int = 0) -> list[tuple[object, ...]]:
    """Everything of a scan but the places."""
    seen = kernel.scan(log, 0, len(log), base, check_crc=True)
    assert (seen.end, seen.reason) == (len(log), ScanStop.LIMIT)
    rows = [seen.row(index) for index in range(seen.count)]
    return [(*row[1:], seen.queues[row.queue]) for row in rows]


def test_a_scan_steps_over_the_heads(kernel: ModuleType, random_log: Callable[..., bytes]) -> None:
    for seed in range(30):
        records = cut_apart(random_log(random.Random(seed)))
        log = entry_log(records, base=4096)
        assert facts(kernel, log, 4096) == facts(kernel, b"".join(records))
        seen = kernel.scan(log, 0, len(log), 4096)
        places = [seen.row(index).physical_offset - 4096 for index in range(seen.count)]
        assert places == [sum(map(len, records[:number])) + HEAD * (number + 1) for number in range(len(records))]


def test_a_plain_log_goes_on_with_entries(kernel: ModuleType, write_log: Write, note: Note) -> None:
    plain = write_log([note(b"a" * 50, "t")] * 3)
    entries = entry_log(cut_apart(write_log([note(b"b", "t")] * 2)), base=len(plain))
    seen = kernel.scan(plain + entries, 0, len(plain + entries), 0)
    assert (seen.count, seen.reason) == (5, ScanStop.LIMIT)
    assert seen.row(3).physical_offset == len(plain) + HEAD


def test_ledgers_blank_ends_a_file(kernel: ModuleType, write_log: Write, note: Note) -> None:
    log = entry_log([write_log([note(b"a", "t")])])
    seen = kernel.scan(log + encode_entry_blank(100) + bytes(92), 0, len(log) + 100, 0)
    assert (seen.count, seen.end, seen.reason) == (1, len(log), ScanStop.BLANK)
    for no_blank in (b"\xff" * 8, b"\xff" * 4 + bytes(4), b"\xff\xff\xff\xff\x00\x00\x00\x07"):
        assert kernel.scan(no_blank + bytes(92), 0, 100, 0).reason is ScanStop.NO_RECORD


@pytest.mark.parametrize(
    ("place", "value", "reason"),
    [
        (0, 2, ScanStop.NO_RECORD),
        (4, 5, ScanStop.BAD_LENGTH),
        (8, -1, ScanStop.BAD_OFFSET),
        (16, -1, ScanStop.BAD_OFFSET),
        (28, 7, ScanStop.BAD_OFFSET),
        (44, 90, ScanStop.BAD_LENGTH),
        (44, -48, ScanStop.BAD_LENGTH),
        (48, 96, ScanStop.BAD_LENGTH),
        (52, 1, ScanStop.NO_RECORD),
        (52, -875286124, ScanStop.NO_RECORD),
        (HEAD + 32, 1, ScanStop.BAD_OFFSET),
        (HEAD + 8, 1, ScanStop.BAD_CRC),
    ],
)
def test_an_entry_with_one_wrong_number_is_none(
    kernel: ModuleType, write_log: Write, note: Note, place: int, value: int, reason: ScanStop
) -> None:
    log = bytearray(entry_log([write_log([note(b"abc", "t")])]))
    log[place : place + 4] = value.to_bytes(4, "big", signed=True)
    seen = kernel.scan(bytes(log), 0, len(log), 0, check_crc=True)
    assert (seen.count, seen.end, seen.reason) == (0, 0, reason)


def test_an_entry_that_is_cut_off_is_short(kernel: ModuleType, write_log: Write, note: Note) -> None:
    log = entry_log([write_log([note(b"abc", "t")])])
    for stop in (1, 8, 47, 48, 60, len(log) - 1):
        assert kernel.scan(log, 0, stop, 0).reason is ScanStop.SHORT
    assert kernel.scan(log, 0, 0, 0).reason is ScanStop.LIMIT


def test_a_record_is_found_after_a_damaged_head(kernel: ModuleType, write_log: Write, note: Note) -> None:
    log = bytearray(entry_log(cut_apart(write_log([note(b"abc", "t")] * 2))))
    log[4] ^= 1
    assert kernel.find_record(bytes(log), 0, len(log), 0) == HEAD


def test_both_kernels_read_damaged_entries_alike(
    twin: ModuleType, random_log: Callable[..., bytes], damaged: Callable[..., bytes]
) -> None:
    for seed in range(300):
        rng = random.Random(seed)
        log = bytearray(entry_log(cut_apart(random_log(rng))))
        for _ in range(rng.randrange(1, 4)):
            log[rng.randrange(min(len(log), 200))] = rng.choice((0, 1, 48, 255, rng.randrange(256)))
        seen = [kernel.scan(bytes(log), 0, len(log), 0, check_crc=True) for kernel in (reference, twin)]
        assert len({(one.count, one.end, one.reason, bytes(one.rows)) for one in seen}) == 1


@pytest.mark.parametrize("name", ["broker", "mixed"])
def test_every_message_of_a_golden_ledger_is_found(
    kernel: ModuleType, golden: Callable[[str], Path], name: str
) -> None:
    case = golden("ledger") / name
    folders = (case / "store/commitlog", case / "store/dledger-n0/data")
    found = []
    for path in [path for folder in folders if folder.exists() for path in sorted(folder.iterdir())]:
        data, base = path.read_bytes(), int(path.name)
        seen = kernel.scan(data, 0, len(data), base, check_crc=True)
        assert seen.reason in (ScanStop.BLANK, ScanStop.NO_RECORD)
        assert seen.reason is ScanStop.BLANK or not any(data[seen.end :])
        found += [seen.row(index) for index in range(seen.count)]
        decoded = kernel.decode(data, 0, len(data), base)
        assert (decoded.end, decoded.reason) == (seen.end, seen.reason)
    manifest = [json.loads(line) for line in (case / "manifest.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [(row.physical_offset, row.size, row.queue_offset, row.tags_code) for row in found] == [
        (line["physicalOffset"], line["size"], line["queueOffset"], line["tagsCode"]) for line in manifest
    ]
