"""The tasks, and the values that a measurement gives.

Every put makes its message anew, with a key, a unique key and a tag, as a producer does; making it is part of the
time. Batches are measured twice: made anew, and encoded before the clock runs (as a client sends a batch). A `get`
returns messages as objects and accesses each body. A task of puts ends when everything is visible, and the CPU time of
the whole process counts until then, so that work in a background thread is not free. The first puts, which make the
files, are done before the clock runs; only cold batches (`cold.py`) have no such puts, on either side.
"""

from __future__ import annotations

import random
import statistics
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Literal

import msgspec

TOPIC = "BenchTopic"
QUEUE_COUNT = 8
BATCH_COUNT = 32
RARE_EVERY = 100
"""One batch in so many is of the rare topic, in logs that have one."""
MIB = 1024 * 1024

# Puts before the clock runs, into all queues but the first: a queue's first message makes its files.
FIRST_PUT_COUNT = 70

# The clock is read once in so many puts: at a microsecond a put, reading it each time would cost a tenth.
PUTS_A_LOOK = 64

Kind = Literal["put", "batch", "cold", "synced", "synced-async", "get", "rebuild", "visible"]


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """One thing to measure."""

    name: str
    kind: Kind
    body_bytes: int = 1024
    threads: int = 1
    rate: int = 0
    put_lock: Literal["blocking", "spinning"] = "blocking"
    ready: bool = False

    @property
    def by_latency(self) -> bool:
        """Whether the figure that counts is a time, not a rate."""
        return self.kind == "visible"


def body_of(task: Task) -> bytes:
    """Bytes that do not compress, the same each time."""
    return random.Random(1).randbytes(task.body_bytes)


class Window(msgspec.Struct, frozen=True):
    """How long a measurement takes, and how much it reads."""

    seconds: float = 2.0
    warm_up_seconds: float = 3.0
    rounds: int = 3
    rebuild_mib: int = 256
    ground_mib_a_second: int = 2048
    level_all: bool = False
    get_count: int = 200_000


QUICK = Window(seconds=0.3, warm_up_seconds=0.5, rounds=1, rebuild_mib=32, ground_mib_a_second=256, get_count=20_000)


class Measurement(msgspec.Struct, frozen=True, rename="camel"):
    """The result of one run of a task. The percentiles are of one put, or of the time from a put to its visibility."""

    count: int
    seconds: float
    visible_seconds: float
    cpu_seconds: float
    p50_us: float | None = None
    p99_us: float | None = None
    p999_us: float | None = None

    @property
    def per_second(self) -> float:
        """Messages a second, while they were being put or read."""
        return self.count / self.seconds if self.seconds > 0 else 0.0

    @property
    def visible_per_second(self) -> float:
        """Messages a second, until the last could be read through its queue."""
        return self.count / self.visible_seconds if self.visible_seconds > 0 else 0.0

    @property
    def cpu_us(self) -> float:
        """CPU time of the whole process a message, in microseconds."""
        return self.cpu_seconds * 1e6 / self.count if self.count else 0.0


def median(runs: Sequence[Measurement]) -> Measurement:
    """The median field by field, so that one slow round does not count."""

    def middle(values: Iterable[float | None]) -> float | None:
        known = [value for value in values if value is not None]
        return statistics.median(known) if known else None

    return Measurement(
        count=int(statistics.median(run.count for run in runs)),
        seconds=statistics.median(run.seconds for run in runs),
        visible_seconds=statistics.median(run.visible_seconds for run in runs),
        cpu_seconds=statistics.median(run.cpu_seconds for run in runs),
        p50_us=middle(run.p50_us for run in runs),
        p99_us=middle(run.p99_us for run in runs),
        p999_us=middle(run.p999_us for run in runs),
    )


class Meter:
    """Wall and CPU time of one run: made at its start, `stop` at the last put, `measurement` when all is visible."""

    __slots__ = ("_begin", "_cpu", "_stopped")

    def __init__(self) -> None:
        self._cpu = time.process_time()
        self._begin = self._stopped = time.perf_counter()

    def deadline(self, seconds: float) -> float:
        """When a run that began now and lasts so long is over, on `time.perf_counter`."""
        return self._begin + seconds

    def stop(self) -> None:
        """The last put, or the last page, is done."""
        self._stopped = time.perf_counter()

    def measurement(self, count: int, waits_ns: Iterable[int] = ()) -> Measurement:
        """Everything is visible."""
        now = time.perf_counter()
        cpu_seconds = time.process_time() - self._cpu
        p50, p99, p999 = percentiles_us(waits_ns)
        return Measurement(count, self._stopped - self._begin, now - self._begin, cpu_seconds, p50, p99, p999)


def percentiles_us(waits_ns: Iterable[int]) -> tuple[float | None, float | None, float | None]:
    """The median, 99th and 99.9th percentile, in microseconds."""
    ordered = sorted(waits_ns)
    if not ordered:
        return None, None, None
    last = len(ordered) - 1
    p50, p99, p999 = (ordered[min(last, int(len(ordered) * part))] / 1000 for part in (0.5, 0.99, 0.999))
    return p50, p99, p999


def run_in_threads(count: int, work: Callable[[], None]) -> None:
    """Do the same work in so many threads at once; returns when all are done."""
    threads = [threading.Thread(target=work) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


TASKS: tuple[Task, ...] = (
    Task(name="put 128 B", kind="put", body_bytes=128),
    Task(name="put 1 KiB", kind="put"),
    Task(name="ready batch 128 B", kind="batch", body_bytes=128, ready=True),
    Task(name="ready batch 1 KiB", kind="batch", ready=True),
    Task(name="new batch 128 B", kind="batch", body_bytes=128),
    Task(name="new batch 1 KiB", kind="batch"),
    Task(name="cold batch 128 B", kind="cold", body_bytes=128),
    Task(name="cold batch 1 KiB", kind="cold"),
    Task(name="synced put, 1 thread", kind="synced"),
    Task(name="synced put, 8 threads", kind="synced", threads=8),
    Task(name="synced put, 64 threads", kind="synced", threads=64),
    Task(name="synced put, 64 asyncio", kind="synced-async", threads=64),
    Task(name="get", kind="get"),
    Task(name="rebuild", kind="rebuild"),
    Task(name="visible, paced", kind="visible", rate=1_000),
    Task(name="visible, saturated", kind="visible"),
    Task(name="blocking lock, 4 threads", kind="put", body_bytes=128, threads=4),
    Task(name="spinning lock, 4 threads", kind="put", body_bytes=128, threads=4, put_lock="spinning"),
)
"""`docs/benchmarks.md` explains each."""
