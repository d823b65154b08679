# The index keys of a scan, packed, and an index file filled from them by one thread, or by several.

cdef packed struct PackedKey:
    int64_t physical_offset
    int64_t store_timestamp
    int32_t hash


cdef enum:
    PREFETCH_KEYS = 8
    KEYS_AT_ONCE = 64
    MOST_SHARES = 64


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
    """Add packed keys to an index file; returns how many fitted."""
    cdef Held held = hold_index(buffer, slot_count, index_count)
    cdef Held given = Held(keys)
    cdef Py_ssize_t count = key_count(given)
    cdef const PackedKey *key = <const PackedKey *>given.data
    cdef uint64_t inverse = inverse_of(<uint32_t>slot_count)
    cdef Py_ssize_t at
    for at in range(count):
        if key[at].hash < 0:
            raise ValueError(f"not an index hash: {key[at].hash}")
        if at + PREFETCH_KEYS < count:
            prefetch_write(slot_of(held.data, key[at + PREFETCH_KEYS].hash, <uint32_t>slot_count, inverse))
        if not insert(
            held.data,
            <uint32_t>slot_count,
            inverse,
            <uint32_t>index_count,
            key[at].hash,
            key[at].physical_offset,
            key[at].store_timestamp,
        ):
            return at
    return count


