"""Measures flintlog through its public methods."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from flintlog.bench.cold import measure_in_own_process
from flintlog.bench.tasks import (
    BATCH_COUNT,
    FIRST_PUT_COUNT,
    MIB,
    PUTS_A_LOOK,
    QUEUE_COUNT,
    RARE_EVERY,
    TOPIC,
    Measurement,
    Meter,
    Task,
    Window,
    body_of,
    percentiles_us,
    run_in_threads,
)
from flintlog.store.model.encoded_batch import encoded_batch
from flintlog.store.model.message import Message
from flintlog.store.model.stored_message import Arrival
from flintlog.store.open_store import open_store
from flintlog.store.options.store_config import StoreConfig
from flintlog.store.store import Store
from flintlog.version import VERSION

MOST_ARRIVALS = 4_000_000


class Ours:
    """flintlog as a contender."""

    name = "flintlog"
    version = VERSION

    def prepare(self, task: Task, window: Window, directory: Path) -> None:
        """Write what a task reads."""
        if task.kind == "get":
            _fill(directory, task, window.get_count)

    def measure(self, task: Task, window: Window, directory: Path) -> Measurement | None:
        """Run a task once in a directory that is its own."""
        return _RUNS[task.kind](task, window, directory)

    def close(self) -> None:
        """Nothing to close."""


def make_message(number: int, queue_id: int, body: bytes) -> Message:
    """The message that every put of a benchmark makes."""
    properties = {"UNIQ_KEY": f"7F0000010001{number}"}
    return Message(TOPIC, body, tags="TagA", keys=(f"key{number}",), queue_id=queue_id, properties=properties)


def fill_log(directory: Path, mib: int, *, rare_topic: str | None = None) -> None:
    """Write a log of a given size, for `rebuild`; one batch in a hundred is of the rare topic, if one is named."""
    record_bytes = 1024 + 200
    _fill(directory, Task(name="", kind="get"), mib * MIB // record_bytes, rare_topic)


def _config(task: Task) -> StoreConfig:
    synced = task.kind in ("synced", "synced-async")
    return StoreConfig(flush="sync" if synced else "async", put_lock=task.put_lock)


def _fill(directory: Path, task: Task, count: int, rare_topic: str | None = None) -> None:
    body = body_of(task)
    with open_store(directory, _config(task)) as store:
        for first in range(0, count, BATCH_COUNT):
            queue_id = first // BATCH_COUNT % QUEUE_COUNT
            numbers = range(first, min(first + BATCH_COUNT, count))
            messages = [make_message(number, queue_id, body) for number in numbers]
            if rare_topic is not None and first // BATCH_COUNT % RARE_EVERY == 0:
                messages = [msgspec.structs.replace(message, topic=rare_topic) for message in messages]
            store.put_batch(messages)
        store.wait_dispatched()


def _puts(task: Task, window: Window, directory: Path) -> Measurement:
    body = body_of(task)
    numbers = itertools.count()
    with open_store(directory, _config(task)) as store:

        def produce(deadline: float) -> int:
            put, done = store.put, 0
            while time.perf_counter() < deadline:
                for _ in range(PUTS_A_LOOK):
                    number = next(numbers)
                    done += put(make_message(number, number % QUEUE_COUNT, body)).status == 0
            return done

        return _produced(store, task.threads, window.seconds, produce)


def _batches(task: Task, window: Window, directory: Path) -> Measurement:
    body = body_of(task)

    def make_batch(first: int) -> list[Message]:
        queue_id = first // BATCH_COUNT % QUEUE_COUNT
        return [make_message(first + place, queue_id, body) for place in range(BATCH_COUNT)]

    ready = [encoded_batch(make_batch(queue_id * BATCH_COUNT)) for queue_id in range(QUEUE_COUNT)]
    with open_store(directory, _config(task)) as store:

        def produce(deadline: float) -> int:
            done = 0
            while time.perf_counter() < deadline:
                if task.ready:
                    receipts = store.put_encoded(ready[done // BATCH_COUNT % QUEUE_COUNT])
                else:
                    receipts = store.put_batch(make_batch(done))
                done += BATCH_COUNT if receipts.status == 0 else 0
            return done

        return _produced(store, 1, window.seconds, produce)


def _cold(task: Task, window: Window, directory: Path) -> Measurement:
    return measure_in_own_process(task, window.seconds, directory)


def _produced(
    store: Store, thread_count: int, seconds: float, produce: Callable[[float], int], waits_ns: Iterable[int] = ()
) -> Measurement:
    """Let threads put until the time is over, and wait until everything is visible. `produce` fills `waits_ns`."""
    counts: list[int] = []
    _first_puts(store)
    meter = Meter()
    deadline = meter.deadline(seconds)
    if thread_count == 1:
        counts.append(produce(deadline))
    else:
        run_in_threads(thread_count, lambda: counts.append(produce(deadline)))
    meter.stop()
    store.wait_dispatched()
    return meter.measurement(sum(counts), waits_ns)


def _first_puts(store: Store) -> None:
    for number in range(FIRST_PUT_COUNT):
        store.put(make_message(number, 1 + number % (QUEUE_COUNT - 1), b"first"))
    store.wait_dispatched()


def _synced(task: Task, window: Window, directory: Path) -> Measurement:
    body = body_of(task)
    numbers = itertools.count()
    waits_ns: list[int] = []
    with open_store(directory, _config(task)) as store:

        def produce(deadline: float) -> int:
            done = 0
            begin = time.perf_counter_ns()
            while begin < deadline * 1e9:
                number = next(numbers)
                done += bool(store.put(make_message(number, number % QUEUE_COUNT, body)))
                now = time.perf_counter_ns()
                waits_ns.append(now - begin)
                begin = now
            return done

        return _produced(store, task.threads, window.seconds, produce, waits_ns)


def _synced_async(task: Task, window: Window, directory: Path) -> Measurement:
    body = body_of(task)
    numbers = itertools.count()
    waits_ns: list[int] = []

    async def produce(store: Store, deadline: float) -> int:
        done = 0
        begin = time.perf_counter_ns()
        while begin < deadline * 1e9:
            number = next(numbers)
            done += bool(await store.aput(make_message(number, number % QUEUE_COUNT, body)))
            now = time.perf_counter_ns()
            waits_ns.append(now - begin)
            begin = now
        return done

    async def all_producers(store: Store, deadline: float) -> int:
        return sum(await asyncio.gather(*(produce(store, deadline) for _ in range(task.threads))))

    with open_store(directory, _config(task)) as store:

        def produce_all(deadline: float) -> int:
            return asyncio.run(all_producers(store, deadline))

        return _produced(store, 1, window.seconds, produce_all, waits_ns)


def _gets(task: Task, window: Window, directory: Path) -> Measurement:
    with open_store(directory, _config(task)) as store:
        meter = Meter()
        deadline = meter.deadline(window.seconds)
        count = 0
        while time.perf_counter() < deadline:
            for queue_id in range(QUEUE_COUNT):
                count += _read_queue(store, queue_id, deadline)
        meter.stop()
        return meter.measurement(count)


def _read_queue(store: Store, queue_id: int, deadline: float) -> int:
    offset = count = 0
    while time.perf_counter() < deadline:
        page = store.get(TOPIC, queue_id=queue_id, offset=offset, max_count=BATCH_COUNT)
        if not page.messages:
            break
        for message in page.messages:
            count += 1 if message.body else 0
        offset = page.next_offset
    return count


def _rebuild(task: Task, _window: Window, directory: Path) -> Measurement:
    meter = Meter()
    with open_store(directory, _config(task)) as store:
        store.wait_dispatched()
        meter.stop()
        count = sum(queue.max_offset for queue in store.queues())
        return meter.measurement(count)


def _visible(task: Task, window: Window, directory: Path) -> Measurement:
    body = body_of(task)
    put_ns: list[int] = []
    seen_ns: list[int] = []

    def arrived(arrival: Arrival) -> None:
        if arrival.queue_id == 0:
            seen_ns.append(time.perf_counter_ns())

    with open_store(directory, _config(task)) as store:
        store.on_arrival(arrived)

        def produce(deadline: float) -> int:
            begin = time.perf_counter()
            while time.perf_counter() < deadline and len(put_ns) < MOST_ARRIVALS:
                if task.rate:
                    _wait_until(begin + len(put_ns) / task.rate)
                message = make_message(len(put_ns), 0, body)
                put_ns.append(time.perf_counter_ns())
                store.put(message)
            return len(put_ns)

        measured = _produced(store, 1, window.seconds, produce)
        patience = time.monotonic() + 10
        while len(seen_ns) < len(put_ns) and time.monotonic() < patience:
            time.sleep(0.001)
    p50, p99, p999 = percentiles_us(seen - put for put, seen in zip(put_ns, seen_ns, strict=True))
    return msgspec.structs.replace(measured, p50_us=p50, p99_us=p99, p999_us=p999)


def _wait_until(due: float) -> None:
    """Sleep for most of the time and poll the clock for the rest: a sleep alone is late by more than is measured."""
    while (left := due - time.perf_counter()) > 0:
        if left > 0.0003:
            time.sleep(left - 0.0003)


_RUNS: dict[str, Callable[[Task, Window, Path], Measurement]] = {
    "put": _puts,
    "batch": _batches,
    "cold": _cold,
    "synced": _synced,
    "synced-async": _synced_async,
    "get": _gets,
    "rebuild": _rebuild,
    "visible": _visible,
}
