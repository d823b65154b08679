# A range of the log as rows, the valid entries of a consume queue, and the search for intact records.

cdef extern from "string.h" nogil:
    void *memchr(const void *at, int byte, size_t size)


cdef packed struct ScanRow:
    int64_t physical_offset
    int64_t queue_offset
    int64_t tags_code
    int64_t store_timestamp
    int32_t size
    int32_t queue
    int32_t sys_flag
    int32_t first_hash
    int32_t hash_count
    int32_t marks


cdef struct QueueName:
    Span topic
    int32_t queue_id
    uint32_t prefix
    uint64_t hash


cdef struct QueueNames:
    # Open addressing: `places` holds ordinals + 1 into `names`, at most half full.
    Growing names
    int32_t *places
    size_t mask
    int32_t count


cdef inline QueueName *name_at(QueueNames *table, int32_t ordinal) noexcept nogil:
    return <QueueName *>table.names.data + ordinal


cdef inline bint is_named(const QueueName *name, Span topic, int32_t queue_id) noexcept nogil:
    if name.queue_id != queue_id or name.topic.size != topic.size:
        return False
    return memcmp(name.topic.at, topic.at, topic.size) == 0


cdef int32_t find_queue(const QueueNames *table, Span topic, int32_t queue_id, uint64_t hash) noexcept nogil:
    cdef size_t place = hash & table.mask
    cdef int32_t ordinal
    cdef const QueueName *names = <const QueueName *>table.names.data
    if table.places == NULL:
        return -1
    while table.places[place] != 0:
        ordinal = table.places[place] - 1
        if names[ordinal].hash == hash and is_named(&names[ordinal], topic, queue_id):
            return ordinal
        place = (place + 1) & table.mask
    return -1


cdef inline uint64_t queue_hash(Span topic, int32_t queue_id) noexcept nogil:
    return table_hash(topic.at, topic.size, table_seed ^ <uint64_t><uint32_t>queue_id << 32)


cdef int32_t add_queue(QueueNames *table, Span topic, int32_t queue_id, uint64_t hash) noexcept nogil:
    """The ordinal of a new name; its topic's bytes must outlive the table. -1 without memory."""
    cdef QueueName *name
    if <size_t>table.count * 2 >= table.mask and not _widen(table):
        return -1
    name = <QueueName *>more(&table.names, sizeof(QueueName))
    if name == NULL:
        return -1
    table.names.size += sizeof(QueueName)
    name.topic = topic
    name.queue_id = queue_id
    name.prefix = prefix_of(topic)
    name.hash = hash
    _place(table, table.count)
    table.count += 1
    return table.count - 1


cdef void _place(QueueNames *table, int32_t ordinal) noexcept nogil:
    cdef size_t place = name_at(table, ordinal).hash & table.mask
    while table.places[place] != 0:
        place = (place + 1) & table.mask
    table.places[place] = ordinal + 1


cdef bint _widen(QueueNames *table) noexcept nogil:
    cdef size_t size = 64 if table.places == NULL else (table.mask + 1) * 4
    cdef int32_t *places = <int32_t *>calloc(size, sizeof(int32_t))
    cdef int32_t ordinal
    if places == NULL:
        return False
    free(table.places)
    table.places = places
    table.mask = size - 1
    for ordinal in range(table.count):
        _place(table, ordinal)
    return True


cdef void free_names(QueueNames *table) noexcept nogil:
    free(table.places)
    free(table.names.data)
    memset(table, 0, sizeof(QueueNames))


cdef class Scan:
    """The result of a scan: one row for each record, in log order."""

    cdef Block row_block
    cdef Block hash_block
    cdef readonly Py_ssize_t count
    cdef readonly list queues
    cdef readonly Py_ssize_t end
    cdef readonly object reason

    @property
    def rows(self):
        """The rows, packed as `types.ROW`."""
        return memoryview(self.row_block)

    @property
    def hashes(self):
        """All index hashes, 32 bits each; a row says which are its own."""
        return memoryview(self.hash_block).cast("B").cast("I")

    def row(self, Py_ssize_t index):
        """One row, unpacked."""
        if not (0 <= index < self.count):
            raise IndexError(f"row {index} of a scan of {self.count} rows")
        return Row._make(ROW.unpack_from(self.row_block, index * sizeof(ScanRow)))


def scan(
    buffer,
    Py_ssize_t start,
    Py_ssize_t stop,
    int64_t base,
    *,
    int check_crc=0,
    delay_levels_ms=(),
    max_count=None,
):
    """The records of buffer[start:stop], where buffer[0] has the physical offset `base`.

    With `max_count` the scan ends with LIMIT after that many records. `check_crc` is a `types.Crc`.
    """
    cdef Held held = Held(buffer)
    cdef Scan result = Scan()
    cdef Growing rows, hashes
    cdef QueueNames names
    cdef Levels levels
    cdef Py_ssize_t position = start
    cdef Py_ssize_t most = PY_SSIZE_T_MAX if max_count is None else max_count
    cdef int reason
    check_range(start, stop, held.size)
    read_levels(delay_levels_ms, &levels)
    memset(&rows, 0, sizeof(Growing))
    memset(&hashes, 0, sizeof(Growing))
    memset(&names, 0, sizeof(QueueNames))
    try:
        with nogil:
            reason = scan_range(
                held.data, &position, stop, base, check_crc, most, &levels, &rows, &hashes, &names
            )
        if reason < 0:
            raise MemoryError
        result.queues = queue_names(&names)
        result.count = rows.size // sizeof(ScanRow)
        result.row_block = block_of(&rows)
        result.hash_block = block_of(&hashes)
    finally:
        free(rows.data)
        free(hashes.data)
        free(levels.delays_ms)
        free_names(&names)
    result.end = position
    result.reason = SCAN_STOPS[reason]
    return result


