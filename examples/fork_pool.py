"""A pool of forked processes over one store: children compute beside the writer, the parent stores what they found.

A forked child has none of its parent's threads, so the parent's store is closed in it, and its files are left alone.
Each child opens the store for itself with `read_only=True`, which takes no lock, and reads one queue.
"""

from __future__ import annotations

import multiprocessing
import tempfile
from functools import partial
from pathlib import Path

from flintlog import FlintlogError, Message, Store, StoreConfig, open_store

CONFIG = StoreConfig(mapped_file_size_commit_log=1 << 20, max_hash_slot_num=1000, max_index_num=4000)
QUEUES, READINGS = 4, 100


def try_to_put(parents_store: Store) -> None:
    """What a child must not do."""
    try:
        parents_store.put(Message("readings", b"from a child"))
    except FlintlogError as error:
        print("a child that puts:", error.code)


def highest(path: Path, queue_id: int) -> int:
    """What a child may do: read one queue, beside the writer."""
    with open_store(path, read_only=True) as store:
        return max(int(message.body) for message in store.messages("readings", queue_id))


def main() -> None:
    """Fill a store, let children read it while it is open, and store their results."""
    fork = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as folder, open_store(Path(folder) / "store", CONFIG) as store:
        for queue_id in range(QUEUES):
            values = (number * 37 % 101 + queue_id * 100 for number in range(READINGS))
            store.put_batch([Message("readings", b"%d" % value, queue_id=queue_id) for value in values])
        child = fork.Process(target=try_to_put, args=(store,))
        child.start()
        child.join()
        with fork.Pool(QUEUES) as pool:
            found = pool.map(partial(highest, Path(folder) / "store"), range(QUEUES))
        store.put_batch([Message("highest", b"%d" % value) for value in found])
        print("highest:", [int(message.body) for message in store.messages("highest", 0)])


if __name__ == "__main__":
    main()
