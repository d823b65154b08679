"""The file system of a URI: pyarrow's own, or one of fsspec; and its errors in one sentence.

    s3://bucket/store     pyarrow; the variables of AWS's clients name the server, the keys and the region
    s3a://, s3n://        the same, as Hadoop writes it
    gs://, abfs://, hdfs://, local://      pyarrow
    memory://, …          fsspec, with the package that it wants for the scheme

This is the only place that makes one, for reading and for writing, so both find the same server.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import Final

import pyarrow as pa
from pyarrow import fs

from flintlog.disk.media.medium import first_line
from flintlog.errors import DiskError, MissingExtra

_HADOOP_S3: Final = re.compile(r"s3[an]:/", re.IGNORECASE)
_AWS_ERROR: Final = re.compile(r"AWS Error ([A-Z_]+) during \w+ operation(?:: (.*))?", re.DOTALL)
_REQUEST: Final = re.compile(r"\s*\((?:Request ID|RequestId): .*", re.DOTALL)
_KEYS: Final = "look at AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
_AWS_SENTENCES: Final[Mapping[str, tuple[str, str]]] = {
    "NO_SUCH_BUCKET": ("there is no such bucket", "buckets are not made here; look at AWS_ENDPOINT_URL, too"),
    "ACCESS_DENIED": ("the server denies access", _KEYS),
    "INVALID_ACCESS_KEY_ID": ("the server does not know the access key", _KEYS),
    "SIGNATURE_DOES_NOT_MATCH": ("the server does not accept the secret key", _KEYS),
    "NETWORK_CONNECTION": ("the server cannot be reached", "look at AWS_ENDPOINT_URL and AWS_DEFAULT_REGION"),
}


def open_file_system(uri: str) -> tuple[fs.FileSystem, str]:
    """The file system of a URI, and the path in it. `DiskError` or `MissingExtra` if there is none."""
    plain = _HADOOP_S3.sub("s3:/", uri, count=1)
    variables = tuple(sorted(item for item in os.environ.items() if item[0].startswith("AWS_")))
    return _open(plain, os.getpid(), variables)


@lru_cache(maxsize=64)
def _open(uri: str, process: int, variables: tuple[tuple[str, str], ...]) -> tuple[fs.FileSystem, str]:
    """Kept, because a client has connections. It must not be used in a forked process, or with other variables."""
    try:
        filesystem, path = fs.FileSystem.from_uri(uri)
    except pa.ArrowInvalid as refusal:
        return _by_fsspec(uri, refusal)
    except (pa.ArrowException, OSError) as error:
        raise DiskError(f"this file system cannot be reached: {first_line(error)}", path=uri) from error
    return filesystem, path


def _by_fsspec(uri: str, refusal: pa.ArrowInvalid) -> tuple[fs.FileSystem, str]:
    """A file system of fsspec, for a URI that pyarrow refused."""
    scheme = uri.partition(":")[0]
    is_unknown = "nrecognized" in str(refusal)
    try:
        import fsspec
    except ModuleNotFoundError as error:
        what = f"pyarrow knows no file system for {scheme}" if is_unknown else first_line(refusal)
        raise MissingExtra(what, path=uri, advice="pip install 'flintlog[storage]'") from error
    try:
        # A listing that is kept would hide new files from a stream.
        found, path = fsspec.core.url_to_fs(uri, use_listings_cache=False)
    except ImportError as error:
        if not is_unknown:  # pyarrow knows the scheme, and the URI lacks something
            raise DiskError(f"this file system cannot be reached: {first_line(refusal)}", path=uri) from refusal
        raise MissingExtra(
            f"the file system of {scheme} needs a package: {first_line(error)}",
            path=uri,
            advice="pip install 'flintlog[storage]', and that package",
        ) from error
    except (ValueError, OSError, TypeError) as error:
        raise DiskError(f"there is no such file system: {first_line(error)}", path=uri) from error
    return fs.PyFileSystem(fs.FSSpecHandler(found)), path


@contextmanager
def remote_errors(action: str, where: str) -> Iterator[None]:
    """Convert the errors of a file system to flintlog's, in one sentence with the URI."""
    try:
        yield
    except FileNotFoundError as error:
        raise DiskError("there is no such file", path=where) from error
    except (OSError, pa.ArrowException) as error:
        raise _in_a_sentence(error, action, where) from error


def _in_a_sentence(error: OSError | pa.ArrowException, action: str, where: str) -> DiskError:
    found = _AWS_ERROR.search(str(error))
    if found is None:
        said = getattr(error, "strerror", None) or first_line(error)
        return DiskError(f"cannot {action}: {said}", path=where)
    code, said = found[1], _REQUEST.sub("", found[2] or "").strip().partition("\n")[0]
    if code in _AWS_SENTENCES:
        what, advice = _AWS_SENTENCES[code]
        return DiskError(what, path=where, advice=advice)
    return DiskError(f"cannot {action}: {code.replace('_', ' ').lower()}{f': {said}' if said else ''}", path=where)
