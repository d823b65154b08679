"""Measures a file written directly: about the least that a message can cost.

    synced, asyncio   a list of waiting producers, one write and one fdatasync for all of them
    ready batches     the bytes of a batch's records, one write each, into files that were allocated before the clock

Nothing is encoded or checked, and no queue and no index is kept: a batch costs only its write to the page cache.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from pathlib import Path

from flintlog.bench.ours import make_message
from flintlog.bench.tasks import BATCH_COUNT, MIB, Measurement, Meter, Task, Window, body_of
from flintlog.kernel import Encoder, Tail
from flintlog.store.model.encoded_batch import encoded_batch
from flintlog.store.model.message import Message

FILE_BYTES = 1024 * MIB
MIB_A_SECOND = 3072
"""Allocated before the clock runs: more than one core writes into new pages. The run ends when they are full."""


class FileByHand:
    """Files written by hand."""

    name = "file"
    version = "written by hand"

    def prepare(self, task: Task, window: Window, directory: Path) -> None:
        """It reads nothing."""

    def measure(self, task: Task, window: Window, directory: Path) -> Measurement | None:
        """Only synced puts by asyncio producers, and ready batches."""
        directory.mkdir(parents=True, exist_ok=True)
        if task.kind == "batch" and task.ready:
            return _write_batches(task, window, directory)
        if task.kind != "synced-async":
            return None
        file = os.open(directory / "log", os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o644)
        try:
            return asyncio.run(_group_commit(file, task, window))
        finally:
            os.close(file)

    def close(self) -> None:
        """Nothing to close."""


async def _group_commit(file: int, task: Task, window: Window) -> Measurement:
    loop = asyncio.get_running_loop()
    body = body_of(task)
    waiting: list[tuple[bytes, asyncio.Future[None]]] = []
    work = asyncio.Event()
    numbers = itertools.count()
    waits_ns: list[int] = []
    meter = Meter()
    deadline = meter.deadline(window.seconds)

    async def write_groups() -> None:
        while await work.wait():
            work.clear()
            group, waiting[:] = waiting[:], []
            await loop.run_in_executor(None, _write_and_sync, file, [record for record, _ in group])
            for _, future in group:
                future.set_result(None)

    async def produce() -> int:
        done = 0
        while (begin := time.perf_counter()) < deadline:
            future = loop.create_future()
            waiting.append((f"{next(numbers):020}".encode() + body, future))
            work.set()
            await future
            waits_ns.append(int((time.perf_counter() - begin) * 1e9))
            done += 1
        return done

    writer = asyncio.create_task(write_groups())
    count = sum(await asyncio.gather(*(produce() for _ in range(task.threads))))
    meter.stop()
    writer.cancel()
    return meter.measurement(count, waits_ns)


def _write_and_sync(file: int, records: list[bytes]) -> None:
    os.write(file, b"".join(records))
    os.fdatasync(file)


def _write_batches(task: Task, window: Window, directory: Path) -> Measurement:
    records = _records(task)
    count = max(1, int(window.seconds * MIB_A_SECOND * MIB) // FILE_BYTES)
    files = [_allocate(directory / f"{number}") for number in range(count)]
    places = ((file, at) for file in files for at in range(0, FILE_BYTES - len(records), len(records)))
    done = 0
    try:
        meter = Meter()
        deadline = meter.deadline(window.seconds)
        for file, at in places:
            if time.perf_counter() >= deadline:
                break
            os.pwrite(file, records, at)
            done += BATCH_COUNT
        meter.stop()
        return meter.measurement(done)
    finally:
        for file in files:
            os.close(file)


def _allocate(path: Path) -> int:
    file = os.open(path, os.O_CREAT | os.O_RDWR, 0o644)
    os.posix_fallocate(file, 0, FILE_BYTES)
    return file


def _records(task: Task) -> bytes:
    """The bytes that the log gets for one batch of the task."""
    body = body_of(task)
    batch = encoded_batch([make_message(place, 0, body) for place in range(BATCH_COUNT)])
    room = bytearray(2 * len(batch.body) + MIB)
    encoder = Encoder(Message, store_host="127.0.0.1:10911", max_message_size=len(room))
    offsets = encoder.append_encoded(Tail(room, 0), batch, 0, 0)
    assert offsets is not None
    return bytes(room[: offsets[-1]])
