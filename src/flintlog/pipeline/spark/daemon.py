"""The process from which Spark forks its Python workers, in sessions that we start.

Spark puts archives on the workers' search path. On Python 3.11 every task reads the directories of all archives again,
so that it takes 130 to 170 ms instead of 20 to 30. Their modules are installed anyway, so the archives are dropped
before the first worker is forked.

Imported objects are excluded from the workers' garbage collections (`reading/imports.py`): those that exist before the
first fork, and those that a task has imported.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from importlib.util import find_spec
from typing import ParamSpec

ARCHIVES = (".zip", ".jar", ".egg")


def without_archives(search_path: list[str]) -> list[str]:
    """The search path without its archives.

    >>> without_archives(["/app", "/spark/pyspark.zip", "/spark/core.jar"])
    ['/app']
    """
    return [entry for entry in search_path if not entry.endswith(ARCHIVES)]


def drop_archives() -> None:
    """Search without archives from now on, unless PySpark is nowhere else."""
    before = sys.path[:]
    sys.path[:] = without_archives(before)
    if find_spec("pyspark") is None or find_spec("py4j") is None:
        sys.path[:] = before
    for entry in [entry for entry in sys.path_importer_cache if entry.endswith(ARCHIVES)]:
        if entry not in sys.path:
            del sys.path_importer_cache[entry]


Call = ParamSpec("Call")


def excluding(worker: Callable[Call, int]) -> Callable[Call, int]:
    """The function that runs a task, followed by an exclusion of what the task has imported."""
    from flintlog.pipeline.reading import imports

    def run(*arguments: Call.args, **named: Call.kwargs) -> int:
        code = worker(*arguments, **named)
        imports.exclude()
        return code

    return run


def main() -> None:
    """Run Spark's own daemon without the archives."""
    drop_archives()  # before anything of PySpark is imported from one
    from pyspark import daemon

    # Workers are forked with these in memory. Nothing here may start a thread, so pyarrow is not among them.
    import flintlog.derive.splits
    import flintlog.pipeline.reading.partitions  # noqa: F401

    gc.freeze()
    daemon.worker = excluding(daemon.worker)
    daemon.manager()


if __name__ == "__main__":
    main()
