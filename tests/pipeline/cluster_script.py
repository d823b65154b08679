"""The driver that `test_cluster.py` kills: rebuild, verify and export on a cluster, in one session.

cluster_script.py MASTER STORE TABLE        prints what came of it as JSON, in its last line
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from flintlog.pipeline.export import ExportOptions, export
from flintlog.pipeline.rebuild import rebuild
from flintlog.pipeline.session import get_session
from flintlog.pipeline.verify import verify
from flintlog.store.options.store_config import StoreConfig

SPLIT_BYTES = 4 * 1024 * 1024
"""Many small tasks: more to kill in the middle of."""


def main(master: str, store: str, table: str) -> dict[str, object]:
    spark = get_session(master)
    try:
        config = StoreConfig(flush="async")
        rebuilt = rebuild(spark, Path(store), config=config, split_bytes=SPLIT_BYTES)
        exported = export(spark, store, table, options=ExportOptions(batch_bytes=16 << 20, split_bytes=SPLIT_BYTES))
        return {
            "serial": rebuilt.serial_queues,
            "findings": [finding.id for finding in verify(spark, store, config=config).findings],
            "rows": exported.rows,
        }
    finally:
        spark.stop()


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))  # noqa: T201
