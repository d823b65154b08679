"""Packed keys: an index file filled from them has the bytes that fast dispatch gives it, however full its slots."""

from __future__ import annotations

import random
import struct
from bisect import bisect_right
from collections.abc import Callable
from types import ModuleType

import pytest

from flintlog.kernel import reference
from flintlog.kernel.types import KEY, LINK

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
def test_bytes_that_are_no_keys_are_refused(kernel: ModuleType, keys: bytes) -> None:
    with pytest.raises(ValueError, match=r"whole keys|not an index hash"):
        kernel.index_fill(bytearray(FILE_BYTES), SLOTS, INDEXES, keys)


# ---------------------------------------------------------------------- several who share the slots

LAYOUTS = [(1, 30), (2, 300), (7, 40), (64, 300), (1000, 300)]
INT32_MAX = 0x7FFF_FFFF
Keys = list[tuple[int, int, int]]


def random_keys(rng: random.Random, count: int, slot_count: int) -> Keys:
    """Keys of which many meet in a slot, some with one hash, and times that do not always grow."""
    few = [rng.randrange(INT32_MAX + 1) for _ in range(5)]
    keys = []
    for number in range(count):
        key_hash = rng.choice([*few, rng.randrange(3 * slot_count), rng.randrange(INT32_MAX + 1), INT32_MAX, 0])
        keys.append((number, rng.choice([-5, 0, 999, rng.randrange(1 << 40), 1 << 62]), key_hash))
    return keys


def packed(keys: Keys) -> bytes:
    return b"".join(KEY.pack(*key) for key in keys)


def begun_file(rng: random.Random, slot_count: int, index_count: int) -> bytearray:
    """A file with some keys, and with impossible slots."""
    file = bytearray(40 + 4 * slot_count + 20 * index_count)
    begun = random_keys(rng, rng.randrange(1, index_count // 2), slot_count)
    assert reference.index_fill(file, slot_count, index_count, packed(begun)) == len(begun)
    for slot in rng.sample(range(slot_count), slot_count // 4):
        struct.pack_into("!i", file, 40 + 4 * slot, rng.choice([-1, -INT32_MAX - 1, index_count, INT32_MAX]))
    return file


@pytest.mark.parametrize("share_count", [1, 2, 3, 8, 64])
@pytest.mark.parametrize(("slot_count", "index_count"), LAYOUTS)
def test_shares_together_give_the_bytes_of_inserting_one_by_one(
    kernel: ModuleType, slot_count: int, index_count: int, share_count: int
) -> None:
    rng = random.Random(slot_count * share_count)
    slots, entries_at = slice(40, 40 + 4 * slot_count), 40 + 4 * slot_count
    for _ in range(5):
        inserted = begun_file(rng, slot_count, index_count)
        shared = bytearray(inserted)
        begin_time, used_slot_count, first = struct.unpack_from("!q24xii", inserted)
        keys = random_keys(rng, rng.randrange(index_count - first + 1), slot_count)
        for offset, timestamp, key_hash in keys:
            assert reference.index_insert(inserted, slot_count, index_count, key_hash, offset, timestamp)
        own = memoryview(shared)[slots]
        linked = [kernel.index_link(own, packed(keys), first, share, share_count) for share in range(share_count)]
        assert shared[slots] == inserted[slots]
        assert used_slot_count + sum(empty for _, empty in linked) == struct.unpack_from("!i", inserted, 32)[0]
        entries = kernel.index_entries(packed(keys), [links for links, _ in linked], slot_count, begin_time)
        assert entries == inserted[entries_at + 20 * first : entries_at + 20 * (first + len(keys))]


def test_a_share_writes_no_slot_of_another(kernel: ModuleType) -> None:
    keys = packed(random_keys(random.Random(3), 500, 10))
    for share, own in enumerate([range(3), range(3, 6), range(6, 10)]):
        slots = bytearray(4 * 10)
        links, empty = kernel.index_link(slots, keys, 1, share, 3)
        used = [slot for slot in range(10) if any(slots[4 * slot : 4 * slot + 4])]
        assert used == list(own)
        assert empty == len(used)
        assert links.nbytes // LINK.size == sum(key_hash % 10 in own for _, _, key_hash in KEY.iter_unpack(keys))


@pytest.mark.parametrize("slot_count", [1, 2, 3, 64, 4_999_999, 5_000_000, INT32_MAX - 1, INT32_MAX])
def test_every_hash_comes_to_its_slot(kernel: ModuleType, slot_count: int) -> None:
    """Seen by the share that an entry takes its link from: the native kernel divides by multiplying."""
    edges = [0, 1, slot_count - 1, slot_count, slot_count + 1, INT32_MAX // slot_count * slot_count, INT32_MAX]
    rng = random.Random(slot_count)
    hashes = [each for each in edges if each <= INT32_MAX] + [rng.randrange(INT32_MAX + 1) for _ in range(2000)]
    starts = [slot_count * share // 64 for share in range(64)]
    links: list[list[int]] = [[] for _ in range(64)]
    for number, key_hash in enumerate(hashes):
        links[bisect_right(starts, key_hash % slot_count) - 1].append(number)
    given = [b"".join(map(LINK.pack, each)) for each in links]
    entries = kernel.index_entries(packed([(0, 0, key_hash) for key_hash in hashes]), given, slot_count, 0)
    assert [entry[3] for entry in struct.iter_unpack("!iqii", entries)] == list(range(len(hashes)))


KEY_1 = KEY.pack(1, 1, 1)
LINK_0 = LINK.pack(0)


@pytest.mark.parametrize(
    ("slots", "keys", "first", "share", "share_count"),
    [
        (bytearray(8), b"short", 1, 0, 1),
        (bytearray(8), KEY.pack(1, 1, -1), 1, 0, 1),
        (bytearray(8), KEY_1, 0, 0, 1),
        (bytearray(8), KEY_1 * 2, INT32_MAX, 0, 1),
        (bytearray(8), KEY_1, 1, 2, 2),
        (bytearray(8), KEY_1, 1, -1, 2),
        (bytearray(8), KEY_1, 1, 0, 0),
        (bytearray(8), KEY_1, 1, 0, 65),
        (bytearray(9), KEY_1, 1, 0, 1),
        (bytearray(), KEY_1, 1, 0, 1),
        (bytes(8), KEY_1, 1, 0, 1),
    ],
)
def test_keys_that_cannot_be_linked_are_refused(
    kernel: ModuleType, slots: bytearray, keys: bytes, first: int, share: int, share_count: int
) -> None:
    with pytest.raises((ValueError, BufferError)):
        kernel.index_link(slots, keys, first, share, share_count)


@pytest.mark.parametrize(
    ("keys", "links", "slot_count"),
    [
        (b"short", [LINK_0], 4),
        (KEY_1, [b""], 4),
        (KEY_1, [LINK_0 * 2], 4),
        (KEY_1, [LINK_0, b""], 1),
        (KEY_1, [b"odd"], 4),
        (KEY_1, [], 4),
        (KEY_1, [LINK_0] + [b""] * 64, 4),
        (KEY_1, [LINK_0], 0),
        (KEY_1, [LINK_0], INT32_MAX + 1),
    ],
)
def test_links_of_other_keys_are_refused(kernel: ModuleType, keys: bytes, links: list[bytes], slot_count: int) -> None:
    with pytest.raises(ValueError, match=r"keys|links|shared|slots"):
        kernel.index_entries(keys, links, slot_count, 0)
