"""What looking commands say of stores that crashed, were damaged or replicated is what RocketMQ itself says of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.maintenance.verify.test_verify import TORN
from tests.store.golden_cases import lines

from flintlog.cli import main
from flintlog.maintenance.inspect.dump import FILE_KINDS, dump_file, encode_rows
from flintlog.maintenance.inspect.file_kinds import kind_of

Golden = Callable[[str], Path]
Run = Callable[..., Any]

AFTER = ["crash/after", *(f"torn/{variant}/after" for variant in TORN if variant not in ("shortfile", "flip"))]
"""Stores after RocketMQ has opened them again. One whose file is too short it does not open; at a flipped byte it ends
its log, and what lies after that is still shown here."""

MOST_DUMPED_BYTES = 64 << 20
"""A ledger's index has 160 MiB, of which all but the begin is a hole; golden groups have small ones."""


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*arguments: object, code: int = 0) -> Any:  # noqa: ANN401 - JSON is what it is
        assert main.run([*map(str, arguments), "-o", "json"]) == code
        return json.loads(capsys.readouterr().out)

    return call


def folder_of(name: str, golden: Golden) -> Path:
    case, _, rest = name.partition("/")
    return golden(case) / rest


@pytest.mark.parametrize("name", AFTER)
def test_messages_queues_and_keys(name: str, golden: Golden, run: Run) -> None:
    folder = folder_of(name, golden)
    store = folder / "store"
    shown = {row["physical_offset"]: row for row in run("cat", store, "--body", "none")}
    reported = lines(folder / "manifest.jsonl")
    assert set(shown) == {line["physicalOffset"] for line in reported}
    for line in reported:
        row = shown[line["physicalOffset"]]
        assert (row["topic"], row["queue_id"], row["size"]) == (line["topic"], line["queueId"], line["size"])
        assert (row["queue_offset"], row["store_timestamp"]) == (line["queueOffset"], line["storeTimestamp"])
    listed = {(row["topic"], row["queue_id"]): row for row in run("ls", "queues", store)}
    queues = [line for line in lines(folder / "queues.jsonl") if line["kind"] == "queue"]
    assert set(listed) == {(line["topic"], line["queueId"]) for line in queues}
    for line in queues:
        row = listed[line["topic"], line["queueId"]]
        assert (row["min_offset"], row["max_offset"]) == (line["min"], line["max"])
    topics = {row["topic"]: row["messages"] for row in run("ls", "topics", store)}
    assert sum(topics.values()) == sum(line["max"] - line["min"] for line in queues)
    asked = [line for line in lines(folder / "queries.jsonl") if line["kind"] == "key" and line["indexOffsets"]]
    for line in [line for line in asked if not line.get("indexType")][:4]:
        found = run("get", store, "--key", line["key"], "--topic", line["topic"], "--body", "none")
        assert found["message"]["physical_offset"] in line["indexOffsets"]


@pytest.mark.parametrize("case", ["broker", "mixed"])
def test_a_store_whose_log_is_a_ledger(case: str, golden: Golden, run: Run) -> None:
    """Written by RocketMQ's DLedger; the mixed one began as a plain store."""
    folder = golden("ledger") / case
    store, reported = folder / "store", lines(folder / "manifest.jsonl")
    shown = {row["physical_offset"]: row for row in run("cat", store, "--body", "none")}
    assert set(shown) == {line["physicalOffset"] for line in reported}
    for line in reported:
        row = shown[line["physicalOffset"]]
        assert (row["topic"], row["queue_id"], row["size"]) == (line["topic"], line["queueId"], line["size"])
        assert (row["queue_offset"], row["store_timestamp"]) == (line["queueOffset"], line["storeTimestamp"])
    listed = {(row["topic"], row["queue_id"]): row for row in run("ls", "queues", store)}
    queues = [line for line in lines(folder / "queues.jsonl") if line["kind"] == "queue"]
    assert {key: (row["min_offset"], row["max_offset"], row["type"]) for key, row in listed.items()} == {
        (line["topic"], line["queueId"]): (line["min"], line["max"], line["cqType"]) for line in queues
    }
    for line in (reported[0], reported[len(reported) // 2], reported[-1]):
        by_queue = ("--topic", line["topic"], "--queue", line["queueId"], "--offset", line["queueOffset"])
        for asked in (("--physical", line["physicalOffset"]), ("--id", line["msgId"]), by_queue):
            found = run("get", store, *asked, "--body", "none")["message"]
            assert (found["physical_offset"], found["message_id"]) == (line["physicalOffset"], line["msgId"])


@pytest.mark.parametrize("role", ["master", "slave"])
def test_both_sides_of_a_replication(role: str, golden: Golden, run: Run) -> None:
    reported = lines(golden("ha") / f"{role}.manifest.jsonl")
    shown = {row["physical_offset"]: row for row in run("cat", golden("ha") / role, "--body", "none")}
    assert {line["physicalOffset"] for line in reported} <= set(shown)
    for line in reported:
        row = shown[line["physicalOffset"]]
        assert (row["topic"], row["queue_id"], row["queue_offset"]) == (
            line["topic"],
            line["queueId"],
            line["queueOffset"],
        )


def test_every_kind_of_file_is_dumped_and_encoded_again(golden: Golden) -> None:
    """The largest file of each kind that golden stores have, the timer's wheel of 37 MiB among them."""
    largest: dict[str, Path] = {}
    for case in ("batch", "cqext", "delay", "multi", "plain", "transaction", "ha", "torn", "crash", "ledger"):
        folder = golden(case)
        for path in folder.rglob("*"):
            kind = kind_of(path.relative_to(folder))
            if path.is_file() and kind in FILE_KINDS and path.stat().st_size <= MOST_DUMPED_BYTES:
                largest[kind] = max(largest.get(kind, path), path, key=lambda file: file.stat().st_size)
    assert set(largest) == set(FILE_KINDS)
    for kind, path in largest.items():
        data = path.read_bytes()
        rows = list(dump_file(kind, memoryview(data)))
        assert encode_rows(rows) == data, path
        assert rows or not data
