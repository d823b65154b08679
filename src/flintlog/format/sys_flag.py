"""The bits of a record's sys flag.

      10   8  7       6        5         4         3           2  1       0
    +--------+-------+--------+---------+---------+-------------+-------+------------+
    | codec  | inner | needs  | store   | born    | transaction | multi | compressed |
    |        | batch | unwrap | host v6 | host v6 |             | tags  |            |
    +--------+-------+--------+---------+---------+-------------+-------+------------+

Codec: 1 LZ4, 2 ZSTD, 3 ZLIB; 0 is ZLIB too (old clients). Transaction: 0 none, 1 prepared, 2 commit, 3 rollback.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from flintlog.errors import FormatError

COMPRESSED: Final = 0x1
MULTI_TAGS: Final = 0x2
TRANSACTION_MASK: Final = 0xC
BORN_HOST_V6: Final = 0x10
STORE_HOST_V6: Final = 0x20
NEED_UNWRAP: Final = 0x40
INNER_BATCH: Final = 0x80
COMPRESSION_MASK: Final = 0x700
COMPRESSION_SHIFT: Final = 8


class TransactionType(IntEnum):
    """The transaction bits, in place."""

    NONE = 0x0
    PREPARED = 0x4
    COMMIT = 0x8
    ROLLBACK = 0xC


class CompressionType(IntEnum):
    """How a compressed body was packed; LZ4 is the frame format."""

    LZ4 = 1
    ZSTD = 2
    ZLIB = 3


def transaction_type(flag: int) -> TransactionType:
    """The transaction type in a sys flag."""
    return TransactionType(flag & TRANSACTION_MASK)


def with_transaction_type(flag: int, kind: TransactionType) -> int:
    """The sys flag with another transaction type."""
    return flag & ~TRANSACTION_MASK | kind


def takes_queue_offset(flag: int) -> bool:
    """Whether a record of this sys flag has a place in its queue: prepared and rolled back ones have not."""
    return flag & TRANSACTION_MASK in (TransactionType.NONE, TransactionType.COMMIT)


def is_compressed(flag: int) -> bool:
    """Whether the body is compressed."""
    return bool(flag & COMPRESSED)


def compression_type(flag: int) -> CompressionType:
    """The codec of a compressed body."""
    number = (flag & COMPRESSION_MASK) >> COMPRESSION_SHIFT
    if number > CompressionType.ZLIB:
        raise FormatError(f"sys flag {flag:#x} names the unknown compression type {number}")
    return CompressionType(number or CompressionType.ZLIB)


def with_compression(flag: int, kind: CompressionType) -> int:
    """The sys flag of a body compressed this way."""
    return flag & ~COMPRESSION_MASK | kind << COMPRESSION_SHIFT | COMPRESSED


def host_bits(born_host: bytes, store_host: bytes) -> int:
    """The IPv6 bits that belong to two packed hosts."""
    return BORN_HOST_V6 * (len(born_host) > 8) | STORE_HOST_V6 * (len(store_host) > 8)
