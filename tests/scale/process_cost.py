"""What a stretch of code costs its process, as the system counts it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec

MIB = 1 << 20
T = TypeVar("T")


class Cost(msgspec.Struct):
    """From the start of a stretch to its end, but for `maps`, which is how many there are at its end."""

    seconds: float
    anonymous_bytes: int
    peak_resident_bytes: int
    maps: int
    read_bytes: int
    fault_count: int
    descriptor_count: int


def status_bytes(field: str) -> int:
    """A field of /proc/self/status: `RssAnon` is memory of one's own, the page cache is not in it."""
    for line in Path("/proc/self/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0]) * 1024
    raise LookupError(field)


def map_count() -> int:
    return len(Path("/proc/self/maps").read_text().splitlines())


def _read_bytes() -> int:
    line = next(line for line in Path("/proc/self/io").read_text().splitlines() if line.startswith("rchar"))
    return int(line.split()[1])


def _fault_count() -> int:
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    return int(fields[7]) + int(fields[9])


def measure(work: Callable[[], T]) -> tuple[Cost, T]:
    """Do the work; what it cost, and what it gave. Peak memory counts what is mapped and was touched, too."""
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    resident, anonymous = status_bytes("VmRSS"), status_bytes("RssAnon")
    read, faults, began = _read_bytes(), _fault_count(), time.monotonic()
    result = work()
    seconds = time.monotonic() - began
    cost = Cost(
        seconds=seconds,
        anonymous_bytes=status_bytes("RssAnon") - anonymous,
        peak_resident_bytes=status_bytes("VmHWM") - resident,
        maps=map_count(),
        read_bytes=_read_bytes() - read,
        fault_count=_fault_count() - faults,
        descriptor_count=len(os.listdir("/proc/self/fd")),
    )
    return cost, result
