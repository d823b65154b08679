"""Queues and index of the golden stores: what the Java store answered, and the bytes it wrote."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from flintlog.disk.media.medium import PAGE_BYTES
from flintlog.format import properties as names
from flintlog.format.properties import parse_properties
from flintlog.format.sys_flag import INNER_BATCH, takes_queue_offset
from flintlog.format.topics import LMQ_PREFIX
from flintlog.kernel import DispatchStop, FastDispatch, Row, scan
from flintlog.store.queues.consume_queue import ConsumeQueue
from flintlog.store.queues.logical_queue import Boundary
from flintlog.store.queues.queue_table import QueueTable

if TYPE_CHECKING:
    from tests.store.conftest import GoldenStore

CASES = ["plain", "batch", "transaction", "multi", "cqext"]
Opener = Callable[[str], "GoldenStore"]


def opened(store: GoldenStore) -> QueueTable:
    queues = store.queues()
    queues.load()
    queues.recover()
    queues.rebuild_offsets(0)
    return queues


@pytest.mark.parametrize("case", CASES)
def test_every_queue_and_entry_is_as_java_saw_it(case: str, golden_store: Opener) -> None:
    store = golden_store(case)
    queues = opened(store)
    entries: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for line in store.truth("queues", "entry"):
        entries.setdefault((line["topic"], line["queueId"]), []).append(line)
    lines = store.truth("queues", "queue")
    assert {(queue.topic, queue.queue_id) for queue in queues.all()} == {(q["topic"], q["queueId"]) for q in lines}
    for line in lines:
        queue = queues.get(line["topic"], line["queueId"])
        assert queue is not None
        assert queue.type.value == line["cqType"]
        assert (queue.min_offset, queue.max_offset) == (line["min"], line["max"])
        assert queue.max_physical_offset == line["maxPhysicOffset"]
        assert queues.offsets.next(queue.topic, queue.queue_id) == line["max"]
        expected = entries[queue.topic, queue.queue_id]
        assert read_all(queues, queue.topic, queue.queue_id) == [as_fields(entry) for entry in expected]


def read_all(queues: QueueTable, topic: str, queue_id: int) -> list[tuple[object, ...]]:
    queue = queues.get(topic, queue_id)
    assert queue is not None
    found: list[tuple[object, ...]] = []
    offset = queue.min_offset
    while (entries := queue.entries_from(offset)) is not None:
        with entries:
            assert entries.first_queue_offset == offset
            for unit in entries:
                ext = unit.extension
                extension = None if ext is None else (ext.tags_code, ext.store_timestamp, ext.bitmap.hex(), ext.size)
                found.append((*unit[:5], extension))
                offset = unit.queue_offset + unit.batch_count
    return found


def as_fields(line: dict[str, Any]) -> tuple[object, ...]:
    names = ("queueOffset", "physicalOffset", "size", "tagsCode", "batchNum")
    extension = None
    if "extSize" in line:
        extension = (line["extTagsCode"], line["extStoreTime"], line["extBitMap"] or "", line["extSize"])
    return (*(line[name] for name in names), extension)


@pytest.mark.parametrize("case", CASES)
def test_every_search_by_time_answers_as_java_did(case: str, golden_store: Opener) -> None:
    store = golden_store(case)
    queues = opened(store)
    lines = store.truth("queries", "time")
    assert lines
    for line in lines:
        queue = queues.get(line["topic"], line["queueId"])
        assert queue is not None
        boundary = Boundary(line["boundary"].lower())
        found = queue.offset_by_time(line["timestamp"], boundary, store.store_time, 0)
        assert found == line["queueOffset"], line


@pytest.mark.parametrize("case", CASES)
def test_every_query_by_key_answers_as_java_did(case: str, golden_store: Opener) -> None:
    store = golden_store(case)
    index = store.index()
    assert index.load(True, 0) == []
    lines = store.truth("queries", "key")
    assert lines
    for line in lines:
        offsets = index.query_offsets(
            line["topic"], line["key"], line["maxNum"], line["begin"], line["end"], line["indexType"]
        )
        last = index.last_header
        expected = (line["indexOffsets"], line["indexLastUpdateTimestamp"], line["indexLastUpdatePhyoffset"])
        assert (offsets, last.end_timestamp, last.end_physical_offset) == expected, line


@pytest.mark.parametrize("case", CASES)
def test_putting_every_record_again_gives_the_same_bytes(case: str, golden_store: Opener, tmp_path: Path) -> None:
    store = golden_store(case)
    queues = store.queues(tmp_path)
    index = store.index(tmp_path)
    bitmaps = bitmaps_of(store)
    for topic, queue_id, row, hashes in store.rows():
        if takes_queue_offset(row.sys_flag):
            put_entries(store, queues, topic, queue_id, row, bitmaps)
        assert index.put(hashes, row.physical_offset, row.store_timestamp)
    queues.sync.flush(0)
    index.flush()
    assert_same_files(store, tmp_path)


def bitmaps_of(store: GoldenStore) -> dict[int, bytes]:
    lines = store.truth("queues", "entry")
    return {line["physicalOffset"]: bytes.fromhex(line["extBitMap"]) for line in lines if line.get("extBitMap")}


def put_entries(
    store: GoldenStore, queues: QueueTable, topic: str, queue_id: int, row: Row, bitmaps: dict[int, bytes]
) -> None:
    queue = queues.get_or_create(topic, queue_id)
    properties = parse_properties(store.record(row.physical_offset).properties)
    offset, count = row.queue_offset, 1
    if row.sys_flag & INNER_BATCH:
        offset, count = int(properties[names.INNER_BASE]), int(properties[names.INNER_NUM])
    where = (row.physical_offset, row.size, row.tags_code)
    assert queue.put(*where, offset, row.store_timestamp, bitmaps.get(row.physical_offset), count)
    lights = properties.get(names.INNER_MULTI_DISPATCH)
    if lights is not None:
        offsets = properties[names.INNER_MULTI_QUEUE_OFFSET]
        for name, light_offset in zip(lights.split(","), offsets.split(","), strict=True):
            light_id = 0 if name.startswith(LMQ_PREFIX) else queue_id
            assert queues.get_or_create(name, light_id).put(*where, int(light_offset), row.store_timestamp)


def assert_same_files(store: GoldenStore, root: Path) -> None:
    for folder in ("consumequeue", "consumequeue_ext", "batchconsumequeue"):
        expected = {path.relative_to(store.root): path for path in (store.root / folder).rglob("*") if path.is_file()}
        made = {path.relative_to(root): path for path in (root / folder).rglob("*") if path.is_file()}
        assert made.keys() == expected.keys()
        for name, path in expected.items():
            assert made[name].read_bytes() == path.read_bytes(), name
    expected_index = [path.read_bytes() for path in sorted((store.root / "index").iterdir())]
    assert [path.read_bytes() for path in sorted((root / "index").iterdir())] == expected_index


@pytest.mark.parametrize("case", ["plain", "batch", "transaction"])
def test_fast_dispatch_writes_the_same_bytes_through_the_queue_ends(
    case: str, golden_store: Opener, tmp_path: Path
) -> None:
    store = golden_store(case)
    queues = store.queues(tmp_path)
    index = store.index(tmp_path)
    fast_dispatch = FastDispatch()
    slow_count = 0
    for base, data in store.log.items():
        start, at_index = 0, False
        while (stop := fast_dispatch.run(data, start, len(data), base, at_index)) in (
            DispatchStop.QUEUE,
            DispatchStop.INDEX,
        ):
            start, at_index = fast_dispatch.position, True
            if stop is DispatchStop.QUEUE:
                slow_count += 1
                step_slowly(queues, fast_dispatch, data, start, base)
            else:
                assert index.roll()
                fast_dispatch.set_index(*index.fast_dispatch_buffer())
    fast_dispatch.set_index(None)
    queue_files = [path for path in (tmp_path / "consumequeue").rglob("*") if path.is_file()]
    written = [len(path.read_bytes().rstrip(b"\0")) for path in queue_files]
    grown = sum((size // PAGE_BYTES).bit_length() for size in written)
    assert slow_count <= len(queue_files) + grown  # the slow step is needed only for a new file, and when it doubles
    index.flush()
    assert_same_files(store, tmp_path)


def step_slowly(queues: QueueTable, fast_dispatch: FastDispatch, data: bytes, start: int, base: int) -> None:
    size = int.from_bytes(data[start : start + 4], "big")
    found = scan(data, start, start + size, base)
    row = found.row(0)
    topic, queue_id = found.queues[row.queue]
    queue = queues.get_or_create(topic, queue_id)
    assert isinstance(queue, ConsumeQueue)
    assert queue.put(row.physical_offset, row.size, row.tags_code, row.queue_offset, row.store_timestamp)
    fast_dispatch.set_queue(topic, queue_id, queue.end)
