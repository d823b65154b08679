"""Every question that was asked of the Java store gets the Java store's answer."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.store.golden_cases import Line, config_of, host, lines

from flintlog import Store, open_store

CASES = ["plain", "batch", "transaction", "multi", "cqext", "delay", "crash/after"] + [
    f"torn/{name}/after"
    for name in (
        "flip",
        "garbage",
        "nocheckpoint",
        "nocq",
        "nocqindex",
        "noindex",
        "stale",
        "truncated",
        "zerolast",
    )
]


def case_folder(golden: Callable[[str], Path], name: str) -> Path:
    case, _, rest = name.partition("/")
    return golden(case) / rest


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest, golden: Callable[[str], Path], tmp_path: Path) -> Path:
    folder = tmp_path / "case"
    shutil.copytree(case_folder(golden, request.param), folder)
    return folder


def answer(store: Store, ask: Line) -> Line:
    topic = ask["topic"]
    if ask["kind"] == "key":
        asked = (ask["key"], ask["begin"], ask["end"], ask["maxNum"], ask["indexType"])
        found = store.query(topic, *asked, exact=False)
        return {"physicalOffsets": [message.physical_offset for message in found]}
    if ask["kind"] == "time":
        return {"queueOffset": store.offset_at(topic, ask["queueId"], ask["timestamp"], ask["boundary"])}
    page = store.get(topic, ask["queueId"], ask["offset"], ask["maxNum"], ask["filter"], exact=False)
    return {
        "status": page.status.name,
        "nextBeginOffset": page.next_offset,
        "minOffset": page.min_offset,
        "maxOffset": page.max_offset,
        "physicalOffsets": [message.physical_offset for message in page.messages],
        "bufferTotalSize": sum(message.size for message in page.messages),
    }


def test_every_query_is_answered_as_java_did(case: Path) -> None:
    asked = lines(case / "queries.jsonl")
    assert asked
    with open_store(case / "store", config_of(case), clock=lambda: 1_800_000_000_000) as store:
        for ask in asked:
            given = answer(store, ask)
            assert given == {name: ask[name] for name in given}, ask


def test_every_message_is_read_as_java_read_it(case: Path) -> None:
    with open_store(case / "store", config_of(case), read_only=True) as store:
        for expected in lines(case / "manifest.jsonl"):
            message = store.message_at(expected["physicalOffset"])
            assert message is not None
            assert message.topic == expected["topic"]
            assert message.queue_id == expected["queueId"]
            assert message.queue_offset == expected["queueOffset"]
            assert message.size == expected["size"]
            assert message.message_id == expected["msgId"]
            assert message.body_crc == expected["bodyCRC32"]
            assert (message.tags, message.tags_code, message.uniq_key) == (
                expected["tags"],
                expected["tagsCode"],
                expected["uniqKey"],
            )
            assert message.keys == [key for key in (expected["keys"] or "").split(" ") if key]
            assert (message.sys_flag, message.flag) == (expected["sysFlag"], expected["flag"])
            assert message.born_timestamp == expected["bornTimestamp"]
            assert message.store_timestamp == expected["storeTimestamp"]
            assert (message.born_host, message.store_host) == (host(expected["bornHost"]), host(expected["storeHost"]))
            assert message.reconsume_times == expected["reconsumeTimes"]
            assert message.prepared_transaction_offset == expected["preparedTransactionOffset"]
            assert message.properties == expected["properties"]
            assert hashlib.sha256(message.body).hexdigest() == expected["bodySha256"]
            assert message.magic == expected["magicCode"]
            assert hashlib.sha256(message.record).hexdigest() == expected["recordSha256"]


def test_bodies_that_java_compressed_are_unpacked_on_request(golden: Callable[[str], Path]) -> None:
    case = golden("batch")
    with open_store(case / "store", config_of(case), read_only=True) as store:
        expected = [line for line in lines(case / "manifest.jsonl") if "uncompressedSha256" in line]
        assert len(expected) == 80
        for line in expected:
            message = store.message_at(line["physicalOffset"])
            assert message is not None
            assert hashlib.sha256(message.plain_body()).hexdigest() == line["uncompressedSha256"]
