"""Verification costs little more than reading the files, and no more memory for a longer log."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from flintlog import Message, StoreConfig, open_store
from flintlog.maintenance.verify.verify import verify

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

_CODE = """
import resource, sys
from flintlog.maintenance.verify.verify import verify
answer = verify(sys.argv[1])
print(len(answer.findings), answer.record_count, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""


def write_store(path: Path, count: int) -> None:
    config = StoreConfig(flush="async", mapped_file_size_commit_log=1 << 26)
    with open_store(path, config) as store:
        for number in range(count):
            store.put(Message("orders", b"x" * 1024, tags="paid", keys=[f"k{number}"], queue_id=number % 4))


def time_of_reading(path: Path) -> float:
    buffer = bytearray(1 << 20)
    begin = time.perf_counter()
    for file in path.rglob("*"):
        if file.is_file():
            with file.open("rb", buffering=0) as opened:
                while opened.readinto(buffer):
                    pass
    return time.perf_counter() - begin


def test_two_gibibytes_in_less_than_three_times_the_time_of_reading(tmp_path: Path) -> None:
    write_store(tmp_path / "store", 1_950_000)
    assert sum(file.stat().st_size for file in (tmp_path / "store" / "commitlog").iterdir()) >= 2 << 30
    ratios = []
    for _ in range(5):
        reading = time_of_reading(tmp_path / "store")
        begin = time.perf_counter()
        assert verify(tmp_path / "store").findings == []
        ratios.append((time.perf_counter() - begin) / reading)
    assert min(ratios) < 3, ratios


def test_memory_does_not_grow_with_the_log(tmp_path: Path) -> None:
    peaks = []
    for count in (60_000, 1_950_000):
        write_store(tmp_path / str(count), count)
        command = [sys.executable, "-c", _CODE, str(tmp_path / str(count))]
        reported = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300).stdout.split()
        assert reported[:2] == ["0", str(count)]
        peaks.append(int(reported[2]))
        shutil.rmtree(tmp_path / str(count))
    assert peaks[1] < peaks[0] + 64, peaks
