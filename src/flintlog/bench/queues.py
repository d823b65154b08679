"""Measures a store of very many queues: opening, idling and stopping.

The store's files are written directly, one message for each queue, because a store would spend its time on making
files:

    commitlog/     one file, a record for each queue
    consumequeue/  topics × queues directories with a file of one entry
    checkpoint, flintlog/stop.json   as a clean stop leaves them
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import msgspec

from flintlog import kernel
from flintlog.format.checkpoint import Checkpoint, encode_checkpoint
from flintlog.format.names import segment_name
from flintlog.format.queue_entry import QueueEntry, encode_queue_entry
from flintlog.kernel import Encoder, Tail
from flintlog.store.model.message import Message
from flintlog.store.open_store import open_store
from flintlog.store.options.store_config import StoreConfig
from flintlog.store.runtime.note_file import encode_note

TOPICS = 1_000
QUEUES_A_TOPIC = 100
CONFIG = StoreConfig(
    flush="async",
    mapped_file_size_commit_log=64 * 1024 * 1024,
    mapped_file_size_consume_queue=20 * 64,
    message_index_enable=False,
)
_TIME_MS = 1_700_000_000_000


class QueueCost(msgspec.Struct, frozen=True):
    """What a store of many queues costs its process."""

    queue_count: int
    open_seconds: float
    open_cpu_seconds: float
    map_count: int
    file_count: int
    idle_cpu_share: float
    put_seconds: float
    close_seconds: float


def topic_name(number: int) -> str:
    return f"topic-{number:04d}"


def make_many_queues(root: Path, topics: int = TOPICS, queues_a_topic: int = QUEUES_A_TOPIC) -> None:
    """Write a store with one message in each queue, as a clean stop leaves it."""
    data = _encode_log(topics, queues_a_topic)
    (root / "commitlog").mkdir(parents=True)
    _write(root / "commitlog" / segment_name(0), data, CONFIG.mapped_file_size_commit_log)
    scan = kernel.scan(data, 0, len(data), 0)
    for number in range(scan.count):
        row = scan.row(number)
        topic, queue_id = divmod(number, queues_a_topic)
        directory = root / "consumequeue" / topic_name(topic) / str(queue_id)
        directory.mkdir(parents=True)
        entry = encode_queue_entry(QueueEntry(row.physical_offset, row.size, row.tags_code))
        _write(directory / segment_name(0), entry, CONFIG.mapped_file_size_consume_queue)
    last = scan.row(scan.count - 1).physical_offset
    (root / "checkpoint").write_bytes(encode_checkpoint(Checkpoint(_TIME_MS, _TIME_MS, _TIME_MS, 0, 0, last)))
    (root / "lock").write_bytes(b"lock")
    (root / "flintlog").mkdir()
    stop = {"log_end": len(data), "queue_count": scan.count, "queue_file_count": scan.count, "index_file_count": 0}
    (root / "flintlog" / "stop.json").write_bytes(encode_note(stop))


def _encode_log(topics: int, queues_a_topic: int) -> bytes:
    encoder = Encoder(Message, store_host=CONFIG.store_host, max_message_size=4096)
    tail = Tail(bytearray(CONFIG.mapped_file_size_commit_log), 0)
    for topic in range(topics):
        for queue_id in range(queues_a_topic):
            encoder.append(tail, Message(topic_name(topic), b"one", queue_id=queue_id), 0, _TIME_MS)
    return bytes(memoryview(tail.buffer or b"")[: tail.position])


def _write(path: Path, data: bytes, size: int) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.truncate(size)


def measure_queues(root: Path, idle_seconds: float = 3.0) -> QueueCost:
    """Open the store, leave it alone for a while, put into some queues, stop it."""
    began, cpu = time.perf_counter(), time.process_time()
    store = open_store(root, CONFIG)
    try:
        opened, opened_cpu = time.perf_counter() - began, time.process_time() - cpu
        cpu = time.process_time()
        time.sleep(idle_seconds)
        idle = (time.process_time() - cpu) / idle_seconds if idle_seconds else 0.0
        maps, files = _line_count(Path("/proc/self/maps")), len(os.listdir("/proc/self/fd"))
        queue_count = len(store.queues())
        began = time.perf_counter()
        for number in range(QUEUES_A_TOPIC):
            store.put(Message(topic_name(0), b"two", queue_id=number))
        put_seconds = time.perf_counter() - began
    finally:
        began = time.perf_counter()
        store.shutdown()
    return QueueCost(queue_count, opened, opened_cpu, maps, files, idle, put_seconds, time.perf_counter() - began)


def _line_count(path: Path) -> int:
    with path.open("rb") as lines:
        return sum(1 for _ in lines)
