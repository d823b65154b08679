"""How fast a store is on this machine: puts with each flush, and gets.

Numbers are of one run on one disk; compare only what ran side by side.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from flintlog import Message, StoreConfig, open_store

BATCH = 32


def measure(work: Callable[[], int], seconds: float) -> float:
    """Repeat `work` for some seconds; returns what it counted, for each second."""
    count = 0
    begin = time.perf_counter()
    while time.perf_counter() - begin < seconds:
        count += work()
    return count / (time.perf_counter() - begin)


def put_rate(path: Path, config: StoreConfig, size: int, threads: int, seconds: float) -> float:
    """Messages a second that some threads put, each with a queue of its own."""
    rates = [0.0] * threads

    def produce(number: int) -> None:
        message = Message("bench", bytes(size), queue_id=number)
        rates[number] = measure(lambda: bool(store.put(message)), seconds)

    with open_store(path, config) as store:
        workers = [threading.Thread(target=produce, args=(number,)) for number in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    return sum(rates)


def get_rate(path: Path, config: StoreConfig, seconds: float) -> float:
    """Messages a second that one thread reads from the beginning of a queue, again and again."""
    offset = 0

    def consume() -> int:
        nonlocal offset
        page = store.get("bench", queue_id=0, offset=offset, max_count=BATCH)
        offset = page.next_offset if page.messages else 0
        return len(page.messages)

    with open_store(path, config) as store:
        return measure(consume, seconds)


def main() -> None:
    """Print a table of rates."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--directory", type=Path, help="where the stores are made; a temporary directory unless told")
    parser.add_argument("--seconds", type=float, default=2.0, help="for each measurement")
    parser.add_argument("--size", type=int, default=1024, help="of a body, in bytes")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.directory) as folder:
        for flush in ("async", "sync"):
            config = StoreConfig(flush=flush, mapped_file_size_commit_log=256 << 20)
            for threads in (1, 16):
                path = Path(folder) / f"{flush}-{threads}"
                rate = put_rate(path, config, arguments.size, threads, arguments.seconds)
                print(f"put, {flush:5} flush, {threads:2} threads: {rate:12,.0f} messages/s")
        rate = get_rate(
            Path(folder) / "async-1", StoreConfig(flush="async", mapped_file_size_commit_log=256 << 20), 1.0
        )
        print(f"get, pages of {BATCH}:             {rate:12,.0f} messages/s")


if __name__ == "__main__":
    main()
