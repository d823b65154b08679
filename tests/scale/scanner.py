"""A process that scans a store and says how much memory of its own it had at most.

python scanner.py STORE bodies|none
"""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import pyarrow.compute as pc

from flintlog import StoreConfig, open_store
from tests.scale.process_cost import status_bytes

CONFIG = StoreConfig(flush="async", max_hash_slot_num=1000, max_index_num=4000)


class Scanned(msgspec.Struct):
    """What came out, and the memory it took; pages of the log itself are the page cache's and not counted."""

    row_count: int = 0
    batch_count: int = 0
    body_bytes: int = 0
    peak_anonymous_bytes: int = 0
    kept_anonymous_bytes: int = 0


def main(path: Path, include_body: bool) -> None:
    scanned = Scanned()
    with open_store(path, CONFIG, read_only=True) as store:
        before = status_bytes("RssAnon")
        for batch in store.scan(include_body=include_body):
            scanned.row_count += batch.num_rows
            scanned.batch_count += 1
            if include_body:
                scanned.body_bytes += pc.sum(pc.binary_length(batch["body"])).as_py()
            scanned.peak_anonymous_bytes = max(scanned.peak_anonymous_bytes, status_bytes("RssAnon") - before)
        del batch
        scanned.kept_anonymous_bytes = status_bytes("RssAnon") - before
    sys.stdout.buffer.write(msgspec.json.encode(scanned))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2] == "bodies")
