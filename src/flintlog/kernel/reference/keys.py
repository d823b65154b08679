"""The index keys of a scan, packed, and an index file filled from them.

Keys that leave the process that scanned them (a Spark task) travel packed; whoever builds the index file knows where in
the order of all keys they stand.
"""

from __future__ import annotations

from flintlog.kernel.reference.lane import index_insert
from flintlog.kernel.reference.scanning import Scan
from flintlog.kernel.types import KEY, Buffer


def pack_keys(scan: Scan) -> memoryview:
    """The keys of a scan in the log's order, packed as `types.KEY`."""
    keys = bytearray()
    for index in range(scan.count):
        row = scan.row(index)
        for key_hash in scan.hashes[row.first_hash : row.first_hash + row.hash_count]:
            keys += KEY.pack(row.physical_offset, row.store_timestamp, key_hash)
    return memoryview(bytes(keys))


def index_fill(buffer: Buffer, slot_count: int, index_count: int, keys: Buffer) -> int:
    """Add packed keys to an index file; how many went in before it was full."""
    with memoryview(keys).cast("B") as view:
        if view.nbytes % KEY.size:
            raise ValueError(f"{view.nbytes} bytes are no whole keys")
        for number, (physical_offset, store_timestamp, key_hash) in enumerate(KEY.iter_unpack(view)):
            if not index_insert(buffer, slot_count, index_count, key_hash, physical_offset, store_timestamp):
                return number
        return view.nbytes // KEY.size
