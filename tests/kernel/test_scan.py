from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from flintlog.kernel import INNER_BATCH, MULTI_DISPATCH, ScanStop

Make = Callable[..., Any]

DELAYS_MS = (1000, 5000)


def test_an_empty_range_ends_at_its_limit(kernel: ModuleType) -> None:
    found = kernel.scan(b"", 0, 0, 0)
    assert (found.count, found.end, found.reason, found.queues) == (0, 0, ScanStop.LIMIT, [])
    assert (found.rows.nbytes, found.hashes.nbytes) == (0, 0)


@pytest.mark.parametrize(("start", "stop"), [(-1, 0), (0, 11), (5, 4), (0, -1)])
def test_a_range_outside_of_the_buffer_is_refused(kernel: ModuleType, start: int, stop: int) -> None:
    for loop in (kernel.count_entries, lambda *args: kernel.scan(*args, 0), lambda *args: kernel.decode(*args, 0)):
        with pytest.raises(ValueError, match="not inside"):
            loop(bytes(10), start, stop)
    with pytest.raises(ValueError, match="not inside"):
        kernel.FastDispatch().run(bytes(10), start, stop, 0)


def test_rows_say_what_dispatch_needs(kernel: ModuleType, note: Make, write_log: Make) -> None:
    properties = {"UNIQ_KEY": "AC1100"}
    log = write_log(
        [
            note(b"hello", "TopicA", tags="TagA", keys=["k1", "", "k2"], queue_id=1, properties=properties),
            note(b"", "other", sys_flag=0x80),
            note(b"", "TopicA", queue_id=1, properties={"INNER_MULTI_DISPATCH": "a", "INNER_MULTI_QUEUE_OFFSET": "0"}),
            note(b"", "TopicA", queue_id=1, tags="rolled back", sys_flag=0xC),
        ],
        base=4096,
    )
    found = kernel.scan(log, 0, len(log), 4096)
    assert (found.count, found.end, found.reason) == (4, len(log), ScanStop.LIMIT)
    assert found.queues == [("TopicA", 1), ("other", 0)]
    first, second, third, fourth = (found.row(index) for index in range(4))
    assert (first.physical_offset, first.queue_offset, first.tags_code, first.marks) == (4096, 0, 2598919, 0)
    keys = ["TopicA#AC1100", "TopicA#k1", "TopicA#k2", "TopicA#T#TagA"]
    assert list(found.hashes[first.first_hash : first.first_hash + first.hash_count]) == list(
        map(kernel.index_hash, keys)
    )
    assert (second.physical_offset, second.queue, second.marks) == (4096 + first.size, 1, INNER_BATCH)
    assert (third.queue, third.queue_offset, third.marks) == (0, 1, MULTI_DISPATCH)
    assert (fourth.hash_count, fourth.sys_flag) == (0, 0xC)
    with pytest.raises(IndexError):
        found.row(4)


@pytest.mark.parametrize(
    ("level", "delay_ms"), [("1", 1000), ("+2", 5000), ("7", 5000), ("٢", 5000), ("0", None), ("-1", None), ("x", None)]
)
def test_a_waiting_message_has_its_delivery_time_for_tags(
    kernel: ModuleType, note: Make, write_log: Make, level: str, delay_ms: int | None
) -> None:
    log = write_log(
        [note(b"", topic, tags="TagA", properties={"DELAY": level}) for topic in ("SCHEDULE_TOPIC_XXXX", "t")]
    )
    found = kernel.scan(log, 0, len(log), 0, delay_levels_ms=DELAYS_MS)
    waiting, other = found.row(0), found.row(1)
    assert waiting.tags_code == (2598919 if delay_ms is None else waiting.store_timestamp + delay_ms)
    assert other.tags_code == 2598919
    assert kernel.scan(log, 0, len(log), 0).row(0).tags_code == 2598919


