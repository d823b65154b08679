"""Paths and URIs of users in a form that every process understands.

Executors have another working directory than the driver, and Hadoop writes `file:/x` where others write `file:///x`.
"""

from __future__ import annotations

from os.path import abspath
from pathlib import Path


def absolute(place: str | Path) -> str:
    """A path of this machine's own file system, from its root on, however it is spelt; any other URI as it is.

    >>> absolute("file:/data/store"), absolute("file:///data/store"), absolute("s3://bucket/store")
    ('/data/store', '/data/store', 's3://bucket/store')
    """
    text = str(place)
    if text.startswith("file:"):
        rest = text.removeprefix("file:")
        return abspath("/" + rest.lstrip("/") if rest.startswith("/") else rest)
    return text if "://" in text else abspath(text)


def local_path(place: str | Path) -> Path:
    """The same for a path that is always on this machine's own file system."""
    return Path(absolute(place)).absolute()
