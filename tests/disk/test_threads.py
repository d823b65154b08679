"""Readers, a writer, a flusher and retention on one queue at once."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from pathlib import Path

from flintlog.disk.allocator import SegmentAllocator
from flintlog.disk.local import LocalMedium
from flintlog.disk.segment_queue import SegmentQueue

SIZE = 8192
COUNT = 30


def test_readers_see_whole_segments_while_others_come_and_go(tmp_path: Path) -> None:
    """With room for only four maps, so that segments are unmapped under the readers all the time."""
    medium = LocalMedium(max_maps=4)
    allocator = SegmentAllocator(medium)
    allocator.start()
    queue = SegmentQueue([tmp_path], SIZE, medium, allocator=allocator)
    failures: list[BaseException] = []
    done = threading.Event()

    def guarded(work: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            try:
                work()
            except BaseException as error:  # noqa: BLE001  # handed to the test's own thread
                failures.append(error)

        return run

    def read() -> None:
        chance = random.Random(1)
        while not done.wait(0.001):
            for segment in queue.segments[-8:]:
                selected = segment.select(0)
                if selected is None:
                    continue
                with selected:
                    expected = segment.base // SIZE % 251
                    at = chance.randrange(selected.size)
                    assert selected.view[at] == expected
                    assert selected.view[selected.size - 1] == expected

    def flush() -> None:
        while not done.wait(0.001):
            queue.flush_all()

    def expire() -> None:
        while not done.wait(0.001):
            if len(queue.segments) > 10:
                queue.delete_expired(0, now_ms=0, at_once=True, batch_max=1)

    threads = [threading.Thread(target=guarded(work)) for work in (read, read, flush, expire)]
    for thread in threads:
        thread.start()
    for number in range(COUNT):
        segment = queue.last_or_new()
        assert segment is not None
        for _ in range(4):
            assert segment.append(bytes([number % 251]) * (SIZE // 4))
    done.set()
    for thread in threads:
        thread.join()
    assert failures == []
    queue.flush_all()
    assert queue.flushed_where == COUNT * SIZE
    allocator.shut_down()
    assert [int(path.name) for path in sorted(tmp_path.iterdir())] == [segment.base for segment in queue.segments]
