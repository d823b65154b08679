"""Opening a store read-only while another thread or process puts as fast as it can."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from flintlog import Message, Store, StoreConfig, open_store
from tests.store.small_store import ASYNC, bodies, fill, read_all

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
