"""A process that puts a workload into a store of ours and never shuts it down: to be killed.

    python -m tests.interop.writer DIRECTORY COUNT SEED

It prints `acknowledged N` after each put that brings the count over another hundred, `done` at the end, and then
waits for its end.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from flintlog.store.model.message import Message
from flintlog.store.open_store import open_store
from flintlog.store.options.store_config import StoreConfig
from flintlog.store.store import Store
from interop.workload import OPTIONS, QUEUE_TYPES, Put, workload


def config(**options: str) -> StoreConfig:
    """What our side needs to hold the workload."""
    return StoreConfig.from_rocketmq({**OPTIONS, **options}).with_changes(topic_queue_types=QUEUE_TYPES)


def put_all(store: Store, puts: list[Put]) -> list[int]:
    """Put a workload; the physical offset of each message."""
    offsets: list[int] = []
    for put in puts:
        receipts = [store.put(put)] if isinstance(put, Message) else store.put_batch(list(put))
        for receipt in receipts:
            receipt.check()
            offsets.append(receipt.physical_offset)
    return offsets


def _tell(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main(directory: Path, count: int, seed: int) -> None:
    """Put, say how far, and wait."""
    done = reported = 0
    with open_store(directory, config(flushDiskType="ASYNC_FLUSH")) as store:
        for put in workload(count, seed=seed):
            done += len(put_all(store, [put]))
            if done // 100 > reported // 100:
                reported = done
                _tell(f"acknowledged {done}")
        _tell("done")
        signal.pause()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
