"""A store for tests of retention: time is turned by hand, the disk's fill is set."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from flintlog import Message, Store, open_store
from flintlog.disk.media.local import LocalMedium
from flintlog.disk.media.medium import DiskUsage
from flintlog.testing import FakeClock
from tests.store.small_store import SMALL

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
SEGMENT_BYTES = SMALL.mapped_file_size_commit_log
BODY = bytes(4000)
NOON_MS = int(datetime(2026, 3, 10, 12).timestamp() * 1000)
CONFIG = SMALL.with_changes(file_reserved_time=72, delete_when="04", flush="async", clean_resource_interval=10_000)


class Disk(LocalMedium):
    """The real disk, but for how full it says it is."""

    def __init__(self) -> None:
        super().__init__()
        self.ratios: dict[str, float] = {}

    def usage(self, path: Path) -> DiskUsage:
        ratio = next((ratio for name, ratio in self.ratios.items() if name in str(path)), 0.5)
        return DiskUsage(1000, int(1000 * (1 - ratio)), ratio)


class Scene:
    """A store at noon with some files, all written at that time."""

    def __init__(self, path: Path, files: int = 5, **changes: object) -> None:
        self.clock = FakeClock(NOON_MS)
        self.disk = Disk()
        self.path = path
        self.config = CONFIG.with_changes(**changes)
        self.store = self.open()
        number = 0
        while len(self.segments) < files:
            self.store.put(Message("orders", b"%08d" % number + BODY, keys=[f"k-{number}"])).check()
            number += 1
        self.store.wait_dispatched()
        self.age(0)

    def open(self) -> Store:
        return open_store(self.path, self.config, clock=self.clock, medium=self.disk)

    @property
    def segments(self) -> list[int]:
        """The files of the log, by number."""
        return [segment.base // SEGMENT_BYTES for segment in self.store._engine.parts.segments.segments]

    def age(self, by_ms: int) -> None:
        self.store.flush()  # else the flush thread may hold an old file in the moment in which it could go
        for segment in self.store._engine.parts.segments.segments:
            moment_s = (self.clock.now_ms() - by_ms) / 1000
            os.utime(segment.path, (moment_s, moment_s))

    def go_to(self, day: int, hour: int, minute: int = 0) -> None:
        self.clock.set(int(datetime(2026, 3, day, hour, minute).timestamp() * 1000))

    def rounds(self, count: int = 1) -> None:
        """Let rounds run to their ends."""
        for _ in range(count * 10_000 // 50):
            self.clock.advance(50)


@contextmanager
def scene(path: Path, files: int = 5, **changes: object) -> Iterator[Scene]:
    made = Scene(path, files, **changes)
    try:
        yield made
    finally:
        made.store.shutdown()
