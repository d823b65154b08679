"""A put maps files, and the map cache then unmaps others in the putting thread: an exception leaves no lock taken."""

from __future__ import annotations

from pathlib import Path

import pytest

from flintlog.disk.media.local import LocalMedium
from flintlog.disk.segments.segment import Segment
from tests.signals.interrupting import Interrupter
from tests.signals.test_every_point import interrupter

__all__ = ["interrupter"]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # the collector closes the map then
def test_an_interrupted_unmapping_leaves_the_lock_free(tmp_path: Path, interrupter: Interrupter) -> None:
    medium, path = LocalMedium(), tmp_path / f"{0:020d}"
    segment = Segment(path, 0, 4096, medium, raw=medium.create(path, 4096))
    segment.append(bytes(segment.size))
    segment.flush()
    interrupter.run(segment.try_unmap)
    hits = 0
    for point in range(1, interrupter.count + 1):
        segment.raw()
        hits += interrupter.run(segment.try_unmap, point)
        assert not segment._lock.locked(), f"point {point}, interrupted at\n{interrupter.where}"
    assert hits
