"""A writer is killed at any moment, again and again: what it acknowledged is there, and what is derived is right.

A failure names the seed; `FLINTLOG_CRASH_SEED=<seed>` runs that one alone.
"""

from __future__ import annotations

import os
import random
import select
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from flintlog import Message, Store, open_store
from flintlog.disk.media.local import LocalMedium
from tests.crash import writer

KILLS_PER_STORE = 3
GIVE_UP_S = 60


@dataclass
class Reported:
    """What one store's writers said before they died."""

    acknowledged: dict[str, tuple[str, int, int, int]] = field(default_factory=dict)
    killed_in: list[str] = field(default_factory=list)

    def take(self, line: str) -> None:
        topic, queue_id, queue_offset, physical_offset, key = line.split()[1:]
        self.acknowledged[key] = (topic, int(queue_id), int(queue_offset), int(physical_offset))


def run_and_kill(path: Path, flush: str, style: str, seed: str, reported: Reported, *, after_ack: bool = False) -> None:
    """Start a writer and kill it: in its opening, or a random while later; `after_ack`: once it promised something."""
    chance = random.Random(seed)
    in_opening = chance.random() < 0.3 and not after_ack
    sign = b"\nack " if after_ack else b"opening\n" if in_opening else b"running\n"
    delay_s = chance.uniform(0, 0.03) if in_opening else chance.uniform(0.005, 0.35)
    command = [sys.executable, writer.__file__, str(path), flush, style, seed]
    source = str(Path(writer.__file__).parents[2] / "src")
    process = subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": source})
    assert process.stdout is not None
    heard, kill_at, give_up_at = b"", None, time.monotonic() + GIVE_UP_S
    try:
        while kill_at is None or time.monotonic() < kill_at:
            assert time.monotonic() < give_up_at, "the writer never came to run"
            if select.select([process.stdout], [], [], 0.001)[0]:
                chunk = os.read(process.stdout.fileno(), 1 << 16)
                assert chunk, f"the writer ended by itself: {process.wait()}"
                heard += chunk
            if kill_at is None and sign in heard:
                kill_at = time.monotonic() + delay_s
    finally:
        process.kill()
        heard += process.stdout.read()
        process.stdout.close()
        process.wait()
    lines = heard.decode().split("\n")[:-1]  # the last line may be cut
    for line in lines:
        if line.startswith("ack "):
            reported.take(line)
    reported.killed_in.append("running" if "running" in lines else "opening")


def assert_kept(store: Store, reported: Reported) -> None:
    for key, (topic, queue_id, queue_offset, physical_offset) in reported.acknowledged.items():
        message = store.message_at(physical_offset)
        assert message is not None and message.body == writer.body_of(key), f"{key} is lost"
        page = store.get(topic, queue_id, queue_offset, 1)
        assert [m.physical_offset for m in page.messages] == [physical_offset], f"{key} is not in its queue"
    for key in random.Random(0).sample(sorted(reported.acknowledged), min(100, len(reported.acknowledged))):
        topic, _, _, physical_offset = reported.acknowledged[key]
        hits = [m.physical_offset for m in store.query(topic, key, max_count=64)]
        assert physical_offset in hits, f"{key} is not in the index"


def assert_no_gaps(store: Store) -> None:
    for info in store.queues():
        offset = info.min_offset
        assert offset == 0
        while offset < info.max_offset:
            page = store.get(info.topic, info.queue_id, offset)
            assert [m.queue_offset for m in page.messages] == list(range(offset, page.next_offset))
            assert page.next_offset > offset
            offset = page.next_offset


def assert_goes_on(store: Store, reported: Reported) -> None:
    """The next put of each queue takes the next place in it."""
    for info in store.queues():
        key = f"next-{info.topic}-{info.queue_id}-{len(reported.acknowledged)}"
        message = Message(info.topic, writer.body_of(key), queue_id=info.queue_id, keys=[key])
        receipt = store.put(message).check()
        assert receipt.queue_offset == info.max_offset
        reported.acknowledged[key] = (info.topic, info.queue_id, receipt.queue_offset, receipt.physical_offset)