def test_the_scan_can_end_after_a_number_of_records(kernel: ModuleType, note: Make, write_log: Make) -> None:
    log = write_log([note(b"x", "t")] * 3)
    found = kernel.scan(log, 0, len(log), 0, max_count=2)
    assert (found.count, found.end, found.reason) == (2, len(log) // 3 * 2, ScanStop.LIMIT)
    assert kernel.scan(log, 0, len(log), 0, max_count=3).end == len(log)


def changed(log: bytes, at: int, value: bytes) -> bytes:
    return log[:at] + value + log[at + len(value) :]


@pytest.mark.parametrize(
    ("at", "value", "reason"),
    [
        (0, b"\0\0\0\x5a", ScanStop.BAD_LENGTH),
        (0, b"\x80\0\0\0", ScanStop.BAD_LENGTH),
        (0, b"\x7f\xff\xff\xff", ScanStop.SHORT),
        (4, b"\0\0\0\0", ScanStop.NO_RECORD),
        (4, bytes.fromhex("cbd43194"), ScanStop.BLANK),
        (4, bytes.fromhex("daa320ab"), ScanStop.BAD_LENGTH),
        (28, b"\0\0\0\0\0\0\0\1", ScanStop.BAD_OFFSET),
        (36, b"\0\0\0\x10", ScanStop.BAD_LENGTH),
        (84, b"\xff\xff\xff\xff", ScanStop.BAD_LENGTH),
        (84, b"\x7f\xff\xff\xff", ScanStop.BAD_LENGTH),
        (93, b"\x80", ScanStop.BAD_LENGTH),
        (93, b"\x7f", ScanStop.BAD_LENGTH),
        (95, b"\xff\xff", ScanStop.BAD_LENGTH),
        (88, b"J", ScanStop.BAD_CRC),
    ],
)
def test_a_bad_place_is_named(
    kernel: ModuleType, note: Make, write_log: Make, at: int, value: bytes, reason: ScanStop
) -> None:
    good = write_log([note(b"hello", "t"), note(b"hello", "t")])
    size = len(good) // 2
    bad = changed(good, size + at, value if at != 28 else (size + 1).to_bytes(8, "big"))
    found = kernel.scan(bad, 0, len(bad), 0, check_crc=True)
    assert (found.count, found.end, found.reason) == (1, size, reason)


def test_a_negative_length_does_not_lead_back_into_the_body(kernel: ModuleType, note: Make, write_log: Make) -> None:
    # Four bytes back from the topic the body says that all that follows are properties.
    log = write_log([note(b"hostile" + (130 + 4).to_bytes(2, "big"), "t" * 130)])
    bad = changed(log, 88 + 9, (-4 & 0xFFFF).to_bytes(2, "big"))
    assert kernel.scan(bad, 0, len(bad), 0).reason is ScanStop.BAD_LENGTH


def test_a_record_that_goes_past_the_range_is_short(kernel: ModuleType, note: Make, write_log: Make) -> None:
    log = write_log([note(b"hello", "t")])
    for stop in range(1, len(log)):
        found = kernel.scan(log, 0, stop, 0)
        assert (found.count, found.end, found.reason) == (0, 0, ScanStop.SHORT)


def test_a_record_inside_of_a_body_is_not_seen(kernel: ModuleType, note: Make, write_log: Make) -> None:
    inner = write_log([note(b"inner", "t")], base=88)
    log = write_log([note(inner, "t"), note(b"last", "t")])
    assert kernel.scan(log, 88, len(log), 0).count == 1  # it is a perfect fake
    found = kernel.scan(log, 0, len(log), 0, check_crc=True)
    assert (found.count, found.reason) == (2, ScanStop.LIMIT)


def test_an_empty_body_needs_no_sum(kernel: ModuleType, note: Make, write_log: Make) -> None:
    log = changed(write_log([note(b"", "t")]), 8, b"\1\2\3\4")
    assert kernel.scan(log, 0, len(log), 0, check_crc=True).count == 1


def test_a_damaged_topic_is_read_as_java_reads_it(kernel: ModuleType, note: Make, write_log: Make) -> None:
    log = write_log([note(b"", "日本")])
    bad = log.replace("日本".encode(), b"\xed\xa0\x80\xff\xe6\x97")
    assert kernel.scan(bad, 0, len(bad), 0).queues == [("\ufffd" * 3, 0)]


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        (b"", 0),
        (bytes(20), 0),
        (b"\0" * 8 + b"\0\0\0\1" + bytes(8), 20),
        ((b"\0" * 8 + b"\x7f\xff\xff\xff" + bytes(8)) * 2 + b"\xff" * 20, 40),
        ((b"\0" * 8 + b"\0\0\0\1" + bytes(8)) * 2 + b"\0" * 8 + b"\0\0\0\1", 40),
    ],
)
def test_entries_are_counted_up_to_the_first_invalid_one(kernel: ModuleType, entries: bytes, expected: int) -> None:
    assert kernel.count_entries(entries, 0, len(entries)) == expected
