"""A small store for tests: small files, and a way to see that nothing changed in it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import flintlog
from flintlog import Message, Store, StoreConfig, open_store
from flintlog.store.model.stored_message import StoredMessage

SMALL = StoreConfig(
    mapped_file_size_commit_log=64 * 1024,
    mapped_file_size_consume_queue=20 * 100,
    max_hash_slot_num=100,
    max_index_num=400,
    max_message_size=4096,
    flush_interval_consume_queue=60_000,  # so that nothing is written behind a test's back
)
ASYNC = SMALL.with_changes(flush="async")


def bytes_of(directory: Path) -> dict[str, bytes]:
    """Every file below a directory, with its content."""
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def wait_until(is_so: Callable[[], object], timeout_s: float = 10.0) -> None:
    """Wait for something that another thread or process does."""
    deadline = time.monotonic() + timeout_s
    while not is_so():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.002)


def settle(store: Store) -> None:
    """Wait until the file ahead of the writer was made, which happens beside the puts."""
    store.wait_dispatched()
    wait_until(lambda: len(list((store.path / "commitlog").iterdir())) >= 2)
    time.sleep(0.01)


@contextmanager
def unchanged(store: Store) -> Iterator[None]:
    """What happens inside changes neither files nor offsets nor queues."""

    def look() -> object:
        ends = (store.max_physical_offset, store.flushed_offset, store._engine.log.end_offset)
        return bytes_of(store.path), dict(store._engine.parts.queues.offsets.by_queue), store.queues(), ends

    before = look()
    yield
    store.wait_dispatched()
    assert look() == before


def read_all(store: Store, topic: str, queue_id: int = 0) -> list[StoredMessage]:
    """Every message of a queue, page by page."""
    found: list[StoredMessage] = []
    offset = store.min_offset(topic, queue_id)
    while offset < store.max_offset(topic, queue_id):
        page = store.get(topic, queue_id, offset)
        assert page.next_offset > offset
        found += page.messages
        offset = page.next_offset
    return found


def bodies(messages: list[StoredMessage]) -> list[bytes]:
    return [bytes(message.body) for message in messages]


@contextmanager
def other_process(code: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """Python in another process, with flintlog's names and `SMALL` at hand; it has said "ready"."""
    prelude = "import sys\nfrom flintlog import *\nfrom tests.store.small_store import SMALL, ASYNC\n"
    places = [str(Path(flintlog.__file__).parents[1]), str(Path(__file__).parents[2])]
    process = subprocess.Popen(
        [sys.executable, "-c", prelude + code, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(places)},
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == "ready"
        yield process
    finally:
        process.kill()
        process.communicate()


def fill(path: Path, config: StoreConfig = SMALL, count: int = 3, topic: str = "orders") -> None:
    """A store with some messages, shut down cleanly."""
    with open_store(path, config) as store:
        for number in range(count):
            store.put(Message(topic, b"order %d" % number, tags="paid", keys=[f"o-{number}"])).check()
