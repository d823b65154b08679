# The fast path of dispatch: records into consume queues and the index, until one needs more than that.

cdef enum:
    DONE = 0
    AT_BLANK = 1
    AT_BAD = 2
    AT_QUEUE = 3
    AT_INDEX = 4
    INDEX_HEADER_SIZE = 40
    INDEX_SLOT_SIZE = 4
    INDEX_ENTRY_SIZE = 20
    PREFETCH_ROWS = 12


cdef struct Dispatched:
    int64_t physical_offset
    int64_t queue_offset
    int64_t tags_code
    int64_t store_timestamp
    int32_t size
    int32_t sys_flag
    int32_t marks
    int32_t queue  # an ordinal of its names; -1 for a queue it does not know
    const int32_t *hashes
    int32_t hash_count


cdef class FastDispatch:
    """Applies records to the queue ends and the index file that it was given. One thread at a time uses it."""

    cdef public bint lmq
    cdef public bint index_enabled
    cdef public bint all_slow
    cdef readonly tuple delay_levels_ms
    cdef public Py_ssize_t position
    cdef public Py_ssize_t row_index
    cdef public Py_ssize_t hash_index
    cdef public int64_t log_offset
    cdef public bint stopped_at_index
    cdef public bint is_owned
    cdef readonly int64_t last_physical_offset
    cdef readonly int64_t last_store_timestamp
    cdef readonly int64_t done_count
    cdef Levels levels
    cdef list topics  # owns the bytes that `names` points at
    cdef list ends    # QueueEnd or None, by ordinal
    cdef QueueNames names
    cdef int32_t last_queue
    cdef Held index
    cdef uint32_t slot_count
    cdef uint64_t slot_inverse
    cdef uint32_t index_count
    cdef Growing hashes
    cdef Scan known_scan   # whose queues `ordinals` translates into ours
    cdef int32_t *ordinals

    def __cinit__(self, *, delay_levels_ms=(), bint lmq=False):
        memset(&self.levels, 0, sizeof(Levels))
        memset(&self.names, 0, sizeof(QueueNames))
        memset(&self.hashes, 0, sizeof(Growing))
        self.ordinals = NULL
        self.delay_levels_ms = tuple(delay_levels_ms)
        read_levels(self.delay_levels_ms, &self.levels)
        self.lmq = lmq
        self.index_enabled = True
        self.last_physical_offset = -1
        self.last_store_timestamp = -1
        self.last_queue = -1
        self.topics = []
        self.ends = []

    def __dealloc__(self):
        free(self.levels.delays_ms)
        free(self.hashes.data)
        free(self.ordinals)
        free_names(&self.names)

    def set_queue(self, str topic not None, int32_t queue_id, QueueEnd end):
        """Set the end of a queue; with None its next record stops fast dispatch."""
        cdef bytes encoded = topic.encode("utf-8", "surrogatepass")
        cdef int32_t ordinal = self.ordinal_of(encoded, queue_id)
        cdef Span span
        if ordinal >= 0:
            self.ends[ordinal] = end
            return
        if end is None:
            return
        span = span_of(encoded)
        self.topics.append(encoded)
        self.ends.append(end)
        if add_queue(&self.names, span, queue_id, queue_hash(span, queue_id)) < 0:
            self.topics.pop()
            self.ends.pop()
            raise MemoryError

    def set_index(self, buffer, Py_ssize_t slot_count=0, Py_ssize_t index_count=0):
        """Set the index file in use and release the one before; with None the next key stops fast dispatch."""
        cdef Held held = None if buffer is None else hold_index(buffer, slot_count, index_count)
        if self.index is not None:
            self.index.drop()
        self.index = held
        self.slot_count = <uint32_t>slot_count
        self.slot_inverse = inverse_of(max(self.slot_count, <uint32_t>1))
        self.index_count = <uint32_t>index_count

    def own(self):
        """Take fast dispatch. See the plain twin."""
        self.is_owned = True

    def run(self, buffer, Py_ssize_t start, Py_ssize_t stop, int64_t base, bint at_index=False):
        """Apply the records of buffer[start:stop]; `position` is then that of the record it stopped at.

        `log_offset` and `stopped_at_index` move with it, so no record is dispatched twice after an exception.
        """
        cdef Py_buffer view
        cdef int reason
        PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
        try:
            check_range(start, stop, view.len)
            reason = self.run_range(<const uint8_t *>view.buf, start, stop, base, at_index)
            self.log_offset = base + self.position
            self.stopped_at_index = reason == AT_INDEX
        finally:
            PyBuffer_Release(&view)
        return DISPATCH_STOPS[reason]

    cdef int run_range(
        self, const uint8_t *data, Py_ssize_t start, Py_ssize_t stop, int64_t base, bint at_index
    ) except -1:
        cdef Parts parts
        cdef Facts facts
        cdef Dispatched record
        cdef int reason, stopped
        self.position = start
        while True:
            reason = record_at(data, self.position, stop, base, False, &parts)
            if reason != WHOLE:
                break
            facts_of(&parts, data + stop, &facts)
            self.describe(&parts, &facts, &record)
            stopped = self.dispatch(&record, at_index)
            if stopped != DONE:
                return stopped
            self.position += parts.head + parts.size
            at_index = False
        self.hash_index = 0
        if reason == LIMIT:
            return DONE
        return AT_BLANK if reason == BLANK else AT_BAD

    cdef int run_one(self, const Parts *parts, const Facts *facts, Py_ssize_t start) except -1:
        """As `run_range`, for one record that was just written, so that it need not be parsed."""
        cdef Dispatched record
        cdef int stopped
        self.position = start
        self.describe(parts, facts, &record)
        stopped = self.dispatch(&record, False)
        if stopped == DONE:
            self.position += parts.size
        return stopped

    cdef int describe(self, const Parts *parts, const Facts *facts, Dispatched *record) except -1:
        cdef uint32_t prefix
        record.physical_offset = parts.physical_offset
        record.queue_offset = parts.queue_offset
        record.tags_code = tags_code_of(parts, facts, &self.levels)
        record.store_timestamp = parts.store_timestamp
        record.size = parts.size
        record.sys_flag = parts.sys_flag
        record.marks = marks_of(parts, facts)
        record.queue = self.find(parts.topic, parts.queue_id)
        record.hash_count = 0
        if self.index_enabled:
            prefix = prefix_of(parts.topic) if record.queue < 0 else name_at(&self.names, record.queue).prefix
            self.hashes.size = 0
            record.hash_count = add_hashes(parts, facts, prefix, &self.hashes)
            if record.hash_count < 0:
                raise MemoryError
        record.hashes = <const int32_t *>self.hashes.data
        self.prefetch(record.hashes, record.hash_count)
        return 0

    cdef int32_t find(self, Span topic, int32_t queue_id) except -2:
        cdef int32_t ordinal = self.last_queue
        if ordinal >= 0 and is_named(name_at(&self.names, ordinal), topic, queue_id):
            return ordinal
        ordinal = find_queue(&self.names, topic, queue_id, queue_hash(topic, queue_id))
        if ordinal < 0 and not is_ascii(topic.at, topic.size):
            # A damaged topic is registered under its decoded text.
            text = decode_text(PyBytes_FromStringAndSize(<const char *>topic.at, topic.size))
            return self.ordinal_of(text.encode(), queue_id)
        self.last_queue = ordinal
        return ordinal

    cdef int32_t ordinal_of(self, bytes topic, int32_t queue_id) noexcept:
        cdef Span span = span_of(topic)
        return find_queue(&self.names, span, queue_id, queue_hash(span, queue_id))

    def apply(self, Scan scan not None, Py_ssize_t row=0, bint at_index=False):
        """Apply the records of a scan from this row on; `row_index` is then that of the row it stopped at."""
        cdef const ScanRow *rows = <const ScanRow *>scan.row_block.data
        cdef const int32_t *hashes = <const int32_t *>scan.hash_block.data
        cdef const ScanRow *found
        cdef const ScanRow *ahead
        cdef Dispatched record
        cdef int stopped
        if not (0 <= row <= scan.count):
            raise IndexError(f"row {row} of a scan of {scan.count} rows")
        self.know(scan)
        self.row_index = row
        while self.row_index < scan.count:
            found = &rows[self.row_index]
            if self.row_index + PREFETCH_ROWS < scan.count:
                ahead = &rows[self.row_index + PREFETCH_ROWS]
                self.prefetch(hashes + ahead.first_hash, ahead.hash_count)
            record.physical_offset = found.physical_offset
            record.queue_offset = found.queue_offset
            record.tags_code = found.tags_code
            record.store_timestamp = found.store_timestamp
            record.size = found.size
            record.sys_flag = found.sys_flag
            record.marks = found.marks
            record.hashes = hashes + found.first_hash
            record.hash_count = found.hash_count
            record.queue = self.ordinals[found.queue]
            if record.queue < 0:
                topic, queue_id = scan.queues[found.queue]
                record.queue = self.ordinals[found.queue] = self.ordinal_of((<str>topic).encode(), queue_id)
            stopped = self.dispatch(&record, at_index)
            if stopped != DONE:
                return DISPATCH_STOPS[stopped]
            at_index = False
            self.row_index += 1
        self.known_scan = None
        self.hash_index = 0
        return DISPATCH_STOPS[DONE]

    cdef int know(self, Scan scan) except -1:
        """Make room for the translation of a scan's queues; each is looked up at its first record."""
        cdef Py_ssize_t count = len(scan.queues)
        cdef int32_t *ordinals
        if scan is self.known_scan:
            return 0
        ordinals = <int32_t *>malloc(max(count, 1) * sizeof(int32_t))
        if ordinals == NULL:
            raise MemoryError
        memset(ordinals, 0xFF, count * sizeof(int32_t))
        free(self.ordinals)
        self.ordinals = ordinals
        self.known_scan = scan
        return 0

    cdef inline void prefetch(self, const int32_t *hashes, int32_t count) noexcept:
        """Prefetch the slots of hashes that are needed soon: they are scattered over the file."""
        cdef int32_t i
        if self.index is not None and self.index_enabled:
            for i in range(min(count, 8)):
                prefetch_write(slot_of(self.index.data, hashes[i], self.slot_count, self.slot_inverse))

    cdef int dispatch(self, const Dispatched *record, bint at_index) except -1:
        cdef int kind = record.sys_flag & TRANSACTION_MASK
        if not at_index:
            self.hash_index = 0
            if (kind == 0 or kind == 8) and not self.queue_step(record):
                return AT_QUEUE
        if self.index_enabled and not self.index_step(record):
            return AT_INDEX
        self.hash_index = 0
        self.last_physical_offset = record.physical_offset
        self.last_store_timestamp = record.store_timestamp
        self.done_count += 1
        return DONE

    cdef bint queue_step(self, const Dispatched *record) except -1:
        cdef QueueEnd end
        cdef Tail tail
        cdef int64_t record_end = wrapping_add(record.physical_offset, record.size)
        cdef uint8_t *entry
        if record.queue < 0 or self.all_slow or record.marks & MARK_INNER_BATCH:
            return False
        if self.lmq and record.marks & MARK_MULTI_DISPATCH:
            return False
        end = <QueueEnd>self.ends[record.queue]
        if end is None:
            return False
        if record_end <= end.max_physical_offset:
            return True
        tail = end.tail
        if tail is None or tail.data == NULL or tail.view.readonly or tail.allocated - tail.at < ENTRY_SIZE:
            return False
        if record.queue_offset < 0 or entry_offset(record.queue_offset) != tail.base + tail.at:
            return False
        entry = tail.data + tail.at
        put64(entry, record.physical_offset)
        put32(entry + 8, record.size)
        put64(entry + 12, record.tags_code)
        write_barrier()
        tail.at += ENTRY_SIZE
        end.max_physical_offset = record_end
        end.record_bytes += record.size
        return True

    cdef bint index_step(self, const Dispatched *record) noexcept:
        if self.hash_index >= record.hash_count:
            return True
        if self.index is None:
            return False
        if record.physical_offset < get64(self.index.data + 24):
            return True
        while self.hash_index < record.hash_count:
            if not insert(
                self.index.data,
                self.slot_count,
                self.slot_inverse,
                self.index_count,
                record.hashes[self.hash_index],
                record.physical_offset,
                record.store_timestamp,
            ):
                return False
            self.hash_index += 1
        return True


