"""A log whose records are whole and whose numbers are not: the store opens, serves the rest, and takes puts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.store.small_store import ASYNC, bodies, fill, read_all

from flintlog import Message, StoreConfig, open_store
from flintlog.format.properties import encode_properties
from flintlog.format.record import encode_record, parse_record

pytestmark = pytest.mark.timeout(60)

LIGHT = ASYNC.with_changes(enable_lmq=True, enable_multi_dispatch=True)
BATCHES = ASYNC.with_changes(topic_queue_types={"batches": "BatchCQ"})
INNER_BATCH = 0x80
ODD_NUMBERS = (
    "-1",
    "-9223372036854775808",
    "9223372036854775807",
    "2147483648",
    "9" * 400,
    "",
    " 3",
    "+3",
    "3.0",
    "x",
    "٣",
)
ODD_NAMES = (
    ",",
    "%LMQ%a,",
    ",,,",
    "%LMQ%",
    "%LMQ%..",
    "%LMQ%a/b",
    "%LMQ%a,%LMQ%a",
    "orders",
    "%LMQ%" + "n" * 400,
    "\x00",
)


def append_records(path: Path, config: StoreConfig, *changes: dict[str, Any], spoilt: int | None = None) -> None:
    """Write records behind the log's end, as a crash of another writer would leave them; one may be spoilt."""
    with open_store(path, config, read_only=True) as store:
        end = store.max_physical_offset
    segment = path / "commitlog" / f"{0:020d}"
    data = bytearray(segment.read_bytes())
    first = parse_record(data)
    for number, change in enumerate(changes):
        record = encode_record(replace(first, physical_offset=end, **change))
        data[end : end + len(record)] = record
        if number == spoilt:
            data[end : end + 8] = b"\xff" * 8
        end += len(record)
    segment.write_bytes(data)
    (path / "abort").write_text("1")


def light(offsets: str, queues: str = "%LMQ%a") -> dict[str, Any]:
    names = {"INNER_MULTI_DISPATCH": queues, "INNER_MULTI_QUEUE_OFFSET": offsets}
    return {"queue_offset": 3, "properties": encode_properties(names)}


def inner(base: str, count: str) -> dict[str, Any]:
    properties = encode_properties({"INNER_BASE": base, "INNER_NUM": count})
    return {"topic_bytes": b"batches", "sys_flag": INNER_BATCH, "properties": properties}


@pytest.mark.parametrize(
    ("config", "change"),
    [
        pytest.param(ASYNC, {"topic_bytes": b"new", "queue_offset": 1 << 60}, id="a first offset beyond any file"),
        pytest.param(ASYNC, {"topic_bytes": b"new", "queue_offset": (1 << 63) - 1}, id="the last number there is"),
        pytest.param(ASYNC, {"queue_offset": -7}, id="an offset below zero"),
        pytest.param(ASYNC, {"queue_id": -1}, id="a queue id below zero"),
        pytest.param(ASYNC, {"topic_bytes": b".."}, id="a topic that leads out"),
        pytest.param(LIGHT, light("9" * 5000), id="a light offset of 5000 digits"),
        pytest.param(LIGHT, light("9" * 19), id="a light offset beyond any file"),
        pytest.param(BATCHES, inner("9" * 5000, "3"), id="a batch base of 5000 digits"),
        pytest.param(BATCHES, inner("9" * 19, "3"), id="a batch base beyond any file"),
        pytest.param(BATCHES, inner("0", "99999999"), id="a batch of too many"),
        pytest.param(BATCHES, inner("0", "0"), id="a batch of none"),
        *(pytest.param(BATCHES, inner("0", count), id=f"a batch of {count[:20]!a}") for count in ODD_NUMBERS),
        *(pytest.param(BATCHES, inner(base, "3"), id=f"a batch from {base[:20]!a} on") for base in ODD_NUMBERS),
        *(pytest.param(LIGHT, light(offset), id=f"a light offset of {offset[:20]!a}") for offset in ODD_NUMBERS),
        *(pytest.param(LIGHT, light("0,1", names), id=f"light queues {names[:20]!a}") for names in ODD_NAMES),
    ],
)
def test_a_record_with_impossible_numbers_stops_nothing(
    tmp_path: Path, config: StoreConfig, change: dict[str, Any]
) -> None:
    fill(tmp_path, config)
    append_records(tmp_path, config, change)
    for number in range(2):
        with open_store(tmp_path, config) as store:
            store.put(Message("orders", b"after %d" % number)).check()
            store.wait_dispatched()
            assert bodies(read_all(store, "orders"))[-1] == b"after %d" % number
            assert store._engine.dispatcher.failure is None
            assert store._engine.dispatcher.backlog_bytes == 0
            assert all(info.queue_id >= 0 for info in store.queues())
        with open_store(tmp_path, config) as store:
            assert not list(store.recovery)


def test_a_gap_is_filled_only_as_far_as_the_damage_can_explain_it(tmp_path: Path) -> None:
    fill(tmp_path, ASYNC)
    append_records(tmp_path, ASYNC, {"queue_offset": 3}, {"queue_offset": 1 << 40}, spoilt=0)
    with open_store(tmp_path, ASYNC) as store:
        assert "damaged-range" in [finding.id for finding in store.recovery]
        assert store.max_offset("orders", 0) < 10
