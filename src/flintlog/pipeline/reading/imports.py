"""What one of Spark's Python processes has imported is excluded from its garbage collections.

A process that plans a read or runs tasks collects garbage after each of them, and visits all imported objects. Where
pyarrow and pandas are among them that takes 20 to 30 ms, more than most plans and short tasks. Imported objects are
never freed anyway.
"""

from __future__ import annotations

import gc
import sys
from typing import Final

_DAEMONS: Final = ("pyspark.daemon", "flintlog.pipeline.spark.daemon")
_seen: Final = [0]
"""How many modules there were when objects were excluded last."""


def exclude() -> None:
    """Exclude what exists, if this is one of Spark's processes and has imported something since the last call."""
    if len(sys.modules) > _seen[0] and is_forked_by_spark():
        gc.collect()
        gc.freeze()
        _seen[0] = len(sys.modules)


def is_forked_by_spark() -> bool:
    """Whether this process was forked by the daemon that forks Spark's Python workers."""
    started = getattr(sys.modules.get("__main__"), "__spec__", None)
    return getattr(started, "name", None) in _DAEMONS
