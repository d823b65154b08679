"""Both disks under one name: what holds for the real one must hold for the faulty one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from flintlog.disk.faulty import FaultyMedium
from flintlog.disk.local import LocalMedium
from flintlog.disk.medium import Medium
from flintlog.disk.segment import Segment
from flintlog.disk.segment_queue import SegmentQueue

SEGMENT_SIZE = 16384

MakeQueue = Callable[..., SegmentQueue]


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

    def make(segment_count: int = 0) -> SegmentQueue:
        queue = SegmentQueue([folder / "log"], SEGMENT_SIZE, medium)
        queue.load()
        for number in range(segment_count):
            segment = queue.last_or_new()
            assert segment is not None
            fill(segment, f"{number:08d}".encode())
        return queue

    return make


def append(segment: Segment, data: bytes) -> None:
    tail = segment.tail
    buffer = tail.buffer
    assert isinstance(buffer, memoryview)
    buffer[tail.position : tail.position + len(data)] = data
    tail.position += len(data)


def fill(segment: Segment, data: bytes) -> None:
    append(segment, data)
    segment.tail.position = segment.size
