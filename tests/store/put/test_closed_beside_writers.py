"""Puts beside a closed batch: whatever was acknowledged survives a kill, and no part of the batch does."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.store.closed_beside import BATCH_SIZE, CONFIG, batch

from flintlog import Message, Store, open_store
from flintlog.store.log.batch_markers import MARKER_TOPIC
from flintlog.store.model.message import Receipt
from flintlog.store.put.appender import Prepared
from flintlog.store.put.closed_batch import ClosedBatch, StagedMessages

CHILD = Path(__file__).parents[1] / "closed_beside.py"


def run_killed(root: Path, how: str) -> set[bytes]:
    """Run the child until it is killed; the bodies that were acknowledged."""
    done = subprocess.run([sys.executable, CHILD, root, how], check=False, capture_output=True, timeout=60)
    assert done.returncode == -9, done.stderr.decode()
    return set(done.stdout.split(b"\n")) - {b""}


def bodies(store: Store) -> list[bytes]:
    found: list[bytes] = []
    for queue_id in range(3):
        offset = 0
        while messages := store.get("t", queue_id, offset).messages:
            found += [message.body.rstrip(b"\0") for message in messages]
            offset = messages[-1].queue_offset + 1
    return found


@pytest.mark.parametrize("how", ["thread", "schedule", "transaction", "kill in the messages"])
def test_what_others_put_beside_a_batch_survives_a_kill(tmp_path: Path, how: str) -> None:
    acknowledged = run_killed(tmp_path, how)
    assert len(acknowledged) == 1 if how == "kill in the messages" else 2
    with open_store(tmp_path, CONFIG) as store:
        assert sorted(bodies(store)) == sorted(acknowledged)
        assert [found.id for found in store.recovery if found.id != "unclosed-batch"] == []
        assert store.put_closed(batch(BATCH_SIZE), writer_id="w", batch_id=1) is not None
        store.wait_dispatched()
        assert len(bodies(store)) == BATCH_SIZE + len(acknowledged)


def test_no_record_of_others_lies_inside_a_batch(tmp_path: Path) -> None:
    written: list[ClosedBatch] = []
    stop = threading.Event()

    def put_others() -> None:
        number = 0
        while not stop.is_set():
            store.put(Message("others", b"%d" % number)).check()
            number += 1

    def put_batches(writer: str) -> None:
        for number in range(5):
            closed = store.put_closed(iter(list(batch(60))), writer_id=writer, batch_id=number)
            assert closed is not None
            written.append(closed)

    with open_store(tmp_path, CONFIG.with_changes(flush="async", services=frozenset())) as store:
        others = [threading.Thread(target=put_others) for _ in range(2)]
        writers = [threading.Thread(target=put_batches, args=(name,)) for name in ("a", "b")]
        for thread in (*others, *writers):
            thread.start()
        for thread in writers:
            thread.join()
        stop.set()
        for thread in others:
            thread.join()
        rows = [row for found in store.scan() for row in found.select(["topic", "physical_offset"]).to_pylist()]
    assert len(written) == 10
    for closed in written:
        inside = [row["topic"] for row in rows if closed.start <= row["physical_offset"] < closed.end]
        assert inside == [MARKER_TOPIC, *["t"] * 60, MARKER_TOPIC]


@pytest.mark.parametrize("flush", ["async", "sync"])
def test_nobody_sees_a_part_of_a_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flush: str) -> None:
    seen: list[tuple[int, int]] = []
    with open_store(tmp_path, CONFIG.with_changes(flush=flush, services=frozenset())) as store:
        store.put(Message("t", b"before")).check()
        append, begin = store._appender.append_held, store.replication.raw_log.end

        def look(prepared: Prepared) -> Receipt:
            receipt = append(prepared)
            store._engine.dispatcher.advance()
            seen.append((store.max_offset("t", 0), store.replication.raw_log.end))
            return receipt

        monkeypatch.setattr(store._appender, "append_held", look)
        closed = store.put_closed(batch(BATCH_SIZE))
        assert closed is not None
        assert set(seen) == {(1, begin)}
        assert (store.max_offset("t", 0), store.replication.raw_log.end) == (1 + BATCH_SIZE // 2, closed.end)


def test_under_sync_flush_a_batch_is_seen_when_all_of_it_is_synced(tmp_path: Path) -> None:
    with open_store(tmp_path, CONFIG.with_changes(services=frozenset())) as store:
        store.put(Message("t", b"before")).check()
        engine, begin = store._engine, store.replication.raw_log.end
        flush, ends = engine.flush, []

        def flush_by_files() -> None:
            while not engine.parts.segments.flush(0):
                ends.append(store.replication.raw_log.end)
            flush()

        engine.flush = flush_by_files  # type: ignore[method-assign]
        store.put_closed(batch(BATCH_SIZE))
        assert len(ends) > 1, "the batch lies in several files"
        assert set(ends[:-1]) == {begin}


def test_staged_messages_are_read_twice_and_never_collected(tmp_path: Path) -> None:
    class Staged(StagedMessages):
        readings = 0

        def __iter__(self) -> Iterator[Message]:
            self.readings += 1
            return batch(10)

    staged = Staged()
    with open_store(tmp_path, CONFIG) as store:
        closed = store.put_closed(staged)
        assert closed is not None
        assert (closed.message_count, staged.readings) == (10, 2)


def test_a_marker_does_not_vouch_for_a_record_that_the_disk_lost(tmp_path: Path) -> None:
    """As a power loss may leave it: the marker reached the disk, the end of a record's properties did not."""
    root = tmp_path / "store"
    with open_store(root, CONFIG) as store:
        store.put(Message("t", b"before")).check()
        close = store._engine.batch_notes.close
        store._engine.batch_notes.close = lambda: None  # type: ignore[method-assign]
        closed = store.put_closed(batch(10), writer_id="w")
        assert closed is not None
        killed = shutil.copytree(root, tmp_path / "killed")
        intact = shutil.copytree(root, tmp_path / "intact")
        store._engine.batch_notes.close = close  # type: ignore[method-assign]
    log = killed / "commitlog" / ("0" * 20)
    data = bytearray(log.read_bytes())
    place = data.index(b"KEYS\x01b3\x02", closed.start) + 5
    data[place : place + 2] = bytes(2)
    log.write_bytes(data)
    with open_store(intact, CONFIG) as store:
        assert len(bodies(store)) == 11
        assert store.put_closed(batch(10), writer_id="w") is None
    with open_store(killed, CONFIG) as store:
        assert bodies(store) == [b"before"]
        assert store.put_closed(batch(10), writer_id="w") is not None
