"""The real RocketMQ opens what was repaired, with every message that could be kept, and loses none when it crashes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.store.golden_cases import config_of, lines

from flintlog.care.repair import plan_repair, repair
from flintlog.care.verify import verify
from flintlog.testing.java_store import JavaStore

Golden = Callable[[str], Path]

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("java"), pytest.mark.timeout(600)]


def java_on(root: Path, case: Path) -> JavaStore:
    told = json.loads((case / "config.json").read_text())
    options = {name: str(value) for name, value in told["set"].items()}
    return JavaStore(root, options, topic_queue_types=told["topicQueueTypes"])


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
    told = {line["physicalOffset"] for line in lines(case / "manifest.jsonl")}
    if variant == "truncated":
        told -= {message.physical_offset for message in plan_repair(root, config_of(case)).lost}
    repair(root, config_of(case))
    messages, entries = seen_by_java(root, case, halt=variant == "flip")
    assert messages == told
    assert entries == len(told)
    if variant == "flip":
        # After a crash RocketMQ reads bodies again: the stand-in must not end its log.
        assert seen_by_java(root, case, halt=False) == (told, len(told))
    assert verify(root).findings == []


def test_java_reads_over_a_stretch_that_was_filled(golden: Golden, tmp_path: Path) -> None:
    case, root = golden("plain"), tmp_path / "store"
    shutil.copytree(case / "store", root)
    told = lines(case / "manifest.jsonl")
    last = [line for line in told if line["physicalOffset"] >= 4 * 1048576]
    start, stop = last[5]["physicalOffset"] + 3, last[8]["physicalOffset"] + 40
    with (root / "commitlog" / f"{4 * 1048576:020d}").open("r+b") as file:
        file.seek(start - 4 * 1048576)
        file.write(bytes(stop - start))
    assert repair(root, config_of(case)).left == []
    assert seen_by_java(root, case, halt=True)[0] == {line["physicalOffset"] for line in told}
    assert seen_by_java(root, case, halt=False)[0] == {line["physicalOffset"] for line in told}
