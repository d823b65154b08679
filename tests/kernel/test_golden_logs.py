"""The kernels over logs that RocketMQ wrote: they decode its messages and write its queue and index files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest

from flintlog.derive.columns import to_record_batch
from flintlog.kernel import DispatchStop, ScanStop

CASES = ("plain", "batch", "transaction")


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def segments(case: Path) -> dict[int, bytes]:
    return {int(path.name): path.read_bytes() for path in sorted((case / "store/commitlog").iterdir())}


@pytest.mark.parametrize("name", CASES)
def test_every_message_is_decoded(kernel: ModuleType, golden: Callable[[str], Path], name: str) -> None:
    case = golden(name)
    batches = []
    for base, data in segments(case).items():
        position, reason = 0, ScanStop.LIMIT
        while reason is ScanStop.LIMIT:
            decoded = kernel.decode(data, position, len(data), base, max_rows=500)
            position, reason = decoded.end, decoded.reason
            batches.append(to_record_batch(decoded))
    table = pa.Table.from_batches(batches)
    table.validate(full=True)
    for row, line in zip(table.to_pylist(), lines(case / "manifest.jsonl"), strict=True):
        assert row["message_id"] == line["msgId"]
        assert (row["topic"], row["queue_id"], row["queue_offset"]) == (
            line["topic"],
            line["queueId"],
            line["queueOffset"],
        )
        assert dict(row["properties"]) == line["properties"]
        assert (row["tags"], row["uniq_key"]) == (line.get("tags"), line.get("uniqKey"))
        assert " ".join(row["keys"]) == " ".join((line.get("keys") or "").split())
        assert (row["size"], row["body_crc"], row["magic"]) == (line["size"], line["bodyCRC32"], line["magicCode"])
        assert (row["flag"], row["sys_flag"]) == (line["flag"], line["sysFlag"])
        assert (row["store_timestamp"], row["born_timestamp"]) == (line["storeTimestamp"], line["bornTimestamp"])
        assert len(row["body"]) == line["bodyLength"]
        assert row["tags_code"] == line["tagsCode"]


@pytest.mark.parametrize("way", ["run", "apply"])
@pytest.mark.parametrize("name", CASES)
def test_fast_dispatch_writes_javas_files(
    kernel: ModuleType, golden: Callable[[str], Path], tmp_path: Path, name: str, way: str
) -> None:
    """Queues and index files are made here as the store makes them; their bytes must be RocketMQ's."""
    case = golden(name)
    options = json.loads((case / "config.json").read_text())["set"]
    desk = Desk(
        kernel, int(options["mappedFileSizeConsumeQueue"]), int(options["maxHashSlotNum"]), int(options["maxIndexNum"])
    )
    for base, data in segments(case).items():
        desk.take(data, base, way)
    for path in (case / "store/consumequeue").rglob("*"):
        if path.is_file():
            *_, topic, queue_id, start = path.parts
            assert desk.queues[topic, int(queue_id)][int(start)] == path.read_bytes()
    assert desk.indexes == [path.read_bytes() for path in sorted((case / "store/index").iterdir())]


class Desk:
    """Makes a file when fast dispatch asks for one."""

    def __init__(self, kernel: ModuleType, queue_file_size: int, slot_count: int, index_count: int) -> None:
        self.kernel = kernel
        self.fast_dispatch = kernel.FastDispatch()
        self.queue_file_size = queue_file_size
        self.slot_count, self.index_count = slot_count, index_count
        self.queues: dict[tuple[str, int], dict[int, bytearray]] = {}
        self.indexes: list[bytearray] = []

    def take(self, data: bytes, base: int, way: str) -> None:
        found = self.kernel.scan(data, 0, len(data), base)
        place, at_index = 0, False
        while True:
            if way == "run":
                stop = self.fast_dispatch.run(data, place, found.end, base, at_index)
                place = self.fast_dispatch.position
                now = self.kernel.scan(data, place, found.end, base, max_count=1)
                row, queue = (now.row(0), now.queues[0]) if now.count else (None, None)
            else:
                stop = self.fast_dispatch.apply(found, place, at_index)
                place = self.fast_dispatch.row_index
                row = found.row(place) if place < found.count else None
                queue = found.queues[row.queue] if row is not None else None
            if stop is DispatchStop.DONE:
                return
            assert stop in (DispatchStop.QUEUE, DispatchStop.INDEX)
            assert row is not None
            assert queue is not None
            at_index = stop is DispatchStop.INDEX
            if at_index:
                self.next_index()
            else:
                self.next_queue_file(queue, 20 * row.queue_offset)

    def next_queue_file(self, queue: tuple[str, int], start: int) -> None:
        assert start % self.queue_file_size == 0
        data = self.queues.setdefault(queue, {})[start] = bytearray(self.queue_file_size)
        self.fast_dispatch.set_queue(*queue, self.kernel.QueueEnd(self.kernel.Tail(data, start)))

    def next_index(self) -> None:
        index = bytearray(40 + 4 * self.slot_count + 20 * self.index_count)
        if self.indexes:
            end_time, end_offset = self.indexes[-1][8:16], self.indexes[-1][24:32]
            index[0:32] = end_time + end_time + end_offset + end_offset
        self.indexes.append(index)
        self.fast_dispatch.set_index(index, self.slot_count, self.index_count)
