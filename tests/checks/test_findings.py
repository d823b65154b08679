"""The checks without a disk: ranges looked at in any order and sent about, then judged together."""

from __future__ import annotations

import pickle
import random
import struct
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from flintlog import kernel
from flintlog.checks import queue_judgement
from flintlog.checks.derived_files import DataFile, DerivedFiles, QueueFilesView
from flintlog.checks.judge import LogFacts, RangeResult, check_range, judge, open_index, plan_ranges
from flintlog.checks.log_judgement import LogJudgement
from flintlog.checks.range_check import LogRange
from flintlog.derive.offset_order import OffsetGap, find_gaps
from flintlog.derive.stretches import Stretch, Stretches
from flintlog.format.index_file import IndexLayout
from flintlog.format.record import Record, body_crc, encode_record

Golden = Callable[[str], Path]


class Bytes:
    """Files in memory."""

    def __init__(self, root: Path) -> None:
        self.files = {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}

    def read(self, path: str, start: int, stop: int) -> memoryview:
        return memoryview(self.files[path])[start:stop]

    def log(self) -> list[DataFile]:
        names = sorted(name for name in self.files if name.startswith("commitlog/"))
        return [DataFile(name, int(Path(name).name), len(self.files[name])) for name in names]

    def queues(self) -> dict[tuple[str, int], QueueFilesView]:
        found: dict[tuple[str, int], list[DataFile]] = {}
        for name in sorted(self.files):
            folder, *rest = name.split("/")
            if folder == "consumequeue":
                topic, queue, base = rest
                found.setdefault((topic, int(queue)), []).append(DataFile(name, int(base), len(self.files[name])))
        return {key: QueueFilesView(*key, tuple(files)) for key, files in found.items()}


@pytest.mark.parametrize("seed", range(3))
def test_ranges_in_any_order_and_from_elsewhere_give_one_judgement(seed: int, golden: Golden) -> None:
    held = Bytes(golden("plain") / "store")
    derived = DerivedFiles(held.read, held.queues())
    names = sorted(name for name in held.files if name.startswith("index/"))
    index, findings = open_index(names, IndexLayout(500, 2000), held.read, lambda _: None)
    assert findings == []
    chance = random.Random(seed)
    ranges: list[LogRange] = []
    for file in held.log():
        view = held.read(file.path, 0, file.size)
        ranges += plan_ranges(view, file, file.size, chance.randrange(20_000, 400_000))
    chance.shuffle(ranges)
    results: list[RangeResult] = []
    for log_range in ranges:
        sent = pickle.loads(pickle.dumps(log_range))
        view = held.read(sent.file.path, 0, sent.file.size)
        results.append(pickle.loads(pickle.dumps(check_range(view, sent, derived, index))))
    results.sort(key=lambda result: result.range.first_physical_offset)
    judgement = judge(results, held.log(), derived, index, LogFacts(is_clean=True))
    assert judgement.findings == []
    assert (judgement.log.record_count, judgement.key_count) == (3000, 8858)


def test_gaps_of_a_queue_are_sought_once_for_all_stray_entries(golden: Golden, monkeypatch: pytest.MonkeyPatch) -> None:
    held = Bytes(golden("plain") / "store")
    queues = held.queues()
    key = min(queues)
    path = queues[key].files[-1].path
    data = bytearray(held.files[path])
    strays = range(kernel.written_end(data, 0, len(data)), len(data), 20)
    for place in strays:
        struct.pack_into(">qiq", data, place, 1 + place, 100, 7)
    held.files[path] = bytes(data)
    sought: list[int] = []

    def counted(records: Sequence[Stretch]) -> list[OffsetGap]:
        sought.append(len(records))
        return find_gaps(records)

    monkeypatch.setattr(queue_judgement, "find_gaps", counted)
    derived = DerivedFiles(held.read, queues)
    results: list[RangeResult] = []
    for file in held.log():
        view = held.read(file.path, 0, file.size)
        ranges = plan_ranges(view, file, file.size, 400_000)
        results += [check_range(view, log_range, derived, None) for log_range in ranges]
    judgement = judge(results, held.log(), derived, None, LogFacts(is_clean=True))
    (found,) = judgement.findings
    assert (found.id, found.size) == ("dangling-queue-entries", len(strays))
    assert len(strays) > 2 * len(queues)
    assert len(sought) <= len(queues)


