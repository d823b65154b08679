# The index keys of a scan, packed, and an index file filled from them.

cdef packed struct PackedKey:
    int64_t physical_offset
    int64_t store_timestamp
    int32_t hash


cdef enum:
    PREFETCH_KEYS = 8


def pack_keys(Scan scan not None):
    """The keys of a scan in the log's order, packed as `types.KEY`."""
    cdef Growing keys
    cdef const ScanRow *row
    cdef const int32_t *hashes = <const int32_t *>scan.hash_block.data
    cdef PackedKey *key
    cdef Py_ssize_t at
    cdef int32_t i
    memset(&keys, 0, sizeof(Growing))
    try:
        for at in range(scan.count):
            row = <const ScanRow *>scan.row_block.data + at
            if row.hash_count == 0:
                continue
            key = <PackedKey *>more(&keys, row.hash_count * sizeof(PackedKey))
            if key == NULL:
                raise MemoryError
            for i in range(row.hash_count):
                key[i].physical_offset = row.physical_offset
                key[i].store_timestamp = row.store_timestamp
                key[i].hash = hashes[row.first_hash + i]
            keys.size += row.hash_count * sizeof(PackedKey)
        return memoryview(block_of(&keys))
    finally:
        free(keys.data)


def index_fill(buffer, Py_ssize_t slot_count, Py_ssize_t index_count, keys):
    """Add packed keys to an index file; how many went in before it was full."""
    cdef Held held = hold_index(buffer, slot_count, index_count)
    cdef Held given = Held(keys)
    cdef Py_ssize_t count = given.size // sizeof(PackedKey)
    cdef const PackedKey *key = <const PackedKey *>given.data
    cdef Py_ssize_t at
    if given.size % sizeof(PackedKey):
        raise ValueError(f"{given.size} bytes are no whole keys")
    for at in range(count):
        if key[at].hash < 0:
            raise ValueError(f"not an index hash: {key[at].hash}")
        if at + PREFETCH_KEYS < count:
            prefetch_write(
                held.data
                + INDEX_HEADER_SIZE
                + <size_t>INDEX_SLOT_SIZE * (<uint32_t>key[at + PREFETCH_KEYS].hash % <uint32_t>slot_count)
            )
        if not insert(
            held.data,
            <uint32_t>slot_count,
            <uint32_t>index_count,
            key[at].hash,
            key[at].physical_offset,
            key[at].store_timestamp,
        ):
            return at
    return count
