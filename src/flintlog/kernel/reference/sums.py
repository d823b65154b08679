"""The hash of index keys and the CRC of records, under the names that both kernels share."""

from __future__ import annotations

import zlib

from flintlog.format.java import index_hash
from flintlog.kernel.types import Buffer

__all__ = ["crc32", "index_hash"]


def crc32(buffer: Buffer) -> int:
    """CRC-32 without its top bit, as records hold it.

    >>> crc32(b"hello") == 0x3610A686
    True
    """
    return zlib.crc32(buffer) & 0x7FFFFFFF