def index_link(slots, keys, Py_ssize_t first, Py_ssize_t share=0, Py_ssize_t share_count=1):
    """Chain packed keys in the slots of one share; the first of all keys becomes entry number `first`.

    Returns the links, which are the previous entry in the slot of each key of this share, packed as `types.LINK`; and
    how many of these keys are the first in their slot. Shares are ranges of slots, so several threads may chain the
    same keys at the same time.
    """
    cdef Held held = Held(slots, writable=True)
    cdef Held given = Held(keys)
    cdef Py_ssize_t count = key_count(given)
    cdef uint32_t slot_count = checked_slots(held.size // INDEX_SLOT_SIZE)
    cdef uint32_t low, high
    cdef int64_t empty
    cdef Growing links
    if held.size % INDEX_SLOT_SIZE:
        raise ValueError(f"{held.size} bytes are no whole slots")
    check_shares(share_count)
    if not (0 <= share < share_count):
        raise ValueError(f"no share {share} of {share_count}")
    if first < 1 or first + count - 1 > INT32_MAX:
        raise ValueError(f"{count} keys from {first} on are no entries of an index file")
    low, high = share_start(share, share_count, slot_count), share_start(share + 1, share_count, slot_count)
    memset(&links, 0, sizeof(Growing))
    try:
        with nogil:
            empty = link(held.data, slot_count, low, high, <const PackedKey *>given.data, count, <int32_t>first, &links)
        if empty == NO_MEMORY:
            raise MemoryError
        if empty < 0:
            raise no_hash(given, count)
        return memoryview(block_of(&links)), empty
    finally:
        free(links.data)


cdef enum:
    NO_HASH = -1
    NO_MEMORY = -2


cdef int64_t link(
    uint8_t *slots,
    uint32_t slot_count,
    uint32_t low,
    uint32_t high,
    const PackedKey *keys,
    Py_ssize_t count,
    int32_t first,
    Growing *links,
) noexcept nogil:
    """A few keys at a time: all their slots are prefetched before the first is needed."""
    cdef uint64_t inverse = inverse_of(slot_count)
    cdef uint32_t own_slots[KEYS_AT_ONCE]
    cdef int32_t numbers[KEYS_AT_ONCE]
    cdef uint8_t *slot
    cdef uint8_t *out
    cdef int64_t empty = 0
    cdef Py_ssize_t at = 0
    cdef Py_ssize_t stop, own, i
    cdef uint32_t place
    cdef int32_t signs, previous
    while at < count:
        stop = min(at + KEYS_AT_ONCE, count)
        own, signs = 0, 0
        while at < stop:
            place = remainder_of(<uint32_t>keys[at].hash, inverse, slot_count)
            signs |= keys[at].hash
            own_slots[own] = place
            numbers[own] = first + <int32_t>at
            own += place - low < high - low  # without a branch, which would be mispredicted often
            at += 1
        if signs < 0:
            return NO_HASH
        for i in range(own):
            prefetch_write(slots + <size_t>INDEX_SLOT_SIZE * own_slots[i])
        out = more(links, own * sizeof(int32_t))
        if out == NULL:
            return NO_MEMORY
        for i in range(own):
            slot = slots + <size_t>INDEX_SLOT_SIZE * own_slots[i]
            previous = get32(slot)
            if previous < 0 or previous > numbers[i]:
                previous = 0
            (<int32_t *>out)[i] = previous
            put32(slot, numbers[i])
            empty += previous == 0
        links.size += own * sizeof(int32_t)
    return empty


def index_entries(keys, links, Py_ssize_t slot_count, int64_t begin_time):
    """The entries of packed keys for an index file that begins at this time; `links` holds those of every share."""
    cdef Held given = Held(keys)
    cdef Py_ssize_t count = key_count(given)
    cdef Py_ssize_t share_count = len(links)
    cdef const uint8_t *next_links[MOST_SHARES]
    cdef const uint8_t *ends[MOST_SHARES]
    cdef uint32_t starts[MOST_SHARES]
    cdef Held part
    cdef Growing entries
    cdef Py_ssize_t share
    cdef bint fits
    checked_slots(slot_count)
    check_shares(share_count)
    held = [Held(each) for each in links]
    for share in range(share_count):
        part = held[share]
        if part.size % sizeof(int32_t):
            raise ValueError(f"{part.size} bytes are no whole links")
        next_links[share] = part.data
        ends[share] = part.data + part.size
        starts[share] = share_start(share, share_count, <uint32_t>slot_count)
    memset(&entries, 0, sizeof(Growing))
    try:
        if more(&entries, count * INDEX_ENTRY_SIZE) == NULL:
            raise MemoryError
        with nogil:
            fits = put_entries(
                entries.data,
                <const PackedKey *>given.data,
                count,
                <uint32_t>slot_count,
                begin_time,
                next_links,
                ends,
                starts,
                share_count,
            )
        if not fits:
            raise ValueError("the links are not those of these keys")
        entries.size = count * INDEX_ENTRY_SIZE
        return memoryview(block_of(&entries))
    finally:
        free(entries.data)


cdef bint put_entries(
    uint8_t *entry,
    const PackedKey *keys,
    Py_ssize_t count,
    uint32_t slot_count,
    int64_t begin_time,
    const uint8_t **links,
    const uint8_t **ends,
    const uint32_t *starts,
    Py_ssize_t share_count,
) noexcept nogil:
    cdef uint64_t inverse = inverse_of(slot_count)
    cdef Py_ssize_t at, share, other
    cdef uint32_t slot
    cdef int32_t previous
    for at in range(count):
        share = 0
        if share_count > 1:
            slot = remainder_of(<uint32_t>keys[at].hash, inverse, slot_count)
            for other in range(1, share_count):
                share += slot >= starts[other]
        if links[share] == ends[share]:
            return False
        put32(entry, keys[at].hash)
        put64(entry + 4, keys[at].physical_offset)
        put32(entry + 12, seconds_since(begin_time, keys[at].store_timestamp))
        memcpy(&previous, links[share], sizeof(int32_t))
        put32(entry + 16, previous)
        links[share] += sizeof(int32_t)
        entry += INDEX_ENTRY_SIZE
    for share in range(share_count):
        if links[share] != ends[share]:
            return False
    return True


cdef inline uint32_t share_start(Py_ssize_t share, Py_ssize_t share_count, uint32_t slot_count) noexcept nogil:
    return <uint32_t>(<uint64_t>slot_count * <uint64_t>share // <uint64_t>share_count)


cdef Py_ssize_t key_count(Held keys) except -1:
    if keys.size % sizeof(PackedKey):
        raise ValueError(f"{keys.size} bytes are no whole keys")
    return keys.size // sizeof(PackedKey)


cdef uint32_t checked_slots(Py_ssize_t slot_count) except 0:
    if not (1 <= slot_count <= INT32_MAX):
        raise ValueError(f"an index file cannot have {slot_count} slots")
    return <uint32_t>slot_count


cdef int check_shares(Py_ssize_t share_count) except -1:
    if not (1 <= share_count <= MOST_SHARES):
        raise ValueError(f"slots are not shared by {share_count}")
    return 0


cdef no_hash(Held keys, Py_ssize_t count):
    cdef const PackedKey *key = <const PackedKey *>keys.data
    cdef Py_ssize_t at
    for at in range(count):
        if key[at].hash < 0:
            return ValueError(f"not an index hash: {key[at].hash}")
    return ValueError("not an index hash")
