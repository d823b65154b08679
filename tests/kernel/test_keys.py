"""Packed keys: an index file filled from them has the bytes that the lane gives it."""

from __future__ import annotations

import random
from collections.abc import Callable
from types import ModuleType

import pytest

from flintlog.kernel.types import KEY

SLOTS, INDEXES = 7, 40
FILE_BYTES = 40 + 4 * SLOTS + 20 * INDEXES
RandomLog = Callable[[random.Random], bytes]


def test_filling_gives_the_bytes_of_inserting_one_by_one(kernel: ModuleType, random_log: RandomLog) -> None:
    log = random_log(random.Random(5))
    found = kernel.scan(log, 0, len(log), 0)
    keys = kernel.pack_keys(found)
    expected = [
        (row.physical_offset, row.store_timestamp, key_hash)
        for row in map(found.row, range(found.count))
        for key_hash in found.hashes[row.first_hash : row.first_hash + row.hash_count]
    ]
    assert list(KEY.iter_unpack(keys)) == expected
    filled, inserted = bytearray(FILE_BYTES), bytearray(FILE_BYTES)
    done = kernel.index_fill(filled, SLOTS, INDEXES, keys)
    for offset, timestamp, key_hash in expected[:done]:
        assert kernel.index_insert(inserted, SLOTS, INDEXES, key_hash, offset, timestamp)
    assert filled == inserted
    assert done == min(len(expected), INDEXES - 1)


def test_a_full_file_takes_no_more(kernel: ModuleType) -> None:
    keys = b"".join(KEY.pack(number, 1_000 * number, number % 11) for number in range(1, INDEXES + 5))
    buffer = bytearray(FILE_BYTES)
    assert kernel.index_fill(buffer, SLOTS, INDEXES, keys) == INDEXES - 1
    assert kernel.index_fill(buffer, SLOTS, INDEXES, keys) == 0
    assert kernel.index_fill(buffer, SLOTS, INDEXES, b"") == 0


@pytest.mark.parametrize("keys", [b"short", KEY.pack(1, 1, -1)])
def test_what_is_no_key_is_refused(kernel: ModuleType, keys: bytes) -> None:
    with pytest.raises(ValueError, match=r"whole keys|not an index hash"):
        kernel.index_fill(bytearray(FILE_BYTES), SLOTS, INDEXES, keys)
