"""Stores that live as long as a test."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from flintlog.disk.media.medium import Medium
from flintlog.store.open_store import open_store
from flintlog.store.options.store_config import StoreConfig
from flintlog.store.runtime.clock import Clock, Milliseconds
from flintlog.store.store import Store

SMALL_FILES: Final = StoreConfig(
    mapped_file_size_commit_log=1024 * 1024,
    mapped_file_size_consume_queue=20 * 1000,
    max_hash_slot_num=1000,
    max_index_num=4000,
)
"""Files of a size that suits tests: with the defaults an empty store already takes a gigabyte."""

_IN_MEMORY = Path("/flintlog-store")


@contextmanager
def temporary_store(
    config: StoreConfig = SMALL_FILES,
    *,
    clock: Clock | Milliseconds | None = None,
    medium: Medium | None = None,
) -> Iterator[Store]:
    """An empty store, shut down and removed at the end. With a medium in memory nothing touches the disk.

    >>> from flintlog import Message
    >>> with temporary_store() as store:
    ...     store.put(Message("orders", b"42 pieces")).queue_offset
    0
    """
    if medium is not None:
        with open_store(_IN_MEMORY, config, clock=clock, medium=medium) as store:
            yield store
        return
    with (
        tempfile.TemporaryDirectory(prefix="flintlog-") as folder,
        open_store(Path(folder) / "store", config, clock=clock) as store,
    ):
        yield store
