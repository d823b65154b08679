"""Which part of which file a bit lies in, and what it can cost at most."""

from __future__ import annotations

import struct
from bisect import bisect_right
from dataclasses import dataclass
from pathlib import Path

from flintlog.format.index_file import ENTRY_SIZE as INDEX_ENTRY_SIZE
from flintlog.format.index_file import HEADER_SIZE, SLOT_SIZE
from flintlog.format.ledger import ENTRY_HEAD_SIZE
from flintlog.format.queue_entry import BATCH_ENTRY_SIZE, ENTRY_SIZE
from tests.flips.scenes import PLAIN, Scene
from tests.flips.serving import NO_VICTIM, Place, Victim

RECORD_FIELDS = (
    (0, "size"),
    (4, "magic"),
    (8, "body CRC"),
    (12, "queue id"),
    (16, "flag"),
    (20, "queue offset"),
    (28, "physical offset"),
    (36, "sys flag"),
    (40, "born timestamp"),
    (48, "born host"),
    (56, "store timestamp"),
    (64, "store host"),
    (72, "reconsume times"),
    (76, "prepared transaction offset"),
    (84, "body size"),
    (88, "body"),
)
CHECKPOINT_FIELDS = ("log time", "queues' time", "index time", "master's offset", "confirmed offset", "queues' offset")
PADDING = "padding"
"""The rest of a file that is one page long, and of which only the head is used."""
_STARTS = [start for start, _ in RECORD_FIELDS]


@dataclass(frozen=True)
class Region:
    """A kind of file, a part of it, and what a bit there lies in."""

    kind: str
    part: str
    victim: Victim = NO_VICTIM


