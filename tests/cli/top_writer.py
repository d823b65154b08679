"""A process that writes a store for `flintlog top` to look at, until its standard input is closed.

    python top_writer.py STORE

Three topics, of which `orders` is the busiest, and a group that has read some of it.
"""

from __future__ import annotations

import os
import select
import sys

from flintlog import Message, StoreConfig, open_store

PAUSE_S = 0.02


def main(path: str) -> None:
    config = StoreConfig(flush="async", mapped_file_size_commit_log=1 << 22, max_hash_slot_num=100, max_index_num=400)
    with open_store(path, config) as store:
        for number in range(20):
            store.put(Message("returns", b"once", queue_id=number % 2))
        store.consumer_offsets.commit("billing", "orders", 0, 1)
        store.consumer_offsets.save()
        os.write(1, b"running\n")
        number = 0
        while not select.select([0], [], [], PAUSE_S)[0]:
            for topic, count in (("orders", 9), ("payments", 3)):
                for _ in range(count):
                    store.put(Message(topic, b"x" * 300, queue_id=number % 4))
                    number += 1


if __name__ == "__main__":
    main(sys.argv[1])
