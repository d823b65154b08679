"""Scheduled jobs: in a while by delay levels, at a moment by the timer, and recalled.

What waits is in the log: a program that is stopped and started again delivers it. A delay level is one of a few fixed
times and costs least; the timer takes any moment, and gives a message back that is not wanted any more.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from flintlog import Message, StoreConfig, open_store

CONFIG = StoreConfig(
    mapped_file_size_commit_log=1 << 20,
    max_hash_slot_num=1000,
    max_index_num=4000,
    services={"schedule", "timer"},
    message_delay_level="1s 5s 1h",
    timer_precision_ms=100,
)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def plan(path: Path) -> None:
    """Put four jobs for later, recall one of them, and end."""
    with open_store(path, CONFIG) as store:
        store.put(Message("jobs", b"remind, by level", delay_level=1))
        store.put(Message("jobs", b"report, by timer", deliver_at_ms=now_ms() + 1500))
        store.put(Message("jobs", b"clean up in an hour", delay_level=3))
        unwanted = Message(
            "jobs", b"an unwanted mail", deliver_at_ms=now_ms() + 1500, properties={"UNIQ_KEY": "mail-1"}
        )
        mail = store.put(unwanted)
        store.service("timer").cancel(mail)
        print("visible at once:", store.max_offset("jobs", 0))


def run(path: Path) -> None:
    """Run what becomes due within three seconds, in another life of the store."""
    with open_store(path, CONFIG) as store, store.consumer("runner", "jobs", timeout_s=3) as consumer:
        for message in consumer:
            print("run:", message.body.decode())
            consumer.acknowledge(message)


def main() -> None:
    """Run both in a directory that is removed at the end."""
    with tempfile.TemporaryDirectory() as folder:
        plan(Path(folder) / "store")
        run(Path(folder) / "store")


if __name__ == "__main__":
    main()
