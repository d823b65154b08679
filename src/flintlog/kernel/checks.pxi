# Derives the expected queue and index entries from the log, and compares index files with them.

cdef inline bint has_queue_place(int32_t sys_flag) noexcept nogil:
    """Prepared and rolled back records have no queue entry."""
    return sys_flag & TRANSACTION_MASK == 0 or sys_flag & TRANSACTION_MASK == 0x8


def queue_runs(Scan scan not None):
    """The queue entries of a scan's records, the runs that they form, and the rows that may need other entries."""
    cdef Py_ssize_t queue_count = len(scan.queues)
    cdef Py_ssize_t index, place
    cdef const ScanRow *rows = <const ScanRow *>scan.row_block.data
    cdef const ScanRow *row
    cdef Py_ssize_t *starts = <Py_ssize_t *>calloc(queue_count + 2, sizeof(Py_ssize_t))
    cdef Growing entries
    cdef Growing marked
    cdef Growing ordered
    cdef const ScanRow **by_queue
    cdef list runs = []
    cdef list special = []
    cdef Py_ssize_t total
    memset(&entries, 0, sizeof(Growing))
    memset(&marked, 0, sizeof(Growing))
    memset(&ordered, 0, sizeof(Growing))
    if starts == NULL:
        raise MemoryError
    try:
        with nogil:
            total = count_by_queue(rows, scan.count, starts, queue_count, &marked)
            if total >= 0 and (
                more(&entries, total * ENTRY_SIZE) == NULL or more(&ordered, total * sizeof(ScanRow *)) == NULL
            ):
                total = -1
            if total >= 0:
                entries.size = total * ENTRY_SIZE
                by_queue = <const ScanRow **>ordered.data
                for index in range(scan.count):
                    row = rows + index
                    if has_queue_place(row.sys_flag):
                        place = starts[row.queue]
                        starts[row.queue] = place + 1
                        by_queue[place] = row
                        put64(entries.data + place * ENTRY_SIZE, row.physical_offset)
                        put32(entries.data + place * ENTRY_SIZE + 8, row.size)
                        put64(entries.data + place * ENTRY_SIZE + 12, row.tags_code)
        if total < 0:
            raise MemoryError
        by_queue = <const ScanRow **>ordered.data
        index = 0
        for place in range(total):
            if (
                place + 1 == total
                or by_queue[place + 1].queue != by_queue[place].queue
                or by_queue[place + 1].queue_offset != by_queue[place].queue_offset + 1
            ):
                row = by_queue[index]
                runs.append(
                    QueueRun(
                        row.queue,
                        row.queue_offset,
                        place + 1 - index,
                        index * ENTRY_SIZE,
                        row.physical_offset,
                        by_queue[place].physical_offset,
                    )
                )
                index = place + 1
        for place in range(<Py_ssize_t>(marked.size // sizeof(Py_ssize_t))):
            special.append((<Py_ssize_t *>marked.data)[place])
        return block_of(&entries), runs, special
    finally:
        free(starts)
        free(entries.data)
        free(marked.data)
        free(ordered.data)


cdef Py_ssize_t count_by_queue(
    const ScanRow *rows, Py_ssize_t count, Py_ssize_t *starts, Py_ssize_t queue_count, Growing *marked
) noexcept nogil:
    """Where each queue's entries begin, and how many there are in all; -1 without memory."""
    cdef Py_ssize_t index, before, sum = 0
    cdef Py_ssize_t *place
    for index in range(count):
        if has_queue_place(rows[index].sys_flag):
            starts[rows[index].queue] += 1
            if rows[index].marks != 0:
                place = <Py_ssize_t *>more(marked, sizeof(Py_ssize_t))
                if place == NULL:
                    return -1
                place[0] = index
                marked.size += sizeof(Py_ssize_t)
    for index in range(queue_count):
        before = sum
        sum += starts[index]
        starts[index] = before
    return sum


def match_index(
    buffer,
    Py_ssize_t slot_count,
    Py_ssize_t entry,
    Py_ssize_t stop,
    int64_t begin_timestamp,
    Scan scan not None,
    Py_ssize_t row,
    Py_ssize_t hash_index,
):
    """Compare an index file's entries [entry, stop) with a scan's keys, from a row and one of its keys on."""
    cdef Held held = Held(buffer)
    cdef const ScanRow *rows = <const ScanRow *>scan.row_block.data
    cdef const uint32_t *hashes = <const uint32_t *>scan.hash_block.data
    cdef const uint8_t *at
    cdef int64_t seconds
    cdef int64_t first = INDEX_HEADER_SIZE + <int64_t>INDEX_SLOT_SIZE * min(max(slot_count, 0), INT32_MAX)
    if not (0 <= slot_count <= INT32_MAX and 0 <= entry <= stop <= INT32_MAX) or first + <int64_t>INDEX_ENTRY_SIZE * stop > held.size or row < 0 or hash_index < 0:
        raise ValueError(f"the entries {entry} to {stop} are not in an index file of {held.size} bytes")
    with nogil:
        while row < scan.count:
            seconds = 0
            if begin_timestamp > 0 and rows[row].store_timestamp > begin_timestamp:
                seconds = min((rows[row].store_timestamp - begin_timestamp) // 1000, <int64_t>INT32_MAX)
            while hash_index < rows[row].hash_count and entry < stop:
                at = held.data + first + INDEX_ENTRY_SIZE * entry
                if (
                    <uint32_t>get32(at) != hashes[rows[row].first_hash + hash_index]
                    or get64(at + 4) != rows[row].physical_offset
                    or get32(at + 12) != seconds
                ):
                    break
                entry += 1
                hash_index += 1
            if hash_index < rows[row].hash_count:
                break
            row += 1
            hash_index = 0
    return entry, row, hash_index


def check_chains(buffer, Py_ssize_t slot_count, Py_ssize_t count, Py_ssize_t limit=64):
    """Compare an index file's slots and links with the chains that follow from its entries [1, count)."""
    cdef Held held = Held(buffer)
    cdef int64_t first = INDEX_HEADER_SIZE + <int64_t>INDEX_SLOT_SIZE * min(max(slot_count, 0), INT32_MAX)
    cdef Py_ssize_t entry, slot, used = 0, fault_count = 0
    cdef const uint8_t *at
    cdef int32_t *newest
    cdef int32_t key_hash, previous
    cdef list faults = []
    if not (1 <= slot_count <= INT32_MAX and 0 <= count <= INT32_MAX) or first + <int64_t>INDEX_ENTRY_SIZE * count > held.size:
        raise ValueError(f"{slot_count} slots and {count} entries are not in an index file of {held.size} bytes")
    newest = <int32_t *>calloc(slot_count, sizeof(int32_t))
    if newest == NULL:
        raise MemoryError
    try:
        with nogil:
            for entry in range(1, count):
                at = held.data + first + INDEX_ENTRY_SIZE * entry
                key_hash = get32(at)
                previous = get32(at + 16)
                slot = <uint32_t>key_hash % <uint32_t>slot_count
                used += newest[slot] == 0
                if key_hash < 0 or previous != newest[slot]:
                    fault_count += 1
                    if fault_count <= limit:
                        with gil:
                            faults.append(ChainFault(False, entry, newest[slot], previous))
                newest[slot] = <int32_t>entry
            for slot in range(slot_count):
                previous = get32(held.data + INDEX_HEADER_SIZE + INDEX_SLOT_SIZE * slot)
                if previous != newest[slot]:
                    fault_count += 1
                    if fault_count <= limit:
                        with gil:
                            faults.append(ChainFault(True, slot, newest[slot], previous))
        return used, fault_count, faults
    finally:
        free(newest)
