"""Processes for the tests that kill and pause: a writer of a store, and a dispatcher without Spark.

python -m tests.pipeline.dispatch_processes writer ROOT SEED      puts until standard input ends, then stops cleanly
python -m tests.pipeline.dispatch_processes dispatcher ROOT       dispatches until it is killed
python -m tests.pipeline.dispatch_processes task PICKLE           a task of a dispatcher that stops itself (SIGSTOP)
                                                                  before it writes, and says what came of it
"""

from __future__ import annotations

import os
import pickle
import random
import signal
import sys
import threading
import time
from pathlib import Path
from unittest import mock

from flintlog import Message, StoreConfig, open_store
from flintlog.derive.splits import Window
from flintlog.kernel import Scan
from flintlog.pipeline.building import rebuild_scan
from flintlog.pipeline.building.dispatch_tasks import derive_range
from tests.store.outside import dispatching

SIZES = StoreConfig(
    mapped_file_size_commit_log=1024 * 1024,
    mapped_file_size_consume_queue=20 * 256,
    max_hash_slot_num=200,
    max_index_num=1500,
    dispatch_poll_ms=5,
    dispatch_patience_ms=120_000,
)
CONFIG = SIZES.with_changes(dispatch="external")


def write(root: Path, seed: int) -> None:
    chance = random.Random(seed)
    ended = threading.Event()

    def listen() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=listen, daemon=True).start()
    with open_store(root, CONFIG.with_changes(flush=chance.choice(["sync", "async"]))) as store:
        sys.stdout.write("open\n")
        sys.stdout.flush()
        while not ended.is_set():
            for _ in range(chance.randrange(1, 40)):
                number = chance.randrange(1000)
                keys = [f"k{number}", "all"] if number % 4 else []
                is_new = chance.random() < 0.001  # a queue of its own, with files to be made and synced
                topic = f"new-{chance.randrange(10**9)}" if is_new else f"topic-{number % 7}"
                store.put(Message(topic, bytes(number), queue_id=number % 3, keys=keys, tags="t")).check()
            time.sleep(0.02)


def dispatch(root: Path) -> None:
    batch_bytes = random.Random().choice([5_000, 50_000, 1 << 20])
    with dispatching(root, CONFIG, batch_bytes=batch_bytes) as failures:
        while not failures:
            time.sleep(0.05)
    raise failures[0]


def work_as_a_task(given: Path) -> None:
    plan, task = pickle.loads(given.read_bytes())
    add = rebuild_scan.SplitReader._add

    def pause_and_add(reader: rebuild_scan.SplitReader, window: Window, scan: Scan) -> None:
        os.kill(os.getpid(), signal.SIGSTOP)
        add(reader, window, scan)

    with mock.patch.object(rebuild_scan.SplitReader, "_add", pause_and_add):
        sys.stdout.write(f"{derive_range(plan, task)}\n")


if __name__ == "__main__":
    if sys.argv[1] == "writer":
        write(Path(sys.argv[2]), int(sys.argv[3]))
    elif sys.argv[1] == "task":
        work_as_a_task(Path(sys.argv[2]))
    else:
        dispatch(Path(sys.argv[2]))
