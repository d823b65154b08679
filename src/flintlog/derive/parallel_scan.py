"""Scans a stretch of the log on several threads and returns the results in order.

Batches are numbered as they are cut, scanned in parallel (the kernel releases the GIL while it scans) and returned in
order through the ring. Recovery, the concurrent dispatcher, verification and Spark share one definition of "scan":
`flintlog.kernel.scan`.
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass

from flintlog import kernel
from flintlog.derive.ordered_ring import OrderedRing
from flintlog.kernel import Scan


@dataclass(frozen=True, slots=True)
class Batch:
    """view[start:stop] of a segment whose first byte has the physical offset `base`."""

    view: memoryview
    start: int
    stop: int
    base: int


def scan_in_order(
    batches: Iterable[Batch], *, threads: int, check_crc: bool, delay_levels_ms: Sequence[int]
) -> Generator[tuple[Batch, Scan], None, None]:
    """Scan every batch; results come in the order of the batches. Closing the iterator stops the threads."""
    if threads <= 1:
        for batch in batches:
            yield batch, _scan(batch, check_crc, delay_levels_ms)
        return
    crew = _Crew(batches, threads, check_crc, delay_levels_ms)
    try:
        yield from crew
    finally:
        crew.stop()


def _scan(batch: Batch, check_crc: bool, delay_levels_ms: Sequence[int]) -> Scan:
    return kernel.scan(
        batch.view, batch.start, batch.stop, batch.base, check_crc=check_crc, delay_levels_ms=delay_levels_ms
    )


class _Crew:
    """The threads of one parallel scan."""

    def __init__(self, batches: Iterable[Batch], threads: int, check_crc: bool, delay_levels_ms: Sequence[int]) -> None:
        self._batches = enumerate(batches)
        self._cutting = threading.Lock()
        self._ring: OrderedRing[tuple[Batch, Scan] | BaseException | None] = OrderedRing(2 * threads)
        self._check_crc = check_crc
        self._delay_levels_ms = delay_levels_ms
        self._count = 0
        self._threads = [
            threading.Thread(target=self._work, name=f"flintlog-scan-{n}", daemon=True) for n in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def _work(self) -> None:
        while True:
            with self._cutting:
                number, batch = next(self._batches, (self._count, None))
                self._count = number + 1
            if batch is None:
                self._ring.put(number, None)
                return
            try:
                result: tuple[Batch, Scan] | BaseException = batch, _scan(batch, self._check_crc, self._delay_levels_ms)
            except BaseException as failure:  # noqa: BLE001 - it is raised where the results are taken
                result = failure
            if not self._ring.put(number, result):
                return

    def __iter__(self) -> Iterator[tuple[Batch, Scan]]:
        while True:
            result = self._ring.take()
            if result is None:
                return
            if isinstance(result, BaseException):
                raise result
            yield result

    def stop(self) -> None:
        self._ring.close()
        for thread in self._threads:
            thread.join()
