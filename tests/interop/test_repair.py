"""The real RocketMQ opens what was repaired, with every message that could be kept, and loses none when it crashes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.golden.make_ledger import await_leader, ledger_options
from tests.store.golden_cases import config_of, lines
from tests.store.ledger.test_golden_ledger import copied

from flintlog.maintenance.backup.backup import backup
from flintlog.maintenance.backup.restore import restore
from flintlog.maintenance.repair.repair import plan_repair, repair
from flintlog.maintenance.verify.verify import verify
from interop.java_store import JavaStore

Golden = Callable[[str], Path]

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("java"), pytest.mark.timeout(600)]


def java_on(root: Path, case: Path) -> JavaStore:
    reported = json.loads((case / "config.json").read_text())
    options = {name: str(value) for name, value in reported["set"].items()}
    return JavaStore(root, options, topic_queue_types=reported["topicQueueTypes"])


def seen_by_java(root: Path, case: Path, *, halt: bool) -> tuple[set[int], int]:
    """The offsets of all messages, and how many queue entries there are."""
    with java_on(root, case) as java:
        java.wait_dispatched()
        messages, entries = java.messages(), java.entries()
        if halt:
            java.halt()
    return {message.physical_offset for message in messages}, len(entries)


VARIANTS = [
    "flip",
    "garbage",
    "nocheckpoint",
    "nocq",
    "nocqindex",
    "noindex",
    "shortfile",
    "stale",
    "truncated",
    "zerolast",
]


@pytest.mark.parametrize("variant", VARIANTS)
def test_java_opens_a_repaired_store(variant: str, golden: Golden, tmp_path: Path) -> None:
    case, root = golden("torn"), tmp_path / "store"
    shutil.copytree(case / variant / "before" / "store", root)
    reported = {line["physicalOffset"] for line in lines(case / "manifest.jsonl")}
    if variant == "truncated":
        reported -= {message.physical_offset for message in plan_repair(root, config_of(case)).lost}
    repair(root, config_of(case))
    messages, entries = seen_by_java(root, case, halt=variant == "flip")
    assert messages == reported
    assert entries == len(reported)
    if variant == "flip":
        # After a crash RocketMQ reads bodies again: the stand-in must not end its log.
        assert seen_by_java(root, case, halt=False) == (reported, len(reported))
    assert verify(root).findings == []


def test_java_reads_over_a_stretch_that_was_filled(golden: Golden, tmp_path: Path) -> None:
    case, root = golden("plain"), tmp_path / "store"
    shutil.copytree(case / "store", root)
    reported = lines(case / "manifest.jsonl")
    last = [line for line in reported if line["physicalOffset"] >= 4 * 1048576]
    start, stop = last[5]["physicalOffset"] + 3, last[8]["physicalOffset"] + 40
    with (root / "commitlog" / f"{4 * 1048576:020d}").open("r+b") as file:
        file.seek(start - 4 * 1048576)
        file.write(bytes(stop - start))
    assert repair(root, config_of(case)).left == []
    assert seen_by_java(root, case, halt=True)[0] == {line["physicalOffset"] for line in reported}
    assert seen_by_java(root, case, halt=False)[0] == {line["physicalOffset"] for line in reported}


def test_java_serves_a_batch_queue_that_lost_a_batch(golden: Golden, tmp_path: Path) -> None:
    """The stand-in covers the queue offsets of all messages that it stands for."""
    case, root = golden("multi"), tmp_path / "store"
    shutil.copytree(case / "store", root)
    reported = lines(case / "manifest.jsonl")
    victim = [line for line in reported if int(line["properties"].get("INNER_NUM", "0")) > 1][5]
    path = max(path for path in (root / "commitlog").iterdir() if int(path.name) <= victim["physicalOffset"])
    with path.open("r+b") as file:
        file.seek(victim["physicalOffset"] - int(path.name) + 4)
        file.write(b"\xff\x0f\xff\x0f")
    assert repair(root, config_of(case)).left == []
    queues = {
        (line["topic"], line["queueId"]): line["max"]
        for line in lines(case / "queues.jsonl")
        if line["kind"] == "queue"
    }
    for halt in (True, False):
        with java_on(root, case) as java:
            java.wait_dispatched()
            assert {message.physical_offset for message in java.messages()} == {
                line["physicalOffset"] for line in reported
            }
            assert {(queue.topic, queue.queue_id): queue.max for queue in java.queues()} == queues
            if halt:
                java.halt()


@pytest.mark.parametrize("place", [4, 88 + 30])
def test_java_keeps_the_place_of_a_last_message_that_was_damaged(place: int, golden: Golden, tmp_path: Path) -> None:
    case, root = golden("plain"), tmp_path / "store"
    shutil.copytree(case / "store", root)
    reported = lines(case / "manifest.jsonl")
    last = reported[-1]["physicalOffset"]
    with (root / "commitlog" / f"{last // 1048576 * 1048576:020d}").open("r+b") as file:
        file.seek(last % 1048576 + place)
        file.write(b"\xff\x0f\xff\x0f")
    assert repair(root, config_of(case)).left == []
    offsets = {line["physicalOffset"] for line in reported}
    assert seen_by_java(root, case, halt=True) == (offsets, len(reported))
    assert seen_by_java(root, case, halt=False) == (offsets, len(reported))


def test_java_opens_a_ledger_that_was_restored(golden: Golden, tmp_path: Path) -> None:
    case = golden("ledger") / "broker"
    store = copied(case, tmp_path / "store")
    backup(store, tmp_path / "copy")
    restore(tmp_path / "copy", tmp_path / "new")
    reported = json.loads((case / "config.json").read_text())
    options = {name: str(value) for name, value in reported["set"].items()} | ledger_options()
    with JavaStore(tmp_path / "new", options, topic_queue_types=reported["topicQueueTypes"]) as java:
        await_leader(java)
        java.wait_dispatched()
        offsets = [message.physical_offset for message in java.messages()]
    assert offsets[:-1] == [line["physicalOffset"] for line in lines(case / "manifest.jsonl")]
    shutil.rmtree(tmp_path / "new")
