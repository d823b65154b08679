from __future__ import annotations

import ipaddress
import random
from array import array
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest

from flintlog.derive.columns import to_record_batch
from flintlog.format.message_id import format_host
from flintlog.kernel import ScanStop, reference
from flintlog.store.log.column_scan import column_values

Make = Callable[..., Any]
Duck = Any  # of either kernel, or wrong on purpose


def rows(decoded: Duck) -> list[dict[str, Any]]:
    batch = to_record_batch(decoded)
    pa.Table.from_batches([batch]).validate(full=True)
    found: list[dict[str, Any]] = batch.to_pylist()
    for name, column in decoded.columns.items():  # the values without Arrow are the same ones
        if column.kind in ("int32", "int64", "utf8") and "." not in name:
            assert list(column_values(column)) == [row[name] for row in found]
    return found


def test_one_message(kernel: ModuleType, note: Make, write_log: Make) -> None:
    message = note(b"hello", "日志", tags="TagA", keys=["k1", "", "k2"], properties={"UNIQ_KEY": "u", "empty": ""})
    log = write_log([message, note(b"", "t", store_host="[2001:db8::5]:10911", born_host="10.1.2.3:4")], base=512)
    decoded = kernel.decode(log, 0, len(log), 512)
    first, second = rows(decoded)
    assert (decoded.count, decoded.end, decoded.reason) == (2, len(log), ScanStop.LIMIT)
    assert (first["topic"], first["body"], first["tags"], first["uniq_key"]) == ("日志", b"hello", "TagA", "u")
    assert (first["keys"], first["message_id"]) == (["k1", "k2"], "C0A8000900002A9F0000000000000200")
    assert first["properties"] == [("KEYS", "k1  k2"), ("UNIQ_KEY", "u"), ("TAGS", "TagA")]
    assert (second["tags"], second["uniq_key"], second["keys"], second["properties"]) == (None, None, [], [])
    assert (second["store_host"], second["born_host"]) == ("[2001:db8::5]:10911", "10.1.2.3:4")
    assert second["message_id"].startswith("20010DB8000000000000000000000005")


def test_nothing_decoded(kernel: ModuleType) -> None:
    decoded = kernel.decode(bytes(100), 0, 100, 0)
    assert (decoded.count, decoded.reason, rows(decoded)) == (0, ScanStop.NO_RECORD, [])


def test_without_bodies(kernel: ModuleType, note: Make, write_log: Make) -> None:
    log = write_log([note(b"hello", "t")])
    assert "body" not in kernel.decode(log, 0, len(log), 0, include_body=False).columns


def test_only_some_topics(kernel: ModuleType, note: Make, write_log: Make) -> None:
    log = write_log([note(b"", topic) for topic in ("a", "b", "日", "a", "c")])
    for topics, expected in (({b"a"}, ["a", "a"]), ({"日".encode(), b"c"}, ["日", "c"]), (set(), [])):
        decoded = kernel.decode(log, 0, len(log), 0, topics=frozenset(topics))
        assert [row["topic"] for row in rows(decoded)] == expected
        assert decoded.end == len(log)


@pytest.mark.parametrize(("limits", "count"), [({"max_rows": 2}, 2), ({"max_bytes": 250}, 2), ({"max_bytes": 1}, 1)])
def test_limits_cut_between_messages(
    kernel: ModuleType, note: Make, write_log: Make, limits: dict[str, int], count: int
) -> None:
    log = write_log([note(b"x" * 20, "t", queue_id=index) for index in range(5)])
    assert len(log) == 5 * 112
    position, found = 0, []
    while position < len(log):
        decoded = kernel.decode(log, position, len(log), 0, **limits)
        assert decoded.reason is ScanStop.LIMIT
        assert decoded.count <= count
        found += [row["queue_id"] for row in rows(decoded)]
        position = decoded.end
    assert found == list(range(5))


def test_a_repeated_name_has_its_last_value(kernel: ModuleType, note: Make, write_log: Make) -> None:
    log = write_log([note(b"", "t")], raw={0: b"a\x011\x02TAGS\x01x\x02a\x012\x02TAGS\x01y\x02\xff\x01p\x02\xfe\x01q"})
    (row,) = rows(kernel.decode(log, 0, len(log), 0))
    assert row["properties"] == [("a", "2"), ("TAGS", "y"), ("\ufffd", "q")]
    assert row["tags"] == "y"


def test_hosts_in_pythons_form(twin: ModuleType, note: Make, write_log: Make) -> None:
    rng = random.Random(3)
    addresses = [bytes(rng.choice((0, 0, 0, 1, 255)) for _ in range(16)) for _ in range(300)]
    notes = [
        note(b"", "t", born_host=f"[{ipaddress.IPv6Address(address)}]:{7 * index}")
        for index, address in enumerate(addresses)
    ]
    log = bytearray(write_log(notes))
    log[48 + 16 : 48 + 20] = b"\xff\xff\xff\xfe"  # a port that no socket has
    found = [row["born_host"] for row in rows(twin.decode(log, 0, len(log), 0))]
    packed = [address + (7 * index).to_bytes(4, "big") for index, address in enumerate(addresses)]
    packed[0] = addresses[0] + b"\xff\xff\xff\xfe"
    assert found == [format_host(host) for host in packed]
    assert rows(reference.decode(log, 0, len(log), 0)) == rows(twin.decode(log, 0, len(log), 0))


def test_only_the_columns_that_are_named_are_decoded(kernel: ModuleType, note: Make, write_log: Make) -> None:
    log = write_log([note(b"hello", "t", keys=["k"], tags="a")])
    decoded = kernel.decode(log, 0, len(log), 0, columns={"topic", "keys"})
    assert (sorted(decoded.columns), rows(decoded)) == (["keys", "keys.item", "topic"], [{"topic": "t", "keys": ["k"]}])


def test_records_are_decoded_by_their_places_up_to_one_that_is_wrong(
    kernel: ModuleType, note: Make, write_log: Make
) -> None:
    log = write_log([note(b"hello", topic) for topic in "abcd"], base=512)
    size = len(log) // 4
    decoded = kernel.decode_at(log, array("q", (3 * size, size)), 512, columns={"topic"})
    assert ([row["topic"] for row in rows(decoded)], decoded.end, decoded.reason) == (["d", "b"], 2, ScanStop.LIMIT)
    decoded = kernel.decode_at(log, array("q", (size, size + 1, 0)), 512)
    assert (decoded.count, decoded.end, decoded.reason) == (1, 1, ScanStop.NO_RECORD)
    decoded = kernel.decode_at(log, array("q", (0, size, 2 * size)), 512, max_rows=2)
    assert (decoded.count, decoded.end, decoded.reason) == (2, 2, ScanStop.LIMIT)
