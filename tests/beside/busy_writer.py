"""A process that puts into a store from six threads until its standard input ends.

Log, queue and index files are small, so that they roll often. Some puts are batches, some have keys. It prints one line
when the first messages are there, and another when the store was closed.
"""

from __future__ import annotations

import random
import sys
import threading
from pathlib import Path

from flintlog import Message, StoreConfig, open_store

THREADS = 6


def config_with(log_file_bytes: int) -> StoreConfig:
    """The writer's configuration."""
    return StoreConfig(
        mapped_file_size_commit_log=log_file_bytes,
        mapped_file_size_consume_queue=20 * 500,
        max_hash_slot_num=64,
        max_index_num=400,
    )


def main(root: str, log_file_bytes: str, pause_s: str) -> None:
    stopped = threading.Event()
    with open_store(Path(root), config_with(int(log_file_bytes))) as store:

        def work(number: int) -> None:
            chance = random.Random(number)
            count = 0
            while not stopped.is_set():
                topic = f"topic-{chance.randrange(4)}"
                messages = []
                for _ in range(1 if chance.random() < 0.8 else chance.randrange(2, 30)):
                    body = chance.randbytes(chance.randrange(1, 900))
                    keys = {"KEYS": f"key-{number}-{count}"} if chance.random() < 0.5 else {}
                    messages.append(Message(topic, body, queue_id=number % 3, properties=keys))
                    count += 1
                if len(messages) == 1:
                    store.put(messages[0])
                else:
                    store.put_batch(messages)
                if float(pause_s):
                    stopped.wait(float(pause_s))

        threads = [threading.Thread(target=work, args=(number,)) for number in range(THREADS)]
        for thread in threads:
            thread.start()
        sys.stdout.write("running\n")
        sys.stdout.flush()
        sys.stdin.read()
        stopped.set()
        for thread in threads:
            thread.join()
    sys.stdout.write("closed\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
