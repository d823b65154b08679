"""Both disks under one name: what holds for the real one must hold for the faulty one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from flintlog.disk.faulty.faulty_disk import FaultyMedium
from flintlog.disk.media.local import LocalMedium
from flintlog.disk.media.medium import Medium
from flintlog.disk.segments.segment_queue import SegmentQueue

SEGMENT_SIZE = 16384

MakeQueue = Callable[[int], SegmentQueue]


@pytest.fixture(params=["local", "faulty"])
def medium(request: pytest.FixtureRequest) -> Medium:
    return LocalMedium() if request.param == "local" else FaultyMedium()


@pytest.fixture
def folder(medium: Medium, tmp_path: Path) -> Path:
    medium.make_directories(tmp_path)
    return tmp_path


@pytest.fixture
def make_queue(medium: Medium, folder: Path) -> MakeQueue:
    """A queue of so many full segments; each begins with its number."""

    def make(segment_count: int) -> SegmentQueue:
        queue = SegmentQueue([folder / "log"], SEGMENT_SIZE, medium)
        queue.load()
        for number in range(segment_count):
            segment = queue.last_or_new()
            assert segment is not None
            segment.append(f"{number:08d}".encode())
            segment.wrote_position = segment.size
        return queue

    return make
