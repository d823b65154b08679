"""The bits of the sys flag."""

from __future__ import annotations

import pytest

from flintlog.errors import FormatError
from flintlog.format.sys_flag import (
    CompressionType,
    TransactionType,
    compression_type,
    host_bits,
    is_compressed,
    takes_queue_offset,
    transaction_type,
    with_compression,
    with_transaction_type,
)


def test_transaction_types_are_two_bits() -> None:
    assert [transaction_type(flag) for flag in (0xF3, 0x4, 0x8, 0xFC)] == list(TransactionType)
    assert [takes_queue_offset(kind) for kind in TransactionType] == [True, False, True, False]
    assert with_transaction_type(0xFFF, TransactionType.COMMIT) == 0xFFB
    assert transaction_type(-1) is TransactionType.ROLLBACK


def test_compression_types() -> None:
    assert compression_type(0x001) is CompressionType.ZLIB
    assert [compression_type(number << 8) for number in (1, 2, 3)] == list(CompressionType)
    assert with_compression(0x710, CompressionType.ZSTD) == 0x211
    assert is_compressed(0x301)
    assert not is_compressed(0x300)
    for number in (4, 5, 6, 7):
        with pytest.raises(FormatError):
            compression_type(number << 8)


def test_host_bits_follow_from_the_hosts() -> None:
    assert [host_bits(bytes(born), bytes(store)) for born in (8, 20) for store in (8, 20)] == [0, 0x20, 0x10, 0x30]
