"""The index keys of a scan, packed, and an index file filled from them.

Keys that leave the process that scanned them (a Spark task) are packed. The builder of an index file knows their
position in the order of all keys. Several threads may fill one index file, each with its share of the slots:

    keys  ──▶  index_link     each share: the entry before each key in its slot    all keys, own slots
          ──▶  index_entries  the entries, with the links of all shares            some keys, all slots

A chain stays within a slot and an entry's place follows from its number, so nothing else is shared.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from flintlog.format.index_file import INDEX_ENTRY, INDEX_SLOT, time_difference_s
from flintlog.kernel.reference.fast_dispatch import index_insert
from flintlog.kernel.reference.scanning import Scan
from flintlog.kernel.types import KEY, LINK, Buffer

_MAX_INT32: Final = 0x7FFF_FFFF
_MAX_UINT32: Final = 0xFFFF_FFFF
_MOST_SHARES: Final = 64


def pack_keys(scan: Scan) -> memoryview:
    """The keys of a scan in the log's order, packed as `types.KEY`."""
    keys = bytearray()
    for index in range(scan.count):
        row = scan.row(index)
        for key_hash in scan.hashes[row.first_hash : row.first_hash + row.hash_count]:
            keys += KEY.pack(row.physical_offset, row.store_timestamp, key_hash)
    return memoryview(bytes(keys))


def index_fill(buffer: Buffer, slot_count: int, index_count: int, keys: Buffer) -> int:
    """Add packed keys to an index file; returns how many fitted."""
    with memoryview(keys).cast("B") as view:
        count = _key_count(view)
        for number, (physical_offset, store_timestamp, key_hash) in enumerate(KEY.iter_unpack(view)):
            if not index_insert(buffer, slot_count, index_count, key_hash, physical_offset, store_timestamp):
                return number
        return count


def index_link(slots: Buffer, keys: Buffer, first: int, share: int = 0, share_count: int = 1) -> tuple[memoryview, int]:
    """Chain packed keys in the slots of one share; the first of all keys becomes entry number `first`.

    Returns the links, which are the previous entry in the slot of each key of this share, packed as `types.LINK`; and
    how many of these keys are the first in their slot. Shares are ranges of slots, so several threads may chain the
    same keys at the same time.
    """
    links, empty = bytearray(), 0
    with memoryview(slots).cast("B") as view, memoryview(keys).cast("B") as packed:
        if view.readonly:
            raise BufferError("the slots cannot be written")
        slot_count = _checked_slots(view.nbytes // INDEX_SLOT.size)
        if view.nbytes % INDEX_SLOT.size:
            raise ValueError(f"{view.nbytes} bytes are no whole slots")
        _check_shares(share_count)
        if not 0 <= share < share_count:
            raise ValueError(f"no share {share} of {share_count}")
        count = _key_count(packed)
        if first < 1 or first + count - 1 > _MAX_INT32:
            raise ValueError(f"{count} keys from {first} on are no entries of an index file")
        for number, (_, _, key_hash) in enumerate(KEY.iter_unpack(packed), first):
            if key_hash < 0:
                raise ValueError(f"not an index hash: {key_hash}")
            slot = key_hash % slot_count
            if _share_of(slot, share_count, slot_count) != share:
                continue
            (previous,) = INDEX_SLOT.unpack_from(view, slot * INDEX_SLOT.size)
            if not 0 < previous <= number:
                previous = 0
            links += LINK.pack(previous)
            empty += previous == 0
            INDEX_SLOT.pack_into(view, slot * INDEX_SLOT.size, number)
    return memoryview(bytes(links)), empty


def index_entries(keys: Buffer, links: Sequence[Buffer], slot_count: int, begin_time: int) -> memoryview:
    """The entries of packed keys for an index file that begins at this time; `links` holds those of every share."""
    _checked_slots(slot_count)
    _check_shares(len(links))
    shares = [_Links(each) for each in links]
    entries = bytearray()
    with memoryview(keys).cast("B") as packed:
        _key_count(packed)
        for physical_offset, store_timestamp, key_hash in KEY.iter_unpack(packed):
            share = _share_of((key_hash & _MAX_UINT32) % slot_count, len(links), slot_count)
            seconds = time_difference_s(store_timestamp, begin_time)
            entries += INDEX_ENTRY.pack(key_hash, physical_offset, seconds, shares[share].take())
    if any(share.is_left for share in shares):
        raise ValueError("the links are not those of these keys")
    return memoryview(bytes(entries))


class _Links:
    """The links of one share, taken one after another."""

    def __init__(self, packed: Buffer) -> None:
        with memoryview(packed).cast("B") as view:
            if view.nbytes % LINK.size:
                raise ValueError(f"{view.nbytes} bytes are no whole links")
            self._links: list[int] = [previous for (previous,) in LINK.iter_unpack(view)]
        self._taken = 0

    def take(self) -> int:
        if not self.is_left:
            raise ValueError("the links are not those of these keys")
        self._taken += 1
        return self._links[self._taken - 1]

    @property
    def is_left(self) -> bool:
        return self._taken < len(self._links)


def _share_of(slot: int, share_count: int, slot_count: int) -> int:
    """Share s begins at slot s × slots // shares."""
    return sum(slot >= slot_count * share // share_count for share in range(1, share_count))


def _key_count(packed: memoryview) -> int:
    if packed.nbytes % KEY.size:
        raise ValueError(f"{packed.nbytes} bytes are no whole keys")
    return packed.nbytes // KEY.size


def _checked_slots(slot_count: int) -> int:
    if not 1 <= slot_count <= _MAX_INT32:
        raise ValueError(f"an index file cannot have {slot_count} slots")
    return slot_count


def _check_shares(share_count: int) -> None:
    if not 1 <= share_count <= _MOST_SHARES:
        raise ValueError(f"slots are not shared by {share_count}")
