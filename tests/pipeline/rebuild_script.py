"""The driver that `test_rebuild_kill.py` kills: a shuffling rebuild with many small tasks.

rebuild_script.py MASTER STORE        in place
"""

from __future__ import annotations

import sys

from flintlog.pipeline.rebuild import rebuild
from flintlog.pipeline.session import get_session
from flintlog.store.options.store_config import StoreConfig

SPLIT_BYTES = 2 * 1024 * 1024
CONFIG = StoreConfig(
    flush="async", mapped_file_size_consume_queue=20 * 2000, max_hash_slot_num=1000, max_index_num=10_000
)
"""Small files, so that there are many."""


def main(master: str, store: str) -> None:
    spark = get_session(master)
    try:
        rebuild(spark, store, config=CONFIG, mode="shuffle", split_bytes=SPLIT_BYTES)
    finally:
        spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
