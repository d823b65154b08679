"""Records that were put to a queue and have no place in it: prepared and rolled back ones."""

from __future__ import annotations


class UnqueuedPuts:
    """How many there were, and their bytes, by topic and queue. Written under the put lock, read by any thread."""

    def __init__(self) -> None:
        self.count = 0
        self.by_queue: dict[tuple[str, int], tuple[int, int]] = {}

    def add(self, queue: tuple[str, int], size: int) -> None:
        count, byte_count = self.by_queue.get(queue, (0, 0))
        self.by_queue[queue] = count + 1, byte_count + size
        self.count += 1
