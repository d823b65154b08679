"""The driver that `test_rebuild_kill.py` kills: a shuffling rebuild with many small tasks.

rebuild_script.py MASTER STORE [URI]        in place, or into a URI
"""

from __future__ import annotations

import os
import sys

from flintlog.pipeline.rebuild import rebuild
from flintlog.pipeline.session import get_session
from flintlog.store.options.store_config import StoreConfig

SPLIT_BYTES = 2 * 1024 * 1024
CONFIG = StoreConfig(
    flush="async", mapped_file_size_consume_queue=20 * 2000, max_hash_slot_num=1000, max_index_num=10_000
)
"""Small files, so that there are many."""


def main(master: str, store: str, into: str | None = None) -> None:
    variables = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
    spark = get_session(master, {f"spark.executorEnv.{name}": value for name, value in variables.items()})
    try:
        rebuild(spark, store, config=CONFIG, mode="shuffle", into=into, split_bytes=SPLIT_BYTES)
    finally:
        spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
