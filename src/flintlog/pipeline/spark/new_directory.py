"""A directory that is made for a result, and deleted if the job fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from flintlog.disk.media.local import LocalMedium
from flintlog.format.names import COMMIT_LOG


@contextmanager
def new_directory(root: Path, holds_something: Callable[[], bool] = lambda: False) -> Iterator[None]:
    """If the block fails, delete what it made, unless the directory had contents before or holds a result."""
    medium = LocalMedium()
    before = medium.stat(root)
    was_there = before is not None
    was_empty = before is None or (before.is_directory and not medium.listing(root))
    try:
        yield
    except Exception:  # an interrupt is left to the next run, like a kill
        if was_empty and not medium.exists(root / COMMIT_LOG) and not holds_something():
            for made in [root / info.name for info in medium.listing(root)] if was_there else [root]:
                medium.remove_tree(made)
        raise
