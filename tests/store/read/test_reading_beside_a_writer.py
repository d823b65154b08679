"""Opening a store read-only while another thread or process puts as fast as it can."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.store.small_store import ASYNC, bodies, fill, read_all

from flintlog import Message, Store, StoreConfig, open_store

pytestmark = pytest.mark.timeout(120)

OPENINGS = 25


@contextmanager
def busy_writer(store: Store) -> Iterator[None]:
    """Puts numbered messages all the while, with a breath now and then."""
    is_over = threading.Event()

    def write() -> None:
        number = 0
        while not is_over.is_set():
            store.put(Message("orders", b"%d" % number, keys=[f"k{number}"])).check()
            number += 1
            if number % 20 == 0:
                time.sleep(0.002)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


@pytest.mark.parametrize("changes", [{}, {"enable_build_consume_queue_concurrently": True}], ids=["serial", "crew"])
def test_what_is_written_meanwhile_is_no_damage(tmp_path: Path, changes: dict[str, bool]) -> None:
    config: StoreConfig = ASYNC.with_changes(**changes)
    with open_store(tmp_path, config) as store, busy_writer(store):
        for _ in range(OPENINGS):
            with open_store(tmp_path, config, read_only=True) as reader:
                assert [str(finding) for finding in reader.recovery if finding.id.startswith(("damage", "torn"))] == []
                seen = bodies(read_all(reader, "orders"))
                assert seen == [b"%d" % number for number in range(len(seen))]
                if seen:
                    assert seen[-1] in bodies(reader.query("orders", f"k{len(seen) - 1}"))


def test_queues_that_are_ahead_of_the_log_that_was_seen_are_not_damaged(tmp_path: Path) -> None:
    """The writer has made a new log file behind the look at the log, and its entries are in the queues."""
    with open_store(tmp_path / "store", ASYNC) as store:
        for _ in range(2):
            store.put(Message("orders", b"first")).check()
        queue_flush = store._engine.flushing.queue_flush
        assert queue_flush is not None
        queue_flush.flush_all()
        while len(store._engine.parts.segments.segments) < 2:
            store.put(Message("orders", b"x" * 1000)).check()
        shutil.copytree(tmp_path / "store", tmp_path / "seen")
    _, *later = sorted((tmp_path / "seen" / "commitlog").iterdir())
    for file in later:
        file.unlink()
    with open_store(tmp_path / "seen", ASYNC, read_only=True) as store:
        assert "damaged-queues" not in [finding.id for finding in store.recovery]
        assert store.get("orders", 0, 0, 1).messages[0].body == b"first"


def test_a_torn_tail_is_not_said_to_be_kept_anywhere(tmp_path: Path) -> None:
    fill(tmp_path, ASYNC)
    with open_store(tmp_path, ASYNC) as store:
        end = store.max_physical_offset
    segment = tmp_path / "commitlog" / f"{0:020d}"
    data = bytearray(segment.read_bytes())
    data[end : end + 40] = b"torn" * 10
    segment.write_bytes(data)
    (tmp_path / "abort").write_text("1")
    with open_store(tmp_path, ASYNC, read_only=True) as reader:
        assert [(finding.id, finding.kept_in) for finding in reader.recovery] == [("torn-tail", None)]
    assert not (tmp_path / "flintlog" / "cut").exists()
