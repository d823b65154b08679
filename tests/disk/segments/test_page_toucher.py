"""The thread that prepares pages for the writer."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from flintlog.disk.faulty.faulty_disk import FaultyMedium
from flintlog.disk.segments.page_toucher import PageToucher
from flintlog.disk.segments.segment import Segment

SIZE = 1 << 20


class Watched(Segment):
    """A segment that remembers how far it was touched."""

    __slots__ = ("touched",)

    def __init__(self, medium: FaultyMedium, path: Path) -> None:
        self.touched = 0
        super().__init__(path, 0, SIZE, medium, raw=medium.create(path, SIZE))

    def warm_ahead(self, ahead_bytes: int = 65536, *, for_syncs: bool = False) -> int:
        count = super().warm_ahead(ahead_bytes, for_syncs=for_syncs)
        self.touched += count
        return count


def watched() -> Watched:
    return Watched(FaultyMedium(), Path("/00000000000000000000"))


def test_it_stays_ahead_of_the_writer() -> None:
    segment = watched()
    toucher = PageToucher(lambda: segment, ahead_bytes=65536, busy_interval_ms=1, idle_interval_ms=1)
    toucher.start()
    for position in (0, 200_000, 900_000):
        segment.wrote_position = position
        end = time.monotonic() + 10
        while segment._touched_until < min(SIZE, position + 65536):
            assert time.monotonic() < end
            time.sleep(0.001)
    toucher.stop()
    assert segment.touched < SIZE, "what the writer has passed is not touched"


def test_there_is_nothing_to_do_without_a_segment_or_in_a_full_or_destroyed_one() -> None:
    assert PageToucher(lambda: None).touch_once() == 0
    segment = watched()
    segment.wrote_position = SIZE
    assert PageToucher(lambda: segment).touch_once() == 0
    gone = watched()
    gone.destroy(0, 0)
    assert PageToucher(lambda: gone).touch_once() == 0


@pytest.mark.parametrize(
    ("moved_bytes", "elapsed_s", "next_s"),
    [
        (0, 0.002, 0.1),
        (-5000, 0.002, 0.1),  # another segment, or one that was cut
        (1, 0.1, 0.1),
        (60_000, 0.01, 0.01),  # a sixth of the distance in this time: again after this time
        (600_000, 0.01, 0.002),
        (30_000, 0.01, 0.02),
    ],
)
def test_it_looks_as_often_as_the_writer_uses_pages_up(moved_bytes: int, elapsed_s: float, next_s: float) -> None:
    toucher = PageToucher(lambda: None, ahead_bytes=360_000, busy_interval_ms=2, idle_interval_ms=100)
    assert toucher.next_look_s(moved_bytes, elapsed_s) == pytest.approx(next_s)
