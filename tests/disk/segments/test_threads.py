"""Readers, a writer, a flusher and retention on one queue at once."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Self

from flintlog.disk.media.local import LocalMedium
from flintlog.disk.segments.allocator import SegmentAllocator
from flintlog.disk.segments.segment_queue import SegmentQueue

SIZE = 8192
COUNT = 30


class Crowd:
    """Threads that work on a queue until they are asked to stop; what goes wrong in them is kept."""

    def __init__(self, queue: SegmentQueue) -> None:
        self.queue = queue
        self.failures: list[BaseException] = []
        self._done = threading.Event()
        work = (self._read, self._read, self.queue.flush_all, self._expire)
        self._threads = [threading.Thread(target=self._repeat, args=(each,)) for each in work]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        for thread in self._threads:
            thread.join()

    def _repeat(self, work: Callable[[], None]) -> None:
        try:
            while not self._done.wait(0.001):
                work()
        except BaseException as error:  # noqa: BLE001  # handed to the test's own thread
            self.failures.append(error)

    def _read(self) -> None:
        for segment in self.queue.segments[-8:]:
            selected = segment.select(0)
            if selected is None:
                continue
            with selected:
                expected = segment.base // SIZE
                assert selected.view[random.randrange(selected.size)] == expected
                assert selected.view[selected.size - 1] == expected

    def _expire(self) -> None:
        if len(self.queue.segments) > 10:
            self.queue.delete_expired(0, now_ms=0, at_once=True, batch_max=1)


def test_readers_see_whole_segments_while_others_come_and_go(tmp_path: Path) -> None:
    """With room for only four maps, so that segments are unmapped under the readers all the time."""
    medium = LocalMedium(max_maps=4)
    allocator = SegmentAllocator(medium)
    allocator.start()
    queue = SegmentQueue([tmp_path], SIZE, medium, allocator=allocator)
    with Crowd(queue) as crowd:
        for number in range(COUNT):
            segment = queue.last_or_new()
            assert segment is not None
            for _ in range(4):
                assert segment.append(bytes([number]) * (SIZE // 4))
    assert crowd.failures == []
    queue.flush_all()
    assert queue.flushed_where == COUNT * SIZE
    allocator.shut_down()
    assert [int(path.name) for path in sorted(tmp_path.iterdir())] == [segment.base for segment in queue.segments]
