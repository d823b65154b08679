"""Paths and URIs as users write them: which are on this machine, and which are not.

Spark and pyarrow read URIs; everything else works on a mounted file system. `Path("s3://bucket/store")` is the relative
path `s3:/bucket/store`, so a URI that nobody refuses becomes a directory called `s3:`. Hadoop writes `file:/x` where
others write `file:///x`, and executors have another working directory than the driver.
"""

from __future__ import annotations

import os
import re
from os.path import abspath
from pathlib import Path

from flintlog.errors import InvalidConfig

_URI = re.compile(r"([a-z][a-z0-9+.-]*::)*[a-z][a-z0-9+.-]*:/", re.IGNORECASE)
"""A scheme, after those that fsspec chains before it. A `Path` has only one slash after it."""

_HERE = re.compile(r"file:(?://(?:localhost)?/*(?=/)|(?!//))(.*)", re.IGNORECASE | re.DOTALL)
"""`file:x`, `file:/x`, `file:///x`, `file://localhost/x`; another host's file is none of ours."""


def is_uri(place: str | os.PathLike[str]) -> bool:
    """Whether a place is named by a URI of another file system than this machine's; a `Path` of one counts too.

    >>> is_uri("s3://bucket/store"), is_uri(Path("s3://bucket/store")), is_uri("/data/store"), is_uri("file:///data")
    (True, True, False, False)
    """
    text = os.fspath(place)
    return _URI.match(text) is not None and _HERE.fullmatch(text) is None


def local_path(place: str | os.PathLike[str]) -> Path:
    """The path of a place on this machine's own file system; the URI of another one is refused.

    >>> local_path("file:/data/store"), local_path("file:///data/store"), local_path("store")
    (PosixPath('/data/store'), PosixPath('/data/store'), PosixPath('store'))
    """
    text = os.fspath(place)
    if is_uri(text):
        raise InvalidConfig(
            f"{text} is a URI, and only a path on this machine works here", advice="mount it, or copy it to a disk"
        )
    here = _HERE.fullmatch(text)
    return Path(text if here is None else here[1])


def absolute(place: str | os.PathLike[str]) -> str:
    """The same from the root on, for processes with another working directory; any other URI as it is.

    >>> absolute("file:/data/store"), absolute("file:///data/store"), absolute("s3://bucket/store")
    ('/data/store', '/data/store', 's3://bucket/store')
    """
    return os.fspath(place) if is_uri(place) else abspath(local_path(place))