def record_at(offset: int, size: int = 200, queue_offset: int = 0) -> bytes:
    body = bytes(size - 92)
    return encode_record(
        Record(topic_bytes=b"t", body=body, physical_offset=offset, queue_offset=queue_offset, body_crc=body_crc(body))
    )


def judged(segments: dict[int, bytes], *, known_end: int | None = None, clean: bool = True) -> list[str]:
    files = [DataFile(f"{base}", base, len(data)) for base, data in sorted(segments.items())]
    results = []
    for file in files:
        view = memoryview(segments[file.base])
        results += [check_range(view, part, None, None) for part in plan_ranges(view, file, file.size, 500)]
    return [
        f"{finding.id}@{finding.physical_offset}+{finding.size}"
        for finding in judge(results, files, None, None, LogFacts(clean, known_end=known_end)).findings
    ]


def log_of(count: int, room: int = 4000, base: int = 0) -> bytearray:
    return bytearray(b"".join(record_at(base + 200 * n, queue_offset=n) for n in range(count)).ljust(room, b"\0"))


def test_a_log_that_ends_in_zeros_is_whole() -> None:
    assert judged({0: bytes(log_of(10))}) == []
    assert judged({0: bytes(log_of(10)), 4000: bytes(4000)}) == []


def test_a_torn_tail_may_reach_into_the_next_file() -> None:
    data = log_of(10)
    data[1900:2000] = bytes(100)
    assert judged({0: bytes(data), 4000: bytes(4000)}) == ["torn-tail@1800+88"]
    assert judged({0: bytes(data), 4000: b"x".ljust(4000, b"\0")}) == ["torn-tail@1800+2201"]


def test_damage_is_what_an_intact_record_follows_however_far() -> None:
    data = log_of(10)
    data[404:408] = b"\xff" * 4
    assert judged({0: bytes(data)}) == ["damaged-range@400+200"]
    data = log_of(10)
    data[1000:] = bytes(len(data) - 1000)
    assert judged({0: bytes(data), 4000: bytes(log_of(3, base=4000))}) == ["damaged-range@1000+3000"]


def test_a_missing_file_is_named_with_its_bytes() -> None:
    whole = log_of(20)
    assert judged({0: bytes(whole), 8000: bytes(log_of(3, base=8000))}) == ["missing-log-file@4000+4000"]


def test_a_body_alone_costs_one_record() -> None:
    data = log_of(10)
    data[700] ^= 1
    assert judged({0: bytes(data)}) == ["damaged-record@600+200"]


def test_a_log_shorter_than_its_stop_is_found() -> None:
    assert judged({0: bytes(log_of(10))}, known_end=2000) == []
    assert judged({0: bytes(log_of(8))}, known_end=2000) == ["short-log@1600+400"]


def test_stretches_join_their_neighbours() -> None:
    stretches = Stretches()
    for first, stop in ((0, 3), (3, 7), (9, 10), (10, 12)):
        stretches.add(Stretch(first, stop, first * 100, stop * 100))
    assert [(one.first, one.stop, one.last_physical_offset) for one in stretches] == [(0, 7, 700), (9, 12, 1200)]


def test_damaged_offsets_are_those_inside_of_a_damage() -> None:
    log = LogJudgement(damages=[(10, 20), (20, 30), (50, 51)])
    damaged = {*range(10, 30), 50}
    assert {at for at in range(-1, 60) if log.is_damaged(at)} == damaged
    for start in range(60):
        for stop in range(start + 1, 60):
            assert log.is_damaged(start, stop) == bool(damaged & {*range(start, stop)})
