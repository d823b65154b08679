"""A store in which others put beside a closed batch, and which is killed: `python closed_beside.py STORE HOW`.

What was acknowledged is printed, one body a line. `HOW` says who puts while the batch's messages are made, or that the
store is killed at the closing marker, with another putter waiting.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from flintlog import Message, Store, StoreConfig, open_store
from flintlog.services.delay.schedule import ScheduleService
from flintlog.services.transaction.transaction_service import TransactionService
from flintlog.store.log.batch_markers import MARKER_TOPIC
from flintlog.store.model.message import Receipt
from flintlog.store.put.appender import Appender, Prepared

CONFIG = StoreConfig(
    mapped_file_size_commit_log=65536,
    mapped_file_size_consume_queue=2000,
    max_hash_slot_num=100,
    max_index_num=400,
    services=frozenset({"schedule", "transaction"}),
    message_delay_level="1s 2s",
    flush_delay_offset_interval=100,
)
BATCH_SIZE = 400


def say(body: bytes) -> None:
    """Acknowledged."""
    sys.stdout.buffer.write(body + b"\n")
    sys.stdout.flush()


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def in_thread(run: Callable[[], None]) -> None:
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()


def batch(count: int) -> Iterator[Message]:
    """More than a file of the log holds."""
    for number in range(count):
        yield Message("t", b"batch-%04d" % number + bytes(300), queue_id=number % 2, keys=[f"b{number}"])


def put_and_say(store: Store, body: bytes) -> None:
    store.put(Message("t", body)).check()
    say(body)


def meanwhile(store: Store, how: str) -> Iterator[Message]:
    """The messages of a batch, and puts of others between them; the process does not live to its end."""
    transaction = None
    if how == "transaction":
        service = store.service("transaction")
        assert isinstance(service, TransactionService)
        transaction = service.begin(Message("t", b"transaction"))
    yield from batch(BATCH_SIZE // 2)
    if how == "thread":
        in_thread(lambda: put_and_say(store, b"another thread"))
    if transaction is not None:
        in_thread(lambda: None if transaction.commit() is None else say(b"transaction"))
    if how == "schedule":
        while not store.max_offset("t", 2):
            time.sleep(0.05)
        time.sleep(0.5)  # until the delivery is noted
        say(b"delayed")
    if how == "kill in the messages":
        kill()
    yield from batch(BATCH_SIZE // 2)


def kill_at_marker(store: Store) -> None:
    """Before the closing marker is appended, all messages of the batch are in the log."""
    append = Appender.append_held

    def append_or_kill(self: Appender, prepared: Prepared) -> Receipt:
        if prepared.message.topic == MARKER_TOPIC and b"recordsCrc" in prepared.message.body:
            threading.Thread(target=put_and_say, args=(store, b"waiting")).start()
            time.sleep(0.3)
            kill()
        return append(self, prepared)

    Appender.append_held = append_or_kill  # type: ignore[method-assign]


def main(root: Path, how: str) -> None:
    store = open_store(root, CONFIG)
    assert isinstance(store.service("schedule"), ScheduleService)
    put_and_say(store, b"first")
    if how == "schedule":
        store.put(Message("t", b"delayed", queue_id=2, delay_level=1)).check()
    kill_at_marker(store)
    store.put_closed(meanwhile(store, how), writer_id="w", batch_id=1)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
