from __future__ import annotations

import struct
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from flintlog.errors import FormatError
from flintlog.kernel import DispatchStop

Make = Callable[..., Any]
Duck = Any  # of either kernel, or wrong on purpose

SLOTS, ENTRIES = 4, 8
INDEX_SIZE = 40 + 4 * SLOTS + 20 * ENTRIES


class Desk:
    """fast dispatch with one queue of topic `t` and an index file."""

    def __init__(self, kernel: ModuleType, *, entries: int = 10, **options: Duck) -> None:
        self.kernel = kernel
        self.fast_dispatch = kernel.FastDispatch(**options)
        self.queue = bytearray(20 * entries)
        self.tail = kernel.Tail(self.queue, 0)
        self.end = kernel.QueueEnd(self.tail)
        self.fast_dispatch.set_queue("t", 0, self.end)
        self.index = bytearray(INDEX_SIZE)
        self.fast_dispatch.set_index(self.index, SLOTS, ENTRIES)

    def run(self, log: bytes, start: int = 0, **options: Duck) -> DispatchStop:
        stop: DispatchStop = self.fast_dispatch.run(log, start, len(log), 0, **options)
        return stop

    def entries(self) -> list[tuple[int, ...]]:
        return list(struct.iter_unpack("!qiq", self.queue[: self.tail.position]))

    def index_count(self) -> int:
        return int.from_bytes(self.index[36:40], "big")


@pytest.fixture
def desk(kernel: ModuleType) -> Desk:
    return Desk(kernel)


def sizes(kernel: ModuleType, log: bytes) -> list[int]:
    found = kernel.scan(log, 0, len(log), 0)
    return [found.row(index).size for index in range(found.count)]


def test_entries_are_written_one_after_another(desk: Desk, note: Make, write_log: Make) -> None:
    log = write_log([note(b"x", "t", tags="TagA"), note(b"yy", "t")])
    assert desk.run(log) is DispatchStop.DONE
    one, two = sizes(desk.kernel, log)
    assert desk.entries() == [(0, one, 2598919), (one, two, 0)]
    assert (desk.fast_dispatch.position, desk.end.max_physical_offset) == (len(log), len(log))
    assert (desk.fast_dispatch.last_physical_offset, desk.fast_dispatch.done_count) == (one, 2)
    assert desk.fast_dispatch.last_store_timestamp == 1_700_000_000_700


def test_a_scan_is_applied_like_its_bytes(desk: Desk, note: Make, write_log: Make) -> None:
    log = write_log([note(b"x", "t", tags="TagA"), note(b"yy", "t")])
    assert desk.fast_dispatch.apply(desk.kernel.scan(log, 0, len(log), 0)) is DispatchStop.DONE
    assert len(desk.entries()) == 2
    assert (desk.fast_dispatch.row_index, desk.index_count()) == (2, 2)


def test_a_queue_that_is_not_known_stops_fast_dispatch(desk: Desk, note: Make, write_log: Make) -> None:
    log = write_log([note(b"x", "t"), note(b"x", "new"), note(b"x", "t")])
    assert desk.run(log) is DispatchStop.QUEUE
    assert (desk.fast_dispatch.position, desk.fast_dispatch.done_count) == (sizes(desk.kernel, log)[0], 1)
    assert desk.run(log, desk.fast_dispatch.position, at_index=True) is DispatchStop.DONE
    assert (desk.fast_dispatch.done_count, len(desk.entries())) == (3, 2)


def test_a_queue_that_was_taken_away_stops_fast_dispatch(desk: Desk, note: Make, write_log: Make) -> None:
    log = write_log([note(b"x", "t")])
    desk.fast_dispatch.set_queue("t", 0, None)
    assert desk.run(log) is DispatchStop.QUEUE
    desk.fast_dispatch.set_queue("t", 0, desk.end)
    assert desk.run(log) is DispatchStop.DONE


@pytest.mark.parametrize("trouble", ["no tail", "full", "released", "gap", "repeat", "all_slow"])
def test_a_record_that_is_not_the_next_stops_fast_dispatch(
    desk: Desk, note: Make, write_log: Make, trouble: str
) -> None:
    log = write_log([note(b"x", "t")])
    if trouble == "no tail":
        desk.end.tail = None
    elif trouble == "full":
        desk.tail.base, desk.tail.position = -200, 200
    elif trouble == "released":
        desk.tail.release()
    elif trouble == "gap":
        desk.tail.base = 20
    elif trouble == "repeat":
        desk.tail.position = 20
    else:
        desk.fast_dispatch.all_slow = True
    assert desk.run(log) is DispatchStop.QUEUE
    assert desk.queue == bytes(200)
    assert desk.fast_dispatch.apply(desk.kernel.scan(log, 0, len(log), 0)) is DispatchStop.QUEUE


