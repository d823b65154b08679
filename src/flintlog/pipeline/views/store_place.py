"""Where a store's files are: on a mounted file system, or at a URI."""

from __future__ import annotations

from pathlib import Path

from flintlog.disk.media.medium import Medium
from flintlog.disk.media.remote import RemoteMedium
from flintlog.pipeline.reading.logs import Log, check_finished, medium_of


def place_of(store: str | Path) -> tuple[Path, Medium, str | None]:
    """The root of a store, the medium it is on, and its URI if that has to be fetched from.

    Raises `DamagedStore` where a rebuild is not finished.
    """
    check_finished(str(store))
    medium, path = medium_of(str(store))
    return path, medium, str(store) if isinstance(medium, RemoteMedium) else None


def store_of(log: Log) -> str:
    """The path or URI of the store's directory that holds a log.

    >>> store_of(Log("a", "/data/a/store/commitlog", ()))
    '/data/a/store'
    """
    return log.uri if log.ledger else log.uri.rstrip("/").rpartition("/")[0]