cdef inline Span span_of(bytes text) noexcept:
    cdef Span span
    span.at = <const uint8_t *>PyBytes_AS_STRING(text)
    span.size = <int32_t>PyBytes_GET_SIZE(text)
    return span


cdef Held hold_index(buffer, Py_ssize_t slot_count, Py_ssize_t index_count):
    cdef Held held = Held(buffer)
    needed = INDEX_HEADER_SIZE + INDEX_SLOT_SIZE * slot_count + INDEX_ENTRY_SIZE * index_count
    if (
        not (1 <= slot_count <= INT32_MAX)
        or not (1 <= index_count <= INT32_MAX)
        or held.size < needed
        or held.view.readonly
    ):
        raise FormatError(
            f"an index file of {slot_count} slots and {index_count} entries needs {needed} writable bytes, "
            f"and there are {held.size}"
        )
    return held


def index_insert(
    buffer,
    Py_ssize_t slot_count,
    Py_ssize_t index_count,
    int64_t hash,
    int64_t physical_offset,
    int64_t store_timestamp,
):
    """Add one key to an index file; False when it is full. All state is in the file's header."""
    cdef Held held
    if not (0 <= hash <= INT32_MAX):
        raise ValueError(f"not an index hash: {hash}")
    held = hold_index(buffer, slot_count, index_count)
    return insert(
        held.data,
        <uint32_t>slot_count,
        inverse_of(<uint32_t>slot_count),
        <uint32_t>index_count,
        <int32_t>hash,
        physical_offset,
        store_timestamp,
    )


