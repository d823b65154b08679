"""A pool of workers that share a topic's queues, retries of a job that failed, and the end of bad ones.

A job that raises is sent back and comes again after a delay. After the group's last try it is in the dead letter queue.
A worker that joins or closes changes only who reads which queue.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

from flintlog import Message, Store, StoreConfig, open_store

QUEUES, JOBS, WORKERS = 4, 40, 2
CONFIG = StoreConfig(
    mapped_file_size_commit_log=1 << 20,
    max_hash_slot_num=1000,
    max_index_num=4000,
    services={"schedule"},
    message_delay_level="1s 2s 3s 4s",
)


class Pool:
    """Workers over one store. `done` and `dead` are what became of the jobs."""

    def __init__(self, store: Store) -> None:
        self.done: Counter[str] = Counter()
        self.dead: list[str] = []
        self._store = store
        self._tries: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._stop = threading.Event()

    def work(self, job: str) -> None:
        """The job itself: every tenth fails once, and one fails always."""
        with self._lock:
            self._tries[job] += 1
            tries = self._tries[job]
        if job == "job 13" or (job.endswith("0") and tries == 1):
            raise RuntimeError(f"{job} failed")
        with self._lock:
            self.done[job] += 1

    def run(self) -> None:
        """Take messages from this worker's share of the queues, retries among them."""
        with self._store.consumer("workers", "jobs", ack_timeout_s=60) as consumer:
            while not self._stop.is_set():
                message = consumer.poll(0.05)
                if message is None:
                    continue
                try:
                    self.work(message.body.decode())
                except RuntimeError:
                    consumer.send_back(message, delay_level=1)
                else:
                    consumer.acknowledge(message)

    def run_all(self, deadline_s: float = 30.0) -> None:
        """Run until every job is done or dead."""
        workers = [threading.Thread(target=self.run) for _ in range(WORKERS)]
        for worker in workers:
            worker.start()
        end = time.monotonic() + deadline_s
        while len(self.done) + len(self.dead) < JOBS and time.monotonic() < end:
            time.sleep(0.02)
            self.dead = [each.body.decode() for each in self._store.get("%DLQ%workers", 0, 0).messages]
        self._stop.set()
        for worker in workers:
            worker.join()


def main() -> None:
    """Put jobs, run the pool, and say what became of them."""
    with tempfile.TemporaryDirectory() as folder, open_store(Path(folder) / "store", CONFIG) as store:
        store.topics.create("jobs", read_queue_nums=QUEUES, write_queue_nums=QUEUES)
        store.groups.create("workers", retry_max_times=2)
        for number in range(JOBS):
            store.put(Message("jobs", b"job %d" % number, queue_id=number % QUEUES))
        pool = Pool(store)
        pool.run_all()
        print("done:", len(pool.done), "jobs,", sum(pool.done.values()), "times")
        print("dead letters:", pool.dead)


if __name__ == "__main__":
    main()