def contents(folder: Path) -> list[tuple[str, bytes]]:
    return sorted((str(path.relative_to(folder)), path.read_bytes()) for path in folder.rglob("*") if path.is_file())


def assert_equals_a_rebuild(path: Path, flush: str) -> None:
    rebuilt = path.with_name("rebuilt")
    shutil.copytree(path / "commitlog", rebuilt / "commitlog")
    with open_store(rebuilt, writer.config(flush)):
        pass
    assert contents(path / "consumequeue") == contents(rebuilt / "consumequeue")
    ours, theirs = ([data for _, data in contents(folder / "index")] for folder in (path, rebuilt))
    assert ours == theirs
    shutil.rmtree(rebuilt)


def crash_and_check(path: Path, flush: str, style: str, seed: int) -> Reported:
    reported = Reported()
    print(f"FLINTLOG_CRASH_SEED={seed} ({flush}, {style})")  # noqa: T201 - shown when the test fails
    for number in range(KILLS_PER_STORE):
        is_last = number == KILLS_PER_STORE - 1  # on a busy machine the others may come to nothing
        run_and_kill(path, flush, style, f"{seed}.{number}", reported, after_ack=is_last)
        if number % 2 == 0:  # the others are crashes of a store that crashed before
            check(path, flush, reported)
    return reported


def check(path: Path, flush: str, reported: Reported) -> None:
    with open_store(path, writer.config(flush)) as store:
        assert_kept(store, reported)
        assert_no_gaps(store)
        assert_goes_on(store, reported)
        assert_kept(store, reported)
        assert not [found for found in store.recovery if found.severity == "error"]
    if reported.acknowledged:
        assert_equals_a_rebuild(path, flush)


VARIANTS = [("sync", "threads"), ("sync", "asyncio"), ("async", "threads"), ("async", "asyncio")]


@pytest.mark.parametrize(("flush", "style"), VARIANTS)
def test_killed_writers_lose_nothing_that_they_acknowledged(flush: str, style: str, tmp_path: Path) -> None:
    seed = int(os.environ.get("FLINTLOG_CRASH_SEED", "1"))
    reported = crash_and_check(tmp_path / "store", flush, style, seed)
    assert reported.acknowledged, "no writer came far enough to promise anything"


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(100, 117))
@pytest.mark.parametrize(("flush", "style"), VARIANTS)
def test_two_hundred_kills(flush: str, style: str, seed: int, tmp_path: Path) -> None:
    crash_and_check(tmp_path / "store", flush, style, seed)


@pytest.mark.parametrize("flush", ["sync", "async"])
def test_killed_again_and_again_in_the_opening(flush: str, tmp_path: Path) -> None:
    path = tmp_path / "store"
    reported = Reported()
    seeds = iter(range(1000))
    while len(reported.acknowledged) < 200:
        run_and_kill(path, flush, "threads", f"fill.{next(seeds)}", reported)
    for _ in range(3):
        seed = next(f"open.{n}" for n in seeds if random.Random(f"open.{n}").random() < 0.3)
        run_and_kill(path, flush, "threads", seed, reported)
    check(path, flush, reported)


class NamesSynced(LocalMedium):
    """Remembers which directories were synced."""

    def __init__(self) -> None:
        super().__init__()
        self.synced: set[Path] = set()

    def sync_directory(self, path: Path) -> None:
        super().sync_directory(path)
        self.synced.add(path)


def test_names_that_a_killed_writer_left_are_made_durable(tmp_path: Path) -> None:
    path = tmp_path / "store"
    reported = Reported()
    run_and_kill(path, "sync", "threads", "names.2", reported)
    medium = NamesSynced()
    with open_store(path, writer.config("sync"), medium=medium):
        queues = {file.parent for file in (path / "consumequeue").rglob("*") if file.is_file()}
        assert queues and queues | {path, path / "consumequeue"} <= medium.synced