cdef inline int32_t seconds_since(int64_t begin_time, int64_t store_timestamp) noexcept nogil:
    """The seconds of an entry since the file's begin; 0 before it, or if the file has no begin yet."""
    if begin_time <= 0 or store_timestamp <= begin_time:
        return 0
    return <int32_t>min((store_timestamp - begin_time) // 1000, <int64_t>INT32_MAX)


cdef inline uint8_t *slot_of(uint8_t *data, int32_t hash, uint32_t slot_count, uint64_t inverse) noexcept nogil:
    return data + INDEX_HEADER_SIZE + <size_t>INDEX_SLOT_SIZE * remainder_of(<uint32_t>hash, inverse, slot_count)


cdef inline bint insert(
    uint8_t *data,
    uint32_t slot_count,
    uint64_t slot_inverse,
    uint32_t index_count,
    int32_t hash,
    int64_t physical_offset,
    int64_t store_timestamp,
) noexcept:
    cdef int64_t begin_time = get64(data)
    cdef int32_t count = get32(data + 36)
    cdef int32_t previous
    cdef uint8_t *slot = slot_of(data, hash, slot_count, slot_inverse)
    cdef uint8_t *entry
    if count < 1:
        count = 1  # a file without keys may hold 0
    if <uint32_t>count >= index_count:
        return False
    previous = get32(slot)
    if previous < 0 or previous > count:
        previous = 0
    entry = data + INDEX_HEADER_SIZE + <size_t>INDEX_SLOT_SIZE * slot_count + <size_t>INDEX_ENTRY_SIZE * count
    put32(entry, hash)
    put64(entry + 4, physical_offset)
    put32(entry + 12, seconds_since(begin_time, store_timestamp))
    put32(entry + 16, previous)
    # The entry before the slot that refers to it: a concurrent reader never follows a slot to a missing entry.
    write_barrier()
    put32(slot, count)
    if count == 1:
        put64(data, store_timestamp)
        put64(data + 16, physical_offset)
    if previous == 0:
        put32(data + 32, <int32_t>(<uint32_t>get32(data + 32) + 1))
    put64(data + 8, store_timestamp)
    put64(data + 24, physical_offset)
    write_barrier()
    put32(data + 36, count + 1)
    return True