def region_of(scene: Scene, path: Path, at: int, content: bytes) -> Region:
    """Where the byte `at` of a file lies."""
    head = path.parts[0]
    if head == "commitlog" or (head.startswith("dledger") and path.parts[1] == "data"):
        return _of_log(scene, int(path.name) + at)
    if head == "consumequeue":
        return _of_queue(path, at, content)
    if head == "batchconsumequeue":
        return _of_batch_queue(path, at, content)
    if head == "consumequeue_ext":
        return _of_extension(scene, path, at, content)
    if head == "index":
        return Region("index", _part_of_index(at, content), Victim(is_index=True))
    if head == "checkpoint":
        return Region("checkpoint", CHECKPOINT_FIELDS[at // 8] if at < 48 else PADDING)
    if path.name == "timercheck":
        return Region("config/timercheck", "content" if at < 56 else PADDING)
    if head == "config":
        return Region(f"config/{path.name}", "text", Victim(is_offsets="onsumerOffset" in path.name))
    if head == "timerwheel":
        return Region("timer wheel", "slot" if any(content[at - at % 32 :][:32]) else "unused")
    if head == "timerlog":
        return Region("timer log", _part_of_unit(at, content))
    if head.startswith("dledger"):
        return Region(f"ledger: {path.parts[1]}", "content", Victim(hides_all=path.name == "checkpoint"))
    return Region(str(path), "content")


def _of_log(scene: Scene, physical_offset: int) -> Region:
    for offset, record in scene.truth.log.items():
        if offset <= physical_offset < offset + len(record):
            part = _part_of_record(record, physical_offset - offset)
            return Region("commit log", part, Victim(record=offset))
        if scene.is_ledger and offset - ENTRY_HEAD_SIZE <= physical_offset < offset:
            return Region("commit log", "ledger head", Victim(record=offset))
    size = PLAIN.mapped_file_size_commit_log
    base = physical_offset // size * size
    ends = [offset + len(record) for offset, record in scene.truth.log.items() if base <= offset < base + size]
    is_blank = ends and max(ends) <= physical_offset < max(ends) + 8 and base + size <= max(scene.truth.log)
    return Region("commit log", "blank" if is_blank else "unused")


def _part_of_record(record: bytes, at: int) -> str:
    if at < 88:
        return RECORD_FIELDS[bisect_right(_STARTS, at) - 1][1]
    place = 88 + int.from_bytes(record[84:88], "big")
    if at < place:
        return "body"
    if at == place:
        return "topic size"
    place += 1 + record[place]
    if at < place:
        return "topic"
    return "properties size" if at < place + 2 else "properties"


def _of_queue(path: Path, at: int, content: bytes) -> Region:
    topic, queue_id, base = path.parts[1], int(path.parts[2]), int(path.name)
    place: Place = topic, queue_id, (base + at) // ENTRY_SIZE
    entry = content[at - at % ENTRY_SIZE :][:ENTRY_SIZE]
    if not any(entry):
        return Region("consume queue", "unused")
    within = at % ENTRY_SIZE
    part = "offset" if within < 8 else "size" if within < 12 else "tags code"
    return Region("consume queue", part, Victim(places=frozenset({place})))


def _of_batch_queue(path: Path, at: int, content: bytes) -> Region:
    start = at - at % BATCH_ENTRY_SIZE
    if not any(content[start : start + BATCH_ENTRY_SIZE]):
        return Region("batch consume queue", "unused")
    base, count = struct.unpack_from("!qh", content, start + 28)
    places = frozenset((path.parts[1], int(path.parts[2]), offset) for offset in range(base, base + count))
    within = at % BATCH_ENTRY_SIZE
    names = (
        (8, "offset"),
        (12, "size"),
        (20, "tags code"),
        (28, "store time"),
        (36, "base offset"),
        (38, "count"),
        (42, "compacted offset"),
    )
    part = next((name for end, name in names if within < end), "reserved")
    return Region("batch consume queue", part, Victim(places=places))


def _of_extension(scene: Scene, path: Path, at: int, content: bytes) -> Region:
    topic, queue_id, base = path.parts[1], int(path.parts[2]), int(path.name)
    place = 0
    while place + 2 <= len(content):
        size = int.from_bytes(content[place : place + 2], "big", signed=True)
        if size <= 0:
            part = "end mark" if size < 0 and at < place + 2 else "unused"
            return Region("queue extension", part)
        if at < place + size:
            break
        place += size
    entry = struct.pack("!q", base + place - (1 << 63))
    folder = "consumequeue", topic, str(queue_id)
    queue = [(name, data) for name, data in scene.files.items() if name.parts[:3] == folder]
    places = frozenset(
        (topic, queue_id, (int(name.name) + start) // ENTRY_SIZE)
        for name, data in queue
        for start in range(0, len(data), ENTRY_SIZE)
        if data[start + 12 : start + 20] == entry
    )
    within = at - place
    names = ((2, "size"), (10, "tags code"), (18, "store time"), (20, "bitmap size"))
    part = next((name for end, name in names if within < end), "bitmap")
    return Region("queue extension", part, Victim(places=places))


def _part_of_unit(at: int, content: bytes) -> str:
    if not any(content[at - at % 52 :][:52]):
        return "unused"
    within = at % 52
    return "unit" if within < 40 else "topic hash" if within < 44 else "reserved"


def _part_of_index(at: int, content: bytes) -> str:
    slots_end = HEADER_SIZE + SLOT_SIZE * PLAIN.max_hash_slot_num
    if at < HEADER_SIZE:
        fields = ((8, "begin time"), (16, "end time"), (24, "begin offset"), (32, "end offset"), (36, "slots used"))
        return "header: " + next((name for end, name in fields if at < end), "count")
    if at < slots_end:
        return "slot"
    start = slots_end + (at - slots_end) // INDEX_ENTRY_SIZE * INDEX_ENTRY_SIZE
    if start == slots_end:
        return "entry 0"
    if not any(content[start : start + INDEX_ENTRY_SIZE]):
        return "unused"
    within = at - start
    return "entry: " + ("hash" if within < 4 else "offset" if within < 12 else "time" if within < 16 else "link")
