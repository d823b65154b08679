"""The process from which Spark forks its Python workers, in sessions that we start.

Spark puts archives on the workers' search path. On Python 3.11 every task reads the directories of all of them
again, which takes longer than many a task: 130 to 170 ms instead of 20 to 30. What is in them is installed
anyway, so they are dropped before the first worker is forked.
"""

from __future__ import annotations

import sys

ARCHIVES = (".zip", ".jar", ".egg")


def without_archives(search_path: list[str], needed: str) -> list[str]:
    """The search path but for its archives; one that holds the file `needed` stays.

    >>> without_archives(["/app", "/spark/pyspark.zip", "/spark/core.jar"], "/site/pyspark/__init__.py")
    ['/app']
    """
    return [entry for entry in search_path if not entry.endswith(ARCHIVES) or needed.startswith(entry)]


def main() -> None:
    """Run Spark's own daemon without the archives."""
    import pyspark
    from pyspark.daemon import manager

    # Workers are forked with these in memory. Nothing here may start a thread, so pyarrow is not among them.
    import flintlog.derive.splits
    import flintlog.pipeline.partitions  # noqa: F401

    sys.path[:] = without_archives(sys.path, pyspark.__file__ or "")
    for entry in [entry for entry in sys.path_importer_cache if entry.endswith(ARCHIVES)]:
        if entry not in sys.path:
            del sys.path_importer_cache[entry]
    manager()


if __name__ == "__main__":
    main()
