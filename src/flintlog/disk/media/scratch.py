"""Room in memory for what may become large and mostly does not."""

from __future__ import annotations

import mmap


def scratch_room(size: int) -> memoryview:
    """So many zero bytes; memory comes with what is written into them, not before."""
    return memoryview(mmap.mmap(-1, size))
