"""Rebuilding a damaged log: damage costs what it covers, and the bytes are those of an opening."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.pipeline.building.test_rebuild import assert_same, embedded, without_derived
from tests.pipeline.conftest import fill, small_config

from flintlog import Message, open_store
from flintlog.derive.splits import LOOK_BACK_BYTES
from flintlog.format.record import Record, body_crc, encode_record
from flintlog.kernel import scan
from flintlog.pipeline.building import rebuild_order, rebuild_place
from flintlog.pipeline.building.rebuild_build import QueueTask
from flintlog.pipeline.building.rebuild_place import Step, run_step
from flintlog.pipeline.rebuild import rebuild

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


BODY_AT = 88
"""Where the body of a record with IPv4 hosts begins."""


def places(store: Path) -> list[tuple[Path, int, int]]:
    """File, place and size of every record of a log."""
    found = []
    for path in sorted((store / "commitlog").iterdir()):
        data = path.read_bytes()
        seen = scan(data, 0, len(data), int(path.name))
        rows = [seen.row(number) for number in range(seen.count)]
        found += [(path, row.physical_offset - int(path.name), row.size) for row in rows]
    return found


def overwrite(path: Path, place: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(place)
        file.write(data)


def damage_bodies(copy: Path, rng: random.Random) -> None:
    """Only bodies: every record keeps its place."""
    long = [each for each in places(copy) if each[2] > 400]
    for path, place, _ in rng.sample(long[::2], 8):
        overwrite(path, place + BODY_AT + 2, b"\xff\xfe")


def damage_heads(copy: Path, rng: random.Random) -> None:
    """Records that are lost, some beside each other."""
    found = places(copy)
    for number in rng.sample(range(len(found) - 3), 6):
        for path, place, _ in found[number : number + rng.randint(1, 3)]:
            overwrite(path, place + 4, b"\0\0\0\0")


def damage_stretches(copy: Path, rng: random.Random) -> None:
    """Bytes anywhere, over the ends of splits, over the end of a file, over a file's beginning."""
    files = sorted((copy / "commitlog").iterdir())
    size = files[0].stat().st_size
    overwrite(files[0], rng.randrange(10_000, 30_000), rng.randbytes(12_000))
    overwrite(files[0], size - 9000, bytes(9000))
    overwrite(files[1], 0, rng.randbytes(rng.randint(1, 3000)))


def damage_offsets(copy: Path, rng: random.Random) -> None:
    """Queue offsets that the log contradicts: no CRC covers them."""
    for path, place, _ in rng.sample(places(copy), 5):
        overwrite(path, place + 20, rng.choice([0, 3, 77, 1 << 40]).to_bytes(8, "big"))


def damage_the_tail(copy: Path, rng: random.Random) -> None:
    """The last records: nothing intact follows, so the log ends before them."""
    path, place, _ = places(copy)[-3]
    overwrite(path, place + rng.randint(4, 8), bytes(4000))


SCENES = (damage_bodies, damage_heads, damage_stretches, damage_offsets, damage_the_tail)


@pytest.mark.parametrize("extended", [False, True], ids=["plain", "extension"])
@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_a_damaged_log_is_rebuilt_in_parallel_as_an_opening_would(
    spark: SparkSession, tmp_path: Path, scene: Callable[[Path, random.Random], None], extended: bool
) -> None:
    config = small_config(enable_consume_queue_ext=extended)
    copy = without_derived(fill(tmp_path / "store", enable_consume_queue_ext=extended), tmp_path / "copy")
    (copy / "abort").write_text("1")  # an opening then judges the last records as a rebuild does
    scene(copy, random.Random(scene.__name__))
    expected = embedded(copy, tmp_path / "embedded", config)
    report = rebuild(spark, copy, config=config, split_bytes=7_000)
    assert_same(copy, expected)
    assert report.split_count > 10
    if scene is damage_bodies:
        assert report.serial_queues == []
        assert len(report.findings) == 8
    elif scene is not damage_the_tail:
        assert report.findings or report.serial_queues


def test_only_the_queues_whose_offsets_do_not_follow_are_built_serially(
    spark: SparkSession, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = without_derived(store, tmp_path / "copy")
    path, place, _ = places(copy)[101]
    overwrite(path, place + 4, b"\0\0\0\0")
    expected = embedded(copy, tmp_path / "embedded", small_config())
    steps: list[object] = []

    def noted(step: Step) -> object:
        steps.append(step)
        return run_step(step)

    monkeypatch.setattr(rebuild_place, "run_step", noted)
    monkeypatch.setattr(rebuild_order, "run_tasks", lambda _, function, items, *__, **___: [function(i) for i in items])
    report = rebuild(spark, copy, config=small_config(), split_bytes=20_000)
    assert_same(copy, expected)
    assert len(report.serial_queues) == 1
    assert len([step for step in steps if isinstance(step, QueueTask)]) == 1
    assert report.queue_count == 4
    (finding,) = report.findings
    assert finding.endswith(f"(at {place})")


def forged_body(first: int, size: int) -> bytes:
    """Intact records at their own places: a reader that begins among them takes them for the log's."""
    body = bytearray()
    while len(body) < size:
        text = b"x" * 900
        body += encode_record(
            Record(topic_bytes=b"forged", body=text, physical_offset=first + len(body), body_crc=body_crc(text))
        )
    return bytes(body)


def test_a_split_that_began_with_a_forged_record_is_read_again_with_the_one_before(
    spark: SparkSession, tmp_path: Path
) -> None:
    config = small_config(mapped_file_size_commit_log=16 << 20, max_message_size=12 << 20)
    with open_store(tmp_path / "store", config) as opened:
        before = opened.put(Message("orders", b"before"))
        first = before.physical_offset + before.size
        opened.put(Message("orders", forged_body(first + BODY_AT, LOOK_BACK_BYTES + (3 << 20))))
        opened.put(Message("orders", b"after"))
    report = rebuild(spark, tmp_path / "store", config=config, into=tmp_path / "new", split_bytes=1 << 20)
    assert_same(tmp_path / "new", tmp_path / "store")
    assert report.record_count == 3
    assert report.split_count < 8  # of ten