def test_a_queue_offset_that_no_file_can_hold_stops_fast_dispatch(desk: Desk, note: Make, write_log: Make) -> None:
    log = bytearray(write_log([note(b"x", "t")]))
    log[20:28] = ((1 << 64) // 20 + 1).to_bytes(8, "big")  # times 20 it is 4, modulo 2^64
    desk.tail.base = 4
    assert desk.run(bytes(log)) is DispatchStop.QUEUE


def test_a_dispatched_record_is_skipped(desk: Desk, note: Make, write_log: Make) -> None:
    log = write_log([note(b"x", "t"), note(b"x", "t")])
    desk.end.max_physical_offset = len(log) // 2
    desk.tail.position = 20
    assert desk.run(log) is DispatchStop.DONE
    assert desk.entries() == [(0, 0, 0), (len(log) // 2, len(log) // 2, 0)]


@pytest.mark.parametrize(("sys_flag", "keys"), [(0x4, 1), (0xC, 0)])
def test_prepared_and_rolled_back_messages_have_no_entry(
    desk: Desk, note: Make, write_log: Make, sys_flag: int, keys: int
) -> None:
    log = write_log([note(b"x", "unknown", keys=["k"], sys_flag=sys_flag)])
    assert desk.run(log) is DispatchStop.DONE
    assert max(desk.index_count() - 1, 0) == keys


@pytest.mark.parametrize(("lmq", "stop"), [(True, DispatchStop.QUEUE), (False, DispatchStop.DONE)])
def test_multi_dispatch_is_for_the_caller(
    kernel: ModuleType, note: Make, write_log: Make, lmq: bool, stop: DispatchStop
) -> None:
    properties = {"INNER_MULTI_DISPATCH": "%LMQ%a", "INNER_MULTI_QUEUE_OFFSET": "0"}
    assert Desk(kernel, lmq=lmq).run(write_log([note(b"x", "t", properties=properties)])) is stop


def test_an_inner_batch_is_for_the_caller(desk: Desk, note: Make, write_log: Make) -> None:
    assert desk.run(write_log([note(b"x", "t", sys_flag=0x80)])) is DispatchStop.QUEUE


def test_an_index_that_fills_inside_of_a_record_goes_on_in_the_next(desk: Desk, note: Make, write_log: Make) -> None:
    log = write_log([note(b"x", "t", keys=[f"k{index}" for index in range(9)], tags="TagA")])
    assert desk.run(log) is DispatchStop.INDEX
    assert (desk.fast_dispatch.hash_index, desk.fast_dispatch.done_count, len(desk.entries())) == (7, 0, 1)
    second = bytearray(INDEX_SIZE)
    second[8:16], second[24:32] = desk.index[8:16], desk.index[24:32]  # as the full file ended
    desk.fast_dispatch.set_index(second, SLOTS, ENTRIES)
    assert desk.run(log, at_index=True) is DispatchStop.DONE
    assert (bytes(second[36:40]), desk.fast_dispatch.hash_index, desk.fast_dispatch.done_count) == (b"\0\0\0\4", 0, 1)


def test_without_an_index_file_the_first_key_stops_fast_dispatch(desk: Desk, note: Make, write_log: Make) -> None:
    log = write_log([note(b"x", "t"), note(b"x", "t", tags="a")])
    desk.fast_dispatch.set_index(None, 0, 0)
    assert desk.run(log) is DispatchStop.INDEX
    assert (desk.fast_dispatch.done_count, desk.fast_dispatch.hash_index) == (1, 0)
    desk.fast_dispatch.index_enabled = False
    assert desk.run(log, desk.fast_dispatch.position, at_index=True) is DispatchStop.DONE


def test_a_record_before_the_end_of_the_index_is_not_indexed_again(desk: Desk, note: Make, write_log: Make) -> None:
    log = write_log([note(b"x", "t", tags="a"), note(b"x", "t", tags="a")])
    desk.index[24:32] = (len(log) // 2).to_bytes(8, "big")
    assert desk.run(log) is DispatchStop.DONE
    assert desk.index_count() == 2


@pytest.mark.parametrize(
    ("rest", "stop"),
    [(bytes.fromhex("00000010cbd43194"), DispatchStop.BLANK), (bytes(8), DispatchStop.BAD), (b"\0", DispatchStop.BAD)],
)
def test_the_end_of_records(desk: Desk, note: Make, write_log: Make, rest: bytes, stop: DispatchStop) -> None:
    log = write_log([note(b"x", "t")])
    assert desk.run(log + rest) is stop
    assert desk.fast_dispatch.position == len(log)


def test_a_damaged_topic_is_known_by_its_text(desk: Desk, note: Make, write_log: Make) -> None:
    log = write_log([note(b"", "日")]).replace("日".encode(), b"\xff\xff\xff")
    assert desk.run(log) is DispatchStop.QUEUE
    for way in ("run", "apply"):
        tail = desk.kernel.Tail(bytearray(20), 0)
        desk.fast_dispatch.set_queue("\ufffd" * 3, 0, desk.kernel.QueueEnd(tail))
        stop = desk.run(log) if way == "run" else desk.fast_dispatch.apply(desk.kernel.scan(log, 0, len(log), 0))
        assert (stop, tail.position) == (DispatchStop.DONE, 20)


def test_many_queues(kernel: ModuleType, note: Make, write_log: Make) -> None:
    notes = [note(b"", f"topic-{index % 50}", queue_id=index % 7) for index in range(1000)]
    log = write_log(notes)
    fast_dispatch = kernel.FastDispatch()
    tails = {}
    for topic, queue_id in kernel.scan(log, 0, len(log), 0).queues:
        tails[topic, queue_id] = kernel.Tail(bytearray(400), 0)
        fast_dispatch.set_queue(topic, queue_id, kernel.QueueEnd(tails[topic, queue_id]))
    assert len(tails) == 350
    assert fast_dispatch.run(log, 0, len(log), 0) is DispatchStop.DONE
    assert sum(tail.position for tail in tails.values()) == 20 * 1000


@pytest.mark.parametrize(
    ("slots", "entries", "size"), [(0, 8, 400), (4, 0, 400), (4, 8, INDEX_SIZE - 1), (4, 1 << 33, 400)]
)
def test_an_index_file_of_another_size_is_refused(kernel: ModuleType, slots: int, entries: int, size: int) -> None:
    with pytest.raises(FormatError):
        kernel.FastDispatch().set_index(bytearray(size), slots, entries)
    with pytest.raises(FormatError):
        kernel.index_insert(bytearray(size), slots, entries, 1, 0, 0)


def test_an_index_file_like_javas(kernel: ModuleType) -> None:
    """The file of index_structures.md, written by RocketMQ 5.5.0: slots 16, indexes 8."""
    index = bytearray(40 + 4 * 16 + 20 * 8)
    keys = [
        ("TopicA#AC1100", 0),
        ("TopicA#k1", 0),
        ("TopicA#k2", 0),
        ("TopicA#T#TagA", 0),
        ("SCHEDULE_TOPIC_XXXX#T#TagA", 139),
        ("TopicA#P1", 303),
        ("TopicA#T#TagB", 764),
    ]
    for key, offset in keys:
        assert kernel.index_insert(index, 16, 8, kernel.index_hash(key), offset, 1_700_000_000_000 + 10 * offset)
    assert not kernel.index_insert(index, 16, 8, 1, 999, 1_800_000_000_000)
    header = struct.unpack("!qqqqii", index[:40])
    assert header == (1_700_000_000_000, 1_700_000_007_640, 0, 764, 6, 8)
    slots = struct.unpack("!16i", index[40:104])
    assert {place: entry for place, entry in enumerate(slots) if entry} == {3: 1, 7: 4, 8: 7, 9: 2, 14: 6, 15: 5}
    entries = list(struct.iter_unpack("!iqii", index[104:]))
    assert entries[1] == (1409419219, 0, 0, 0)
    assert entries[7] == (kernel.index_hash("TopicA#T#TagB"), 764, 7, 3)


@pytest.mark.parametrize(("slot", "previous", "used"), [(-1, 0, 1), (0, 0, 1), (3, 3, 0), (5, 5, 0), (6, 0, 1)])
def test_a_slot_that_names_no_entry_counts_as_empty(kernel: ModuleType, slot: int, previous: int, used: int) -> None:
    index = bytearray(INDEX_SIZE)
    index[36:40] = (5).to_bytes(4, "big")
    index[40:44] = slot.to_bytes(4, "big", signed=True)
    assert kernel.index_insert(index, SLOTS, ENTRIES, 8, 77, 0)
    entry = 40 + 4 * SLOTS + 20 * 5
    assert struct.unpack("!iqii", index[entry : entry + 20]) == (8, 77, 0, previous)
    assert struct.unpack("!iii", index[32:44]) == (used, 6, 5)


@pytest.mark.parametrize("hash", [-1, 1 << 31])
def test_a_hash_out_of_range_is_refused(kernel: ModuleType, hash: int) -> None:
    with pytest.raises(ValueError, match="not an index hash"):
        kernel.index_insert(bytearray(INDEX_SIZE), SLOTS, ENTRIES, hash, 0, 0)
