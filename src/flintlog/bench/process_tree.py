"""CPU time and memory of this process and everything it started: Spark's JVM, its Python daemon and workers."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Self

_PROC = Path("/proc")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_LOOK_INTERVAL_S = 0.2
_PARENT, _USER, _SYSTEM, _STARTED = 1, 11, 12, 19  # fields after the name in /proc/<pid>/stat

_Ticks = dict[tuple[int, str], int]
"""User and system time by process; an id may be used again, but not with the same start."""


class ProcessWatch:
    """CPU time of these processes while a block runs, and the most memory that they had for themselves.

    Processes that end meanwhile are counted as they were last seen. The system adds their times to no other process
    if their parent ignores their end, and so does the daemon from which Spark forks workers and ends idle ones.
    A thread of its own looks a few times a second. Mapped files belong to the page cache and are not counted.
    """

    def __init__(self) -> None:
        self.cpu_seconds = 0.0
        self.mib = 0.0
        self._before: _Ticks = {}
        self._seen: _Ticks = {}
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="flintlog-bench-processes", daemon=True)

    def __enter__(self) -> Self:
        self._before = _ticks(_stats())
        self._thread.start()
        return self

    def __exit__(self, *failure: object) -> None:
        self._stopped.set()
        self._thread.join()
        ticks = sum(seen - self._before.get(process, 0) for process, seen in self._seen.items())
        self.cpu_seconds = ticks / _TICKS_PER_S

    def _watch(self) -> None:
        is_last = False
        while not is_last:
            is_last = self._stopped.wait(_LOOK_INTERVAL_S)
            stats = _stats()
            self._seen.update(_ticks(stats))
            self.mib = max(self.mib, _own_memory_mib(stats))


def _ticks(stats: dict[int, list[str]]) -> _Ticks:
    return {(pid, fields[_STARTED]): int(fields[_USER]) + int(fields[_SYSTEM]) for pid, fields in stats.items()}


def _own_memory_mib(stats: dict[int, list[str]]) -> float:
    kib = 0
    for pid in stats:
        try:
            lines = (_PROC / str(pid) / "status").read_text("utf-8", "replace").splitlines()
        except OSError:
            continue  # it ended meanwhile
        kib += sum(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))
    return kib / 1024


def _stats() -> dict[int, list[str]]:
    """The fields of this process and of all below it."""
    stats = _all_stats()
    mine = {os.getpid()}
    while more := {pid for pid, fields in stats.items() if int(fields[_PARENT]) in mine} - mine:
        mine |= more
    return {pid: stats[pid] for pid in mine}


def _all_stats() -> dict[int, list[str]]:
    found = {}
    for folder in _PROC.iterdir():
        if folder.name.isdecimal():
            try:
                text = (folder / "stat").read_text("utf-8", "replace")
            except OSError:
                continue  # it ended meanwhile
            found[int(folder.name)] = text.rpartition(")")[2].split()
    return found
