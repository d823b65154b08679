"""CPU time and memory of this process and everything it started: Spark's JVM, its Python daemon and workers."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Self

_PROC = Path("/proc")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_LOOK_INTERVAL_S = 0.2
_PARENT, _USER, _SYSTEM = 1, 11, 12  # fields after the name in /proc/<pid>/stat


def cpu_seconds() -> float:
    """User and system time of the living processes below this one, and of this one."""
    stats = dict(_all_stats())
    ticks = sum(int(stats[pid][_USER]) + int(stats[pid][_SYSTEM]) for pid in _family(stats) if pid in stats)
    return ticks / _TICKS_PER_S


def own_memory_mib() -> float:
    """Private memory of these processes; mapped files belong to the page cache."""
    kib = 0
    for pid in _family(dict(_all_stats())):
        try:
            lines = (_PROC / str(pid) / "status").read_text("utf-8", "replace").splitlines()
        except OSError:
            continue  # it ended meanwhile
        kib += sum(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))
    return kib / 1024


class PeakMemory:
    """Samples `own_memory_mib` while a block runs; `mib` is the largest value.

    A thread of its own takes a few samples a second.
    """

    def __init__(self) -> None:
        self.mib = 0.0
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._look, name="flintlog-bench-memory", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *failure: object) -> None:
        self._stopped.set()
        self._thread.join()

    def _look(self) -> None:
        while True:
            self.mib = max(self.mib, own_memory_mib())
            if self._stopped.wait(_LOOK_INTERVAL_S):
                return


def _family(stats: dict[int, list[str]]) -> set[int]:
    """This process and all below it."""
    mine = {os.getpid()}
    while more := {pid for pid, fields in stats.items() if int(fields[_PARENT]) in mine} - mine:
        mine |= more
    return mine


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
