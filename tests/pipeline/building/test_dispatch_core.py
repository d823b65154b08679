"""The dispatcher outside the store, without Spark: interrupted at every step it gives the embedded one's bytes."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from flintlog import Message, StoreConfig, open_store
from flintlog.disk.faulty.faulty_disk import FaultyMedium
from flintlog.errors import DamagedStore, StoreInUse
from flintlog.pipeline.building.dispatch_core import DispatchCore
from flintlog.store.dispatch.external.dispatch_journal import DispatchJournal, Published, ReadableEnd, ReadableEndFile
from flintlog.testing import FakeClock

ROOT = Path("/store")
CONFIG = StoreConfig(
    flush="async",
    mapped_file_size_commit_log=16 * 1024,
    mapped_file_size_consume_queue=20 * 8,
    max_hash_slot_num=20,
    max_index_num=60,
)
BATCH_BYTES = 4 * 1024
JOURNAL_BYTES = 512

Files = tuple[dict[str, bytes], Counter[bytes]]


def files(medium: FaultyMedium) -> Files:
    """Every file of the queues by its path, and those of the index, whose names are the clock's."""
    queues: dict[str, bytes] = {}

    def walk(folder: Path) -> None:
        for info in medium.listing(folder):
            if info.is_directory:
                walk(folder / info.name)
            else:
                queues[str(folder / info.name)] = medium.read(folder / info.name)

    walk(ROOT / "consumequeue")
    index = Counter(medium.read(ROOT / "index" / info.name) for info in medium.listing(ROOT / "index"))
    return queues, index


def put_some(medium: FaultyMedium, count: int = 150) -> int:
    with open_store(ROOT, CONFIG, medium=medium, clock=FakeClock()) as store:
        for n in range(count):
            keys = [f"k{n}", f"all{n % 3}"] if n % 4 else []
            message = Message("orders" if n % 3 else "payments", bytes(n), queue_id=n % 2, keys=keys, tags="t")
            store.put(message).check()
        return store.max_physical_offset


def log_alone() -> tuple[FaultyMedium, int, Files]:
    """A disk with a log that nobody has dispatched, its end, and what the embedded dispatcher made of it."""
    medium = FaultyMedium()
    end = put_some(medium)
    expected = files(medium)
    for name in ("consumequeue", "index"):
        medium.remove_tree(ROOT / name)
    medium.sync_directory(ROOT)
    DispatchJournal(ROOT / "dispatch", medium).begin(Published(1, 1, 0, {}, "", 0))
    ReadableEndFile(ROOT / "dispatch", medium).publish(ReadableEnd(1, end))
    return medium, end, expected


def open_core(medium: FaultyMedium) -> DispatchCore:
    return DispatchCore(ROOT, CONFIG, medium, now_ms=lambda: 1_700_000_000_000, journal_file_bytes=JOURNAL_BYTES)


def run(medium: FaultyMedium, batch_bytes: int = BATCH_BYTES) -> int:
    with open_core(medium) as core:
        count = 0
        while core.advance(batch_bytes):
            count += 1
        return count


@pytest.mark.parametrize("batch_bytes", [100, BATCH_BYTES, 1 << 30])
def test_the_bytes_are_those_of_the_embedded_dispatcher(batch_bytes: int) -> None:
    medium, end, expected = log_alone()
    run(medium, batch_bytes)
    assert files(medium) == expected
    progress = DispatchJournal(ROOT / "dispatch", medium).load()
    assert progress is not None
    assert progress.end == end
    assert run(medium) == 0
    assert files(medium) == expected


def test_it_reads_no_further_than_the_readable_end_and_follows_into_new_files() -> None:
    medium, end, expected = log_alone()
    readable = ReadableEndFile(ROOT / "dispatch", medium)
    with open_store(ROOT, CONFIG, medium=medium.kill(), read_only=True) as store:
        ends = [row for batch in store.scan(include_body=False) for row in batch.column("physical_offset").to_pylist()]
    readable.publish(ReadableEnd(1, ends[20]))
    with open_core(medium) as core:
        for stop in (ends[20], ends[21], ends[90], end):
            readable.publish(ReadableEnd(1, stop))
            while core.advance(BATCH_BYTES):
                pass
            assert core.progress.end == stop
    assert files(medium) == expected


class Stopped(Exception):
    pass


@pytest.mark.parametrize("kind", ["kill", "crash"])
def test_stopped_at_any_sync_and_started_again_nothing_is_missing_or_double(kind: str) -> None:
    step = 0
    while True:
        medium, end, expected = log_alone()
        left = [step]
        after: list[FaultyMedium] = []

        def count(_path: Path, left: list[int] = left, after: list[FaultyMedium] = after) -> None:
            left[0] -= 1
            if left[0] < 0:
                if not after:
                    after.append(medium.kill() if kind == "kill" else medium.crash(step))  # noqa: B023
                raise Stopped

        medium.before_sync = count
        with suppress(Stopped):
            run(medium)
        if not after:
            break
        ReadableEndFile(ROOT / "dispatch", after[0]).publish(ReadableEnd(1, end))  # as a store that opens
        run(after[0])
        assert files(after[0]) == expected, step
        step += 7
    assert step > 100


def test_a_second_dispatcher_is_kept_out_and_one_that_lost_its_claim_publishes_nothing() -> None:
    medium, _, _ = log_alone()
    with open_core(medium) as core:
        with pytest.raises(StoreInUse):
            open_core(medium)
        medium.replace(ROOT / "dispatch" / "owner.json", b'{"name": "another", "kind": "dispatcher"}')
        with pytest.raises(StoreInUse, match="taken over"):
            core.advance()
    progress = DispatchJournal(ROOT / "dispatch", medium).load()
    assert progress is not None
    assert progress.end == 0


def test_it_reads_nothing_of_an_epoch_that_is_not_its_own() -> None:
    medium, end, expected = log_alone()
    readable = ReadableEndFile(ROOT / "dispatch", medium)
    with open_core(medium) as core:
        readable.publish(ReadableEnd(2, end))
        assert not core.advance()
        readable.publish(ReadableEnd(1, -1))
        assert not core.advance()
        readable.publish(ReadableEnd(1, end))
        while core.advance(BATCH_BYTES):
            pass
    assert files(medium) == expected


def test_a_store_that_dispatches_itself_is_left_alone() -> None:
    medium = FaultyMedium()
    put_some(medium)
    before = files(medium)
    with open_core(medium) as core:
        assert not core.advance()
    assert files(medium) == before


def test_a_published_queue_that_was_deleted_is_an_error() -> None:
    medium, _, _ = log_alone()
    run(medium)
    medium.remove_tree(ROOT / "consumequeue" / "orders" / "1")
    with pytest.raises(DamagedStore, match="orders/1"):
        open_core(medium)
