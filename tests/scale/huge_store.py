"""A store of a hundred gibibytes that takes little room: sparse files, a few kibibytes of records in each.

    commitlog        101 files of 1 GiB; 100 records, then a blank to the end; the last one goes on for some hundred
    consumequeue     100 topics with 100 queues each, one entry a queue, files of the default size
    checkpoint       covers everything

It is a legal log, so an opening has to find its end, and may read all of it or not.
"""

from __future__ import annotations

import os
from pathlib import Path

from flintlog import Message, kernel
from flintlog.format.checkpoint import Checkpoint, encode_checkpoint
from flintlog.format.names import encode_abort, segment_name
from flintlog.format.queue_entry import QueueEntry, encode_queue_entry
from flintlog.format.record import encode_blank
from flintlog.kernel import Encoder, Tail
from flintlog.store.options.store_config import StoreConfig
from flintlog.store.runtime.note_file import encode_note

GIB = 1 << 30
SEGMENT_BYTES = GIB
FULL_SEGMENTS = 100
TOPICS = 100
QUEUES_A_TOPIC = 100
QUEUES = TOPICS * QUEUES_A_TOPIC
LAST_RECORDS = 300
RECORDS = FULL_SEGMENTS * QUEUES_A_TOPIC + LAST_RECORDS
FIRST_TIME_MS = 1_700_000_000_000

CONFIG = StoreConfig(max_hash_slot_num=50_000, max_index_num=200_000)


def topic_name(number: int) -> str:
    return f"topic-{number:03d}"


def make_huge_store(root: Path) -> None:
    """Write the store as a clean stop leaves it, without `flintlog/stop.json`."""
    (root / "commitlog").mkdir(parents=True)
    last = (0, 0)
    for number in range(FULL_SEGMENTS + 1):
        last = _make_segment(root, number)
    offset, timestamp = last
    values = Checkpoint(timestamp, timestamp, timestamp, 0, 0, offset)
    (root / "checkpoint").write_bytes(encode_checkpoint(values))


def mark_clean(root: Path) -> None:
    """As our own clean stop leaves it."""
    (root / "abort").unlink(missing_ok=True)
    (root / "flintlog").mkdir(exist_ok=True)
    end = FULL_SEGMENTS * SEGMENT_BYTES + _written_bytes(root)
    stop = {"log_end": end, "queue_count": QUEUES, "index_file_count": 0}
    (root / "flintlog" / "stop.json").write_bytes(encode_note(stop))


def mark_killed(root: Path) -> None:
    """As a process that was killed leaves it."""
    (root / "flintlog" / "stop.json").unlink(missing_ok=True)
    (root / "abort").write_bytes(encode_abort(1))


def mark_clean_by_java(root: Path) -> None:
    """A clean stop that left no word about index files: the index has to be looked for in the log."""
    (root / "flintlog" / "stop.json").unlink(missing_ok=True)
    (root / "abort").unlink(missing_ok=True)


def _written_bytes(root: Path) -> int:
    data = _head(root / "commitlog" / segment_name(FULL_SEGMENTS * SEGMENT_BYTES))
    return kernel.scan(data, 0, len(data), FULL_SEGMENTS * SEGMENT_BYTES).end


def _head(path: Path) -> bytes:
    with open(path, "rb") as file:
        return file.read(1 << 20)


def _make_segment(root: Path, number: int) -> tuple[int, int]:
    """One file of the log and the queues that begin in it; offset and time of its last record."""
    base, is_last = number * SEGMENT_BYTES, number == FULL_SEGMENTS
    tail = Tail(bytearray(1 << 20), base)
    encoder = Encoder(Message, store_host="127.0.0.1:10911", max_message_size=4096)
    timestamp = FIRST_TIME_MS + number * 60_000
    topic = topic_name(0 if is_last else number)
    for place in range(LAST_RECORDS if is_last else QUEUES_A_TOPIC):
        queue_id = 0 if is_last else place
        message = Message(topic, b"body %d" % place * 10, queue_id=queue_id)
        encoder.append(tail, message, place + 1 if is_last else 0, timestamp)
    assert isinstance(tail.buffer, memoryview | bytearray)
    data = bytes(tail.buffer[: tail.position])
    blank = b"" if is_last else encode_blank(SEGMENT_BYTES - len(data))
    _write_sparse(root / "commitlog" / segment_name(base), 0, data + blank, SEGMENT_BYTES)
    scan = kernel.scan(data, 0, len(data), base)
    _make_queues(root, topic, scan, is_last)
    return scan.row(scan.count - 1).physical_offset, timestamp


def _make_queues(root: Path, topic: str, scan: kernel.Scan, is_last: bool) -> None:
    entries = [QueueEntry(row.physical_offset, row.size, row.tags_code) for row in map(scan.row, range(scan.count))]
    encoded = [encode_queue_entry(entry) for entry in entries]
    size = CONFIG.mapped_file_size_consume_queue
    if is_last:
        _write_sparse(root / "consumequeue" / topic / "0" / segment_name(0), 20, b"".join(encoded), size)
        return
    for queue_id, entry in enumerate(encoded):
        directory = root / "consumequeue" / topic / str(queue_id)
        directory.mkdir(parents=True)
        _write_sparse(directory / segment_name(0), 0, entry, size)


def _write_sparse(path: Path, position: int, data: bytes, size: int) -> None:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        os.pwrite(descriptor, data, position)
        os.truncate(descriptor, size)
    finally:
        os.close(descriptor)
