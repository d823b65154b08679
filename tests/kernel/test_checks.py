"""Queue entries in runs, index entries compared with a scan, chains of an index file: in both kernels."""

from __future__ import annotations

import random
from types import ModuleType
from typing import Any

import pytest

from flintlog.format.index_file import IndexLayout
from flintlog.format.queue_entry import parse_queue_entries
from flintlog.kernel import reference
from flintlog.kernel.types import ChainFault, QueueRun

Make = Any
LAYOUT = IndexLayout(16, 64)


def log_of(note: Make, write_log: Make, count: int = 30, seed: int = 1) -> bytes:
    chance = random.Random(seed)
    notes = [
        note(
            body=bytes(chance.randrange(40)),
            topic=chance.choice(["a", "b"]),
            queue_id=chance.randrange(2),
            keys=[f"k{chance.randrange(5)}" for _ in range(chance.randrange(3))],
            sys_flag=chance.choice([0, 0, 0, 4, 8, 12]),
        )
        for _ in range(count)
    ]
    data: bytes = write_log(notes)
    return data


def index_of(scan: Make) -> bytearray:
    buffer = bytearray(LAYOUT.file_size)
    for index in range(scan.count):
        row = scan.row(index)
        for key_hash in scan.hashes[row.first_hash : row.first_hash + row.hash_count]:
            reference.index_insert(buffer, 16, 64, key_hash, row.physical_offset, row.store_timestamp)
    return buffer


def test_runs_hold_each_queues_entries_in_order(kernel: ModuleType, note: Make, write_log: Make) -> None:
    data = log_of(note, write_log)
    scan = kernel.scan(data, 0, len(data), 0)
    entries, runs, special = kernel.queue_runs(scan)
    assert special == []
    assert [run.queue for run in runs] == sorted(run.queue for run in runs)
    taken = [scan.row(index) for index in range(scan.count) if scan.row(index).sys_flag & 12 in (0, 8)]
    assert sum(run.length for run in runs) == len(taken) == len(memoryview(entries)) // 20
    for run in runs:
        own = [row for row in taken if row.queue == run.queue]
        assert [row.queue_offset for row in own] == list(range(run.length))
        part = bytes(entries)[run.position : run.position + run.length * 20]
        entries_of_run = [(entry.physical_offset, entry.size, entry.tags_code) for entry in parse_queue_entries(part)]
        assert entries_of_run == [(row.physical_offset, row.size, row.tags_code) for row in own]


def test_a_run_ends_where_queue_offsets_jump(kernel: ModuleType, note: Make, write_log: Make) -> None:
    data = bytearray(write_log([note(body=b"x", topic="t") for _ in range(4)]))
    size = len(data) // 4
    data[2 * size + 27] = 9  # the third record says that it has queue offset 9
    scan = kernel.scan(bytes(data), 0, len(data), 0)
    _, runs, _ = kernel.queue_runs(scan)
    assert runs == [
        QueueRun(0, 0, 2, 0, 0, size),
        QueueRun(0, 9, 1, 40, 2 * size, 2 * size),
        QueueRun(0, 3, 1, 60, 3 * size, 3 * size),
    ]


def test_an_empty_scan_has_no_runs(kernel: ModuleType) -> None:
    entries, runs, special = kernel.queue_runs(kernel.scan(b"", 0, 0, 0))
    assert (bytes(entries), runs, special) == (b"", [], [])


def test_index_and_log_agree_to_the_end(kernel: ModuleType, note: Make, write_log: Make) -> None:
    data = log_of(note, write_log, 20)
    scan = kernel.scan(data, 0, len(data), 0)
    buffer = index_of(scan)
    count = int.from_bytes(buffer[36:40], "big")
    begin = int.from_bytes(buffer[:8], "big")
    # Entry 1 is counted from nothing: both begins give 0 seconds for it.
    assert kernel.match_index(buffer, 16, 1, count, begin, scan, 0, 0) == (count, scan.count, 0)


