"""The lock of a store that is changed without being opened, so that no other process opens it meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from flintlog.disk.media.medium import Medium
from flintlog.store.paths import StorePaths


@contextmanager
def hold(paths: StorePaths, medium: Medium) -> Iterator[None]:
    """Hold the store's lock; `StoreInUse` when another process, a broker or flintlog, has it."""
    lock = medium.lock(paths.lock)
    try:
        yield
    finally:
        lock.release()
