"""Stores that are dropped instead of closed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

_DROP_IN_A_CYCLE = """
import gc, sys
from pathlib import Path
from flintlog.disk.media.local import LocalMedium
from flintlog.disk.segments.segment_queue import SegmentQueue

class Owner:
    def __init__(self, number):
        self.queue = SegmentQueue([Path(sys.argv[1]) / str(number)], 8192, LocalMedium())
        segment = self.queue.last_or_new()
        segment.append(b"held")
        segment.give_up_tail = self.may_take
        self.selected = segment.select(0)

    def may_take(self):
        return False

for number in range(20):
    Owner(number)
gc.collect()
maps = [line for line in Path("/proc/self/maps").read_text().splitlines() if sys.argv[1] in line]
sys.exit(1 if maps else 0)
"""


def test_a_queue_dropped_in_a_cycle_is_collected_with_its_maps(tmp_path: Path) -> None:
    """In a child: some versions of CPython crash here when a buffer in the cycle is held the wrong way."""
    command = [sys.executable, "-c", _DROP_IN_A_CYCLE, str(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 0, result.stderr


def test_a_view_survives_the_cycle_it_came_from(tmp_path: Path) -> None:
    code = (
        _DROP_IN_A_CYCLE.split("for number", maxsplit=1)[0]
        + """
owner = Owner(0)
view = owner.selected.view
del owner
gc.collect()
sys.exit(0 if bytes(view) == b"held" else 1)
"""
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 0, result.stderr