cdef list queue_names(QueueNames *names):
    cdef list queues = []
    cdef QueueName *name
    cdef int32_t i
    for i in range(names.count):
        name = name_at(names, i)
        topic = decode_text(PyBytes_FromStringAndSize(<const char *>name.topic.at, name.topic.size))
        queues.append((topic, name.queue_id))
    return queues


cdef int scan_range(
    const uint8_t *data,
    Py_ssize_t *place,
    Py_ssize_t stop,
    int64_t base,
    int check_crc,
    Py_ssize_t most,
    const Levels *levels,
    Growing *rows,
    Growing *hashes,
    QueueNames *names,
) noexcept nogil:
    """Fill rows, hashes and names; a ScanStop, or -1 without memory."""
    cdef Parts parts
    cdef Facts facts
    cdef ScanRow *row
    cdef int reason
    cdef int32_t queue = -1
    cdef uint64_t hash
    while True:
        reason = record_at(data, place[0], stop, base, check_crc, &parts)
        if reason != WHOLE:
            return reason
        if <Py_ssize_t>(rows.size // sizeof(ScanRow)) >= most:
            return LIMIT
        if hashes.size // 4 > <size_t>INT32_MAX - 65536:
            return LIMIT  # a row cannot number more hashes
        facts_of(&parts, data + stop, &facts)
        if queue < 0 or not is_named(name_at(names, queue), parts.topic, parts.queue_id):
            hash = queue_hash(parts.topic, parts.queue_id)
            queue = find_queue(names, parts.topic, parts.queue_id, hash)
            if queue < 0:
                queue = add_queue(names, parts.topic, parts.queue_id, hash)
                if queue < 0:
                    return -1
        row = <ScanRow *>more(rows, sizeof(ScanRow))
        if row == NULL:
            return -1
        rows.size += sizeof(ScanRow)
        row.physical_offset = parts.physical_offset
        row.queue_offset = parts.queue_offset
        row.tags_code = tags_code_of(&parts, &facts, levels)
        row.store_timestamp = parts.store_timestamp
        row.size = parts.size
        row.queue = queue
        row.sys_flag = parts.sys_flag
        row.first_hash = <int32_t>(hashes.size // 4)
        row.hash_count = add_hashes(&parts, &facts, name_at(names, queue).prefix, hashes)
        if row.hash_count < 0:
            return -1
        row.marks = marks_of(&parts, &facts)
        place[0] += parts.head + parts.size


def count_entries(buffer, Py_ssize_t start, Py_ssize_t stop):
    """The position after the last valid consume queue entry of buffer[start:stop]."""
    cdef Held held = Held(buffer)
    cdef Py_ssize_t position = start
    check_range(start, stop, held.size)
    with nogil:
        while stop - position >= ENTRY_SIZE:
            if get64(held.data + position) < 0 or get32(held.data + position + 8) <= 0:
                break
            position += ENTRY_SIZE
    return position


def find_record(buffer, Py_ssize_t start, Py_ssize_t stop, int64_t base):
    """The first place in buffer[start:stop] where an intact record begins; -1 when there is none.

    A record with DLedger's head begins with it.
    """
    cdef Held held = Held(buffer)
    cdef Py_ssize_t found
    check_range(start, stop, held.size)
    with nogil:
        found = first_record(held.data, start, stop, base)
    return found


cdef Py_ssize_t first_record(const uint8_t *data, Py_ssize_t start, Py_ssize_t stop, int64_t base) noexcept nogil:
    cdef Parts parts
    cdef const uint8_t *at
    cdef Py_ssize_t place, head
    cdef Py_ssize_t magic_at = start + 4
    while magic_at + 4 <= stop:
        # Both magic codes begin with this byte.
        at = <const uint8_t *>memchr(data + magic_at, 0xDA, stop - magic_at - 3)
        if at == NULL:
            return -1
        place = at - data - 4
        magic_at = place + 5
        if at[1] == 0xA3 and at[2] == 0x20 and record_at(data, place, stop, base, True, &parts) == WHOLE:
            head = place - LEDGER_HEAD_SIZE
            if head < 0 or ledger_head_at(data + head, stop - head, wrapping_add(base, head)) != WHOLE:
                return place
            if head >= start:
                return head
            magic_at = place + parts.size + 4
    return -1


def written_end(buffer, Py_ssize_t start, Py_ssize_t stop):
    """The place after the last non-zero byte of buffer[start:stop]; `start` when all are zero."""
    cdef Held held = Held(buffer)
    cdef Py_ssize_t end = stop
    cdef uint64_t word
    check_range(start, stop, held.size)
    with nogil:
        while end - start >= 8:
            memcpy(&word, held.data + end - 8, 8)
            if word != 0:
                break
            end -= 8
        while end > start and held.data[end - 1] == 0:
            end -= 1
    return end