@pytest.mark.parametrize("damaged", ["hash", "offset", "time"])
def test_index_and_log_differ_at_a_damaged_entry(kernel: ModuleType, damaged: str, note: Make, write_log: Make) -> None:
    data = log_of(note, write_log, 20)
    scan = kernel.scan(data, 0, len(data), 0)
    buffer = index_of(scan)
    count, begin = int.from_bytes(buffer[36:40], "big"), int.from_bytes(buffer[:8], "big")
    buffer[LAYOUT.entry_position(4) + {"hash": 1, "offset": 10, "time": 14}[damaged]] ^= 1
    entry, row, key = kernel.match_index(buffer, 16, 1, count, begin, scan, 0, 0)
    assert entry == 4
    assert (entry, row, key) == reference.match_index(
        buffer, 16, 1, count, begin, reference.scan(data, 0, len(data), 0), 0, 0
    )


def test_entries_outside_of_the_file_are_refused(kernel: ModuleType) -> None:
    scan = kernel.scan(b"", 0, 0, 0)
    for entry, stop in ((0, 65), (5, 4), (-1, 3)):
        with pytest.raises(ValueError, match="not in an index file"):
            kernel.match_index(bytearray(LAYOUT.file_size), 16, entry, stop, 0, scan, 0, 0)
    with pytest.raises(ValueError, match="not in an index file"):
        kernel.check_chains(bytearray(LAYOUT.file_size), 16, 65)


def test_chains_of_a_whole_file_have_no_fault(kernel: ModuleType, note: Make, write_log: Make) -> None:
    data = log_of(note, write_log, 25)
    buffer = index_of(kernel.scan(data, 0, len(data), 0))
    count, used = int.from_bytes(buffer[36:40], "big"), int.from_bytes(buffer[32:36], "big")
    assert kernel.check_chains(buffer, 16, count) == (used, 0, [])


def test_a_broken_link_and_a_lost_slot_are_named(kernel: ModuleType, note: Make, write_log: Make) -> None:
    data = log_of(note, write_log, 25)
    buffer = index_of(kernel.scan(data, 0, len(data), 0))
    count = int.from_bytes(buffer[36:40], "big")
    slot = next(slot for slot in range(16) if any(buffer[40 + 4 * slot : 44 + 4 * slot]))
    was = int.from_bytes(buffer[40 + 4 * slot : 44 + 4 * slot], "big")
    buffer[40 + 4 * slot : 44 + 4 * slot] = bytes(4)
    buffer[LAYOUT.entry_position(2) + 19] ^= 0x20
    before = buffer[LAYOUT.entry_position(2) + 19] ^ 0x20
    _, count_of_faults, faults = kernel.check_chains(buffer, 16, count)
    assert count_of_faults == 2
    assert faults == [ChainFault(False, 2, before, before ^ 0x20), ChainFault(True, slot, was, 0)]
    assert kernel.check_chains(buffer, 16, count, 1)[1:] == (2, faults[:1])


@pytest.mark.parametrize("seed", range(20))
def test_both_kernels_see_the_same_in_noise(seed: int, twin: ModuleType, note: Make, write_log: Make) -> None:
    chance = random.Random(seed)
    data = bytearray(log_of(note, write_log, 40, seed))
    for _ in range(chance.randrange(6)):
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    plain, native = (kernel.scan(bytes(data), 0, len(data), 0) for kernel in (reference, twin))
    plain_runs, native_runs = reference.queue_runs(plain), twin.queue_runs(native)
    assert bytes(plain_runs[0]) == bytes(native_runs[0])
    assert plain_runs[1:] == native_runs[1:]
    buffer = index_of(plain)
    for _ in range(chance.randrange(8)):
        buffer[chance.randrange(len(buffer))] ^= 1 << chance.randrange(8)
    count = chance.randrange(1, 65)
    assert reference.check_chains(buffer, 16, count, 5) == twin.check_chains(buffer, 16, count, 5)
    start, begin = chance.randrange(1, count + 1), 1_700_000_000_000
    found = [
        kernel.match_index(buffer, 16, start, count, begin, scan, 0, 0)
        for kernel, scan in ((reference, plain), (twin, native))
    ]
    assert found[0] == found[1]


@pytest.mark.parametrize(("slots", "count"), [(1, 922337203685477581), (-1, 1), (1 << 40, 1), (1, -1)])
def test_counts_that_no_index_file_can_have(kernel: ModuleType, slots: int, count: int) -> None:
    with pytest.raises(ValueError, match="are not in an index file"):
        kernel.check_chains(bytes(100), slots, count)
    with pytest.raises(ValueError, match="are not in an index file"):
        kernel.match_index(bytes(100), slots, 0, count, 0, kernel.scan(b"", 0, 0, 0), 0, 0)
