"""The CPU time of this process and everything it started: Spark's JVM, its Python daemon and workers."""

from __future__ import annotations

import os
from pathlib import Path

_PROC = Path("/proc")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PARENT, _USER, _SYSTEM = 1, 11, 12  # places behind the name in /proc/<pid>/stat


def cpu_seconds() -> float:
    """User and system time of the living processes below this one, and of this one."""
    stats = dict(_all_stats())
    mine = {os.getpid()}
    while more := {pid for pid, fields in stats.items() if int(fields[_PARENT]) in mine} - mine:
        mine |= more
    ticks = sum(int(stats[pid][_USER]) + int(stats[pid][_SYSTEM]) for pid in mine if pid in stats)
    return ticks / _TICKS_PER_S


def _all_stats() -> list[tuple[int, list[str]]]:
    found = []
    for folder in _PROC.iterdir():
        if folder.name.isdecimal():
            try:
                text = (folder / "stat").read_text("utf-8", "replace")
            except OSError:
                continue  # it ended meanwhile
            found.append((int(folder.name), text.rpartition(")")[2].split()))
    return found
